"""What stands above hours and must be rolled again: days of devices, the fleet's hours. Durable, as the marks of hours are.

Rule 1: a mark is written in the same write as the hours it follows from, in front of them.
Rule 2: marks up to the version at which they were taken go when what they ask for is durable; newer ones stay.
Where one process rolls it writes these, one roll after another, and nothing waits for anything here, but for what is marked
`again`, by any thread; several go by the age of marks (see `crew`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from widerow.engine.port import Engine, Span
from widerow.engine.rows import NEVER, Column, Key, Rows
from widerow.model.arrays import Ints
from widerow.model.batch import Cells
from widerow.model.names import Coded, Names
from widerow.model.times import MS
from widerow.rollup.pending import Pending
from widerow.rollup.unit import Unit
from widerow.schema.shards import shard_of, shards_of
from widerow.schema.table import Table


class Backlog:
    """The marks of one table: `DIRTY_DAYS` or `DIRTY_FLEET`. Safe to share between threads."""

    def __init__(self, engine: Engine, table: Table) -> None:
        self._engine, self.table = engine, table
        self._waiting = Pending()
        self._marking = threading.Lock()
        self._taken_us = 0
        engine.apply([table])

    def marks(self, tenant: str, start_us: int, devices: Sequence[str], version_us: int) -> Rows:
        """What to write so that a window is rolled again: of these devices, or (of the fleet) of their shards."""
        device = Coded.of(devices)
        shard = shards_of(device.names)[device.codes]
        distinct = np.unique(shard)
        self.note((Unit(tenant, start_us, number) for number in distinct.tolist()), version_us)
        if len(self.table.clustering) > 1:
            return mark_rows(self.table, tenant, device, np.full(len(shard), start_us), shard, version_us)
        return mark_rows(self.table, tenant, None, np.full(len(distinct), start_us), distinct, version_us)

    def again(self, tenant: str, device: str, starts: Ints, version_us: int) -> None:
        """Have windows rolled again: of a device, or (of the fleet) of its shard. Durable on return, at that version or one
        that is newer.
        """
        shard = shard_of(device)
        named = Coded.constant(device, len(starts)) if len(self.table.clustering) > 1 else None
        with self._marking:  # whoever takes marks waits until it is there, or takes older ones only
            version_us = max(version_us, self._taken_us + MS)
            rows = mark_rows(self.table, tenant, named, starts, np.full(len(starts), shard), version_us)
            self._engine.write([(self.table, rows)])
            self.note((Unit(tenant, start_us, shard) for start_us in starts.tolist()), version_us)

    def note(self, units: Iterable[Unit], at_us: int) -> None:
        self._waiting.note(units, at_us)

    def learn(self, waiting: Mapping[Unit, int]) -> None:
        """What is marked, as it was just found in the store, and when it was last."""
        self._waiting.replace(waiting)

    def recover(self) -> None:
        """Learn what processes before this one left to be rolled."""
        for rows in self._engine.scan(self.table, None):
            self.note(units_of(self.table, rows), 0)

    def pending(self) -> dict[Unit, int]:
        """What is known to be marked, and when it was last."""
        return self._waiting.all()

    def of(self, tenant: str) -> list[tuple[int, int]]:
        """Start and shard of what is marked of a tenant."""
        return self._waiting.of(tenant)

    def starts(self, tenant: str, shards: AbstractSet[int]) -> set[int]:
        """Windows in which any device of the shards may be marked."""
        return self._waiting.starts(tenant, shards)

    def devices(self, units: Sequence[Unit], version_us: int) -> list[str]:
        """The devices of units of one window that are marked, up to that version. What is marked `again` later is newer."""
        with self._marking:
            self._taken_us = max(self._taken_us, version_us)
        found: list[str] = []
        for rows in self._engine.scan(self.table, [(unit.tenant, unit.shard) for unit in units], _span(units)):
            column = rows.keys["device_id"]
            assert isinstance(column, Coded)
            found += column.take(np.flatnonzero(rows.version_us <= version_us)).to_list()
        return found

    def finish(self, units: Sequence[Unit], version_us: int) -> None:
        """What the marks of units of one window up to that version asked for is durable."""
        shards: list[Key] = [(unit.tenant, unit.shard) for unit in units]
        self._engine.delete(self.table, shards, _span(units), version_us=version_us)
        self._waiting.done(units, version_us)


def _span(units: Sequence[Unit]) -> Span:
    return Span(units[0].start_us, units[0].start_us + 1)


def units_of(table: Table, marks: Rows) -> list[Unit]:
    """The units that rows of a table of marks are of."""
    tenant = marks.keys["tenant_id"]
    assert isinstance(tenant, Coded)
    start_us, shard = np.asarray(marks.keys[table.clustering[0].name]), np.asarray(marks.keys["shard"])
    return sorted({Unit(*unit) for unit in zip(tenant.to_list(), start_us.tolist(), shard.tolist(), strict=True)})


def versions_of_units(table: Table, chunks: Iterable[Rows], *, newest: bool) -> dict[Unit, int]:
    """The units that rows of a table of marks are of, and the version of the newest, or the oldest, mark of each."""
    pick, fold = (max, np.maximum) if newest else (min, np.minimum)
    found: dict[Unit, int] = {}
    for marks in chunks:
        tenant = marks.keys["tenant_id"]
        assert isinstance(tenant, Coded)
        start_us, shard = np.asarray(marks.keys[table.clustering[0].name]), np.asarray(marks.keys["shard"])
        which, first, number = np.unique(
            np.stack([tenant.codes, start_us, shard]), axis=1, return_index=True, return_inverse=True
        )
        version_us = marks.version_us[first]
        fold.at(version_us, number.reshape(-1), marks.version_us)
        for (code, start, s), at_us in zip(which.T.tolist(), version_us.tolist(), strict=True):
            unit = Unit(tenant.names[code], start, s)
            found[unit] = pick(at_us, found.get(unit, at_us))
    return found


def waiting_in(
    engine: Engine, table: Table, tenants: Iterable[str], shards: Iterable[int], before_us: int
) -> dict[Unit, int]:
    """What is marked in the store in windows that begin before a time, and when it was last."""
    shards = list(shards)
    keys: list[Key] = [(tenant, shard) for tenant in tenants for shard in shards]
    if not keys:
        return {}
    return versions_of_units(table, engine.scan(table, keys, Span(None, before_us)), newest=True)


def mark_rows(table: Table, tenant: str, device: Coded | None, start_us: Ints, shard: Ints, version_us: int) -> Rows:
    n = len(start_us)
    cells = Cells.numbers(np.arange(n + 1), Names.of(table.columns), np.zeros(n, np.int32), np.full(n, float(version_us)))
    keys: dict[str, Column] = {
        "tenant_id": Coded.constant(tenant, n),
        "shard": shard,
        table.clustering[0].name: start_us,
    }
    if device is not None:
        keys["device_id"] = device
    return Rows(keys, np.full(n, version_us), np.full(n, NEVER), cells)
