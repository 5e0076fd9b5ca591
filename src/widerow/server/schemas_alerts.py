"""The shapes of requests and answers about alerts."""

from __future__ import annotations

from widerow.alerts.alert import SEVERITIES, STATES
from widerow.server.shapes import CURSOR, FLAG, MAYBE_NUMBER, TEXT, TIME, Schema, array, of

_STATE: Schema = {"type": "string", "enum": list(STATES)}
_SEVERITY: Schema = {"type": "string", "enum": list(SEVERITIES)}
_ACKNOWLEDGED: Schema = {**of({"by": TEXT, "at": TIME, "note": TEXT}), "type": ["object", "null"]}

ALERT_SCHEMAS: dict[str, Schema] = {
    "Alerts": of(
        {
            "alerts": array(
                of(
                    {
                        "id": TEXT,
                        "name": {**TEXT, "description": "The rule's, or that of a built-in alert."},
                        "state": _STATE,
                        "since": {**TIME, "description": "When this state began."},
                        "value": MAYBE_NUMBER,
                        "threshold": MAYBE_NUMBER,
                        "unit": TEXT,
                        "tenant": {**TEXT, "description": "Empty: the alert is the operator's."},
                        "device": TEXT,
                        "metric": TEXT,
                        "process": {**TEXT, "description": "Of built-in alerts, where several processes share a store."},
                        "severity": _SEVERITY,
                        "summary": TEXT,
                        "acknowledged": _ACKNOWLEDGED,
                        "silenced": FLAG,
                        "source": {"type": "string", "enum": ["builtin", "toml", "http"]},
                    }
                )
            )
        }
    ),
    "AlertHistory": of(
        {
            "events": array(
                of(
                    {
                        "id": TEXT,
                        "time": TIME,
                        "name": TEXT,
                        "tenant": TEXT,
                        "device": TEXT,
                        "metric": TEXT,
                        "process": TEXT,
                        "state": _STATE,
                        "value": MAYBE_NUMBER,
                        "threshold": MAYBE_NUMBER,
                        "severity": _SEVERITY,
                        "summary": TEXT,
                    }
                )
            ),
            "next": CURSOR,
        }
    ),
}
