"""Erasing stays erased.

Deleting a device, a tenant, or a metric over a span records a mark with a version. Writers and readers drop what is not
newer than the mark, so neither a replay nor an import nor a restore brings it back. It is unreadable at once; taking it off
the disk is a job of its own that can be repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from widerow.engine.port import Engine
from widerow.engine.rows import Row, Rows
from widerow.model.arrays import Flags, Ints, lengths
from widerow.model.batch import Batch, CellKind
from widerow.model.errors import Refusal
from widerow.model.intern import NameTable
from widerow.model.names import Coded, Names
from widerow.model.tenant import Tenant
from widerow.model.times import MAX_TIME_US, MS, Clock, TimeSpan, format_time, whole_ms
from widerow.schema.shards import SHARDS, shard_of
from widerow.schema.tables import ERASED
from widerow.telemetry.facts import FactLog

EVER = TimeSpan(0, MAX_TIME_US + 1)

_OF_ALL = shard_of("")
"""Where marks are that are of no device."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What was written up to `version_us` of a device ("" : all), a metric ("" : all) and a span of event time is gone."""

    device: str
    metric: str
    span: TimeSpan
    version_us: int
    classes: tuple[int, ...] = ()
    """The raw retentions its data may be in."""
    done_us: int = 0
    """When it was off the disk, too; 0: it may not be."""
    rollups: tuple[tuple[str, int], ...] = ()
    """The levels of rollups, each with a retention its data may be in."""

    @property
    def whole(self) -> bool:
        """Nothing of the device (or tenant) is left."""
        return not self.metric and self.span == EVER

    def rollup_classes(self, level: str) -> list[int]:
        """The retentions that rollups of a level may be in."""
        return [keep_us for name, keep_us in self.rollups if name == level]


class TenantMarks:
    """The marks of one tenant. Marks of whole devices are looked up by name, the rare others one by one."""

    def __init__(self) -> None:
        self.tenant_us = self.newest_us = -1
        """Of the tenant as a whole; and of all marks."""
        self.partial: tuple[Mark, ...] = ()
        self._devices = NameTable(1 << 24)
        self._versions = np.full(1, -1, np.int64)

    def any(self) -> bool:
        return self.tenant_us >= 0 or bool(self.partial) or len(self._devices) > 0

    def add(self, mark: Mark) -> None:
        self.newest_us = max(self.newest_us, mark.version_us)
        if not mark.whole:
            self.partial = (*self.partial, mark)
        elif mark.device:
            d = int(self._devices.add(Names.of((mark.device,)))[0])
            if d >= len(self._versions):
                self._versions = np.concatenate([self._versions, np.full(d + 1, -1, np.int64)])
            self._versions[d] = max(mark.version_us, int(self._versions[d]))
        else:
            self.tenant_us = max(self.tenant_us, mark.version_us)

    def erased_us(self, devices: Names) -> Ints:
        """For each device: what has this version or an older one is erased; -1: nothing is."""
        found = self._devices.find(devices)
        versions = np.where(found < 0, -1, self._versions[np.maximum(found, 0)])
        return np.maximum(versions, self.tenant_us)


class Seen(NamedTuple):
    """What was known of a tenant's marks, and when."""

    revisions: tuple[int, ...]
    at_us: int


_NO_MARKS = TenantMarks()


class Erasure:
    """The marks of all tenants."""

    def __init__(self, engine: Engine, clock: Clock, *, refresh_us: int) -> None:
        self._engine, self._clock = engine, clock
        self._marks: dict[str, TenantMarks] = {}
        self._lock = threading.Lock()
        self.learned: Callable[[str, Mark], None] = lambda _tenant, _mark: None
        """Called with every mark when it becomes known here, whichever process made it."""
        self.recorded: Callable[[str, Row], None] = lambda _tenant, _fact: None
        """Called with every mark that this process made, as it is stored."""
        self._log = FactLog(engine, ERASED, clock, refresh_us=refresh_us, learn=self._learn)

    def marks(self, tenant: str) -> TenantMarks:
        self._log.follow(tenant)
        return self._marks.get(tenant) or _NO_MARKS

    def seen(self, tenant: str) -> Seen:
        """How much is known here, for `touched_since`."""
        return Seen(self._log.revisions(tenant), self._clock.version_us())

    def touched_since(self, tenant: str, seen: Seen) -> frozenset[int]:
        """The shards of whose devices something was erased that was not known then, by any process; or that has a version
        which what was read then may not have passed.
        """
        now = self._log.revisions(tenant, afresh=True)
        touched = frozenset(shard for shard in range(SHARDS) if now[shard] != seen.revisions[shard])
        of_all = _OF_ALL in touched or self.marks(tenant).newest_us >= seen.at_us
        return frozenset(range(SHARDS)) if of_all else touched

    def erase(self, tenant: Tenant, *, device: str = "", metric: str = "", span: TimeSpan = EVER, ahead_us: int = 0) -> Mark:
        """Record a mark for everything received until now, and for so long from now on."""
        classes = tuple(sorted({tenant.retention.raw_us, *(e.raw_us for e in tenant.raw_epochs)}))
        rollups = {
            (level, getattr(epoch, f"{level}_us")) for epoch in tenant.rollups_kept() for level in ("minute", "hour", "day")
        }
        version_us = self._clock.version_us() + whole_ms(ahead_us)
        mark = Mark(device, metric, span, version_us, classes, rollups=tuple(sorted(rollups)))
        self._clock.cover(version_us + MS)  # what is received from now on is newer
        fact = self._fact(mark)
        self._log.add(tenant.name, device, fact)
        self.recorded(tenant.name, fact)
        return mark

    def finish(self, tenant: str, mark: Mark, place: tuple[int, int]) -> None:
        """Note that the disk is clean of it."""
        done = self._fact(mark) | {"done_us": float(self._clock.now_us())}
        self._engine.put_if(ERASED, (tenant, *place), done, self._fact(mark))

    def unfinished(self) -> list[tuple[str, Mark, tuple[int, int]]]:
        """Marks, of all tenants, whose data may still be on disk."""
        out = []
        for rows in self._engine.scan(ERASED, None):
            for i in range(len(rows)):
                tenant, shard, revision = rows.key(ERASED, i)
                mark = mark_of(rows.row(i))
                if not mark.done_us:
                    out.append((str(tenant), mark, (int(shard), int(revision))))
        return out

    @staticmethod
    def _fact(mark: Mark) -> dict[str, float | str]:
        # A mark of a release that had no rollups says nothing of them.
        said = ",".join(f"{level}:{keep_us}" for level, keep_us in mark.rollups)
        rollups: dict[str, float | str] = {"rollups": said} if said else {}
        return rollups | {
            "device_id": mark.device,
            "metric_name": mark.metric,
            "start_us": float(mark.span.start_us),
            "stop_us": float(mark.span.stop_us),
            "version_us": float(mark.version_us),
            "done_us": 0.0,
            "classes": ",".join(map(str, mark.classes)),
        }

    def _learn(self, tenant: str, fact: Row) -> None:
        mark = mark_of(fact)
        self._clock.cover(mark.version_us + MS)
        with self._lock:
            self._marks.setdefault(tenant, TenantMarks()).add(mark)
        self.learned(tenant, mark)


def mark_of(fact: Row) -> Mark:
    """The mark that is stored as this row."""
    span = TimeSpan(int(fact["start_us"]), int(fact["stop_us"]))
    classes = tuple(int(c) for c in str(fact["classes"]).split(","))
    rollups = (part.partition(":") for part in str(fact.get("rollups", "")).split(",") if part)
    return Mark(
        str(fact["device_id"]),
        str(fact["metric_name"]),
        span,
        int(fact["version_us"]),
        classes,
        int(fact["done_us"]),
        tuple((level, int(keep_us)) for level, _, keep_us in rollups),
    )


def drop_erased_reports(marks: TenantMarks, batch: Batch) -> tuple[Batch, list[Refusal]]:
    """What a writer may keep of a batch. Cells of partly erased reports go, empty reports are refused."""
    if not marks.any():
        return batch, []
    live = _live_cells(marks, batch.device, batch.time_us, batch.version_us, batch.cells.offsets, batch)
    if live.all():
        return batch, []
    cells = batch.cells.keep(live)
    full = lengths(cells.offsets) > 0
    batch = batch.with_cells(cells)
    refusals = []
    if not full.all():
        gone = np.flatnonzero(~full)
        newest = format_time(int(batch.version_us[gone].max()))
        reason = f"erased: all data of this device, metric or tenant that was received up to {newest} was deleted"
        refusals.append(Refusal("erased", reason, batch.position[gone].tolist()))
        batch = batch.take(full)
    return batch, refusals


def drop_erased_rows(marks: TenantMarks, rows: Rows) -> Rows:
    """What a reader may show of rows of a telemetry table."""
    if not marks.any():
        return rows
    device, time_us = rows.keys["device_id"], rows.keys["event_us"]
    assert isinstance(device, Coded)
    assert isinstance(time_us, np.ndarray)
    live = _live_cells(marks, device, time_us, rows.version_us, rows.cells.offsets, rows)
    if live.all():
        return rows
    cells = rows.cells.keep(live)
    kept = Rows(rows.keys, rows.version_us, rows.expire_us, cells, rows.cursor)
    return kept.take(lengths(cells.offsets) > 0)


def _live_cells(
    marks: TenantMarks, device: Coded, time_us: Ints, version_us: Ints, offsets: Ints, holder: Batch | Rows
) -> Flags:
    live = np.repeat(version_us > marks.erased_us(device.names)[device.codes], lengths(offsets))
    for mark in marks.partial:
        live &= ~_hit(mark, device, time_us, version_us, offsets, holder)
    return live


def _hit(mark: Mark, device: Coded, time_us: Ints, version_us: Ints, offsets: Ints, holder: Batch | Rows) -> Flags:
    rows = (version_us <= mark.version_us) & (time_us >= mark.span.start_us) & (time_us < mark.span.stop_us)
    if mark.device:
        rows &= np.array([n == mark.device for n in device.names], np.bool_)[device.codes]
    cells = np.repeat(rows, lengths(offsets))
    if mark.metric:
        named = np.array([n == mark.metric for n in holder.cells.names], np.bool_)
        cells &= named[holder.cells.name] & (holder.cells.kind != CellKind.TAG)
    return cells
