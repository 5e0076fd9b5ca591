"""Reports of minutes that are still open, kept so that their minutes need not be computed from the store.

It is a cache of raw reports, and only that: whoever finds a minute here finds what the store has, or is told to look there.
Rule 1: an hour of a device is *whole* here if this process wrote every report of it, each time once, and all of its minutes
were closed from here. Whatever breaks that (a report that comes after its minute was closed, one that comes twice, a write
that failed, memory that ran out, for which the tenant that has most of it gives way, a process before this one) makes the
hour *stale*: it is rolled from the store.
Rule 2: a minute closes when it has ended, its reports have had `lateness_us` to arrive, and it has rested for `rest_us`.
Reports older than `late_us` make their hours stale at once.
Rule 3: `add`, `spoil` and `forget` may be called by any thread, and only put aside; all else is done by the one that rolls.
Rule 4: what is put aside, waits, or is being written is *open*. Where an hour is not stale, its minutes before the first
open one are in the store, and right: `closed_until` tells any thread, for questions about hours that are not rolled yet.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from widerow.engine.rows import Rows
from widerow.model.arrays import Codes, Flags, Ints
from widerow.model.intern import NameTable
from widerow.model.kernel import kernel
from widerow.model.names import Coded, Names
from widerow.model.times import HOUR, MINUTE, SECOND, Clock
from widerow.rollup.counts import Counted, of_rows
from widerow.rollup.room import Room

_MAX_DEVICES = 1 << 24
_COUNTED_HOURS = 4
"""Hours whose reports are counted here. Those before them are counted when they are rolled, from the store."""
_ROW_BYTES = 64
_CELL_BYTES = 20
"""What a row and a cell take in memory, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSettings:
    max_bytes: int = 512 << 20
    lateness_us: int = 20 * SECOND
    rest_us: int = 2 * SECOND
    late_us: int = 0
    """Reports older than this are not kept: their hours are rolled from the store. 0: all are."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    rows: Rows
    at_us: int
    minutes: tuple[int, ...]
    """Those it has reports of, in order. There are few, of live reports one or two, and thousands of chunks are looked at
    every second: looking at these costs next to nothing, looking at the rows held up everybody else for milliseconds."""
    first_us: Mapping[int, int]
    """The hours it has reports of, and the first minute of each that it has."""
    fresh: Names | None = None
    """Devices that were registered just before: nobody ever wrote one of them."""

    @classmethod
    def of(cls, rows: Rows, at_us: int, fresh: Names | None = None) -> _Chunk:
        minutes = _minutes_of(rows)
        first_us: dict[int, int] = {}
        for minute in minutes:
            first_us.setdefault(minute - minute % HOUR, minute)
        return cls(rows, at_us, minutes, first_us, fresh)

    def size(self) -> int:
        return _ROW_BYTES * len(self.rows) + _CELL_BYTES * len(self.rows.cells)


@dataclass(slots=True)
class _Devices:
    """Of one tenant, by the device's id here."""

    alone_from_us: int
    table: NameTable = field(default_factory=lambda: NameTable(_MAX_DEVICES))
    alone_us: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """From which event time on all its reports were written by this process."""
    closed_us: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Up to which event time its minutes are closed."""
    stale: dict[int, list[Codes]] = field(default_factory=dict)
    """Hours, and the devices whose hour is stale."""
    waiting: list[_Chunk] = field(default_factory=list)
    open_us: dict[int, int] = field(default_factory=dict)
    """Hours, and the first minute of each of which a report waits or is being written."""
    taken_us: int = -1
    """The last hour that was taken for rolling. What was stale of it is no longer known."""
    counted: dict[int, tuple[Ints, Ints, Ints]] = field(default_factory=dict)
    """Hours, and of the devices the reports of minutes that were closed, their values, and the bytes of these."""

    def ids(self, names: Names) -> Codes:
        ids = self.table.add(names)
        missing = len(self.table) - len(self.alone_us)
        if missing > 0:
            more = max(1024, 2 * len(self.table)) - len(self.alone_us)
            self.alone_us = np.concatenate([self.alone_us, np.full(more, self.alone_from_us)])
            self.closed_us = np.concatenate([self.closed_us, np.zeros(more, np.int64)])
        return ids

    def wait(self, chunk: _Chunk) -> None:
        self.waiting.append(chunk)
        _lower(self.open_us, chunk.first_us)

    def spoil(self, ids: Codes, hour_us: Ints) -> None:
        """These hours of these devices (pairs) are stale."""
        for hour in np.unique(hour_us).tolist():
            self.stale.setdefault(hour, []).append(np.unique(ids[hour_us == hour]))

    def count(self, rows: Rows) -> None:
        """Reports of minutes that were written."""
        ids, minute_us = _ids(self, rows), _minutes(rows)
        hour_us = minute_us - minute_us % HOUR
        _, values, payload = of_rows(rows)
        for hour in np.unique(hour_us).tolist():
            here = hour_us == hour
            had = self.counted.get(hour)
            counted = (
                np.bincount(ids[here], minlength=len(self.table)),
                np.bincount(ids[here], weights=values[here], minlength=len(self.table)).astype(np.int64),
                np.bincount(ids[here], weights=payload[here], minlength=len(self.table)).astype(np.int64),
            )
            if had is not None:
                for new, old in zip(counted, had, strict=True):
                    new[: len(old)] += old
            self.counted[hour] = counted
        for hour in sorted(self.counted)[:-_COUNTED_HOURS]:
            del self.counted[hour]

    def let_go(self) -> int:
        """Of all that waits: its hours are rolled from the store. Gives what is freed. Not while something is written."""
        freed = 0
        for chunk in self.waiting:
            device, hour_us = _device_hours(chunk.rows)
            self.spoil(self.ids(device.names)[device.codes], hour_us)
            freed += chunk.size()
        self.waiting, self.open_us = [], {}
        return freed

    @property
    def bytes(self) -> int:
        return self.table.bytes + self.alone_us.nbytes + self.closed_us.nbytes

    def alone(self, ids: Codes) -> int:
        """From which event time on all reports of all these devices were written by this process. A device that is not
        known (-1) has none from `alone_from_us` on.
        """
        if not len(self.alone_us):
            return self.alone_from_us
        return int(np.where(ids < 0, self.alone_from_us, self.alone_us[ids]).max(initial=0))

    def any_stale(self, hour_us: int, ids: Codes) -> bool:
        """Whether the hour is stale of one of the devices."""
        stale = self.stale.get(hour_us)
        if not stale:
            return False
        if len(stale) > 1:
            stale[:] = [np.unique(np.concatenate(stale))]  # for the next one who asks
        return bool(np.isin(ids, stale[0]).any())


class Windows:
    """The open minutes of all tenants."""

    def __init__(self, clock: Clock, settings: WindowSettings, *, alone_from_us: int) -> None:
        """`alone_from_us`: no other process has written, or will write, reports from this event time on."""
        self._clock, self._settings = clock, settings
        self._alone_from_us = alone_from_us
        self._lock = threading.Lock()
        """For what is put aside; never held for long."""
        self._incoming: dict[str, list[_Chunk]] = {}
        self._spoiled: dict[str, list[tuple[Coded, Ints]]] = {}
        self._open_us: dict[str, dict[int, int]] = {}
        """By tenant: hours, and the first minute of each that something was put aside for; all of it, if it was spoiled."""
        self._room = Room(settings.max_bytes)
        self._sorting = threading.Lock()
        """For what was put aside and is sorted: who holds it sees nothing on the way from the one to the other. Taken
        before `_lock`, where both are."""
        self._tenants: dict[str, _Devices] = {}
        self._forgotten = False

    @property
    def bytes(self) -> int:
        return self._room.bytes

    def held(self) -> dict[str, int]:
        """The same by tenant."""
        with self._lock:
            return self._room.held()

    def known(self) -> dict[str, int]:
        """What is remembered of devices, by tenant, in bytes."""
        return {name: known.bytes for name, known in list(self._tenants.items())}

    def add(self, tenant: str, rows: Iterable[Rows], *, fresh: Names | None = None, written: bool = True) -> None:
        """Reports that are durable now; or, not `written`, of which nobody knows.

        `fresh` devices were registered by this process just now.
        """
        now_us = self._clock.now_us()
        for each in rows:
            part = self._without_late(tenant, each, now_us)
            if part is None:
                continue
            chunk = _Chunk.of(part, now_us, fresh)
            with self._lock:
                kept = written and self._room.take(tenant, chunk.size())
                if kept:
                    self._incoming.setdefault(tenant, []).append(chunk)
                    _lower(self._open_us.setdefault(tenant, {}), chunk.first_us)
            if not kept:  # its reports are let go at once: what is remembered is bounded by the number of devices
                self.spoil(tenant, *_device_hours(part))

    def _without_late(self, tenant: str, rows: Rows, now_us: int) -> Rows | None:
        """Backlog is let go at once: its minutes do not rest while devices come back, and would all wait here, in pieces."""
        if not len(rows):
            return None
        if not self._settings.late_us:
            return rows
        late = np.asarray(rows.keys["event_us"]) < now_us - self._settings.late_us
        if not late.any():
            return rows
        if late.all():
            self.spoil(tenant, *_device_hours(rows))
            return None
        self.spoil(tenant, *_device_hours(rows.take(late)))
        return rows.take(~late)

    def tenants(self) -> list[str]:
        """Those that have something here."""
        with self._lock:
            return sorted(
                {*self._incoming, *self._spoiled, *(name for name, known in self._tenants.items() if known.waiting)}
            )

    def forget(self, alone_from_us: int) -> None:
        """Another process wrote meanwhile: nothing that is here is whole any more. By any thread."""
        with self._lock:
            self._alone_from_us, self._forgotten = alone_from_us, True

    def close(self, tenant: str, *, before_us: int = 0) -> list[Rows]:
        """The reports of minutes that close now: those that are due, and all before a time. Give them to `closed`."""
        with self._sorting:
            known, now_us = self._take_in(tenant), self._clock.now_us()
        if not known.waiting:
            return []
        due_us = now_us - self._settings.lateness_us - MINUTE
        resting_us = now_us - self._settings.rest_us
        restless = {minute for chunk in known.waiting if chunk.at_us > resting_us for minute in chunk.minutes}
        closing: list[Rows] = []
        waiting: list[_Chunk] = []
        freed = 0
        for chunk in known.waiting:
            closes = [m for m in chunk.minutes if m + MINUTE <= before_us or (m <= due_us and m not in restless)]
            if not closes:
                waiting.append(chunk)
                continue
            freed += chunk.size()
            if len(closes) == len(chunk.minutes):
                closing.append(chunk.rows)
                continue
            done = np.isin(_minutes(chunk.rows), closes)
            closing.append(chunk.rows.take(done))
            rest = _Chunk.of(chunk.rows.take(~done), chunk.at_us)
            freed -= rest.size()
            waiting.append(rest)
        known.waiting = waiting
        with self._lock:
            self._room.free(tenant, freed)
        return closing

    def closed(self, tenant: str, rows: Sequence[Rows], *, written: bool, kept: Sequence[Rows] = ()) -> None:
        """The minutes of these rows, which are all that `close` gave, are durable; or their write failed. `kept`: what of
        them was not erased meanwhile.
        """
        with self._sorting:
            known = self._tenants[tenant]
            for part in rows:
                ids, minute_us = _ids(known, part), _minutes(part)
                np.maximum.at(known.closed_us, ids, minute_us + MINUTE)
                if not written:
                    known.spoil(ids, minute_us - minute_us % HOUR)
            for part in kept if written else ():
                known.count(part)
            known.open_us = {}
            for chunk in known.waiting:
                _lower(known.open_us, chunk.first_us)

    def closed_until(self, tenant: str, hours: Iterable[int], devices: Sequence[str]) -> dict[int, int]:
        """Of hours: until when the minutes in the store say everything of these devices that was added before. Hours of
        which they say nothing for sure are left out. By any thread.
        """
        out: dict[int, int] = {}
        with self._sorting:
            with self._lock:
                known = None if self._forgotten else self._tenants.get(tenant)
                put_aside = dict(self._open_us.get(tenant, ()))
            if known is None or len(known.table) >= _MAX_DEVICES:
                return out
            ids = known.table.find(Names.of(devices))
            alone_us = known.alone(ids)
            for hour in hours:
                if hour < alone_us or hour <= known.taken_us or known.any_stale(hour, ids):
                    continue
                stop = hour + HOUR
                until = min(put_aside.get(hour, stop), known.open_us.get(hour, stop))
                if until > hour:
                    out[hour] = until
        return out

    def repeated(self, tenant: str, rows: Sequence[Rows]) -> Flags:
        """Which of the rows, all together, are of a device and time that another of them is of, too."""
        known = self._tenants[tenant]
        ids = np.concatenate([_ids(known, part) for part in rows])
        time_us = np.concatenate([np.asarray(part.keys["event_us"]) for part in rows])
        twice = np.zeros(len(ids), np.bool_)
        if _in_order(ids, time_us, np.full(len(known.alone_us), -1)):
            return twice
        order = np.lexsort((time_us, ids))
        same = (ids[order][1:] == ids[order][:-1]) & (time_us[order][1:] == time_us[order][:-1])
        twice[order[1:][same]] = True
        twice[order[:-1][same]] = True
        return twice

    def spoil(self, tenant: str, device: Coded, hour_us: Ints) -> None:
        """These hours of these devices are to be rolled from the store. By any thread."""
        hours = np.unique(hour_us).tolist()
        with self._lock:
            self._spoiled.setdefault(tenant, []).append((device, hour_us))
            _lower(self._open_us.setdefault(tenant, {}), dict(zip(hours, hours, strict=True)))

    def take(self, tenant: str, hour_us: int, devices: Sequence[str]) -> tuple[Flags, Counted]:
        """Which of the devices have an hour that is whole: its minutes are all in the store; and what was counted of these.
        Its reports that come later are late ones. Everything before the end of the hour must have been closed.
        """
        with self._sorting:
            known = self._take_in(tenant)
            ids = known.ids(Names.of(devices))
            whole: Flags = known.alone_us[ids] <= hour_us
            stale = known.stale.pop(hour_us, None)
            if stale:
                whole &= ~np.isin(ids, np.concatenate(stale))
                others = np.setdiff1d(np.concatenate(stale), ids)
                if len(others):  # of another shard
                    known.stale[hour_us] = [others.astype(np.int32)]
            known.closed_us[ids] = np.maximum(known.closed_us[ids], hour_us + HOUR)
            known.taken_us = max(known.taken_us, hour_us)
            counted = known.counted.get(hour_us)
            if counted is None:
                whole[:] = False
                counted = (np.zeros(0, np.int64),) * 3
            whole &= ids < len(counted[0])
            return whole, Counted(*(column[ids[whole]] for column in counted))

    def _take_in(self, tenant: str) -> _Devices:
        """Sort what came in: what is late or may not be relied on makes its hour stale, the rest waits. By who holds
        `_sorting`.
        """
        with self._lock:
            if self._forgotten:
                self._incoming.clear()
                self._spoiled.clear()
                self._open_us.clear()
                self._tenants.clear()
                self._room.clear()
                self._forgotten = False
            lets_go = self._room.must_let_go(tenant)
            incoming, spoiled = self._incoming.pop(tenant, []), self._spoiled.pop(tenant, [])
            self._open_us.pop(tenant, None)
            known = self._tenants.setdefault(tenant, _Devices(self._alone_from_us))
        for device, hour_us in spoiled:
            known.spoil(known.ids(device.names)[device.codes], hour_us)
        freed = 0
        for chunk in incoming:
            if chunk.fresh is not None and len(chunk.fresh):
                ids = known.ids(chunk.fresh)  # first: it may make the columns longer
                known.alone_us[ids] = 0
            ids, minute_us = _ids(known, chunk.rows), _minutes(chunk.rows)
            late = (minute_us < known.closed_us[ids]) | (known.alone_us[ids] > minute_us - minute_us % HOUR)
            if not late.any():
                known.wait(chunk)
                continue
            known.spoil(ids[late], (minute_us - minute_us % HOUR)[late])
            freed += chunk.size()
            if not late.all():
                rest = _Chunk.of(chunk.rows.take(~late), chunk.at_us)
                freed -= rest.size()
                known.wait(rest)
        if lets_go:
            freed += known.let_go()
        with self._lock:
            self._room.free(tenant, freed)
        return known


def _ids(known: _Devices, rows: Rows) -> Codes:
    device = rows.keys["device_id"]
    assert isinstance(device, Coded)
    return known.ids(device.names)[device.codes]


def _device_hours(rows: Rows) -> tuple[Coded, Ints]:
    """The hours of devices that rows are of, each once."""
    device, time_us = rows.keys["device_id"], np.asarray(rows.keys["event_us"])
    assert isinstance(device, Coded)
    hour_us = time_us - time_us % HOUR
    # As one number: `unique` over two columns takes ten times as long.
    first = np.unique((device.codes.astype(np.int64) << 32) + hour_us // HOUR, return_index=True)[1]
    return device.take(first), hour_us[first]


def _minutes_of(rows: Rows) -> tuple[int, ...]:
    """The minutes that rows are of, in order."""
    time_us = np.asarray(rows.keys["event_us"])
    if not len(time_us):
        return ()
    first, last = int(time_us.min()), int(time_us.max())
    if first - first % MINUTE == last - last % MINUTE:
        return (first - first % MINUTE,)
    return tuple(np.unique(time_us - time_us % MINUTE).tolist())


def _lower(open_us: dict[int, int], first_us: Mapping[int, int]) -> None:
    for hour, minute in first_us.items():
        open_us[hour] = min(minute, open_us.get(hour, minute))


def _minutes(rows: Rows) -> Ints:
    time_us: Ints = np.asarray(rows.keys["event_us"])
    return time_us - time_us % MINUTE


@kernel
def _in_order(ids: Codes, time_us: Ints, newest_us: Ints) -> bool:
    """Whether each row is newer than all rows of its device before it."""
    for i in range(len(ids)):
        if time_us[i] <= newest_us[ids[i]]:
            return False
        newest_us[ids[i]] = time_us[i]
    return True
