"""The one place where what administrators do is written down; and the route that shows it.

Every route that only admins and operators may use, and that is no GET, passes through `answered`. What is written down is
who, which route, about what, the outcome, and what was asked for; a handler may say it better by its call's `trail`.
What was refused before the handler was asked (no token, the wrong role) is not an action, and is not here.
"""

from __future__ import annotations

from typing import Any

from widerow.catalog.audit import EVERYTHING, MOST_TEXT, Action, Recorded, is_id, shown_changes
from widerow.model.errors import Rejected, WiderowError
from widerow.model.times import format_time
from widerow.model.token import Role
from widerow.server.call import Answer, Call, list_answer
from widerow.server.devices import page_size
from widerow.server.failures import told
from widerow.server.table import Handler, Route

_MOST_READ = 1 << 20
"""Bytes of a body that is looked into."""


def answered(route: Route, handler: Handler, call: Call) -> Answer:
    """What the handler answers. What it changed is recorded by then."""
    if not route.changes:
        return handler(call)
    try:
        answer = handler(call)
    except WiderowError as error:
        _record(route, call, error.code, None, str(told(error)))
        raise
    except BaseException:
        _record(route, call, "internal", None, "it failed unexpectedly")
        raise
    _record(route, call, "done", answer)
    return answer


def _record(route: Route, call: Call, outcome: str, answer: Answer | None, reason: str = "") -> None:
    trail = call.trail
    if trail.changes_nothing:
        return
    tenant = trail.tenant or call.path.get("tenant") or call.who.tenant or call.query.text("tenant") or ""
    about = trail.about or " ".join(value for name, value in call.path.items() if name != "tenant")
    etag = answer.headers.get("ETag", "").strip('"') if answer else ""
    call.service.audit.record(
        Action(
            by=f"token {call.who.token}" if call.who.token else call.front.owner,
            role=call.who.role.value,
            what=route.id,
            outcome=outcome,
            tenant=tenant[:MOST_TEXT],
            about=about[:MOST_TEXT],
            command=call.headers.get("widerow-command", "")[:MOST_TEXT],
            changes=tuple((trail.changes if trail.changes is not None else _asked(call)) + trail.notes),
            before=trail.before,
            after=int(etag) if etag.isdigit() else None,
            reason=reason[:MOST_TEXT],
        )
    )


def _asked(call: Call) -> list[str]:
    """What was asked for: the parameters and the body."""
    given: dict[str, Any] = {name: value for name, value in call.query.given().items() if name != "tenant"}
    if len(call.body) > _MOST_READ:
        return [*shown_changes(given), f"a body of {len(call.body)} bytes"]
    try:
        body = call.json() if call.body else {}
    except WiderowError:
        body = {}
    return shown_changes(given | body if isinstance(body, dict) else given)


def list_actions(call: Call) -> Answer:
    """Of the tenant; for an operator who names none, of all."""
    name = call.tenant_name()
    if name is None and call.who.role is not Role.OPERATOR:
        raise Rejected("which tenant? Give ?tenant=NAME", code="tenant")
    span, limit, after = call.span("-7d"), page_size(call), call.query.text("after") or ""
    if after and not is_id(after):
        raise Rejected("after: give the cursor of an earlier answer", code="cursor")
    start_us = span.start_us
    if call.who.role is not Role.OPERATOR:  # one of that name that was deleted was somebody else's
        start_us = max(start_us, call.tenant().created_us)
    found: list[Recorded] = []
    stop_us = span.stop_us + 1 if call.query.text("end") is None else span.stop_us
    for recorded in call.service.audit.newest(name or EVERYTHING, start_us=start_us, stop_us=stop_us, before=after):
        if len(found) == limit:
            return list_answer(call, "actions", [_shown(r) for r in found], found[-1].id)
        found.append(recorded)
    return list_answer(call, "actions", [_shown(r) for r in found])


def _shown(recorded: Recorded) -> dict[str, Any]:
    action = recorded.action
    return {
        "id": recorded.id,
        "time": format_time(recorded.time_us),
        "tenant": action.tenant,
        "by": action.by,
        "role": action.role,
        "what": action.what,
        "about": action.about,
        "command": action.command,
        "changes": list(action.changes),
        "before": action.before,
        "after": action.after,
        "outcome": action.outcome,
        "reason": action.reason,
    }
