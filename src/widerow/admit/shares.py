"""One limit of a tenant, shared by all processes that take its reports: each gives out a part, and the parts follow demand.

Every process says once a second, in the store, how many reports a tenant offered it lately, and reads what the others said.
Live reports and backlog have the whole limit each, and so parts of their own.
Rule 1: while all that is offered fits, each has what it is offered and an equal part of what is left; when it does not, each
has the same share of its demand. In all that is the limit, in both cases.
Rule 2: who has said nothing new for `GONE_S`, by the watch of whoever looks, is gone, and its part is the others'. Clocks of
different hosts are not compared.
Rule 3: a process that has not looked yet gives out a tenth. While the store does not answer, the parts stay as they are.
So in all a tenant gets its limit, but for a few seconds after demand has moved from one process to another.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic

from widerow.engine.port import Engine, Span
from widerow.engine.rows import rows_of
from widerow.model.lane import Lane
from widerow.model.times import HOUR, Clock
from widerow.schema.tables import LIMIT_SHARES

GONE_S = 4.0
_FIRST = 0.1
_BACKLOG = "-backlog"
"""Behind the name of a process: what it says is of backlog."""

Of = tuple[str, Lane]
"""A tenant, and which of its reports."""


@dataclass(slots=True)
class _Heard:
    """Of another process: what it said last, and when that was new."""

    number: int
    offered: float
    at_s: float


class Shares:
    """Of one process. `part` from any thread; the rest from one."""

    def __init__(self, engine: Engine, clock: Clock, *, clock_s: Callable[[], float] = monotonic) -> None:
        self._engine, self._clock, self._clock_s = engine, clock, clock_s
        self.process = secrets.token_hex(8)
        self._number = 0
        self._others: dict[Of, dict[str, _Heard]] = {}
        self._parts: dict[Of, Callable[[float], float]] = {}

    def part(self, tenant: str, limit: float, lane: Lane = Lane.LIVE) -> float:
        """How much of a limit is this process's to give out."""
        part = self._parts.get((tenant, lane))
        return part(limit) if part else _FIRST * limit

    def exchange(self, offered: Mapping[Of, float]) -> None:
        """Say what tenants with a limit offered here lately, and hear what others were offered. Raises Unavailable."""
        if not offered:
            return
        self._number += 1
        now_us = self._clock.version_us()
        said = [
            (
                (tenant, self.process + (_BACKLOG if lane is Lane.BACKFILL else "")),
                {"offered": float(rate), "number": float(self._number)},
            )
            for (tenant, lane), rate in offered.items()
        ]
        self._engine.write([(LIMIT_SHARES, rows_of(LIMIT_SHARES, said, version_us=now_us, expire_us=now_us + HOUR))])
        self._hear(offered)
        for of, own in offered.items():
            others = [heard.offered for heard in self._others[of].values() if self._clock_s() - heard.at_s < GONE_S]
            self._parts[of] = _part_of(own, others)

    def leave(self, tenants: list[str]) -> None:
        """Nothing more is offered here: others need not wait until that is noticed."""
        if tenants:
            own = Span(self.process, self.process + "~")  # what it says of backlog, too: all that begins with its name
            version_us = self._clock.version_us()
            self._engine.delete(LIMIT_SHARES, [(tenant,) for tenant in tenants], own, version_us=version_us)

    def _hear(self, wanted: Iterable[Of]) -> None:
        now_s = self._clock_s()
        found: dict[Of, dict[str, _Heard]] = {of: {} for of in wanted}
        for rows in self._engine.scan(LIMIT_SHARES, [(tenant,) for tenant in dict.fromkeys(tenant for tenant, _ in found)]):
            for i in range(len(rows)):
                tenant, said_by = map(str, rows.key(LIMIT_SHARES, i))
                row = rows.row(i)
                process = said_by.removesuffix(_BACKLOG)
                of = tenant, Lane.LIVE if process == said_by else Lane.BACKFILL
                if process == self.process or of not in found:
                    continue
                number, offered = int(row["number"]), float(row["offered"])
                before = self._others.get(of, {}).get(process)
                at_s = (
                    now_s if before is None or before.number != number else before.at_s
                )  # who is gone stays known, or it would be news
                found[of][process] = _Heard(number, offered, at_s)
        self._others.update(found)


def _part_of(own: float, others: list[float]) -> Callable[[float], float]:
    total = own + sum(others)

    def part(limit: float) -> float:
        if total <= limit:
            return own + (limit - total) / (1 + len(others))
        return limit * own / total

    return part
