"""What limits and retentions would have done: recorded use, tried on them.

Rule 1: reports a second are replayed second by second through the same bucket that would have refused them; nothing is
estimated. What came within a second is taken to have come at its end, so a bucket may be off by a second's worth of its rate
at the edges of a burst.
Rule 2: what questions read is recorded by the hour. More than the whole hour allowed is told, and is the least that would
have been refused; bursts within the hour are not known.
Rule 3: what is counted as it is now (devices, series, bytes) is compared with the limit: what is over it would have been
refused as it came.
Rule 4: what a device's own limits or sampling took away never came as far as the tenant's, and is not recorded as if it had
(`admit.admission`).
Senders of whole batches (InfluxDB's routes) have more refused than is told here: all of a batch that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from widerow.admit.bucket import TOKEN, filled, full_level
from widerow.model.arrays import Ints
from widerow.model.kernel import kernel
from widerow.model.tenant import BURST_S, Limits
from widerow.model.times import HOUR, SECOND
from widerow.usage.recorded import OfferedSeconds


@dataclass(frozen=True, slots=True)
class HourOver:
    """An hour in which reports would have been refused."""

    hour_us: int
    offered: int
    refused: int
    seconds: int
    """In so many of its seconds."""
    worst_per_s: int
    """The most that were offered in one of them."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a limit on reports a second would have done."""

    offered: int
    refused: int
    hours: tuple[HourOver, ...]
    """Those in which it would have refused any, in order."""


@dataclass(frozen=True, slots=True)
class ReadOver:
    """An hour in which questions read more rows than all of it would have allowed."""

    hour_us: int
    rows: int
    over: int


def reads_over(rows_read: Mapping[int, int], limits: Limits) -> list[ReadOver]:
    """Of recorded hours those with too much, in order."""
    per_s = limits.query_cost_per_s
    if not per_s:
        return []
    most = per_s * (HOUR // SECOND) + (limits.query_cost_burst or per_s * BURST_S)
    return [ReadOver(hour_us, rows, rows - most) for hour_us, rows in sorted(rows_read.items()) if rows > most]


def replay(hours: Iterable[OfferedSeconds], limits: Limits) -> Replayed:
    """Recorded hours, in order. Live reports and backlog have a bucket each."""
    per_s, burst = limits.writes_per_s, limits.writes_burst or limits.writes_per_s * BURST_S
    fill, most = filled(per_s), full_level(burst)
    levels = np.full(2, most, np.int64)
    offered = refused = 0
    over: list[HourOver] = []
    before_us: int | None = None
    for hour in hours:
        if before_us is not None and hour.hour_us > before_us + HOUR:
            levels[:] = most  # an hour without a record is one without reports
        before_us = hour.hour_us
        gone = np.zeros(len(hour.live), np.int64)
        for lane, counts in enumerate((hour.live, hour.backlog)):
            levels[lane] = _refuse(counts, fill, most, int(levels[lane]), gone) if per_s else most
        both = hour.live + hour.backlog
        offered += int(both.sum())
        lost = int(gone.sum())
        refused += lost
        if lost:
            bad = gone > 0
            over.append(HourOver(hour.hour_us, int(both.sum()), lost, int(bad.sum()), int(both[bad].max())))
    return Replayed(offered, refused, tuple(over))


@kernel
def _refuse(counts: Ints, fill: int, most: int, level: int, refused: Ints) -> int:
    """Add what does not fit in each second to `refused`; gives what is left in the bucket."""
    second = fill * SECOND
    for i in range(len(counts)):
        level = most if most - level <= second else level + second
        granted = min(counts[i], level // TOKEN)
        level -= granted * TOKEN
        refused[i] += counts[i] - granted
    return level
