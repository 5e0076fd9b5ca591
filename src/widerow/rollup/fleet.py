"""What a tenant's fleet says of each hour: of all devices, and of those of each type.

Rule 1: an hour of a fleet is put together from what its shards say, these from the hours of their devices. So a device whose
reports come late costs the hours of one shard, not of all. Nothing is added to anything: rolling again is harmless.
Rule 2: the rows of shards and of the fleet are durable before the mark that asked for them goes.
The same holds as for hours of devices if something is erased meanwhile (rule 5 of `roll`).
Rule 3: devices go by the registry, in the order of their names, some hundreds at a time.
Rule 4: where partitions move from one process to another, two may roll an hour at once, of different shards. So the version
of an hour is taken when the shards are durable: the greater one has read what both wrote. And who finds a greater one than
its own when it has written, of a clock that is ahead, leaves the mark: it may not have been read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from widerow.catalog.attributes import Attributes
from widerow.catalog.catalog import Catalog
from widerow.engine.port import ALL, Engine, Span
from widerow.engine.rows import Key, Rows
from widerow.model.arrays import Ints
from widerow.model.names import Coded
from widerow.model.tags import with_tags
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import DAY, HOUR, MS, Clock, TimeSpan
from widerow.rollup.backlog import Backlog, units_of
from widerow.rollup.counts import Counts
from widerow.rollup.crew import CrewSettings
from widerow.rollup.doubts import Doubts
from widerow.rollup.fleet_store import FleetStore
from widerow.rollup.fleet_summary import TYPE, FleetSummary, first_types, hours_of_devices, nothing, summary_of_fleets
from widerow.rollup.inputs import windows_are_there
from widerow.rollup.readable import Unreadable
from widerow.rollup.roll import Rolled
from widerow.rollup.store import Rollups
from widerow.rollup.unit import Unit
from widerow.rollup.versions import Versions
from widerow.schema.rollups import DAYS, DIRTY, DIRTY_FLEET, HOURS
from widerow.schema.shards import SHARDS
from widerow.telemetry.erasure import Mark

_AT_ONCE = 512
"""Devices whose hours are in memory at a time."""


@dataclass(frozen=True, slots=True)
class Stale:
    """What the rows of a fleet cannot be asked about: shards by hour, and shards over spans."""

    hours: Mapping[int, frozenset[int]] = field(default_factory=dict)
    doubts: tuple[tuple[TimeSpan, frozenset[int]], ...] = ()

    @classmethod
    def of(cls, units: Iterable[tuple[int, int]], doubts: tuple[tuple[TimeSpan, frozenset[int]], ...] = ()) -> Stale:
        """From starts of hours and shards."""
        hours: dict[int, set[int]] = {}
        for hour_us, shard in units:
            hours.setdefault(hour_us, set()).add(shard)
        return cls({hour_us: frozenset(shards) for hour_us, shards in hours.items()}, doubts)

    def within(self, span: TimeSpan) -> dict[int, frozenset[int]]:
        """The hours that begin within a span and are stale, with the shards that they are stale of; in order."""
        found = {hour_us: shards for hour_us, shards in self.hours.items() if span.start_us <= hour_us < span.stop_us}
        for doubt, shards in self.doubts:
            start, stop = max(span.start_us, doubt.start_us - doubt.start_us % HOUR), min(span.stop_us, doubt.stop_us)
            for hour_us in range(start, stop, HOUR):
                found[hour_us] = found.get(hour_us, frozenset()) | shards
        return dict(sorted(found.items()))


def type_tags(attributes: Attributes) -> Callable[[str, Rows], Rows]:
    """What puts on rows of hours the type that their device has: for `Roller`."""

    def tagged(tenant: str, rows: Rows) -> Rows:
        device = rows.keys["device_id"]
        assert isinstance(device, Coded)
        types = attributes.of(tenant, device.names, (TYPE,))[TYPE].take(device.codes)
        some = np.flatnonzero(types.codes >= 0)
        if not len(some):
            return rows
        cells = with_tags(rows.cells, TYPE, some, types.take(some))
        return Rows(rows.keys, rows.version_us, rows.expire_us, cells, rows.cursor)

    return tagged


class Fleet:
    """Rolls the hours of fleets. `roll` is called by one thread at a time; the rest by any."""

    def __init__(
        self,
        engine: Engine,
        rollups: Rollups,
        backlog: Backlog,
        catalog: Catalog,
        clock: Clock,
        versions: Versions | None = None,
        crew: CrewSettings | None = None,
        counts: Counts | None = None,
        doubts: Doubts | None = None,
    ) -> None:
        """`backlog` is the roller's: hours that were rolled mark their fleet there. `crew`: others roll, too. `counts`: what
        is stored of devices, to be summed up with them. `doubts`: what was erased and is not known to be marked yet.
        """
        self._crew, self._counts = crew, counts
        self._engine, self._rollups, self._backlog, self._clock = engine, rollups, backlog, clock
        self._devices = catalog.devices
        self.store = FleetStore(engine, clock)
        self._writing = threading.Lock()
        self._versions = versions or Versions(clock)
        self.between: Callable[[], None] = lambda: None
        """Called between the parts of a roll, which may take seconds. It may raise: what is not whole stays marked."""
        self.trusts: Callable[[], bool] = lambda: True
        """See `Roller`."""
        self.doubts = doubts or Doubts()

    def roll(self, tenant: Tenant, *units: Unit) -> Rolled:
        """Compute an hour again, for shards of it that are marked. One that is not has been rolled meanwhile."""
        pending = self._backlog.pending()
        marked = [unit for unit in units if unit in pending]
        if not marked:
            return Rolled(0)
        if not windows_are_there(tenant, HOURS, marked[0].start_us, self._clock.now_us()) and not self.trusts():
            return Rolled(0)
        if self._crew:
            taken_us = self._clock.version_us() - self._crew.ripe_us
        else:  # those that come within this millisecond may be of what is written after it was read
            taken_us = max(self._clock.version_us() - MS, *(pending[unit] for unit in marked))
        erasure = self._rollups.erasure
        seen = erasure.seen(tenant.name)
        hour_us = marked[0].start_us
        devices, version_us, unreadable = 0, 0, Unreadable()

        def recompute(which: Ints) -> None:
            nonlocal devices, version_us
            shards = [marked[i].shard for i in which]
            count, version_us = self.recompute(tenant, hour_us, shards, between=self.between)
            devices += count

        lost = set(unreadable.beside(np.arange(len(marked)), recompute).tolist())
        left = tuple(unit for i, unit in enumerate(marked) if i in lost)
        touched = erasure.touched_since(tenant.name, seen)
        done = [unit for unit in marked if unit.shard not in touched and unit not in left]
        if done and self.store.newest_us(tenant, hour_us) <= version_us:
            self._backlog.finish(done, taken_us)
        return Rolled(devices, unreadable=left, trouble=unreadable.trouble)

    def recompute(
        self,
        tenant: Tenant,
        hour_us: int,
        shards: Iterable[int] = range(SHARDS),
        *,
        newer_than_us: int = 0,
        between: Callable[[], None] = lambda: None,
    ) -> tuple[int, int]:
        """Compute what these shards say of an hour, and what the fleet does; gives the number of devices that were asked,
        and the version of the fleet's hour.

        `newer_than_us`: a version that must lose, though it may come from a clock that is ahead.
        """
        shards = list(shards)
        with self._writing:  # who reads later writes later: what is replaced is removed first
            count, version_us = 0, max(self._versions.next(), newer_than_us + MS)
            for shard in shards:
                between()
                summary, devices = self.shard_says(tenant, hour_us, shard)
                self.store.put_partial(tenant, shard, hour_us, summary, version_us)
                count += devices
            if self._counts:
                self._sum_up(self._counts, tenant, hour_us, shards, version_us)
            version_us = max(self._versions.next(), newer_than_us + MS)
            self.store.put_hour(tenant, hour_us, self.fleet_says(tenant, hour_us), version_us)
        return count, version_us

    def _sum_up(self, counts: Counts, tenant: Tenant, hour_us: int, shards: Sequence[int], version_us: int) -> None:
        """What is stored of these shards in an hour; and in its day, if that was rolled: something of it may be erased."""
        changes = [counts.sums_of(tenant, HOURS, hour_us, shards, version_us)]
        day_us = hour_us - hour_us % DAY
        if day_us + DAY <= self._clock.now_us():
            changes.append(counts.sums_of(tenant, DAYS, day_us, shards, version_us))
        self._engine.write(changes)

    def shard_says(self, tenant: Tenant, hour_us: int, shard: int) -> tuple[FleetSummary, int]:
        """From the hours of all devices of a shard; and how many devices it has."""
        summary, count = nothing(), 0
        span = TimeSpan(hour_us, hour_us + 1)
        for names in self._names(tenant.name, shard):
            count += len(names)
            summary = hours_of_devices(summary, self._rollups.read(tenant, names, HOURS, span, beyond_us=GUARD_US))
        return summary, count

    def fleet_says(self, tenant: Tenant, hour_us: int) -> FleetSummary:
        """From what its shards say."""
        span = TimeSpan(hour_us, hour_us + 1)
        return first_types(summary_of_fleets(self.store.partials(tenant, range(SHARDS), span, beyond_us=GUARD_US)))

    def hours(self, tenant: Tenant, shard: int, span: TimeSpan) -> Iterator[list[Rows]]:
        """The hours within a span of all devices of a shard, of some hundreds of these at a time."""
        for names in self._names(tenant.name, shard):
            yield self._rollups.read(tenant, names, HOURS, span, beyond_us=GUARD_US)

    def _names(self, tenant: str, shard: int) -> Iterator[list[str]]:
        for chunk in self._devices.names_of_shard(tenant, shard):
            names = chunk.to_list()
            for start in range(0, len(names), _AT_ONCE):
                yield names[start : start + _AT_ONCE]

    # -- what is stale

    def stale(self, tenant: Tenant, unrolled: Callable[[], Iterable[tuple[int, int]]]) -> Stale:
        """What the rows of a fleet do not tell as reports do, for a process that rolls. `unrolled` gives the starts and
        shards of hours of devices.
        """
        doubts, hours = self.doubts.shards(tenant.name), unrolled()  # in this order: what is rolled is marked here first
        return Stale.of((*hours, *self._backlog.of(tenant.name)), doubts)

    def stale_in_store(self, tenant: Tenant, present_us: int | None = None) -> Stale:
        """The same as the store has it: for processes that do not roll. From `present_us` on everything is taken for stale,
        without a look.
        """
        doubts = self.doubts.shards(tenant.name)
        shards: list[Key] = [(tenant.name, shard) for shard in range(SHARDS)]
        found = (
            (unit.start_us, unit.shard)
            for table in (DIRTY, DIRTY_FLEET)
            for rows in self._engine.scan(table, shards, ALL if present_us is None else Span(None, present_us))
            for unit in units_of(table, rows)
        )
        present = range(present_us, self._clock.now_us() + DAY, HOUR) if present_us is not None else ()
        return Stale.of((*found, *((hour, shard) for hour in present for shard in range(SHARDS))), doubts)

    def purge(self, tenant: str, mark: Mark) -> None:
        """Take the fleet of a tenant that is gone off the disk."""
        for keep_us in mark.rollup_classes(HOURS.name):
            self.store.remove(tenant, keep_us, mark.version_us)
