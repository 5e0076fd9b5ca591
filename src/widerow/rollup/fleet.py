"""What a tenant's fleet says of each hour: of all devices, and of those of each type.

Rule 1: an hour of a fleet is put together from what its shards say, these from the hours of their devices. So a device whose
reports come late costs the hours of one shard, not of all. Nothing is added to anything: rolling again is harmless.
Rule 2: the rows of shards and of the fleet are durable before the mark that asked for them goes.
Rule 3: devices go by the registry, in the order of their names, some hundreds at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from widerow.catalog.attributes import Attributes
from widerow.catalog.catalog import Catalog
from widerow.engine.port import Engine, Span
from widerow.engine.rows import Rows
from widerow.model.names import Coded
from widerow.model.tags import with_tags
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import HOUR, MS, Clock, TimeSpan, whole_ms
from widerow.rollup.backlog import Backlog, mark_rows
from widerow.rollup.fleet_store import FleetStore
from widerow.rollup.fleet_summary import NOTHING, TYPE, FleetSummary, hours_of_devices, summary_of_fleets
from widerow.rollup.roll import Rolled
from widerow.rollup.store import Rollups
from widerow.rollup.unit import Unit
from widerow.schema.rollups import HOURS
from widerow.schema.shards import SHARDS, shard_of

_AT_ONCE = 512
"""Devices whose hours are in memory at a time."""


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
    """Rolls the hours of fleets. `roll` and `recompute` are called by one thread at a time; the rest by any."""

    def __init__(self, engine: Engine, rollups: Rollups, backlog: Backlog, catalog: Catalog, clock: Clock) -> None:
        """`backlog` is the roller's: hours that were rolled mark their fleet there."""
        self._engine, self._rollups, self._backlog, self._clock = engine, rollups, backlog, clock
        self._devices = catalog.devices
        self.store = FleetStore(engine, clock)
        self._lock = threading.Lock()
        self._version_us = 0

    def roll(self, tenant: Tenant, unit: Unit) -> Rolled:
        """Compute an hour again, with all its shards that are marked. A unit that is not has been rolled with another."""
        pending = self._backlog.pending()
        units = sorted(u for u in pending if (u.tenant, u.start_us) == (unit.tenant, unit.start_us))
        if unit not in units:
            return Rolled(0)
        # Marks may be ahead of the clock by some rolls within the same millisecond.
        taken_us = max(self._next_version(), *(pending[u] for u in units))
        devices = self.recompute(tenant, unit.start_us, [u.shard for u in units])
        for one in units:
            self._backlog.finish(one, taken_us)
        return Rolled(devices)

    def recompute(self, tenant: Tenant, hour_us: int, shards: Iterable[int] = range(SHARDS)) -> int:
        """Compute what these shards say of an hour, and what the fleet does; gives the number of devices that were asked."""
        count = 0
        for shard in shards:
            version_us = self._next_version()
            summary, devices = self.shard_says(tenant, hour_us, shard)
            self.store.put_partial(tenant, shard, hour_us, summary, version_us)
            count += devices
        version_us = self._next_version()
        self.store.put_hour(tenant, hour_us, self.fleet_says(tenant, hour_us), version_us)
        return count

    def shard_says(self, tenant: Tenant, hour_us: int, shard: int) -> tuple[FleetSummary, int]:
        """From the hours of all devices of a shard; and how many devices it has."""
        summary, count = NOTHING, 0
        span = TimeSpan(hour_us, hour_us + 1)
        for names in self._names(tenant.name, shard):
            count += len(names)
            summary = hours_of_devices(summary, self._rollups.read(tenant, names, HOURS, span, beyond_us=GUARD_US))
        return summary, count

    def fleet_says(self, tenant: Tenant, hour_us: int) -> FleetSummary:
        """From what its shards say."""
        span = TimeSpan(hour_us, hour_us + 1)
        return summary_of_fleets(self.store.partials(tenant, range(SHARDS), span, beyond_us=GUARD_US))

    def _names(self, tenant: str, shard: int) -> Iterator[list[str]]:
        for chunk in self._devices.names(tenant, shard):
            names = chunk.to_list()
            for start in range(0, len(names), _AT_ONCE):
                yield names[start : start + _AT_ONCE]

    # -- what is stale

    def stale(self, tenant: Tenant) -> set[tuple[int, int]]:
        """Hours and shards that the rows of fleets do not tell of as the hours of devices do."""
        return {(unit.start_us, unit.shard) for unit in self._backlog.pending() if unit.tenant == tenant.name}

    def erased(self, tenant: Tenant, devices: Sequence[str], span: TimeSpan) -> int:
        """Something of these devices was erased: mark the hours that they had any of. Before their hours leave the disk.

        Gives the number of marks. Repeating is harmless.
        """
        units: set[Unit] = set()
        for start in range(0, len(devices), _AT_ONCE):
            units |= self._hours(tenant, devices[start : start + _AT_ONCE], span)
        if not units:
            return 0
        # Newer than anything that is being rolled now: that may have been read before.
        version_us = self._next_version() + MS
        ordered = sorted(units)
        hour_us, shard = np.array([u.start_us for u in ordered]), np.array([u.shard for u in ordered])
        self._backlog.note(ordered, version_us)
        table = self._backlog.table
        self._engine.write([(table, mark_rows(table, tenant.name, None, hour_us, shard, version_us))])
        return len(ordered)

    def _hours(self, tenant: Tenant, devices: Sequence[str], span: TimeSpan) -> set[Unit]:
        """The hours that overlap a span and in which these devices have rows, whether or not these are shown any more."""
        starts = TimeSpan(span.start_us - span.start_us % HOUR, span.stop_us)
        units: set[Unit] = set()
        for table, part, keys in self._rollups.places(tenant, devices, HOURS, starts):
            for rows in self._engine.scan(table, keys, Span(part.start_us, part.stop_us)):
                device = rows.keys["device_id"]
                assert isinstance(device, Coded)
                shards = np.array([shard_of(name) for name in device.names])[device.codes].tolist()
                hours = np.asarray(rows.keys["start_us"]).tolist()
                units |= {Unit(tenant.name, hour, shard) for hour, shard in zip(hours, shards, strict=True)}
        return units

    def _next_version(self) -> int:
        with self._lock:
            self._version_us = max(whole_ms(self._clock.now_us()), self._version_us + MS)
            return self._version_us
