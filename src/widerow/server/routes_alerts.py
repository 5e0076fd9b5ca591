"""The routes about alerts."""

from __future__ import annotations

from widerow.alerts.alert import STATES
from widerow.server import alert_settings, alerts
from widerow.server.auth import ADMINS, READERS
from widerow.server.call import Param
from widerow.server.parameters import AFTER, END, IF_MATCH, TENANT
from widerow.server.replies import DONE, ETAG, entity, json_form
from widerow.server.shapes import TEXT
from widerow.server.table import Body, Reply, Route

_STATE = Param(
    name="state",
    doc="Alerts in this state; given more than once, in any of them. Otherwise those that are pending or firing. Resolved "
    "alerts are those of the last day.",
    schema={"type": "string", "enum": list(STATES)},
    repeats=True,
)
_START = Param(
    name="start", doc="RFC 3339, epoch milliseconds, or relative: `-7d`. Inclusive.", schema={**TEXT, "default": "-1d"}
)
_EVENTS = Param(
    name="limit", doc="Events on a page.", schema={"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
)
_RULE = Param(name="name", doc="The rule's name.", place="path")
_WEBHOOK = Param(name="name", doc="The webhook's name.", place="path")
_ALERT = Param(name="id", doc="The alert's id, as listed.", place="path")
_SILENCE = Param(name="id", doc="The silence's id, as listed.", place="path")
_RULE_BODY = Body(
    doc="The rule. `docs/guides/alerts.md` explains the keys of each kind.",
    forms=json_form("AlertRuleForm"),
    example={
        "kind": "threshold",
        "metric": "temperature",
        "above": 80,
        "clear": 70,
        "for": "2m",
        "match": {"type": "press"},
        "severity": "critical",
    },
)

ALERTS: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/v1/alerts",
        handler=alerts.list_alerts,
        roles=READERS,
        group="Alerts",
        summary="Alerts that are pending or firing",
        doc="Of the tenant, the newest first, 1,000 at most. An operator that names no tenant gets those of all, and the "
        "built-in alerts of the processes.",
        parameters=(_STATE, TENANT),
        replies={200: Reply(doc="The alerts.", forms=json_form("Alerts"))},
    ),
    Route(
        method="GET",
        path="/v1/alerts/history",
        handler=alerts.history,
        roles=READERS,
        group="Alerts",
        summary="When alerts fired and were resolved",
        doc="The newest first.",
        parameters=(_START, END, _EVENTS, AFTER, TENANT),
        replies={200: Reply(doc="The events.", forms=json_form("AlertHistory"))},
    ),
    Route(
        method="GET",
        path="/v1/alerts/rules",
        handler=alert_settings.list_rules,
        roles=READERS,
        group="Alerts",
        summary="The rules of a tenant",
        doc="An operator that names no tenant gets those of all.",
        parameters=(TENANT,),
        replies={200: Reply(doc="The rules.", forms=json_form("AlertRules"))},
    ),
    Route(
        method="PUT",
        path="/v1/alerts/rules/{name}",
        handler=alert_settings.put_rule,
        roles=ADMINS,
        group="Alerts",
        summary="Set a rule",
        doc="A rule of that name is replaced. Rules of the operator's file cannot be set.",
        parameters=(_RULE, TENANT, IF_MATCH),
        body=_RULE_BODY,
        replies=entity("AlertRule"),
        errors=(412, 413, 415),
    ),
    Route(
        method="DELETE",
        path="/v1/alerts/rules/{name}",
        handler=alert_settings.delete_rule,
        roles=ADMINS,
        group="Alerts",
        summary="Remove a rule",
        doc="Its alerts go with it, and nobody is told.",
        parameters=(_RULE, TENANT),
        replies=DONE,
    ),
    Route(
        method="POST",
        path="/v1/alerts/rules/preview",
        handler=alert_settings.preview_rule,
        long=True,
        roles=READERS,
        group="Alerts",
        summary="Try a rule out on the last day",
        doc="Of a rule that watches several devices the first 20 are looked at. `points` are of the device with the most "
        "events. Nothing is stored, and nobody is told.",
        parameters=(TENANT,),
        body=_RULE_BODY,
        replies={200: Reply(doc="The figures and the events.", forms=json_form("AlertPreview"))},
        errors=(413, 415),
    ),
    Route(
        method="POST",
        path="/v1/alerts/{id}/acknowledge",
        handler=alert_settings.acknowledge,
        roles=ADMINS,
        group="Alerts",
        summary="Say that somebody sees to an alert",
        parameters=(_ALERT, TENANT),
        body=Body(doc="A note.", forms=json_form("AlertNote"), example={"note": "a fitter is on the way"}),
        replies={200: Reply(doc="The alert.", forms=json_form("Alert"))},
        errors=(413, 415),
    ),
    Route(
        method="GET",
        path="/v1/alerts/silences",
        handler=alert_settings.list_silences,
        roles=READERS,
        group="Alerts",
        summary="Silences that are not over",
        parameters=(TENANT,),
        replies={200: Reply(doc="The silences.", forms=json_form("AlertSilences"))},
    ),
    Route(
        method="POST",
        path="/v1/alerts/silences",
        handler=alert_settings.create_silence,
        roles=ADMINS,
        group="Alerts",
        summary="Tell nobody of some alerts for a while",
        doc="Of a rule (`name`), of a device, of both, or of everything, for 30 days at most. An alert that still fires "
        "when the silence ends is told then.",
        parameters=(TENANT,),
        body=Body(
            doc="The alerts, and until when.",
            forms=json_form("AlertSilence"),
            example={"device": "press-000017", "until": "+2h", "comment": "maintenance"},
        ),
        replies={201: Reply(doc="The silence.", forms=json_form("AlertSilenceShown"))},
        errors=(413, 415),
    ),
    Route(
        method="DELETE",
        path="/v1/alerts/silences/{id}",
        handler=alert_settings.delete_silence,
        roles=ADMINS,
        group="Alerts",
        summary="End a silence",
        parameters=(_SILENCE, TENANT),
        replies=DONE,
    ),
    Route(
        method="GET",
        path="/v1/alerts/webhooks",
        handler=alert_settings.list_webhooks,
        roles=ADMINS,
        group="Alerts",
        summary="Webhooks, without their secrets",
        parameters=(TENANT,),
        replies={200: Reply(doc="The webhooks.", forms=json_form("AlertWebhooks"))},
    ),
    Route(
        method="PUT",
        path="/v1/alerts/webhooks/{name}",
        handler=alert_settings.put_webhook,
        roles=ADMINS,
        group="Alerts",
        summary="Set a webhook",
        doc="Without a `secret` the one that it has stays.",
        parameters=(_WEBHOOK, TENANT, IF_MATCH),
        body=Body(
            doc="Its address, and the secret that signs notices.",
            forms=json_form("AlertWebhookForm"),
            example={"url": "https://hooks.example.com/widerow", "secret": "a long random text"},
        ),
        replies={200: Reply(doc="The webhook.", forms=json_form("AlertWebhook"), headers=ETAG)},
        errors=(412, 413, 415),
    ),
    Route(
        method="DELETE",
        path="/v1/alerts/webhooks/{name}",
        handler=alert_settings.delete_webhook,
        roles=ADMINS,
        group="Alerts",
        summary="Remove a webhook",
        parameters=(_WEBHOOK, TENANT),
        replies=DONE,
        errors=(409,),
    ),
    Route(
        method="POST",
        path="/v1/alerts/webhooks/{name}/test",
        handler=alert_settings.test_webhook,
        roles=ADMINS,
        group="Alerts",
        summary="Send a webhook a notice that says that it is a test",
        doc="One attempt, 10 seconds at most.",
        parameters=(_WEBHOOK, TENANT),
        replies={200: Reply(doc="The result of the attempt.", forms=json_form("AlertTest"))},
    ),
)
