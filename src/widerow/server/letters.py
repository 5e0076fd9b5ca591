"""Routes about dead letters: what was refused, and sending it again.

Rule: one call does a bounded piece of work and says where to go on, so nothing long runs in a request.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from time import monotonic
from typing import Any

from widerow.catalog.forms import shown_time
from widerow.ingest.replay import MOST_AT_ONCE, Replayed
from widerow.model.errors import Rejected, WiderowError
from widerow.model.times import TimeSpan, format_time, parse_time
from widerow.pipeline.letter import Filed, is_id
from widerow.server.admin import text_in, time_in
from widerow.server.call import Answer, Call, json_answer, list_answer
from widerow.server.devices import page_size

_LONGEST_S = 10.0
"""A call that replays or removes letters ends after this time."""
_SETTLE_S = 1.0
"""How long a question waits for what is being filed."""


def list_letters(call: Call) -> Answer:
    tenant, limit = call.tenant().name, page_size(call)
    call.service.dead_letters.settle(_SETTLE_S)
    found: list[Filed] = []
    for filed in _matching(call, tenant, call.query.text("code") or "", before=_cursor(call.query.text("after"))):
        if len(found) == limit:
            return list_answer(call, "letters", [_shown(f) for f in found], found[-1].id)
        found.append(filed)
    return list_answer(call, "letters", [_shown(f) for f in found])


def get_letter(call: Call) -> Answer:
    tenant, letter_id = call.tenant().name, call.path["id"]
    call.service.dead_letters.settle(_SETTLE_S)
    filed = call.service.dead_letters.store.get(tenant, letter_id)
    return json_answer(_shown(filed) | {"positions": filed.letter.positions, **_body(filed.body)})


def replay(call: Call) -> Answer:
    form = call.form(("ids", "code", "since", "until", "all", "conflicts", "after"))
    tenant, service = call.tenant(), call.service
    service.dead_letters.settle(_SETTLE_S)
    after, conflicts, left = _cursor(text_in(form, "after", "")), form.get("conflicts", False), list[str]()
    if not isinstance(conflicts, bool):
        raise Rejected("conflicts: give true or false", code="field")
    if "ids" in form:
        ids = sorted(letter_id for letter_id in _ids(form) if letter_id > after)
    else:
        code, start_us = text_in(form, "code", ""), time_in(call, form, "since", 0)
        stop_us = time_in(call, form, "until", 0) or None
        _check_meant(code or start_us or stop_us, everything=form.get("all", False))
        ids, left = service.replay.oldest(
            tenant.name, code=code, start_us=start_us, stop_us=stop_us, after=after, conflicts=conflicts
        )
    done: list[Replayed] = []
    try:
        done.extend(service.replay.all(tenant, ids, within_s=_LONGEST_S))
    except WiderowError:
        if not done:
            raise
    call.trail.notes = [f"{len(done)} letters sent again"]
    more = done and (len(done) < len(ids) or ("ids" not in form and len(ids) == MOST_AT_ONCE))
    following = done[-1].id if more else None
    return json_answer(
        {
            "stored": sum(one.outcome == "stored" for one in done),
            "refused": sum(one.outcome == "refused" for one in done),
            "reports": sum(one.accepted for one in done),
            "letters": [_result(one) for one in done],
            "conflicts": sum(following is None or letter_id <= following for letter_id in left),
            "next": following,
        }
    )


def delete_letters(call: Call) -> Answer:
    """By their ids, or by what they have in common. A call that runs long stops, and says so."""
    tenant, letters = call.tenant().name, call.service.dead_letters
    letters.settle(_SETTLE_S)
    ids, code = call.query.texts("id"), call.query.text("code") or ""
    since, until = call.query.text("since"), call.query.text("until")
    _check_meant(ids or code or since or until, everything=call.query.text("all") == "true")
    found = (letters.store.find(tenant, i) for i in dict.fromkeys(ids)) if ids else _matching(call, tenant, code)
    deadline, deleted = monotonic() + _LONGEST_S, 0
    if not ids and not code:  # whole stretches of time go at once
        deleted = sum(1 for _ in found)
        start_us, stop_us = _span(call)
        letters.store.remove_all(tenant, start_us=start_us, stop_us=stop_us)
        return _deleted(call, deleted)
    for filed in found:
        if filed is not None:
            letters.store.remove(tenant, filed)
            deleted += 1
        if monotonic() > deadline:
            return _deleted(call, deleted, more=True)
    return _deleted(call, deleted)


def _deleted(call: Call, deleted: int, *, more: bool = False) -> Answer:
    call.trail.notes = [f"{deleted} letters removed"]
    return json_answer({"deleted": deleted, "more": more})


def _matching(call: Call, tenant: str, code: str, before: str = "") -> Iterator[Filed]:
    start_us, stop_us = _span(call)
    for filed in call.service.dead_letters.store.newest(tenant, start_us=start_us, stop_us=stop_us, before=before):
        if not code or filed.letter.code == code:
            yield filed


def _span(call: Call) -> tuple[int, int | None]:
    now_us = call.service.clock.now_us()
    since, until = call.query.text("since"), call.query.text("until")
    start_us, stop_us = parse_time(since, now_us) if since else 0, parse_time(until, now_us) if until else None
    if stop_us is not None:
        TimeSpan(start_us, stop_us)
    return start_us, stop_us


def _check_meant(given: object, *, everything: object) -> None:
    """All letters are meant by those who say so, and not by those who forget to say anything."""
    if not isinstance(everything, bool):
        raise Rejected("all: give true or false", code="field")
    if not given and not everything:
        raise Rejected("which dead letters? Give ids, code, since or until; or say that all are meant", code="field")


def _cursor(text: str | None) -> str:
    """The id that a page ended with."""
    if text and not is_id(text):
        raise Rejected("after: give the cursor of an earlier answer", code="cursor")
    return text or ""


def _ids(form: dict[str, Any]) -> list[str]:
    ids = form["ids"]
    if not isinstance(ids, list) or not 1 <= len(ids) <= MOST_AT_ONCE or not all(isinstance(i, str) for i in ids):
        raise Rejected(f"ids: give 1 to {MOST_AT_ONCE} ids of dead letters", code="field")
    return list(dict.fromkeys(ids))


def _shown(filed: Filed) -> dict[str, Any]:
    letter = filed.letter
    return {
        "id": filed.id,
        "filed": format_time(filed.filed_us),
        "code": letter.code,
        "reason": letter.reason,
        "source": letter.source,
        "media_type": letter.media_type,
        "precision": letter.precision,
        "encoding": letter.encoding,
        "device": letter.device,
        "reports": letter.reports,
        "kept": str(letter.kept),
        "bytes": letter.size,
        "replays": letter.replays,
        "replayed": shown_time(letter.replayed_us),
    }


def _body(body: bytes) -> dict[str, str]:
    """As text if it is one; as base64 otherwise."""
    try:
        return {"body": body.decode(), "body_form": "text"}
    except UnicodeDecodeError:
        return {"body": b64encode(body).decode(), "body_form": "base64"}


def _result(one: Replayed) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": one.id, "outcome": one.outcome, "accepted": one.accepted}
    return shown | {"code": one.code, "reason": one.reason} if one.code else shown
