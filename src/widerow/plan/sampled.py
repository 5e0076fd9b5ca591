"""What was read of a table of somebody else: the sample that `plan.foreign` computes from.

Rule: this is data. What reads a cluster makes it, and tests make it by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from widerow.model.times import DAY, MS, SECOND
from widerow.plan.shape import ForeignTable, Shape, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much is read of a table."""

    partitions: int = 5_000
    rows: int = 200_000
    seconds: float = 60.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, and how far from the truth it may be: two standard errors, 0 where everything was counted."""

    value: float
    error: float = 0.0

    @property
    def relative(self) -> float:
        return self.error / self.value if self.value else 0.0

    def times(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, self.error * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition. `clustering` and `values` are of the rows that were read whole: the newest ones if rows are in order of
    time.
    """

    key: tuple[Any, ...]
    rows: int
    """How many there are: counted, or computed from the part that was."""
    counted: bool = True
    clustering: Sequence[tuple[Any, ...]] = ()
    values: Sequence[tuple[Any, ...]] = ()
    """In the order of the table's regular columns."""
    written_us: Sequence[int] = ()
    """0: a row without a write time."""
    expires: bool = False

    @property
    def read_to_its_end(self) -> bool:
        return self.counted and len(self.values) >= self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """Rows to be packed, and the partitions of the sample that they stand for: a large device's, or those of all others."""

    keys: frozenset[tuple[Any, ...]]
    partitions: Sequence[Partition]
    """All of some devices and buckets. They may be other ones than those of the sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFigures:
    """What a node says of a table. None: it does not say."""

    node: str
    disk_bytes: int | None = None
    largest_partition_bytes: int | None = None
    writes: int | None = None
    """Since the node started."""
    writes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A table as far as it was read."""

    table: ForeignTable
    shape: Shape | None
    partitions: Sequence[Partition]
    of: Estimate
    """How many partitions there are in all."""
    packed: Sequence[Stratum] = ()
    unread: int = 0
    """Partitions that the cluster failed to read."""
    in_time: bool = True
    """Whether everything that was chosen was read before the time was over."""

    @property
    def scale(self) -> float:
        """How many partitions of the table one of the sample stands for."""
        return max(1.0, self.of.value / len(self.partitions)) if self.partitions else 1.0


def times_us(unit: Unit, raw: Sequence[Any]) -> list[int]:
    """Values of a time column in microseconds."""
    if unit is Unit.TIMESTAMP:
        return [_of_moment(value) for value in raw]
    if unit is Unit.TIMEUUID:
        return [_of_uuid(value) for value in raw]
    if unit is Unit.DATE:
        return [(datetime.fromisoformat(str(value)) - _EPOCH).days * DAY for value in raw]
    up, down = unit_of(max(map(abs, raw), default=0))
    return [value * up // down for value in raw]


def unit_of(greatest: int) -> tuple[int, int]:
    """By what to multiply and divide whole numbers for microseconds, if this is the greatest of them.

    A number of today has 10 digits in seconds, 13 in milliseconds, 16 in microseconds, 19 in nanoseconds.
    """
    for limit, up, down in ((10**11, SECOND, 1), (10**14, MS, 1), (10**17, 1, 1)):
        if greatest < limit:
            return up, down
    return 1, 1000


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - as the driver gives times: in UTC, without saying so
_UUID_EPOCH = 0x01B21DD213814000


def _of_moment(value: datetime) -> int:
    delta = (value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)) - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * SECOND + delta.microseconds


def _of_uuid(value: UUID) -> int:
    return (value.time - _UUID_EPOCH) // 10
