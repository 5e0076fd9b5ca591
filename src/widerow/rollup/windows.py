"""Reports of minutes that are still open, kept so that their minutes need not be computed from the store.

It is a cache of raw reports, and only that: whoever finds a minute here finds what the store has, or is told to look there.
Rule 1: an hour of a device is *whole* here if this process wrote every report of it, each time once, and all of its minutes
were closed from here. Whatever breaks that (a report that comes after its minute was closed, one that comes twice, a write
that failed, memory that ran out, for which the tenant that has most of it gives way, a process before this one) makes the
hour *stale*: it is rolled from the store.
Rule 2: a minute closes when it has ended, its reports have had `lateness_us` to arrive, and it has rested for `rest_us`.
Reports older than `late_us` make their hours stale at once.
Rule 3: `add`, `spoil` and `forget` may be called by any thread, and only put aside; all else is done by the one that rolls.
Rule 4: chunks are joined as they are sorted, and closed in parts: neither many small requests nor many devices make anything
that is done at once long.
Rule 5: what is put aside, waits, or is being written is *open*. Where an hour is not stale, its minutes before the first
open one are in the store, and right: `closed_until` tells any thread, for questions about hours that are not rolled yet.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from widerow.engine.rows import Rows, joined
from widerow.model.arrays import Codes, Flags, Ints
from widerow.model.handfuls import handfuls
from widerow.model.kernel import kernel
from widerow.model.names import Coded, Names
from widerow.model.times import HOUR, MINUTE, SECOND, Clock
from widerow.rollup.counts import Counted
from widerow.rollup.open_minutes import MAX_DEVICES, Chunk, Devices, codes_of, device_of, hours_in, lower, minutes_in
from widerow.rollup.room import Room

_TOGETHER = 4096
"""Rows up to which chunks are joined, ..."""
_PART = 4096
"""... and about how many are closed at a time: a few milliseconds of work. ..."""
_MOST_PARTS = 64
"""... More, if that were more parts than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSettings:
    max_bytes: int = 512 << 20
    lateness_us: int = 20 * SECOND
    rest_us: int = 2 * SECOND
    late_us: int = HOUR
    """Reports older than this are not kept: their hours are rolled from the store. 0: all are."""


class Windows:
    """The open minutes of all tenants."""

    def __init__(self, clock: Clock, settings: WindowSettings, *, alone_from_us: int) -> None:
        """`alone_from_us`: no other process has written, or will write, reports from this event time on."""
        self._clock, self._settings = clock, settings
        self._alone_from_us = alone_from_us
        self._lock = threading.Lock()
        """For what is put aside; never held for long."""
        self._incoming: dict[str, list[Chunk]] = {}
        self._spoiled: dict[str, list[tuple[Coded, Ints]]] = {}
        self._open_us: dict[str, dict[int, int]] = {}
        """By tenant: hours, and the first minute of each that something was put aside for; all of it, if it was spoiled."""
        self._room = Room(settings.max_bytes)
        self._sorting = threading.Lock()
        """For what was put aside and is sorted: who holds it sees nothing on the way from the one to the other. Taken
        before `_lock`, where both are."""
        self._tenants: dict[str, Devices] = {}
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
            chunk = Chunk.of(part, now_us, fresh)
            with self._lock:
                kept = written and self._room.take(tenant, chunk.size())
                if kept:
                    self._incoming.setdefault(tenant, []).append(chunk)
                    lower(self._open_us.setdefault(tenant, {}), chunk.first_us)
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

    def let_go(self, tenant: str) -> None:
        """Of all that is open of a tenant, as if there were no room for it: its hours are stale."""
        with self._sorting:
            freed = self._take_in(tenant).let_go()
            with self._lock:
                self._room.free(tenant, freed)

    def sort(self) -> None:
        """What was put aside, as far as there is any: else it is done when minutes close, all at once."""
        with self._lock:
            names = [*self._incoming, *(name for name in self._spoiled if name not in self._incoming)]
        for name in names:
            with self._sorting:
                self._take_in(name)

    def close(self, tenant: str, *, before_us: int = 0) -> list[Rows]:
        """The reports of minutes that close now: those that are due, and all before a time. Give them to `parts`, and then,
        whatever came of it, to `closed`.
        """
        with self._sorting:
            known, now_us = self._take_in(tenant), self._clock.now_us()
        if not known.waiting:
            return []
        due_us = now_us - self._settings.lateness_us - MINUTE
        resting_us = now_us - self._settings.rest_us
        restless = {minute for chunk in known.waiting if resting_us < chunk.at_us <= now_us for minute in chunk.minutes}
        closing: list[Rows] = []
        waiting: list[Chunk] = []
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
            done = np.isin(minutes_in(chunk.rows), closes)
            closing.append(chunk.rows.take(done))
            rest = Chunk.of(chunk.rows.take(~done), chunk.at_us)
            freed -= rest.size()
            waiting.append(rest)
        known.waiting = waiting
        with self._lock:
            self._room.free(tenant, freed)
        return closing

    def parts(self, tenant: str, rows: Sequence[Rows]) -> Iterator[Rows]:
        """The rows that `close` gave, a few at a time, those of a device together."""
        known = self._tenants[tenant]
        fewer = [joined(some) for some in handfuls(rows, len, 16 * _PART)]
        count = min(-(-sum(map(len, rows)) // _PART), _MOST_PARTS)
        cut = [_by_number(codes_of(part) % count, count) for part in fewer]
        for k in range(count):
            mine = [part.take(lists[k]) for part, lists in zip(fewer, cut, strict=True) if len(lists[k])]
            if mine:
                yield known.named(joined(mine))

    def count(self, tenant: str, rows: Rows) -> None:
        """The minutes of these rows of a part are durable."""
        self._tenants[tenant].count(rows)

    def closed(self, tenant: str, rows: Sequence[Rows], *, written: bool) -> None:
        """The minutes of all rows that `close` gave are durable; or the write of some failed."""
        known = self._tenants[tenant]
        for part in rows:
            np.maximum.at(known.closed_us, codes_of(part), minutes_in(part) + MINUTE)
        with self._sorting:
            for part in () if written else rows:
                known.spoil(codes_of(part), hours_in(part))
            known.open_us = {}
            for chunk in known.waiting:
                lower(known.open_us, chunk.first_us)

    def closed_until(self, tenant: str, hours: Iterable[int], devices: Sequence[str]) -> dict[int, int]:
        """Of hours: until when the minutes in the store say everything of these devices that was added before. Hours of
        which they say nothing for sure are left out. By any thread.
        """
        out: dict[int, int] = {}
        with self._sorting:
            with self._lock:
                known = None if self._forgotten else self._tenants.get(tenant)
                put_aside = dict(self._open_us.get(tenant, ()))
            if known is None or len(known.table) >= MAX_DEVICES:
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

    def repeated(self, tenant: str, rows: Rows) -> Flags:
        """Which of the rows of a part are of a device and time that another of them is of, too."""
        known = self._tenants[tenant]
        ids, time_us = known.ids_of(rows), np.asarray(rows.keys["event_us"])
        twice = np.zeros(len(ids), np.bool_)
        if _in_order(ids, time_us, known.newest_us):
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
            lower(self._open_us.setdefault(tenant, {}), dict(zip(hours, hours, strict=True)))

    def take(self, tenant: str, hour_us: int, devices: Sequence[str]) -> tuple[Flags, Counted]:
        """Which of the devices have an hour that is whole: its minutes are all in the store; and what was counted of these.
        Its reports that come later are late ones. Everything before the end of the hour must have been closed.
        """
        with self._sorting:
            known = self._take_in(tenant)
            ids = known.ids(Names.of(devices))
            whole: Flags = (known.alone_us[ids] <= hour_us) & (ids >= 0)
            whole &= ~np.isin(ids, known.stale_in(hour_us))
            known.closed_us[ids] = np.maximum(known.closed_us[ids], hour_us + HOUR)
            known.taken_us = max(known.taken_us, hour_us)
            counted = known.counted.get(hour_us, np.zeros((3, 0), np.int64))
            whole &= ids < counted.shape[1]
            whole[whole] = counted[0, ids[whole]] > 0
            known.forget_stale(hour_us, ids)
            return whole, Counted(*(column[ids[whole]] for column in counted))

    def _take_in(self, tenant: str) -> Devices:
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
            known = self._tenants.setdefault(tenant, Devices(self._alone_from_us))
        for device, hour_us in spoiled:
            known.spoil(known.ids(device.names)[device.codes], hour_us)
        freed = 0
        for chunk in incoming:
            if chunk.fresh is not None and len(chunk.fresh):
                ids = known.ids(chunk.fresh)  # first: it may make the columns longer
                known.alone_us[ids] = 0
        for some in handfuls(incoming, lambda chunk: len(chunk.rows), _TOGETHER):
            chunk = known.numbered(some)
            freed += sum(each.size() for each in some) - chunk.size()
            ids, minute_us = codes_of(chunk.rows), minutes_in(chunk.rows)
            late = (minute_us < known.closed_us[ids]) | (known.alone_us[ids] > minute_us - minute_us % HOUR)
            if not late.any():
                known.wait(chunk)
                continue
            known.spoil(ids[late], (minute_us - minute_us % HOUR)[late])
            freed += chunk.size()
            if not late.all():
                rest = Chunk.of(chunk.rows.take(~late), chunk.at_us)
                freed -= rest.size()
                known.wait(rest)
        if lets_go:
            freed += known.let_go()
        with self._lock:
            self._room.free(tenant, freed)
        return known


def _by_number(number: Codes, count: int) -> list[Ints]:
    """For each of the numbers below `count`, where it stands, in order."""
    order = np.argsort(number, kind="stable")
    return np.split(order, np.searchsorted(number[order], np.arange(1, count)))


def _device_hours(rows: Rows) -> tuple[Coded, Ints]:
    """The hours of devices that rows are of, each once."""
    device, hour_us = device_of(rows), hours_in(rows)
    # As one number: `unique` over two columns takes ten times as long.
    first = np.unique((device.codes.astype(np.int64) << 32) + hour_us // HOUR, return_index=True)[1]
    return device.take(first), hour_us[first]


@kernel
def _in_order(ids: Codes, time_us: Ints, newest_us: Ints) -> bool:
    """Whether each row is newer than all rows of its device before it. `newest_us` is -1 for all before and after."""
    ordered = True
    for i in range(len(ids)):
        ordered &= time_us[i] > newest_us[ids[i]]
        newest_us[ids[i]] = time_us[i]
    for i in range(len(ids)):
        newest_us[ids[i]] = -1
    return ordered
