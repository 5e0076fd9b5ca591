"""The shapes of what the dashboard asks: the overview, and devices by what they do."""

from __future__ import annotations

from widerow.server.schemas_alerts import ALERT_SCHEMAS
from widerow.server.shapes import FLAG, MAYBE_NUMBER, MAYBE_TIME, MAYBE_WHOLE, NUMBER, TEXT, TIME, WHOLE, Schema, array, of

_MINUTES: Schema = {
    **array(MAYBE_NUMBER, minItems=60, maxItems=60),
    "description": "The last sixty minutes, the oldest first; null: nothing is known of that minute.",
}
_MAYBE_NAME: Schema = {"type": ["string", "null"]}
_LINE = of(
    {
        "severity": {"type": "string", "enum": ["critical", "warning", "info"]},
        "text": TEXT,
        "since": MAYBE_TIME,
        "view": {"type": "string", "enum": ["alerts", "device", "devices", "dead-letters", "system", "tenant"]},
        "tenant": _MAYBE_NAME,
        "device": _MAYBE_NAME,
    }
)
_FIGURE = of(
    {
        "now": {**MAYBE_NUMBER, "description": "Of the last ten seconds; null: nothing was measured."},
        "unit": TEXT,
        "minutes": _MINUTES,
        "limit": {**MAYBE_NUMBER, "description": "From where on it is worth a look."},
    }
)
_STAGE = of(
    {
        "name": {"type": "string", "enum": ["decode", "admit", "commit", "sync", "rollup", "mqtt", "kafka"]},
        "state": {"type": "string", "enum": ["ok", "slow", "failed", "unused"]},
        "detail": TEXT,
        "value": {**MAYBE_NUMBER, "description": "Seconds that it takes, or is behind."},
    }
)
_TENANT = of(
    {
        "name": TEXT,
        "display_name": TEXT,
        "reports_per_s": NUMBER,
        "refused_per_s": NUMBER,
        "devices": MAYBE_WHOLE,
        "share": {**MAYBE_NUMBER, "description": "Its reports a second, by its limit `writes_per_s`."},
        "minutes": _MINUTES,
    }
)
_ALERT: Schema = ALERT_SCHEMAS["Alerts"]["properties"]["alerts"]["items"]
_MAYBE_OBJECT: Schema = {"type": ["object", "null"]}

ACTIVITY: Schema = {
    **of(
        {
            "last_seen": {**MAYBE_TIME, "description": "Null: it never reported."},
            "reports_per_s": NUMBER,
            "online": FLAG,
            "hot": FLAG,
        }
    ),
    "description": "In a list with `activity=true`.",
}

LIVE_SCHEMAS: dict[str, Schema] = {
    "DeviceCounts": of(
        {
            "total": WHOLE,
            "online": WHOLE,
            "stale": WHOLE,
            "hot": WHOLE,
            "types": {**array(of({"type": TEXT, "count": WHOLE}), maxItems=100), "description": "The most frequent first."},
            "locations": array(of({"location": TEXT, "count": WHOLE}), maxItems=100),
        }
    ),
    "Overview": of(
        {
            "role": {**TEXT, "description": "The role of the token that asks."},
            "time": TIME,
            "version": TEXT,
            "started": TIME,
            "scope": {**TEXT, "description": "The tenant, or `all`."},
            "headline": {
                **array(_LINE, maxItems=5),
                "description": "Troubles and news, the worst first.",
            },
            "minutes": {**array(TIME, minItems=60, maxItems=60), "description": "When the minutes of all figures begin."},
            "figures": {"type": "object", "additionalProperties": _FIGURE},
            "devices": of({"total": WHOLE, "online": WHOLE, "stale": WHOLE}),
            "refusals": array(of({"code": TEXT, "minutes": _MINUTES, "count": WHOLE}), maxItems=8),
            "stages": {**array(_STAGE), "description": "For operators."},
            "tenants": {**array(_TENANT, maxItems=10), "description": "The busiest."},
            "store": {**_MAYBE_OBJECT, "description": "As in `GET /v1/status`; for operators."},
            "rollups": {**_MAYBE_OBJECT, "description": "As in `GET /v1/status`; for operators."},
            "alerts": array(_ALERT, maxItems=20),
        }
    ),
}
