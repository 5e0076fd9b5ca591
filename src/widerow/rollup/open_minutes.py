"""What is in memory of a tenant's open minutes: reports, and what is known of the devices they are of.

Rule: reports that were sorted know their devices by numbers, which mean something to their tenant's `Devices` only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from widerow.engine.rows import Rows, joined
from widerow.model.arrays import Codes, Ints
from widerow.model.intern import NameTable
from widerow.model.kernel import kernel
from widerow.model.names import NO_NAMES, Coded, Names
from widerow.model.times import HOUR, MINUTE
from widerow.rollup.counts import of_rows

MAX_DEVICES = 1 << 24
_COUNTED_HOURS = 4
"""Hours whose reports are counted here. Those before them are counted when they are rolled, from the store."""
_ROW_BYTES = 64
_CELL_BYTES = 20
"""What a row and a cell take in memory, about."""


@dataclass(frozen=True, slots=True)
class Chunk:
    rows: Rows
    """Of what was sorted, the codes of devices are their ids here, and have no dictionary."""
    at_us: int
    minutes: tuple[int, ...]
    """Those it has reports of, in order. There are few, of live reports one or two, and thousands of chunks are looked at
    every second: looking at these costs next to nothing, looking at the rows held up everybody else for milliseconds."""
    first_us: Mapping[int, int]
    """The hours it has reports of, and the first minute of each that it has."""
    fresh: Names | None = None
    """Devices that were registered just before: nobody ever wrote one of them."""

    @classmethod
    def of(cls, rows: Rows, at_us: int, fresh: Names | None = None) -> Chunk:
        minutes = _minutes_of(rows)
        first_us: dict[int, int] = {}
        for minute in minutes:
            first_us.setdefault(minute - minute % HOUR, minute)
        return cls(rows, at_us, minutes, first_us, fresh)

    @classmethod
    def joined(cls, chunks: Sequence[Chunk]) -> Chunk:
        """They rest when the last of them does."""
        first_us: dict[int, int] = {}
        for chunk in chunks:
            lower(first_us, chunk.first_us)
        minutes = sorted({minute for chunk in chunks for minute in chunk.minutes})
        return cls(joined([c.rows for c in chunks]), max(c.at_us for c in chunks), tuple(minutes), first_us)

    def size(self) -> int:
        return _ROW_BYTES * len(self.rows) + _CELL_BYTES * len(self.rows.cells)


@dataclass(slots=True)
class Devices:
    """Of one tenant, by the device's id here."""

    alone_from_us: int
    table: NameTable = field(default_factory=lambda: NameTable(MAX_DEVICES))
    alone_us: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """From which event time on all its reports were written by this process."""
    closed_us: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Up to which event time its minutes are closed."""
    stale: dict[int, list[Codes]] = field(default_factory=dict)
    """Hours, and the devices whose hour is stale."""
    waiting: list[Chunk] = field(default_factory=list)
    open_us: dict[int, int] = field(default_factory=dict)
    """Hours, and the first minute of each of which a report waits or is being written."""
    taken_us: int = -1
    """The last hour that was taken for rolling. What was stale up to it may no longer be known."""
    counted: dict[int, Ints] = field(default_factory=dict)
    """Hours, and of devices how many reports of them are in minutes that were closed, with how many values and bytes."""
    newest_us: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Room for a look at times, all -1 in between."""

    def ids(self, names: Names) -> Codes:
        ids = self.table.add(names)
        missing = len(self.table) - len(self.alone_us)
        if missing > 0:
            more = max(1024, 2 * len(self.table)) - len(self.alone_us)
            self.alone_us = np.concatenate([self.alone_us, np.full(more, self.alone_from_us)])
            self.closed_us = np.concatenate([self.closed_us, np.zeros(more, np.int64)])
            self.newest_us = np.full(len(self.alone_us), -1)
        return ids

    def ids_of(self, rows: Rows) -> Codes:
        """Of the devices of rows that have names."""
        device = device_of(rows)
        return self.ids(device.names)[device.codes]

    def numbered(self, chunks: Sequence[Chunk]) -> Chunk:
        """Chunks as one, of devices by their ids. A device for which there is none any more is rolled from the store."""
        chunk = Chunk.joined(chunks)
        ids = self.ids_of(chunk.rows)
        rows = _of_devices(chunk.rows, Coded(NO_NAMES, ids))
        return replace(chunk, rows=rows if ids.min() >= 0 else rows.take(ids >= 0))

    def named(self, rows: Rows) -> Rows:
        """The same rows, each with its device's name."""
        ids, codes = np.unique(codes_of(rows), return_inverse=True)
        return _of_devices(rows, Coded(self.table.at(ids), codes.astype(np.int32)))

    def wait(self, chunk: Chunk) -> None:
        self.waiting.append(chunk)
        lower(self.open_us, chunk.first_us)

    def spoil(self, ids: Codes, hour_us: Ints) -> None:
        """These hours of these devices (pairs) are stale."""
        for hour in np.unique(hour_us).tolist():
            self.stale.setdefault(hour, []).append(np.unique(ids[hour_us == hour]))

    def count(self, rows: Rows) -> None:
        """Reports of minutes that were written."""
        ids, hour_us = self.ids_of(rows), hours_in(rows)
        _, values, payload = of_rows(rows)
        for hour in np.unique(hour_us).tolist():
            here = hour_us == hour
            had = self.counted.get(hour, np.zeros((3, 0), np.int64))
            if had.shape[1] < len(self.alone_us):
                had = np.concatenate([had, np.zeros((3, len(self.alone_us) - had.shape[1]), np.int64)], axis=1)
            _add_up(ids[here], values[here], payload[here], had)
            self.counted[hour] = had
        for hour in sorted(self.counted)[:-_COUNTED_HOURS]:
            del self.counted[hour]

    def let_go(self) -> int:
        """Of all that waits: its hours are rolled from the store. Gives what is freed. Not while something is written."""
        freed = 0
        for chunk in self.waiting:
            self.spoil(codes_of(chunk.rows), hours_in(chunk.rows))
            freed += chunk.size()
        self.waiting, self.open_us = [], {}
        return freed

    @property
    def bytes(self) -> int:
        columns = (self.alone_us, self.closed_us, self.newest_us, *list(self.counted.values()))
        return self.table.bytes + sum(column.nbytes for column in columns)

    def alone(self, ids: Codes) -> int:
        """From which event time on all reports of all these devices were written by this process. A device that is not
        known (-1) has none from `alone_from_us` on.
        """
        if not len(self.alone_us):
            return self.alone_from_us
        return int(np.where(ids < 0, self.alone_from_us, self.alone_us[ids]).max(initial=0))

    def any_stale(self, hour_us: int, ids: Codes) -> bool:
        """Whether the hour is stale of one of the devices."""
        return bool(np.isin(ids, self.stale_in(hour_us)).any())

    def stale_in(self, hour_us: int) -> Codes:
        """The devices whose hour is stale."""
        stale = self.stale.get(hour_us)
        if not stale:
            return np.zeros(0, np.int32)
        if len(stale) > 1:
            stale[:] = [np.unique(np.concatenate(stale))]  # for the next one who asks
        return stale[0]

    def forget_stale(self, hour_us: int, ids: Codes) -> None:
        """An hour of these devices was taken. It stays stale as long as something of it is counted or open, since it may be
        taken again. Otherwise nothing more of it is going to be counted, and what is not counted is not whole anyway.
        """
        if hour_us not in self.counted and hour_us not in self.open_us:
            others = np.setdiff1d(self.stale_in(hour_us), ids).astype(np.int32)
            self.stale[hour_us] = [others] if len(others) else []
        oldest_us = min(self.counted) if len(self.counted) == _COUNTED_HOURS else 0  # nothing before it is counted again
        for hour in [h for h, stale in self.stale.items() if not stale or h < min(oldest_us, self.taken_us)]:
            del self.stale[hour]


def device_of(rows: Rows) -> Coded:
    device = rows.keys["device_id"]
    assert isinstance(device, Coded)
    return device


def codes_of(rows: Rows) -> Codes:
    return device_of(rows).codes


def _of_devices(rows: Rows, device: Coded) -> Rows:
    """With the keys that are needed here, and no others."""
    return replace(rows, keys={"device_id": device, "event_us": rows.keys["event_us"]})


def _minutes_of(rows: Rows) -> tuple[int, ...]:
    """The minutes that rows are of, in order."""
    time_us = np.asarray(rows.keys["event_us"])
    if not len(time_us):
        return ()
    first, last = int(time_us.min()), int(time_us.max())
    if first - first % MINUTE == last - last % MINUTE:
        return (first - first % MINUTE,)
    return tuple(np.unique(time_us - time_us % MINUTE).tolist())


def lower(open_us: dict[int, int], first_us: Mapping[int, int]) -> None:
    for hour, minute in first_us.items():
        open_us[hour] = min(minute, open_us.get(hour, minute))


def minutes_in(rows: Rows) -> Ints:
    time_us: Ints = np.asarray(rows.keys["event_us"])
    return time_us - time_us % MINUTE


def hours_in(rows: Rows) -> Ints:
    time_us: Ints = np.asarray(rows.keys["event_us"])
    return time_us - time_us % HOUR


@kernel
def _add_up(ids: Codes, values: Ints, payload: Ints, sums: Ints) -> None:
    for i in range(len(ids)):
        sums[0, ids[i]] += 1
        sums[1, ids[i]] += values[i]
        sums[2, ids[i]] += payload[i]
