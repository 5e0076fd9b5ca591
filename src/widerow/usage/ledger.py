"""What a tenant used and had stored, step by step, and what that costs.

Rule 1: use is by when it happened, stored reports and values by their event times.
Rule 2: prices are numbers without a currency. What is stored costs by its bytes on disk and by time; what is written by the
bytes of accepted reports before compression; what is read by the bytes of answers.
Rule 3: a part of a step counts for the part of the time that it is, as far as what is stored goes; recorded hours are whole.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import pairwise

import numpy as np

from widerow.model.errors import Rejected
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, Clock, TimeSpan, bucket_start
from widerow.usage.record import LIMITED, REFUSED, Recorder
from widerow.usage.recorded import Recorded
from widerow.usage.storage import LEVEL_NAMES, StorageUse

STEPS_US = {"hour": HOUR, "day": DAY}
MOST_STEPS = 1_000
GIB = 1 << 30
MONTH_US = 365 * DAY // 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Of what a tenant uses, in any currency."""

    gib_month: float = 0.0
    gib_written: float = 0.0
    gib_read: float = 0.0
    million_reports: float = 0.0


@dataclass(slots=True, kw_only=True)
class Cost:
    stored: float = 0.0
    written: float = 0.0
    read: float = 0.0
    reports: float = 0.0
    total: float = 0.0

    def add(self, other: Cost) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(slots=True, kw_only=True)
class Use:
    """Of one step, or of all of them."""

    time_us: int
    offered: int = 0
    accepted: int = 0
    failed: int = 0
    refused: int = 0
    values: int = 0
    received_bytes: int = 0
    written_bytes: int = 0
    questions: int = 0
    rows_read: int = 0
    answered_bytes: int = 0
    question_seconds: float = 0.0
    refused_by: dict[str, int] = field(default_factory=dict)
    limited_by: dict[str, int] = field(default_factory=dict)
    stored_reports: int = 0
    """By their event times, each once, however often they were sent."""
    stored_values: int = 0
    stored_bytes: int = 0
    """On disk, of all levels, at the end of the step."""
    cost: Cost = field(default_factory=Cost)

    def record(self, numbers: dict[str, float]) -> None:
        """What was recorded of an hour."""
        for name, value in numbers.items():
            if name.startswith(REFUSED):
                _count(self.refused_by, name.removeprefix(REFUSED), value)
                self.refused += int(value)
            elif name.startswith(LIMITED):
                _count(self.limited_by, name.removeprefix(LIMITED), value)
            elif name in _RECORDED:
                setattr(self, name, getattr(self, name) + (value if name == "question_seconds" else int(value)))

    def add(self, other: Use) -> None:
        for name in (*_RECORDED, "refused", "stored_reports", "stored_values"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, others in ((self.refused_by, other.refused_by), (self.limited_by, other.limited_by)):
            for name, value in others.items():
                _count(mine, name, value)
        self.stored_bytes = other.stored_bytes
        self.cost.add(other.cost)


_RECORDED = (
    "offered",
    "accepted",
    "failed",
    "values",
    "received_bytes",
    "written_bytes",
    "questions",
    "rows_read",
    "answered_bytes",
    "question_seconds",
)


def _count(counts: dict[str, int], name: str, value: float) -> None:
    counts[name] = counts.get(name, 0) + int(value)


@dataclass(frozen=True, slots=True)
class Statement:
    """Steps in order, their sum, and what is stored now by level."""

    steps: list[Use]
    total: Use
    stored: dict[str, int]


class Ledger:
    """Safe to share between threads."""

    def __init__(self, recorder: Recorder, recorded: Recorded, storage: StorageUse, clock: Clock, prices: Prices) -> None:
        self._recorder, self._recorded, self._storage, self._clock = recorder, recorded, storage, clock
        self.prices = prices

    def statement(self, tenant: Tenant, span: TimeSpan, step: str) -> Statement:
        """Of the steps that a span touches, up to now. `Rejected`: there are too many."""
        width_us, now_us = STEPS_US[step], self._clock.now_us()
        start_us, stop_us = bucket_start(span.start_us, width_us), min(span.stop_us, now_us)
        starts = range(start_us, max(stop_us, start_us), width_us)
        if len(starts) > MOST_STEPS:
            raise Rejected(
                f"the span has {len(starts):,} {step}s, and an answer has {MOST_STEPS:,} at most: ask for days, or less",
                code="span",
            )
        self._recorder.flush()
        uses = {at: Use(time_us=at) for at in starts}
        for hour_us, numbers in self._recorded.hours(tenant.name, TimeSpan(start_us, max(stop_us, start_us))).items():
            uses[bucket_start(hour_us, width_us)].record(numbers)
        self._stored(tenant, uses, width_us)
        total = Use(time_us=start_us)
        for use in uses.values():
            total.add(use)
        return Statement(list(uses.values()), total, self._storage.levels(tenant))

    def _stored(self, tenant: Tenant, uses: dict[int, Use], width_us: int) -> None:
        if not uses:
            return
        hours, last_us = self._storage.hours(tenant), max(uses) + width_us
        within = (hours.start_us >= min(uses)) & (hours.start_us < last_us)
        columns = (hours.start_us[within], hours.of("reports")[within], hours.of("values")[within])
        for start_us, reports, values in zip(*(column.tolist() for column in columns), strict=True):
            use = uses[bucket_start(start_us, width_us)]
            use.stored_reports += reports
            use.stored_values += values
        edges = [*uses, min(last_us, self._clock.now_us())]
        at = [sum(levels.values()) for levels in self._storage.at(tenant, np.array(edges, np.int64))]
        for use, (begin_us, end_us), (begin, end) in zip(uses.values(), pairwise(edges), pairwise(at), strict=True):
            use.stored_bytes = end
            use.cost = self._cost(use, (begin + end) / 2 * max(0, end_us - begin_us))

    def _cost(self, use: Use, byte_us: float) -> Cost:
        prices = self.prices
        cost = Cost(
            stored=byte_us / MONTH_US / GIB * prices.gib_month,
            written=use.written_bytes / GIB * prices.gib_written,
            read=use.answered_bytes / GIB * prices.gib_read,
            reports=use.accepted / 1e6 * prices.million_reports,
        )
        cost.total = cost.stored + cost.written + cost.read + cost.reports
        return cost


__all__ = ["GIB", "LEVEL_NAMES", "MOST_STEPS", "STEPS_US", "Cost", "Ledger", "Prices", "Statement", "Use"]
