"""The hot path: `POST /v1/write`, and InfluxDB's `/write` and `/api/v2/write`.

Plain ASGI without request objects, since everything here runs once for each small request of each device.
Rule 1: an answer of 2xx means durable; reports that were refused are named in the answer, or counted in it.
Rule 2: our route answers 204 (all kept), 207 (some), 422 (none) or 400 (nothing was sent); InfluxDB's answer 204, or 400
when some line was refused, whether or not others were kept. 429: nothing was kept, and waiting helps.
Rule 3: a body that unpacks is never decoded on the event loop, whatever its size: a few kilobytes may unpack to megabytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Message, Receive, Scope, Send

from widerow.ingest.bodies import media_type_of
from widerow.ingest.peek import first_time_us
from widerow.model.errors import Refusal, Rejected, Spent
from widerow.model.lane import Lane
from widerow.pipeline.job import Job, Outcome
from widerow.pipeline.origin import LINE_TYPE, Origin
from widerow.pipeline.pipeline import INLINE_BYTES
from widerow.server.auth import WRITERS, Auth, allow
from widerow.server.completions import Completions, Herald
from widerow.server.failures import JSON_TYPE, TOO_MUCH, Failure, failure, influx, ours, retry_after, spent_fields
from widerow.server.intake import Intake
from widerow.server.tally import Tally, timing
from widerow.service import Service

MOST_LISTED = 1_000
"""Refusals that an answer names one by one."""

_UNPACKED = 8
"""What a compressed body counts for while it is in flight, in its own size: telemetry packs about this well."""
_PEEK_BYTES = 4 << 10
"""Smaller bodies are decoded in less time than it takes to find out whether they are backlog."""
_NOTHING: Mapping[str, str] = {}
_END: Message = {"type": "http.response.body", "body": b""}


@dataclass(frozen=True, slots=True)
class WriteKind:
    """How a write route reads its requests."""

    path: str
    parameters: frozenset[str]
    lines: bool = False
    """Line protocol, and answers as InfluxDB gives them. Unknown parameters are ignored there, as its clients expect."""
    passwords: bool = False
    """Whether the token may come as the parameter `p`."""


REPORTS = WriteKind("/v1/write", frozenset({"precision", "tenant"}))
LINES_V1 = WriteKind("/write", frozenset(), lines=True, passwords=True)
LINES_V2 = WriteKind("/api/v2/write", frozenset(), lines=True)


class Write:
    """A write route as an ASGI application."""

    def __init__(self, kind: WriteKind, service: Service, auth: Auth, intake: Intake, tally: Tally) -> None:
        self._kind, self._auth, self._intake, self._tally = kind, auth, intake, tally
        self._pipeline, self._bodies = service.pipeline, service.bodies
        self._completions: Completions | None = None
        self._herald: Herald | None = None
        self._route = f"POST {kind.path}"
        self._shape = influx if kind.lines else ours
        self._precision = "ns" if kind.lines else "ms"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        try:
            outcome = await self._outcome(scope, receive)
            answer = self._answer(outcome)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - every error has its answer
            answer = failure(error, self._shape)
        seconds = perf_counter() - started
        self._tally.answered(self._route, answer.status, seconds)
        await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers, timing(seconds)]})
        await send({"type": "http.response.body", "body": answer.body} if answer.body else _END)

    async def _outcome(self, scope: Scope, receive: Receive) -> Outcome:
        authorization = length = None
        content_type = encoding = b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value
            elif name == b"content-length":
                length = value
            elif name == b"content-type":
                content_type = value
            elif name == b"content-encoding":
                encoding = value
        query = scope["query_string"]
        given = self._parameters(query) if query else _NOTHING
        password = given.get("p") if self._kind.passwords else None
        if not self._auth.at_hand(authorization, password, given.get("tenant")):
            await self._auth.fetch(authorization, password, given.get("tenant"))
        caller = self._auth.caller(authorization, password)
        if caller.role not in WRITERS:
            allow(caller, WRITERS)
        tenant = self._auth.tenant(caller, given.get("tenant"))
        if length is not None:
            self._intake.announced(length)
        body = await self._intake.read(receive, tenant.name)
        self._tally.received(tenant.name, len(body))
        precision = given.get("precision", self._precision)
        packed = encoding.decode("latin-1")
        version_us = self._bodies.version_us()
        common = {
            "max_bytes": self._intake.limit.max_bytes,
            "max_values": tenant.limits.most_values,
            "version_us": version_us,
        }
        if self._kind.lines:
            media_type = LINE_TYPE
            decode = self._bodies.lines(body, encoding=packed, precision=precision, tenant=tenant, **common)
        else:
            media_type = media_type_of(content_type.decode("latin-1"))
            decode = self._bodies.reports(body, content_type=media_type, encoding=packed, precision=precision, **common)
        size = max(_UNPACKED * len(body), INLINE_BYTES + 1) if packed else len(body) or 1
        lane = Lane.LIVE
        if size > _PEEK_BYTES:
            first_us = first_time_us(body, lines=self._kind.lines, encoding=packed, precision=precision)
            if first_us is not None:
                lane = self._pipeline.lane_of(first_us)
        if self._completions is None or self._herald is None:
            loop = asyncio.get_running_loop()
            self._completions, self._herald = Completions(loop), Herald(loop, self._pipeline.wake)
        future = self._completions.future()
        origin = Origin("http", media_type, precision, packed, body, caller.device, version_us=version_us)
        done = partial(self._completions.put, future)
        job = Job(
            tenant,
            size,
            decode,
            done,
            caller.device or None,
            lane,
            whole=self._kind.lines,
            origin=origin,
            received_bytes=len(body),
        )
        self._pipeline.submit(job, wake=False)
        self._herald.announce()
        return await future

    def _parameters(self, query: bytes) -> Mapping[str, str]:
        try:
            given = dict(parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict"))
        except ValueError:
            raise Rejected("the query string is not percent-encoded UTF-8", code="parameter") from None
        if not self._kind.lines and not given.keys() <= self._kind.parameters:
            unknown = ", ".join(sorted(name[:80] for name in given.keys() - self._kind.parameters))
            known = ", ".join(sorted(self._kind.parameters))
            raise Rejected(f"unknown parameter {unknown}: known are {known}", code="parameter")
        return given

    def _answer(self, outcome: Outcome) -> Failure:
        if outcome.error is not None:
            return failure(outcome.error, self._shape)
        if not outcome.refusals:
            if outcome.accepted or self._kind.lines:
                return _KEPT
            return failure(Rejected("the body holds no report", code="no-reports"))
        waits = [r.spent.retry_after_s for r in outcome.refusals if r.spent and r.spent.retry_after_s is not None]
        too_much = not outcome.accepted and len(waits) == len(outcome.refusals)
        if self._kind.lines:
            answer = failure(partial_write(outcome), influx)
            status = TOO_MUCH if too_much else answer.status
            headers, body = answer.headers, answer.body
        else:
            status = 207 if outcome.accepted else TOO_MUCH if too_much else 422
            body = msgspec.json.encode(refused(outcome))
            headers = [(b"content-type", JSON_TYPE), (b"content-length", b"%d" % len(body))]
        if waits:
            headers.append(retry_after(max(waits)))
        return Failure(status, headers, body)


_KEPT = Failure(204, [], b"")


def refused(outcome: Outcome) -> dict[str, Any]:
    """What was kept, and why the rest was not: the first `MOST_LISTED` refusals in the order of the body."""
    listed = _listed(outcome.refusals, MOST_LISTED)
    fields: dict[str, Any] = {
        "accepted": outcome.accepted,
        "refused": outcome.refused,
        "refusals": [
            {"index": at, "code": code, "reason": reason, **(spent_fields(spent) if spent else {})}
            for at, code, reason, spent in listed
        ],
    }
    if outcome.refused > len(listed):
        fields["more"] = outcome.refused - len(listed)
    return fields


def partial_write(outcome: Outcome) -> Rejected:
    """The same in InfluxDB's words."""
    _, _, reason, _ = _listed(outcome.refusals, 1)[0]
    return Rejected(f"partial write: {reason} dropped={outcome.refused}")


def _listed(refusals: Sequence[Refusal], most: int) -> list[tuple[int, str, str, Spent | None]]:
    """Position, code, reason and limit, by position. Those of one refusal ascend, so the first `most` of each suffice."""
    each = [(at, refusal.code, refusal.reason, refusal.spent) for refusal in refusals for at in refusal.positions[:most]]
    return sorted(each, key=lambda one: one[:3])[:most]
