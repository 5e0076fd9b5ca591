"""Which hours of which devices must be rolled: marks that are durable before the reports they stand for.

Rule 1: a mark is written in front of its reports, in the same write. A mark without reports costs a needless roll; reports
without a mark would never be rolled.
Rule 2: what was marked and not yet taken for rolling is not marked again: one row an hour for each device.
Rule 3: `take` waits for the writes that were planned before it. So what is read after it holds every report that relied on a
mark it took; reports planned later bring marks of their own, with greater versions, which `finish` leaves alone.
Rule 4: a plan relies on marks that are durable, and on no others: others may be planned and written while it is under way.
Where several processes write, nobody learns what others take: rules 2 and 3 go by the age of marks instead (see `crew`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np

from widerow.engine.port import Engine, Span
from widerow.engine.rows import Key, Rows
from widerow.model.arrays import Codes, Flags, Ints
from widerow.model.batch import Batch
from widerow.model.intern import NameTable
from widerow.model.kernel import kernel
from widerow.model.names import Coded, Names
from widerow.model.times import HOUR, MS, Clock
from widerow.rollup.backlog import mark_rows, units_of
from widerow.rollup.crew import CrewSettings
from widerow.rollup.pending import Pending
from widerow.rollup.unit import Unit
from widerow.schema.rollups import DIRTY
from widerow.schema.shards import shard_of, shards_of
from widerow.schema.table import Table

_MAX_DEVICES = 1 << 24


@dataclass(frozen=True, slots=True)
class Taken:
    """Units that are being rolled: their devices, and up to which version their marks are worked off."""

    units: Sequence[Unit]
    devices: Sequence[str]
    version_us: int


@dataclass(slots=True)
class MarkPlan:
    """What must be written before the reports of a batch. Settle it, whatever becomes of the write."""

    changes: list[tuple[Table, Rows]]
    tenant: str
    table: NameTable
    ids: Codes
    """Of the devices that are marked, in that table, ..."""
    marked_us: Ints
    """... for which hour, ..."""
    version_us: int
    """... and when."""
    generation: int
    relied_us: int
    """When the oldest of the marks was written that the reports rely on."""
    device: Coded
    hour_us: Ints
    """Of the reports."""


@dataclass(slots=True)
class _Marked:
    """Of one tenant: the hour that each device was marked for last, by the device's id here."""

    table: NameTable = field(default_factory=lambda: NameTable(_MAX_DEVICES))
    hour_us: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    shard: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Of devices that were ever marked."""
    at_us: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """When they were last."""

    def ids(self, names: Names) -> Codes:
        ids = self.table.add(names)
        if len(ids) and ids.min() < 0:  # more devices than anyone has: start afresh, at the cost of marking again
            self.table = NameTable(_MAX_DEVICES)
            self.hour_us = self.shard = self.at_us = np.zeros(0, np.int64)
            ids = self.table.add(names)
        if len(self.table) > len(self.hour_us):
            more = np.full(max(1024, 2 * len(self.table)) - len(self.hour_us), -1)
            self.hour_us, self.shard = np.concatenate([self.hour_us, more]), np.concatenate([self.shard, more])
            self.at_us = np.concatenate([self.at_us, more])
        return ids


class Marks:
    """The marks of one writing process. Safe to share between threads."""

    def __init__(self, engine: Engine, clock: Clock, crew: CrewSettings | None = None) -> None:
        """`crew`: other processes write, and roll, at the same time."""
        self._engine, self._clock, self._crew = engine, clock, crew
        self._lock = threading.Condition()
        self._marked: dict[str, _Marked] = {}
        self._generation = 0
        self._under_way: dict[int, int] = {}
        self._last_us = 0
        self._waiting = Pending()
        self._written_us: dict[tuple[str, int], int] = {}
        """When something was last written to an hour of a tenant that has marks."""
        engine.apply([DIRTY])

    # -- writing

    def plan(self, tenant: str, batch: Batch) -> MarkPlan:
        """The marks that a batch needs and that are not there yet."""
        hour_us = batch.time_us - batch.time_us % HOUR
        with self._lock:
            known = self._marked.setdefault(tenant, _Marked())
            ids = known.ids(batch.device.names)[batch.device.codes]
            fresh = np.zeros(len(batch), np.bool_)
            self._last_us = version_us = self._next_us()
            oldest_us = version_us - self._crew.share_us if self._crew else 0
            before = known.hour_us[ids], known.at_us[ids]
            relied_us = _mark_fresh(ids, hour_us, known.hour_us, known.at_us, version_us, oldest_us, fresh)
            known.hour_us[ids], known.at_us[ids] = before  # until they are durable
            generation = self._set_out()
            for hour in [int(hour_us[0])] if _all_same(hour_us) else np.unique(hour_us).tolist():
                self._written_us[tenant, hour] = version_us
            rows = np.flatnonzero(fresh)
            plan = MarkPlan(
                changes=[],
                tenant=tenant,
                table=known.table,
                ids=ids[rows],
                marked_us=hour_us[rows],
                version_us=version_us,
                generation=generation,
                relied_us=relied_us,
                device=batch.device,
                hour_us=hour_us,
            )
            device = batch.device.take(rows)
            shard = shards_of(device.names)[device.codes] if len(rows) else np.zeros(0, np.int64)
            known.shard[plan.ids] = shard
        if len(rows):
            marks = mark_rows(DIRTY, tenant, device, hour_us[rows], shard, version_us)
            plan.changes.append((DIRTY, marks))
            if self._crew is None:  # else whoever rolls finds them in the store
                self._waiting.note(units_of(DIRTY, marks), version_us)
        return plan

    def settle(self, plan: MarkPlan, *, written: bool) -> None:
        """The write of a plan is durable, or failed. Exactly once for each plan. What raises here is not to be
        acknowledged.
        """
        try:
            if written and self._crew and self._clock.now_us() > plan.relied_us + self._crew.longest_us:
                self._mark_again(plan)
        except BaseException:
            written = False
            raise
        finally:
            self._settle(plan, written=written)

    def _mark_again(self, plan: MarkPlan) -> None:
        """The write took so long that its marks may have been worked off without it."""
        first = np.unique(np.stack([plan.device.codes, plan.hour_us // HOUR]), axis=1, return_index=True)[1]
        device = plan.device.take(first)
        version_us = self._clock.version_us()
        shard = shards_of(device.names)[device.codes]
        self._engine.write([(DIRTY, mark_rows(DIRTY, plan.tenant, device, plan.hour_us[first], shard, version_us))])

    def _settle(self, plan: MarkPlan, *, written: bool) -> None:
        with self._lock:
            known = self._marked[plan.tenant]
            # Of another generation somebody may have taken them.
            if written and plan.generation == self._generation and plan.table is known.table:
                known.hour_us[plan.ids], known.at_us[plan.ids] = plan.marked_us, plan.version_us
            self._arrived(plan.generation)

    def _next_us(self) -> int:
        """The version of marks that are made now. By who holds the lock."""
        version_us = max(self._last_us, self._clock.version_us())
        self._clock.cover(version_us)
        return version_us

    def _set_out(self) -> int:
        """Something is going to be written that `take` waits for; gives its generation. By who holds the lock."""
        self._under_way[self._generation] = self._under_way.get(self._generation, 0) + 1
        return self._generation

    def _arrived(self, generation: int) -> None:
        """It is durable, or failed. By who holds the lock."""
        left = self._under_way[generation] - 1
        if left:
            self._under_way[generation] = left
        else:
            del self._under_way[generation]
            self._lock.notify_all()

    # -- rolling

    def units(self) -> Iterator[Unit]:
        """Everything that is marked in the store, whichever process marked it. A unit may come twice."""
        for rows in self._engine.scan(DIRTY, None):
            yield from units_of(DIRTY, rows)

    def distrust(self) -> None:
        """Another process may have worked off marks that this one takes for there: mark everything anew."""
        with self._lock:
            self._generation += 1
            for known in self._marked.values():
                known.hour_us[:] = -1

    def recover(self) -> None:
        """Learn what processes before this one left to be rolled."""
        self._waiting.note(self.units(), 0)

    def note(self, units: Iterable[Unit], at_us: int) -> None:
        """These are marked as well, by another process, and were at that time."""
        self._waiting.note(units, at_us)

    def learn(self, waiting: Mapping[Unit, int]) -> None:
        """What is marked, as it was just found in the store, and when it was last."""
        self._waiting.replace(waiting)

    def again(self, tenant: str, device: str, hours: Ints) -> None:
        """Have hours of a device rolled again, from its raw reports. Durable on return."""
        shard = shard_of(device)
        with self._lock:
            self._last_us = version_us = self._next_us()
            generation = self._set_out()
        try:
            named = Coded.constant(device, len(hours))
            self._engine.write([(DIRTY, mark_rows(DIRTY, tenant, named, hours, np.full(len(hours), shard), version_us))])
            self._waiting.note((Unit(tenant, hour, shard) for hour in hours.tolist()), version_us)
        finally:
            with self._lock:
                self._arrived(generation)

    def pending(self) -> dict[Unit, int]:
        """What this process knows to be marked, and when it was last, or something was written to its hour."""
        waiting = self._waiting.all()
        marked = {(unit.tenant, unit.start_us) for unit in waiting}
        with self._lock:
            self._written_us = written_us = {hour: at_us for hour, at_us in self._written_us.items() if hour in marked}
        return {unit: max(at_us, written_us.get((unit.tenant, unit.start_us), 0)) for unit, at_us in waiting.items()}

    def of(self, tenant: str) -> list[tuple[int, int]]:
        """Start and shard of what is marked of a tenant."""
        return self._waiting.of(tenant)

    def starts(self, tenant: str, shards: AbstractSet[int]) -> set[int]:
        """Hours in which any device of the shards may be marked."""
        return self._waiting.starts(tenant, shards)

    def take(self, *units: Unit) -> Taken:
        """From here on what is written to the units, which are of one hour, is marked again. Waits until what was planned
        before is settled.
        """
        version_us = self._clock.version_us() - self._crew.ripe_us if self._crew else self._fence(units)
        tenant, start_us = units[0].tenant, units[0].start_us
        devices: list[str] = []
        shards: list[Key] = [(tenant, unit.shard) for unit in units]
        for rows in self._engine.scan(DIRTY, shards, Span(start_us, start_us + 1)):
            column = rows.keys["device_id"]
            assert isinstance(column, Coded)
            devices += column.take(np.flatnonzero(rows.version_us <= version_us)).to_list()
        return Taken(units, devices, version_us)

    def _fence(self, units: Sequence[Unit]) -> int:
        """A version that no mark has which was planned before and is not settled, and that every later one will exceed."""
        tenant, start_us = units[0].tenant, units[0].start_us
        with self._lock:
            known = self._marked.get(tenant)
            if known is not None:
                known.hour_us[(known.hour_us == start_us) & np.isin(known.shard, [unit.shard for unit in units])] = -1
            version_us = self._next_us()
            self._last_us = version_us + MS  # marks planned later are newer
            generation, self._generation = self._generation, self._generation + 1
            self._lock.wait_for(lambda: all(g > generation for g in self._under_way))
        return version_us

    def finish(self, taken: Taken) -> None:
        """The rollups of the units are durable: their marks go, but for those that came meanwhile."""
        start_us = taken.units[0].start_us
        shards: list[Key] = [(unit.tenant, unit.shard) for unit in taken.units]
        self._engine.delete(DIRTY, shards, Span(start_us, start_us + 1), version_us=taken.version_us)
        self._waiting.done(taken.units, taken.version_us)

    def forget(self, *units: Unit) -> None:
        """Nobody will roll them any more."""
        self.finish(self.take(*units))


@kernel
def _all_same(values: Ints) -> bool:
    for i in range(1, len(values)):
        if values[i] != values[0]:
            return False
    return len(values) > 0


@kernel
def _mark_fresh(ids: Codes, hour_us: Ints, marked_us: Ints, at_us: Ints, now_us: int, oldest_us: int, fresh: Flags) -> int:
    """Which reports need a mark: those that have none which is not too old. Gives when the oldest of the others was made."""
    relied_us = np.int64(now_us)
    for i in range(len(ids)):
        if marked_us[ids[i]] != hour_us[i] or at_us[ids[i]] < oldest_us:
            marked_us[ids[i]] = hour_us[i]
            at_us[ids[i]] = now_us
            fresh[i] = True
        else:
            relied_us = min(relied_us, at_us[ids[i]])
    return int(relied_us)
