"""A request as handlers see it, and the answer they give.

Handlers are plain functions of a `Call`, run in a thread: they may block, and know nothing of sockets or events.
Rule 1: what is not understood is refused. A parameter that the route does not know, or knows once and is given twice, is
named in the answer with those that exist: a typo must not change what is asked.
Rule 2: the form of a tabular answer follows `Accept`; JSON comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, quote

import msgspec

from widerow.admit.question_slots import Slot
from widerow.catalog.audit import differences
from widerow.catalog.forms import Entity, to_json
from widerow.codec.answer import JSON, MEDIA_TYPES, encode_points, encode_records
from widerow.codec.body import decompress
from widerow.codec.series import encode_reply, missing_text, used_text
from widerow.model.errors import Rejected, Unauthorized, Unsupported
from widerow.model.labels import cut_names
from widerow.model.points import Points
from widerow.model.series import Reply
from widerow.model.tenant import Tenant
from widerow.model.times import TimeSpan, parse_time
from widerow.query.budget import Budget
from widerow.server.auth import Auth, Caller
from widerow.server.failures import NotAcceptable
from widerow.server.intake import Limit
from widerow.server.overview import Overviews
from widerow.server.schemas import columns_of
from widerow.server.streams import Streams
from widerow.service import Service

NEXT_HEADER = "Widerow-Next"
"""Where the cursor of the next page is, for forms that have no room for it."""

USED_HEADER = "Widerow-Used"
"""How many rows of which level an answer over steps comes from, ..."""
MISSING_HEADER = "Widerow-Missing"
"""... and what of the span can no longer be answered."""

SAMPLED_HEADER = "Widerow-Sampled"
"""Of which spans part of a device's reports was kept: `DEVICE START/END=0.1, ...`, the device percent-encoded."""
MOST_IN_HEADER = 20
"""Of such spans: a header has its bounds."""

_JSON_TYPES = ("", "application/json", "text/json", "application/merge-patch+json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A parameter of a route, as it is checked and documented."""

    name: str
    doc: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    place: str = "query"
    """`query`, `path` or `header`."""
    repeats: bool = False


@dataclass(slots=True)
class Trail:
    """What a handler says of what it changes, for the audit log (`server.audit`). Otherwise the request is recorded."""

    tenant: str = ""
    about: str = ""
    changes: list[str] | None = None
    notes: list[str] = field(default_factory=list)
    before: int | None = None
    """The revision that was changed."""
    changes_nothing: bool = False
    """It was a question."""


@dataclass(slots=True)
class Front:
    """What all requests of a process share."""

    service: Service
    owner: str = "local socket"
    """The name of callers without a token, for the audit log."""
    stopping: bool = False
    """Set when the process was told to stop: it is no longer ready, though it still answers."""
    troubles: Sequence[Callable[[], str]] = ()
    """Of other fronts of the process: each says what is wrong, or nothing."""
    strains: Sequence[Callable[[], str]] = ()
    """Of the same: each says why it does not keep up, or nothing."""
    overviews: Overviews = field(init=False)
    streams: Streams = field(init=False)

    def __post_init__(self) -> None:
        http = self.service.config.http
        self.overviews = Overviews(self.service, self.all_troubles)
        self.streams = Streams(self.overviews, http.max_streams, http.max_streams_per_tenant)

    def all_troubles(self) -> list[str]:
        """What keeps the process from taking reports, or from keeping up, as far as it is known without asking the store."""
        found = [self.service.trouble(), *(ask() for ask in (*self.troubles, *self.strains))]
        return [trouble for trouble in (*found, *self.service.pipeline.pressure.look().reasons) if trouble]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 200
    body: bytes = b""
    media_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    rows: int = 0
    """How many were read for it, where that is known; of raw answers, how many points it has."""


NO_CONTENT = Answer(204)


class Query:
    """The parameters of a request, each known to its route."""

    def __init__(self, query: bytes, known: Mapping[str, Param]) -> None:
        self._given: dict[str, list[str]] = {}
        try:
            pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict") if query else []
        except ValueError:
            raise Rejected("the query string is not percent-encoded UTF-8", code="parameter") from None
        for name, value in pairs:
            if name not in known:
                raise Rejected(f"unknown parameter {name[:80]!r}: known are {', '.join(known) or 'none'}", code="parameter")
            values = self._given.setdefault(name, [])
            if values and not known[name].repeats:
                raise Rejected(f"{name} is given twice", code="parameter")
            choices = known[name].schema.get("enum")
            if choices and value not in choices:
                raise Rejected(f"{name} is {value[:40]!r}: give one of {', '.join(choices)}", code="parameter")
            values.append(value)

    def given(self) -> dict[str, str]:
        """All of them."""
        return {name: ", ".join(values) for name, values in self._given.items()}

    def text(self, name: str) -> str | None:
        values = self._given.get(name)
        return values[0] if values else None

    def texts(self, name: str) -> list[str]:
        return self._given.get(name, [])

    def whole(self, name: str, *, default: int, most: int) -> int:
        """A number from 1 to `most`."""
        text = self.text(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= most):
            raise Rejected(f"{name} is {text[:40]!r}: give a whole number from 1 to {most}", code="parameter")
        return int(text)

    def names(self, name: str) -> list[str] | None:
        """Names separated by commas outside braces; given more than once, each is one name, commas and all."""
        values: Sequence[str] = self.texts(name)
        if len(values) == 1:
            values = cut_names(values[0])
        chosen = list(dict.fromkeys(value for value in values if value))
        return chosen or None


@dataclass(frozen=True, slots=True)
class Call:
    """One request, its caller known and allowed to make it."""

    front: Front
    auth: Auth
    caller: Caller | None
    """None on public routes."""
    path: Mapping[str, str]
    query: Query
    headers: Mapping[str, str]
    """Those that a route may look at (`server.app`), where they were sent."""
    body: bytes
    limit: Limit
    """Of its body."""
    media_type: str
    """The form the answer is to have."""
    trail: Trail = field(default_factory=Trail)
    slot: Slot | None = None
    """Its place among those that are worked on; none on routes that never wait."""

    @property
    def service(self) -> Service:
        return self.front.service

    @property
    def who(self) -> Caller:
        if self.caller is None:
            raise Unauthorized("no token: send `Authorization: Bearer TOKEN`")
        return self.caller

    def tenant(self) -> Tenant:
        """The tenant that is meant: the token's, or the one an operator named."""
        return self.auth.tenant(self.who, self.query.text("tenant"))

    def tenant_name(self) -> str | None:
        """The same by name; None where an operator named none."""
        return self.auth.tenant_name(self.who, self.query.text("tenant"))

    def budget(self, tenant: Tenant) -> Budget:
        """What this request, which is a question, may cost."""
        return self.service.queries.budget(tenant, self.slot)

    def json(self) -> Any:
        media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type not in _JSON_TYPES:
            raise Unsupported(f"content type {media_type[:80]!r} is not known here: send application/json")
        body = decompress(self.body, self.headers.get("content-encoding", ""), self.limit.max_bytes, self.limit.by)
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Rejected(f"the body is not JSON: {error}", code="syntax") from None

    def form(self, known: Sequence[str] | None = None) -> dict[str, Any]:
        """The body as an object, with no other keys than those that are known (None: any)."""
        form = self.json()
        if not isinstance(form, dict):
            raise Rejected("the body must be a JSON object", code="field")
        for key in form if known is not None else ():
            if key not in (known or ()):
                raise Rejected(f"unknown key {key[:80]!r}: use {', '.join(known or ())}", code="field")
        return form

    def noted(self, change: Callable[[Entity], Entity]) -> Callable[[Entity], Entity]:
        """A change of something that has a revision, which leaves a trail."""

        def changed(old: Entity) -> Entity:
            new = change(old)
            self.trail.changes, self.trail.before = differences(to_json(old), to_json(new)), old.revision
            return new

        return changed

    def expected_revision(self) -> int | None:
        """The revision `If-Match` names; None: any. One that no entity ever has matches nothing."""
        etag = self.headers.get("if-match", "*").strip()
        if etag == "*":
            return None
        digits = etag.removeprefix("W/").strip('"')
        return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 16 else -1

    def span(self, default_start: str = "-1h") -> TimeSpan:
        now_us = self.service.clock.now_us()
        start = parse_time(self.query.text("start") or default_start, now_us)
        return TimeSpan(start, parse_time(self.query.text("end") or "now", now_us))


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, msgspec.json.encode(value), JSON, headers or {})


def entity_answer(form: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """One thing that has a revision, which is its ETag."""
    return json_answer(form, status, {"ETag": f'"{form["revision"]}"', **(headers or {})})


_NAMED = {"states": "DeviceHistory"}
"""Shapes that are not named as what they list."""


def list_answer(call: Call, key: str, records: Sequence[Mapping[str, Any]], following: str | None = None) -> Answer:
    """`{key: [...], "next": cursor}`, or a table of the records."""
    if call.media_type == JSON:
        return json_answer({key: records, "next": following})
    columns = columns_of(_NAMED.get(key, key.capitalize()), key)
    return Answer(200, encode_records(records, call.media_type, columns), call.media_type, _cursor(following))


def points_answer(
    call: Call, points: Points, following: str | None = None, sampled: Sequence[Mapping[str, Any]] = ()
) -> Answer:
    body = encode_points(points, call.media_type, next_cursor=following, epoch=call.query.text("epoch"))
    return told_sampled(Answer(200, body, call.media_type, _cursor(following), len(points)), sampled)


def told_sampled(answer: Answer, sampled: Sequence[Mapping[str, Any]]) -> Answer:
    """An answer about spans of which part was kept says so: in a header, and in JSON as one more key of its object."""
    if not sampled:
        return answer
    each = [f"{quote(one['device'], safe='')} {one['start']}/{one['end'] or ''}={one['rate']:g}" for one in sampled]
    body = answer.body
    if answer.media_type == JSON:
        body = body[:-1] + b',"sampled":' + msgspec.json.encode(sampled) + b"}"
    return replace(answer, body=body, headers={**answer.headers, SAMPLED_HEADER: ", ".join(each[:MOST_IN_HEADER])})


def reply_answer(call: Call, reply: Reply, budget: Budget, sampled: Sequence[Mapping[str, Any]] = ()) -> Answer:
    """An answer over steps, in the form asked for. What CSV and Arrow have no room for is in headers."""
    body = encode_reply(reply, call.media_type, epoch=call.query.text("epoch"))
    budget.answer(len(body))
    headers = {USED_HEADER: used_text(reply)}
    if reply.missing:
        headers[MISSING_HEADER] = missing_text(reply)
    return told_sampled(Answer(200, body, call.media_type, headers, budget.read), sampled)


def _cursor(following: str | None) -> dict[str, str]:
    return {NEXT_HEADER: following} if following else {}


def negotiate(accept: str, offered: Sequence[str] = MEDIA_TYPES) -> str:
    """The form to answer in: what the client likes best, and of equals what we do."""
    if not accept.strip():
        return offered[0]
    best, best_liking = "", 0.0
    for media_type in offered:
        liking = _liking(accept, media_type)
        if liking > best_liking:
            best, best_liking = media_type, liking
    if not best:
        raise NotAcceptable(f"accept: {accept[:80]!r} names none of {', '.join(offered)}")
    return best


def _liking(accept: str, media_type: str) -> float:
    """The quality an `Accept` header gives a type, by the most specific range that fits."""
    family = media_type.partition("/")[0]
    ranges = {media_type: 3, f"{family}/*": 2, "*/*": 1}
    best_rank, liking = 0, 0.0
    for part in accept.split(","):
        name, *options = (piece.strip().lower() for piece in part.split(";"))
        rank = ranges.get(name, 0)
        if rank > best_rank:
            best_rank, liking = rank, _quality(options)
    return liking


def _quality(options: Sequence[str]) -> float:
    for option in options:
        if option.startswith("q="):
            try:
                return min(max(float(option[2:]), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0
