"""The shapes of requests and answers about alerts."""

from __future__ import annotations

from widerow.alerts.alert import SEVERITIES, STATES
from widerow.alerts.rule import AGGREGATES, KINDS, LIMITS
from widerow.server.shapes import CURSOR, FLAG, MAYBE_NUMBER, MAYBE_WHOLE, NUMBER, TEXT, TIME, WHOLE, Schema, array, of, ref

_STATE: Schema = {"type": "string", "enum": list(STATES)}
_SEVERITY: Schema = {"type": "string", "enum": list(SEVERITIES)}
_ACKNOWLEDGED: Schema = {**of({"by": TEXT, "at": TIME, "note": TEXT}), "type": ["object", "null"]}

_ALERT = of(
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
_EVENT = of(
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
_RULE_FIELDS: dict[str, Schema] = {
    "kind": {"type": "string", "enum": list(KINDS)},
    "metric": {**TEXT, "description": "A name means all its variants, each apart."},
    "aggregate": {"type": "string", "enum": list(AGGREGATES), "default": "mean"},
    "window": {**TEXT, "description": "Whole minutes, up to 60m; default 1m, of rate_of_change 5m."},
    "above": NUMBER,
    "below": NUMBER,
    "clear": {**NUMBER, "description": "An alert that fires is over there; default: at the threshold."},
    "after": {**TEXT, "description": "offline: no data for this long."},
    "limit": {"type": "string", "enum": list(LIMITS)},
    "percent": {**NUMBER, "description": "quota: of the limit."},
    "for": {**TEXT, "description": "How long it must be so before the alert fires.", "default": "0s"},
    "device": TEXT,
    "match": of({"type": TEXT, "location": TEXT, "tags": {"type": "object", "additionalProperties": TEXT}}, ()),
    "fleet": {**FLAG, "description": "true: every device of the tenant, each by itself."},
    "severity": _SEVERITY,
    "webhooks": array(TEXT),
    "summary": TEXT,
}
_SILENCE_FIELDS: dict[str, Schema] = {
    "name": {**TEXT, "description": "The rule's; empty: all."},
    "device": {**TEXT, "description": "Empty: all."},
    "comment": TEXT,
}

ALERT_SCHEMAS: dict[str, Schema] = {
    "Alert": _ALERT,
    "Alerts": of({"alerts": array(ref("Alert"))}),
    "AlertHistory": of({"events": array(_EVENT), "next": CURSOR}),
    "AlertNote": of({"note": TEXT}, ()),
    "AlertRuleForm": of({"name": TEXT, **_RULE_FIELDS}, ("kind",)),
    "AlertRule": of(
        {
            "name": TEXT,
            **_RULE_FIELDS,
            "tenant": TEXT,
            "source": {"type": "string", "enum": ["toml", "http"]},
            "readonly": {**FLAG, "description": "Whether it cannot be changed with this token."},
            "revision": WHOLE,
        },
        ("name", "kind", "tenant", "source", "readonly", "revision"),
    ),
    "AlertRules": of({"rules": array(ref("AlertRule"))}),
    "AlertPreview": of(
        {
            "device": {**TEXT, "description": "The one that `points` are of."},
            "devices": {**WHOLE, "description": "How many were looked at."},
            "threshold": NUMBER,
            "points": array({"type": "array", "description": "A time and the figure that is judged."}),
            "events": array(of({"time": TIME, "device": TEXT, "state": _STATE, "value": NUMBER})),
            "would_notify": {**WHOLE, "description": "Notices of these devices in the day."},
        }
    ),
    "AlertSilence": of({**_SILENCE_FIELDS, "until": {"type": ["string", "integer"]}}, ("until",)),
    "AlertSilenceShown": of({"id": TEXT, **_SILENCE_FIELDS, "until": TIME, "by": TEXT, "created": TIME}),
    "AlertSilences": of({"silences": array(ref("AlertSilenceShown"))}),
    "AlertWebhookForm": of({"url": TEXT, "secret": {**TEXT, "writeOnly": True}}, ("url",)),
    "AlertWebhook": of({"name": TEXT, "url": TEXT, "has_secret": FLAG, "readonly": FLAG, "revision": WHOLE}),
    "AlertWebhooks": of({"webhooks": array(ref("AlertWebhook"))}),
    "AlertTest": of({"delivered": FLAG, "status": MAYBE_WHOLE, "reason": TEXT}),
}
