"""The routes about alerts."""

from __future__ import annotations

from widerow.alerts.alert import STATES
from widerow.server import alerts
from widerow.server.auth import READERS
from widerow.server.call import Param
from widerow.server.parameters import AFTER, END, TENANT
from widerow.server.replies import json_form
from widerow.server.shapes import TEXT
from widerow.server.table import Reply, Route

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
)
