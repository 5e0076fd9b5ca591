"""Where the hours of fleets are, and those of their shards: tables by retention class, as those of devices.

Rule 1: an hour of a fleet is kept as long as the hours of its devices, by the retention that held at its start.
Rule 2: what is written replaces what was there: cells that there are no more of go with it.
Rule 3: what is read is cut at the retention. Whether it can be relied on is for others to say: see `Fleet.stale`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from widerow.engine.port import Columns, Engine, Span
from widerow.engine.rows import Key, Rows
from widerow.model.batch import CellKind
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import HOUR, MS, Clock, TimeSpan
from widerow.rollup.fleet_summary import ALL_TYPES, FleetSummary, fleet_rows, partial_rows, types_in
from widerow.rollup.store import kept, kept_at
from widerow.schema.rollups import FLEET_PERIOD_US, HOURS, PARTIALS_PERIOD_US, fleet, fleet_partials
from widerow.schema.shards import SHARDS
from widerow.schema.table import Table

_Cell = tuple[Key, int, str]


class FleetStore:
    """Safe to share between threads."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._applied: set[str] = set()

    # -- reading

    def hours(
        self,
        tenant: Tenant,
        types: Sequence[str],
        span: TimeSpan,
        *,
        metrics: Columns | None = None,
        beyond_us: int = 0,
        between: Callable[[Rows], None] = lambda _: None,
    ) -> list[Rows]:
        """Hours that begin within a span, of all devices (`ALL_TYPES`) or of those of a type.

        With `metrics` the tags that name the types are left out. `beyond_us`: so much beyond the retention. `between` is
        told of each piece how many rows it has, as it is read, and may raise or wait.
        """
        found: list[Rows] = []
        for table, part in self._parts(tenant, span, fleet, beyond_us):
            periods = range(part.start_us - part.start_us % FLEET_PERIOD_US, part.stop_us, FLEET_PERIOD_US)
            keys: list[Key] = [(tenant.name, one, period) for one in types for period in periods]
            for rows in self._engine.scan(table, keys, Span(part.start_us, part.stop_us), columns=metrics):
                found.append(rows)
                between(rows)
        return found

    def partials(
        self,
        tenant: Tenant,
        shards: Sequence[int],
        span: TimeSpan,
        *,
        metrics: Columns | None = None,
        beyond_us: int = 0,
        between: Callable[[Rows], None] = lambda _: None,
    ) -> list[Rows]:
        """The same of shards, with a row for each type; by period, and shard by shard within each.

        `beyond_us`, `between`: as for hours.
        """
        found: list[Rows] = []
        for table, part in self._parts(tenant, span, fleet_partials, beyond_us):
            periods = range(part.start_us - part.start_us % PARTIALS_PERIOD_US, part.stop_us, PARTIALS_PERIOD_US)
            keys: list[Key] = [(tenant.name, shard, period) for period in periods for shard in shards]
            for rows in self._engine.scan(table, keys, Span(part.start_us, part.stop_us), columns=metrics):
                found.append(rows)
                between(rows)
        return found

    def _parts(
        self, tenant: Tenant, span: TimeSpan, of: Callable[[int], Table], beyond_us: int = 0
    ) -> Iterator[tuple[Table, TimeSpan]]:
        now_us = self._clock.now_us() - beyond_us
        for keep_us, held in kept(tenant, HOURS):
            oldest = now_us - keep_us - HOUR + 1 if keep_us else 0
            start, stop = max(span.start_us, held.start_us, oldest), min(span.stop_us, held.stop_us)
            if start < stop:
                yield self._table(of(keep_us)), TimeSpan(start, stop)

    def _table(self, table: Table) -> Table:
        """The table, made if it is new."""
        if table.name not in self._applied:
            self._engine.apply([table])
            self._applied.add(table.name)
        return table

    # -- writing

    def put_partial(self, tenant: Tenant, shard: int, hour_us: int, summary: FleetSummary, version_us: int) -> None:
        """What the devices of a shard say of an hour; nothing, if there are none that say anything."""
        table, keep_us = self._of_hour(tenant, hour_us, fleet_partials)
        rows = partial_rows(tenant.name, shard, hour_us, summary, version_us=version_us)
        partition: Key = (tenant.name, shard, hour_us - hour_us % PARTIALS_PERIOD_US)
        self._replace(table, [partition], hour_us, _expiring(rows, keep_us), version_us)

    def put_hour(self, tenant: Tenant, hour_us: int, summary: FleetSummary, version_us: int) -> None:
        """What all devices and those of each type say of an hour."""
        table, keep_us = self._of_hour(tenant, hour_us, fleet)
        rows = fleet_rows(tenant.name, hour_us, summary, version_us=version_us)
        period = hour_us - hour_us % FLEET_PERIOD_US
        before = self._engine.scan(table, [(tenant.name, ALL_TYPES, period)], Span(hour_us, hour_us + 1))
        types = {name for part in before for _, name in types_in(part)} | set(summary.type.names.to_list()) | {ALL_TYPES}
        partitions: list[Key] = [(tenant.name, name, period) for name in sorted(types)]
        self._replace(table, partitions, hour_us, _expiring(rows, keep_us), version_us)

    def newest_us(self, tenant: Tenant, hour_us: int) -> int:
        """The version of what is there of an hour; 0: nothing is."""
        table, _ = self._of_hour(tenant, hour_us, fleet)
        found = self._engine.scan(
            table, [(tenant.name, ALL_TYPES, hour_us - hour_us % FLEET_PERIOD_US)], Span(hour_us, hour_us + 1)
        )
        return max((int(rows.version_us.max()) for rows in found if len(rows)), default=0)

    def remove(self, tenant: str, keep_us: int, version_us: int) -> None:
        """Everything of a tenant in a retention class, up to that version. May be repeated, and interrupted, at will."""
        now_us = self._clock.now_us()
        start_us = max(0, now_us - keep_us - GUARD_US - HOUR) if keep_us else 0
        stop_us = max(now_us, version_us) + GUARD_US
        whole, partials = self._table(fleet(keep_us)), self._table(fleet_partials(keep_us))
        periods = range(start_us - start_us % FLEET_PERIOD_US, stop_us, FLEET_PERIOD_US)
        named = self._engine.scan(whole, [(tenant, ALL_TYPES, period) for period in periods])
        keys: set[Key] = {(tenant, ALL_TYPES, period) for period in periods}
        for rows in named:  # these go last: they name the others
            keys |= {(tenant, name, hour_us - hour_us % FLEET_PERIOD_US) for hour_us, name in types_in(rows)}
        days = range(start_us - start_us % PARTIALS_PERIOD_US, stop_us, PARTIALS_PERIOD_US)
        self._engine.delete(partials, [(tenant, s, day) for s in range(SHARDS) for day in days], version_us=version_us)
        ordered = sorted(keys, key=lambda key: key[1] == ALL_TYPES)
        self._engine.delete(whole, ordered, version_us=version_us)

    def _of_hour(self, tenant: Tenant, hour_us: int, of: Callable[[int], Table]) -> tuple[Table, int]:
        keep_us = kept_at(tenant, HOURS, hour_us)
        return self._table(of(keep_us)), keep_us

    def _replace(self, table: Table, partitions: Sequence[Key], hour_us: int, rows: Rows, version_us: int) -> None:
        """Write the rows of an hour; where there were cells that they do not have, remove what was there first."""
        span = Span(hour_us, hour_us + 1)
        new = _cells(table, rows)
        old = set().union(*(_cells(table, part) for part in self._engine.scan(table, partitions, span)))
        gone = list(dict.fromkeys(key[: len(table.partition)] for key, _, _ in sorted(old - new)))
        if gone:
            self._engine.delete(table, gone, span, version_us=version_us - MS)
        if len(rows):
            self._engine.write([(table, rows)])


def _cells(table: Table, rows: Rows) -> set[_Cell]:
    """Which cells there are: the row, the kind and the name."""
    names, cells = rows.cells.names.to_list(), rows.cells
    keys = [rows.key(table, i) for i in range(len(rows))]
    is_tag = (cells.kind == CellKind.TAG).tolist()
    return {(keys[r], t, names[n]) for r, t, n in zip(cells.rows().tolist(), is_tag, cells.name.tolist(), strict=True)}


def _expiring(rows: Rows, keep_us: int) -> Rows:
    if keep_us == 0:
        return rows
    return Rows(rows.keys, rows.version_us, np.asarray(rows.keys["hour_us"]) + (HOUR + keep_us + GUARD_US), rows.cells)
