"""Rolling: the hours that are marked, from raw reports upwards to days.

Rule 1: an hour is rolled whole: its minutes from all its raw reports, the hour from these minutes. Its day is marked then,
and rolled from all hours of the day when its time has come; so is the fleet's hour. Nothing is added to what is there, so
rolling again is harmless, and rolling twice at once, too.
Rule 2: a rollup's version is the instant its inputs were read: who read earlier loses, however late he writes.
Rule 3: marks of what follows are written with the hours; the hour's own marks go when all of that is durable.
Rule 4: minutes that `Windows` has whole are written as they close, and an hour of such minutes is rolled from them.
Rule 5: marks stay of units of which something was erased that was not known when they were read: what was read may hold it
still, and whoever erased it has perhaps found no record of the hour yet, and so did not mark it. The same holds for what
was erased, by its clock, when the roll had begun: what it wrote is hidden.
Rule 6: with an hour goes the row of each device that says in which hour its metrics have their newest values.
Rule 7: marks stay as well of units of which some bytes cannot be read. What was rolled of such devices before stays: made of
the readable part it would say less. The other devices are rolled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from widerow.engine.port import Engine, Span
from widerow.engine.rows import Rows
from widerow.model.arrays import Flags, Ints
from widerow.model.errors import Unavailable
from widerow.model.names import Coded, Names
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import DAY, HOUR, MS, Clock, TimeSpan
from widerow.rollup.aggregate import coarser_of, minutes_of
from widerow.rollup.backlog import Backlog
from widerow.rollup.counts import NOTHING_COUNTED, Counted, Counts, count_raw
from widerow.rollup.crew import CrewSettings
from widerow.rollup.dirt import Dirt
from widerow.rollup.inputs import hours_are_there, raw_is_there
from widerow.rollup.marks import Marks
from widerow.rollup.newest import RolledHour
from widerow.rollup.open_minutes import device_of, hours_in
from widerow.rollup.readable import Unreadable
from widerow.rollup.store import Rollups
from widerow.rollup.unit import Unit
from widerow.rollup.versions import Versions
from widerow.rollup.windows import Windows
from widerow.schema.rollups import DAYS, DIRTY_DAYS, DIRTY_FLEET, HOURS, MINUTES, Level
from widerow.schema.shards import shards_of
from widerow.schema.table import Table
from widerow.telemetry.erasure import EVER, Seen, drop_erased_rows
from widerow.telemetry.store import Telemetry

_AT_ONCE = 64
"""Devices whose raw hour is in memory at a time."""
_MINUTES_AT_ONCE = 512
"""The same where their minutes are read."""


@dataclass(frozen=True, slots=True)
class Rolled:
    """What rolling a unit came to."""

    devices: int
    from_minutes: int = 0
    """How many of them were rolled from minutes that were there already."""
    unreadable: tuple[Unit, ...] = ()
    """Units that are left, in part or whole, since what they are rolled from cannot be read: ..."""
    trouble: str = ""
    """... why not."""


class Roller:
    """Rolls units. `roll`, `roll_day` and `close` are called by one thread at a time; the rest by any."""

    def __init__(
        self,
        engine: Engine,
        telemetry: Telemetry,
        rollups: Rollups,
        marks: Marks,
        clock: Clock,
        windows: Windows | None = None,
        tagged: Callable[[str, Rows], Rows] = lambda _, rows: rows,
        versions: Versions | None = None,
        crew: CrewSettings | None = None,
        told: Callable[[Tenant, Rows], None] = lambda _tenant, _hours: None,
    ) -> None:
        """`tagged` puts on rows of hours what is stored with them of their devices. `crew`: others roll, too.

        `told` gets hours that are in the store; if it raises they are rolled again, and told again.
        """
        self._engine, self._telemetry, self._rollups = engine, telemetry, rollups
        self._marks, self._windows, self._clock = marks, windows, clock
        self._tagged, self._crew, self._told = tagged, crew, told
        self.days, self.fleet = Backlog(engine, DIRTY_DAYS), Backlog(engine, DIRTY_FLEET)
        self.between: Callable[[], None] = lambda: None
        """Called between the parts of a roll, which may take seconds."""
        self.trusts: Callable[[], bool] = lambda: True
        """Whether the clock may be trusted with what is given up because its reports, or hours, seem to be gone."""
        self._versions = versions or Versions(clock)
        self.counts = Counts(engine, clock, telemetry.erasure)

    def recover(self) -> None:
        """Learn what processes before this one left to be rolled."""
        self._marks.recover()
        self.days.recover()
        self.fleet.recover()

    def dirt(self, tenant: Tenant, devices: Sequence[str]) -> Dirt:
        """What of these devices is not rolled yet. Of what this process does not write, as far as it knows."""
        name, shards = tenant.name, set(shards_of(Names.of(devices)).tolist())
        hours, days = self._marks.starts(name, shards), self.days.starts(name, shards)
        # After the marks: an hour that is taken for rolling meanwhile is known to be when its minutes are asked for.
        minutes = self._windows.closed_until(name, hours, devices) if self._windows is not None else {}
        for hour in [*minutes]:
            if self._erased(name, TimeSpan(hour, hour + HOUR)):
                del minutes[hour]
        return Dirt.of(hours, days, minutes)

    def close(self, tenant: Tenant, *, before_us: int = 0) -> int:
        """Write the minutes that close now; gives the number of reports they are of."""
        if self._windows is None:
            return 0
        name, windows = tenant.name, self._windows
        rows = windows.close(name, before_us=before_us)
        if not rows:
            return 0
        written = False
        try:
            version_us = self._versions.next()  # one for all: who goes on after a long pause must lose, as rule 2 has it
            for part in windows.parts(name, rows):
                self._close(tenant, windows, part, version_us)
            written = True
        finally:
            windows.closed(name, rows, written=written)
        return sum(len(part) for part in rows)

    def _close(self, tenant: Tenant, windows: Windows, rows: Rows, version_us: int) -> None:
        """The minutes of some devices."""
        twice = windows.repeated(tenant.name, rows)
        if twice.any():  # which of two reports of the same time counts the store knows
            windows.spoil(tenant.name, device_of(rows).take(twice), hours_in(rows)[twice])
        kept = drop_erased_rows(self._telemetry.erasure.marks(tenant.name), rows)
        if not len(kept):
            return
        minutes = minutes_of(tenant.name, [kept], version_us=version_us)
        self._engine.write(self._rollups.changes(tenant, MINUTES, minutes))
        windows.count(tenant.name, kept)

    def roll(self, tenant: Tenant, *units: Unit) -> Rolled:
        """Roll units of one hour."""
        hour = TimeSpan(units[0].start_us, units[0].start_us + HOUR)
        if not self.has_raw(tenant, hour.start_us) and not self.trusts():
            return Rolled(0)  # it stays marked
        taken, seen = self._marks.take(*units), self._telemetry.erasure.seen(tenant.name)
        whole, counted = np.zeros(len(taken.devices), np.bool_), NOTHING_COUNTED
        if self._windows is not None:
            self.close(tenant, before_us=hour.stop_us)
            whole, counted = self._windows.take(tenant.name, hour.start_us, taken.devices)
            left = ~self._some_erased(tenant.name, hour, taken.devices)
            whole, counted = whole & left, counted.take(left[whole])
        devices, from_minutes, from_raw = np.array(taken.devices, object), np.flatnonzero(whole), np.flatnonzero(~whole)
        lost, unreadable = from_raw[:0], Unreadable()

        def roll_minutes(which: Ints) -> None:
            place = np.searchsorted(from_minutes, which)
            self._roll_minutes(tenant, hour, devices[which].tolist(), counted.take(place))

        try:
            for some in _parts(from_minutes, _MINUTES_AT_ONCE):
                self.between()
                from_raw = np.append(from_raw, unreadable.beside(some, roll_minutes))
            for some in _parts(from_raw, _AT_ONCE) if self.has_raw(tenant, hour.start_us) else ():
                self.between()
                roll_raw = lambda which: self._roll_raw(tenant, hour, devices[which].tolist())  # noqa: E731
                lost = np.append(lost, unreadable.beside(some, roll_raw))
        except BaseException:
            if self._windows is not None:  # minutes may be missing now: from raw, when it is tried again
                self._windows.spoil(tenant.name, Coded.of(taken.devices), np.full(len(devices), hour.start_us))
            raise
        if self._windows is not None and len(lost):
            self._windows.spoil(tenant.name, Coded.of(devices[lost].tolist()), np.full(len(lost), hour.start_us))
        unread = _of_devices(units, devices[lost].tolist())
        done = [unit for unit in self._not_erased_since(tenant.name, seen, units) if unit not in unread]
        if done:
            self._marks.finish(replace(taken, units=done))
        return Rolled(len(devices) - len(lost), int(whole.sum()), unread, unreadable.trouble)

    def _not_erased_since(self, tenant: str, seen: Seen, units: Sequence[Unit]) -> list[Unit]:
        """Rule 5: the units whose marks may go."""
        touched = self._telemetry.erasure.touched_since(tenant, seen)
        return [unit for unit in units if unit.shard not in touched]

    def has_raw(self, tenant: Tenant, hour_us: int) -> bool:
        """Whether all raw reports of an hour are still there. Without them what was rolled before stays as it is."""
        return raw_is_there(tenant, hour_us, self._clock.now_us())

    def _erased(self, tenant: str, hour: TimeSpan) -> bool:
        """Whether part of the hour may have been erased after its minutes were closed. What was erased a day before the
        hour began was received before that, and so is of another.
        """
        return any(
            mark.span.start_us < hour.stop_us and mark.span.stop_us > hour.start_us and mark.version_us > hour.start_us - DAY
            for mark in self._telemetry.erasure.marks(tenant).partial
        )

    def _some_erased(self, tenant: str, hour: TimeSpan, devices: Sequence[str]) -> Flags:
        """Of which devices that may be so; and those that were erased whole, and are there again."""
        if self._erased(tenant, hour):
            return np.ones(len(devices), np.bool_)
        return self._telemetry.erasure.marks(tenant).erased_us(Names.of(devices)) > hour.start_us - DAY

    def _roll_raw(self, tenant: Tenant, hour: TimeSpan, devices: Sequence[str]) -> None:
        version_us = self._versions.next()
        raw = self._telemetry.read_many(tenant, devices, hour, beyond_us=GUARD_US)
        minutes = minutes_of(tenant.name, raw, version_us=version_us)
        hours = coarser_of(tenant.name, [minutes], HOURS, version_us=version_us)
        beneath = self._rollups.changes(tenant, MINUTES, minutes)
        counted = count_raw(raw, devices)
        self._write_hours(tenant, hour, devices, version_us, beneath, hours, [minutes], counted)
        # What was erased since it was rolled leaves nothing that would overwrite its records.
        if self._telemetry.erasure.marks(tenant.name).any():
            for level in (MINUTES, HOURS):
                self._clear(tenant, devices, level, hour, version_us)

    def _roll_minutes(self, tenant: Tenant, hour: TimeSpan, devices: Sequence[str], counted: Counted) -> None:
        version_us = self._versions.next()
        minutes = self._rollups.read(tenant, devices, MINUTES, hour, beyond_us=GUARD_US)
        hours = coarser_of(tenant.name, minutes, HOURS, version_us=version_us)
        self._write_hours(tenant, hour, devices, version_us, [], hours, minutes, counted)

    def _write_hours(
        self,
        tenant: Tenant,
        hour: TimeSpan,
        devices: Sequence[str],
        version_us: int,
        beneath: list[tuple[Table, Rows]],
        hours: Rows,
        minutes: Sequence[Rows],
        counted: Counted,
    ) -> None:
        """`beneath` is to be written with the hours; `minutes` are what these are from."""
        tagged = self._tagged(tenant.name, hours)
        name, day_us = tenant.name, hour.start_us - hour.start_us % DAY
        counts = self.counts.hour(tenant, hour.start_us, devices, counted, minutes, tagged, version_us)
        newest = self._newest(tenant, devices, [hours], version_us, hour.start_us)
        marked_us = max(version_us, self._clock.version_us())
        self._engine.write(
            [
                (DIRTY_DAYS, self.days.marks(name, day_us, devices, marked_us)),
                (DIRTY_FLEET, self.fleet.marks(name, hour.start_us, devices, marked_us)),
                *beneath,
                *self._rollups.changes(tenant, HOURS, tagged),
                counts,
                newest,
            ]
        )
        if self._crew and self._clock.now_us() > marked_us + self._crew.longest_us:
            raise Unavailable("writing hours took so long that later marks may be gone: the hours are rolled again")
        self._told(tenant, hours)

    def _newest(
        self, tenant: Tenant, devices: Sequence[str], hours: Sequence[Rows], version_us: int, hour_us: int | None = None
    ) -> tuple[Table, Rows]:
        """With a day, or with the hour that is given."""
        rollups, oldest_us = self._rollups, self._telemetry.readable(tenant, EVER).start_us
        before = lambda device, metrics: rollups.newest_before(tenant, device, metrics, hour_us or 0, oldest_us)  # noqa: E731
        rolled = RolledHour(hour_us, before) if hour_us is not None else None
        marks = self._telemetry.erasure.marks(tenant.name)
        return rollups.newest.change(
            tenant.name, devices, hours, version_us, oldest_us=oldest_us, marks=marks, rolled=rolled
        )

    def roll_day(self, tenant: Tenant, *units: Unit) -> Rolled:
        """Roll units of one day, from all its hours. Where some of these are gone it stays as it is."""
        if not self.has_hours(tenant, units[0].start_us) and not self.trusts():
            return Rolled(0)
        taken_us = self._versions.next() - (self._crew.ripe_us if self._crew else 0)
        seen = self._telemetry.erasure.seen(tenant.name)
        devices = self.days.devices(units, taken_us)
        span = TimeSpan(units[0].start_us, units[0].start_us + DAY)
        lost, unreadable = list[str](), Unreadable()
        for some in _parts(np.arange(len(devices)), _MINUTES_AT_ONCE) if self.has_hours(tenant, span.start_us) else ():
            self.between()
            roll = lambda which: self._roll_hours(tenant, span, [devices[i] for i in which])  # noqa: E731
            lost += [devices[i] for i in unreadable.beside(some, roll)]
        version_us = self._versions.next()
        self._engine.write([self.counts.sums_of(tenant, DAYS, span.start_us, [unit.shard for unit in units], version_us)])
        left = _of_devices(units, lost)
        done = [unit for unit in self._not_erased_since(tenant.name, seen, units) if unit not in left]
        if done:
            self.days.finish(done, taken_us)
        return Rolled(len(devices) - len(lost), unreadable=left, trouble=unreadable.trouble)

    def _roll_hours(self, tenant: Tenant, day: TimeSpan, devices: Sequence[str]) -> None:
        version_us = self._versions.next()
        hours = self._rollups.read(tenant, devices, HOURS, day, beyond_us=GUARD_US)
        days = coarser_of(tenant.name, hours, DAYS, version_us=version_us)
        counted = self.counts.day(tenant, day.start_us, devices, days, version_us)
        newest = self._newest(tenant, devices, hours, version_us)
        self._engine.write([*self._rollups.changes(tenant, DAYS, days), counted, newest])
        if self._telemetry.erasure.marks(tenant.name).any():
            self._clear(tenant, devices, DAYS, day, version_us)

    def has_hours(self, tenant: Tenant, day_us: int) -> bool:
        """Whether all hours of a day are still there."""
        return hours_are_there(tenant, day_us, self._clock.now_us())

    def _clear(self, tenant: Tenant, devices: Sequence[str], level: Level, span: TimeSpan, version_us: int) -> None:
        """Remove what was rolled before that version."""
        for table, part, keys in self._rollups.places(tenant, devices, level, span, beyond_us=GUARD_US):
            self._engine.delete(table, keys, Span(part.start_us, part.stop_us), version_us=version_us - MS)


def _parts(which: Ints, most: int) -> list[Ints]:
    return [which[i : i + most] for i in range(0, len(which), most)]


def _of_devices(units: Sequence[Unit], devices: Sequence[str]) -> tuple[Unit, ...]:
    """Which of the units have one of the devices."""
    shards = set(shards_of(Names.of(devices)).tolist())
    return tuple(unit for unit in units if unit.shard in shards)
