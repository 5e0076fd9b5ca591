"""Routes about alerts: what fires now, and what did.

Rule: a tenant sees its own alerts. An operator that names no tenant sees those of all, and its own: those of the process.
"""

from __future__ import annotations

import re
from typing import Any

from widerow.alerts.alert import FIRING, OPERATOR, PENDING, shown
from widerow.alerts.store import Event
from widerow.model.errors import Rejected
from widerow.model.times import format_time
from widerow.model.token import Role
from widerow.server.call import Answer, Call, json_answer, list_answer
from widerow.server.devices import page_size

MOST_LISTED = 1_000
_ID = re.compile(r"[0-9]{16}-[0-9a-f]{8}")


def list_alerts(call: Call) -> Answer:
    wanted = call.query.texts("state") or [FIRING, PENDING]
    name = call.tenant_name()
    if name is not None:
        call.auth.existing(name)
    alerts = [alert for alert in call.service.alerts.current(name) if alert.state in wanted]
    silenced = call.service.alerts.silenced
    return json_answer({"alerts": [shown(alert, silenced=silenced(alert)) for alert in alerts[:MOST_LISTED]]})


def history(call: Call) -> Answer:
    name = call.tenant_name()
    span, limit, after = call.span("-1d"), page_size(call), call.query.text("after") or ""
    if after and not _ID.fullmatch(after):
        raise Rejected("after: give the cursor of an earlier answer", code="cursor")
    start_us = span.start_us
    if call.who.role is not Role.OPERATOR:  # one of that name that was deleted was somebody else's
        start_us = max(start_us, call.tenant().created_us)
    stop_us = span.stop_us + 1 if call.query.text("end") is None else span.stop_us
    found: list[dict[str, Any]] = []
    store = call.service.alerts.store
    for event_id, event in store.history(name or OPERATOR, start_us=start_us, stop_us=stop_us, before=after):
        if len(found) == limit:
            return list_answer(call, "events", found, found[-1]["id"])
        found.append(_shown(event_id, event))
    return list_answer(call, "events", found)


def _shown(event_id: str, event: Event) -> dict[str, Any]:
    return {
        "id": event_id,
        "time": format_time(int(event_id[:16])),
        "name": event.name,
        "tenant": event.tenant,
        "device": event.device,
        "metric": event.metric,
        "process": event.process,
        "state": event.state,
        "value": event.value,
        "threshold": event.threshold,
        "severity": event.severity,
        "summary": event.summary,
    }
