"""A table of somebody else: what it holds, which partitions are too large or hot, and what the same data costs in Widerow.

Rule 1: everything is computed from a sample (`plan.sampled`), and every figure says how far from the truth it may be.
Rule 2: bytes are those before compression, of one copy, unless a name says otherwise.
Rule 3: a partition is named if it is certain to be too large or hot, not if it may be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from widerow.model.times import HOUR, format_time
from widerow.plan.row_bytes import RowSizer, partition_bytes
from widerow.plan.sampled import Estimate, Partition, Sample, times_us
from widerow.plan.shape import CLUSTERING, PARTITION, ForeignTable, Shape, Unit

LARGE_BYTES, LARGE_ROWS = 100_000_000, 100_000
"""What Cassandra's own advice calls a large partition."""
_EVEN_SHARES = 10
"""A hot partition gets so many times what it would if all that are written to got the same."""
_LEAST_SHARE, _MOST_SHARE = 0.01, 0.5
"""Less is not hot, more is, however few partitions are written to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where on a partition is named."""

    large_bytes: int = LARGE_BYTES
    large_rows: int = LARGE_ROWS
    hot_window_us: int = HOUR
    """Writes count as recent so long before the newest."""


@dataclass(frozen=True, slots=True)
class Holder:
    """What a tenant, or a device, has in the table."""

    name: str
    rows: Estimate
    bytes: Estimate


@dataclass(frozen=True, slots=True)
class Large:
    partition: str
    rows: int
    counted: bool
    bytes: int


@dataclass(frozen=True, slots=True)
class Hot:
    partition: str
    share: Estimate
    """Of the recent writes to the table."""
    even: float
    """What it would get if all partitions that are written to got the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a sample tells of a table."""

    partitions: Estimate
    rows: Estimate
    bytes: Estimate
    largest_bytes: int
    """The largest partition that was read."""
    holders: Sequence[Holder]
    large: Sequence[Large]
    hot: Sequence[Hot]
    newest_us: int
    """The newest write that was met; 0: none has a time."""
    notes: Sequence[str]


def findings(sample: Sample, limits: Thresholds) -> Findings:
    """All that can be said without packing anything."""
    sizes = [round(size) for size in partition_sizes(sample)]
    recent, newest_us = _recent_writes(sample, limits.hot_window_us)
    large = _large(sample, sizes, limits)
    return Findings(
        partitions=sample.of,
        rows=total([p.rows for p in sample.partitions], sample.of),
        bytes=total(sizes, sample.of),
        largest_bytes=max(sizes, default=0),
        holders=_holders(sample, sizes),
        large=large,
        hot=_hot(sample, recent),
        newest_us=newest_us,
        notes=_notes(sample),
    )


def total(each: Sequence[float], of: Estimate) -> Estimate:
    """The sum over all partitions, from that of a random few of them; `of`: how many there are."""
    if not each:
        return Estimate(0.0, 0.0)
    n, mean = len(each), fmean(each)
    left_out = max(0.0, 1 - n / of.value) if of.value else 0.0
    spread = 2 * stdev(each) / sqrt(n) if n > 1 else mean
    error = sqrt((of.value * spread) ** 2 * left_out + (mean * of.error) ** 2)
    return Estimate(mean * of.value, error)


def partition_sizes(sample: Sample) -> list[float]:
    """The bytes of each partition: its rows like those of it that were read, or like those of others if none was."""
    written = [time for p in sample.partitions for time in p.written_us if time]
    occurring = {i for p in sample.partitions for row in p.values for i, value in enumerate(row) if value is not None}
    sizer = RowSizer(sample.table.columns, len(occurring), min(written, default=0))
    rows = [_mean_row(sizer, p) for p in sample.partitions]
    usual = fmean([size for size in rows if size is not None] or [0.0])
    return [
        partition_bytes(sample.table.columns, p.key) + p.rows * (usual if size is None else size)
        for p, size in zip(sample.partitions, rows, strict=True)
    ]


def _mean_row(sizer: RowSizer, p: Partition) -> float | None:
    if not p.values:
        return None
    rows = zip(p.clustering, p.values, p.written_us, strict=True)
    return fmean(sizer.row(clustering, values, written, expires=p.expires) for clustering, values, written in rows)


def named(table: ForeignTable, key: Sequence[Any]) -> str:
    """A partition in words: `entity_id=press-7, key=force, partition=2026-11-01T00:00:00Z`."""
    return ", ".join(f"{column.name}={_text(value)}" for column, value in zip(table.key, key, strict=True))


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return format_time(times_us(Unit.TIMESTAMP, [value])[0])
    return value.hex() if isinstance(value, bytes) else str(value)


def _large(sample: Sample, sizes: Sequence[int], limits: Thresholds) -> list[Large]:
    found = [
        Large(named(sample.table, p.key), p.rows, p.counted, size)
        for p, size in zip(sample.partitions, sizes, strict=True)
        if size > limits.large_bytes or p.rows > limits.large_rows
    ]
    return sorted(found, key=lambda one: -one.bytes)


# -- who has what


def _holders(sample: Sample, sizes: Sequence[int]) -> list[Holder]:
    """Tenants if the table has them, else devices; those with most bytes first."""
    shape = sample.shape
    if shape is None or not (shape.tenant or shape.entity):
        return []
    columns = (shape.tenant,) if shape.tenant else shape.entity
    pick = Picker(sample.table, columns)
    parts: dict[str, list[tuple[float, float]]] = {}
    for p, size in zip(sample.partitions, sizes, strict=True):
        read = Counter(pick.name(p, row) for row in range(len(p.values))) if pick.is_clustered else {pick.name(p, 0): 1}
        of = sum(read.values())
        for name, count in read.items():
            parts.setdefault(name, []).append((p.rows * count / of, size * count / of))
    n = len(sample.partitions)
    holders = [
        Holder(name, _share([rows for rows, _ in some], n, sample.of), _share([size for _, size in some], n, sample.of))
        for name, some in parts.items()
    ]
    return sorted(holders, key=lambda one: -one.bytes.value)


def _share(some: Sequence[float], n: int, of: Estimate) -> Estimate:
    """What these of `n` partitions of a sample stand for; the others have nothing."""
    mean = sum(some) / n
    variance = (sum(value * value for value in some) - n * mean * mean) / max(1, n - 1)
    left_out = max(0.0, 1 - n / of.value) if of.value else 0.0
    spread = 2 * sqrt(max(0.0, variance) / n * left_out)
    return Estimate(mean * of.value, sqrt((of.value * spread) ** 2 + (mean * of.error) ** 2))


class Picker:
    """The values of some key columns of a row, joined to a name."""

    def __init__(self, table: ForeignTable, columns: Sequence[str]) -> None:
        keys = [c.name for c in table.of(PARTITION)]
        orders = [c.name for c in table.of(CLUSTERING)]
        self._places = [(name in keys, (keys if name in keys else orders).index(name)) for name in columns]
        self.is_clustered = not all(in_key for in_key, _ in self._places)
        self._last: tuple[Any, str] = None, ""

    def name(self, p: Partition, row: int) -> str:
        if self.is_clustered:
            return self._name(p, row)
        if self._last[0] is not p.key:  # all rows of a partition have the same
            self._last = p.key, self._name(p, row)
        return self._last[1]

    def _name(self, p: Partition, row: int) -> str:
        return "/".join(_text(p.key[i] if in_key else p.clustering[row][i]) for in_key, i in self._places)


# -- which are written to


def _recent_writes(sample: Sample, window_us: int) -> tuple[list[tuple[float, int]], int]:
    """Of each partition the writes of the window, about, and how many of them were seen; and the newest write of all."""
    newest_us = max((time for p in sample.partitions for time in p.written_us), default=0)
    found = []
    for p in sample.partitions:
        times = [time for time in p.written_us if time]
        seen = sum(time > newest_us - window_us for time in times)
        about = float(seen)
        if seen and seen == len(times) and not p.read_to_its_end:  # rows that were not read are recent, too
            span_us = max(1, newest_us - min(times))
            about = min(float(p.rows), max(seen, seen * window_us / span_us))
        found.append((about, seen))
    return found, newest_us


def _hot(sample: Sample, recent: Sequence[tuple[float, int]]) -> list[Hot]:
    """Partitions that get many times an even share of the recent writes."""
    written = sum(about for about, _ in recent)
    if not written or len(sample.partitions) < 2:
        return []
    active = sum(about > 0 for about, _ in recent) * sample.scale
    least = min(_MOST_SHARE, max(_LEAST_SHARE, _EVEN_SHARES / active))
    found = []
    for p, (about, seen) in zip(sample.partitions, recent, strict=True):
        if not seen:
            continue
        share = about / (about + (written - about) * sample.scale)
        error = min(share, 2 * share * sqrt((1 - share) / seen) if share < 1 else 0.0)
        if share - error > least:
            found.append(Hot(named(sample.table, p.key), Estimate(share, error), 1 / active))
    return sorted(found, key=lambda one: -one.share.value)


# -- the design


def _notes(sample: Sample) -> list[str]:
    table, shape = sample.table, sample.shape
    notes = []
    if shape is not None:
        notes += _notes_on_key(table, shape)
    cut = sum(not p.counted for p in sample.partitions)
    if cut:
        notes.append(f"rows of {cut:,} partitions are computed from the part that was counted: raise --rows to count more")
    if sample.unread:
        notes.append(
            f"the cluster failed to read {sample.unread:,} partitions: they are too large, or hold too many deletions"
        )
    if not sample.in_time:
        notes.append("the time was over before all chosen partitions were read: raise --seconds for closer figures")
    if sample.of.value > len(sample.partitions):
        notes.append(
            f"{len(sample.partitions):,} of about {sample.of.value:,.0f} partitions were read: "
            f"a large or hot one may be among the others; --partitions reads more"
        )
    return notes


def _notes_on_key(table: ForeignTable, shape: Shape) -> list[str]:
    keys = {column.name for column in table.key}
    notes = []
    if shape.entity and not keys & {*shape.entity, shape.tenant}:
        notes.append(
            f"the partition key ({', '.join(c.name for c in table.key)}) names no device: at any time all devices write to "
            f"one partition; put {', '.join(shape.entity)} into it"
        )
    if not shape.bucket:
        end = f"rows leave it after {table.ttl_s:,} s" if table.ttl_s else "nothing ends it"
        notes.append(f"the partition key has no bucket of time: a partition grows as long as its device reports ({end})")
    return notes
