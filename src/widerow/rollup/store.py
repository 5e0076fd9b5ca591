"""Where rollups are: the tables of a tenant's levels, made when they are first needed.

Rule 1: which table a window is in depends on the tenant's retention that held at its start, so a change of retention moves
nothing, and rolling a window again finds it where it was.
Rule 2: what is read is cut at the retention, and without what was erased: a record that is not newer than an erase mark of
its device, metric and time is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from widerow.engine.port import Columns, Engine, Span
from widerow.engine.rows import Key, Rows
from widerow.model.arrays import Flags, lengths
from widerow.model.batch import CellKind
from widerow.model.names import Coded
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import DAY, Clock, TimeSpan
from widerow.rollup.newest import NewestHours, metrics_in
from widerow.schema.rollups import HOURS, Level, rollups
from widerow.schema.table import Table
from widerow.telemetry.erasure import Erasure, TenantMarks


class Rollups:
    """Safe to share between threads."""

    def __init__(self, engine: Engine, clock: Clock, erasure: Erasure) -> None:
        self._engine, self._clock, self.erasure = engine, clock, erasure
        self._applied: set[str] = set()
        self.newest = NewestHours(engine)

    def table(self, level: Level, keep_us: int) -> Table:
        """The table of a level and retention class, made if it is new."""
        table = rollups(level, keep_us)
        if table.name not in self._applied:
            self._engine.apply([table])
            self._applied.add(table.name)
        return table

    def changes(self, tenant: Tenant, level: Level, rows: Rows) -> list[tuple[Table, Rows]]:
        """Rows of a level as what is to be written: to the table that held at the start of each."""
        classes = list(kept(tenant, level))
        start_us = np.asarray(rows.keys["start_us"])
        out = []
        for keep_us, span in classes:
            within = (start_us >= span.start_us) & (start_us < span.stop_us)
            if within.any():
                part = rows if within.all() else rows.take(within)
                out.append((self.table(level, keep_us), _expiring(part, level, keep_us)))
        return out

    def read(
        self,
        tenant: Tenant,
        devices: Sequence[str],
        level: Level,
        span: TimeSpan,
        *,
        metrics: Columns | None = None,
        beyond_us: int = 0,
        between: Callable[[Rows], None] = lambda _: None,
    ) -> list[Rows]:
        """The rollups of devices whose windows begin within a span. `beyond_us`: so much beyond the retention. `between` is
        told of each piece how many rows it has, as it is read, and may raise or wait.
        """
        marks = self.erasure.marks(tenant.name)
        found = []
        for table, part, keys in self.places(tenant, devices, level, span, beyond_us=beyond_us):
            for chunk in self._engine.scan(table, keys, Span(part.start_us, part.stop_us), columns=metrics):
                rows = _without_erased(marks, chunk, level)
                if len(rows):
                    found.append(rows)
                between(rows)
        return found

    def places(
        self, tenant: Tenant, devices: Sequence[str], level: Level, span: TimeSpan, *, beyond_us: int = 0
    ) -> Iterator[tuple[Table, TimeSpan, list[Key]]]:
        """Where the windows that begin within a span are, as far as they are still kept."""
        now_us = self._clock.now_us()
        for keep_us, held in kept(tenant, level):
            oldest = now_us - keep_us - beyond_us - level.width_us + 1 if keep_us else 0
            start, stop = max(span.start_us, held.start_us, oldest), min(span.stop_us, held.stop_us)
            if start >= stop:
                continue
            periods = range(start - start % level.period_us, stop, level.period_us)
            keys: list[Key] = [(tenant.name, device, period) for device in devices for period in periods]
            yield self.table(level, keep_us), TimeSpan(start, stop), keys

    def newest_before(
        self, tenant: Tenant, device: str, metrics: Sequence[str], hour_us: int, oldest_us: int
    ) -> dict[str, int]:
        """Of each metric the newest hour before that one in which the device has a record of it, as far as there is one."""
        found: dict[str, int] = {}
        left, stop_us, width_us = set(metrics), hour_us, DAY
        while left and stop_us > oldest_us - HOURS.width_us:
            span = TimeSpan(max(0, stop_us - width_us), stop_us)
            for rows in self.read(tenant, [device], HOURS, span, metrics=sorted(left)):
                for start_us, names in metrics_in(rows):
                    found.update((name, max(start_us, found.get(name, 0))) for name in names if name in left)
            left.difference_update(found)
            stop_us, width_us = span.start_us, 2 * width_us
            if not stop_us:
                break
        return found

    def oldest_us(self, tenant: Tenant, level: Level, time_us: int) -> int:
        """From when on the windows of a level can be read whose retention is that of an event time."""
        keep_us = kept_at(tenant, level, time_us)
        return 0 if keep_us == 0 else self._clock.now_us() - keep_us


def kept(tenant: Tenant, level: Level) -> Iterator[tuple[int, TimeSpan]]:
    """The retentions of a level, each with the starts of windows that have it, oldest first."""
    epochs = tenant.rollups_kept()
    for k, epoch in enumerate(epochs):
        start = 0 if k == 0 else epoch.from_us
        stop = epochs[k + 1].from_us if k + 1 < len(epochs) else 1 << 62
        yield getattr(epoch, f"{level.name}_us"), TimeSpan(start, stop)


def kept_at(tenant: Tenant, level: Level, start_us: int) -> int:
    """How long the window that begins then can be read; 0: for ever."""
    return next(keep_us for keep_us, span in kept(tenant, level) if span.start_us <= start_us < span.stop_us)


def _expiring(rows: Rows, level: Level, keep_us: int) -> Rows:
    if keep_us == 0:
        return rows
    expire_us = np.asarray(rows.keys["start_us"]) + (level.width_us + keep_us + GUARD_US)
    return Rows(rows.keys, rows.version_us, expire_us, rows.cells)


def _without_erased(marks: TenantMarks, rows: Rows, level: Level) -> Rows:
    if not marks.any():
        return rows
    live = _live(marks, rows, level)
    if live.all():
        return rows
    cells = rows.cells.keep(live)
    left = Rows(rows.keys, rows.version_us, rows.expire_us, cells, rows.cursor)
    return left.take(lengths(cells.offsets) > 0)


def _live(marks: TenantMarks, rows: Rows, level: Level) -> Flags:
    """Which cells of rows of a level no mark hides."""
    device, start_us = rows.keys["device_id"], np.asarray(rows.keys["start_us"])
    assert isinstance(device, Coded)
    sizes = lengths(rows.cells.offsets)
    live: Flags = np.repeat(rows.version_us > marks.erased_us(device.names)[device.codes], sizes)
    for mark in marks.partial:
        hit = (rows.version_us <= mark.version_us) & (start_us < mark.span.stop_us)
        hit &= start_us + level.width_us > mark.span.start_us
        if mark.device:
            hit &= np.array([name == mark.device for name in device.names], np.bool_)[device.codes]
        cells = np.repeat(hit, sizes)
        if mark.metric:
            named = np.array([name == mark.metric for name in rows.cells.names], np.bool_)
            cells &= named[rows.cells.name] & (rows.cells.kind != CellKind.TAG)
        live &= ~cells
    return live
