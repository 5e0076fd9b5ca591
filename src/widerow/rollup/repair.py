"""Mending what a check found: each record that is wrong, and nothing beside it.

Rule 1: a record is replaced by the one that was computed, at a version of its own; what should not be there is removed up to
the version it has. Its neighbours in the row keep their bytes and their versions.
Rule 2: the version is an instant from before the inputs were read, as when rolling: whoever rolls later wins.
Rule 3: in order of levels, so that an interruption leaves nothing above that is newer than what it is of. What the fleet
says of an hour that is mended is marked first, as when an hour is rolled, and rolled with the rest.
Rule 4: of the fleet's rows those of the shard and hour are written anew, and those of the whole hour: cells that were right
get the same bytes again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from widerow.engine.port import Engine, Span
from widerow.engine.rows import Key, Rows
from widerow.model.arrays import lengths
from widerow.model.batch import CellKind
from widerow.model.errors import Corrupt
from widerow.model.names import Coded, Names
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import MS, TimeSpan, whole_ms
from widerow.rollup.backlog import Backlog
from widerow.rollup.compare import Records, rows_of_records
from widerow.rollup.fleet import Fleet
from widerow.rollup.store import Rollups, kept_at
from widerow.rollup.verify import Finding, Kind
from widerow.schema.rollups import HOURS, LEVELS, Level


class Repairer:
    """Safe to share between threads."""

    def __init__(
        self,
        engine: Engine,
        rollups: Rollups,
        fleet: Backlog | None = None,
        tagged: Callable[[str, Rows], Rows] = lambda _, rows: rows,
    ) -> None:
        """`fleet` is where the fleet's hours are marked; `tagged` puts on rows of hours what is stored with them."""
        self._engine, self._rollups, self._fleet, self._tagged = engine, rollups, fleet, tagged

    def mend(self, tenant: Tenant, findings: Sequence[Finding], *, read_us: int) -> list[Finding]:
        """Mend what can be; gives what was. `read_us`: an instant from before the check began."""
        done = []
        for level in LEVELS:
            mine = [f for f in findings if f.level is level and f.mendable]
            if level is HOURS:
                self._mark_fleet(tenant, mine, whole_ms(read_us))
            # What is stored may come from a clock that is ahead: that must lose, too.
            by_version: dict[int, list[Finding]] = {}
            for f in mine:
                if f.kind is not Kind.EXTRA:
                    by_version.setdefault(max(whole_ms(read_us), f.version_us + MS), []).append(f)
            for version_us, some in by_version.items():
                self._write(tenant, level, some, version_us, {(f.device, f.start_us, f.metric) for f in mine})
            for f in mine:
                if f.kind is Kind.EXTRA:
                    self._remove(tenant, f, max(whole_ms(read_us), f.version_us + MS))
            done += mine
        return done

    def _mark_fleet(self, tenant: Tenant, hours: Sequence[Finding], version_us: int) -> None:
        if self._fleet is None:
            return
        for start_us in sorted({f.start_us for f in hours}):
            devices = sorted({f.device for f in hours if f.start_us == start_us})
            self._engine.write([(self._fleet.table, self._fleet.marks(tenant.name, start_us, devices, version_us))])

    def _write(
        self,
        tenant: Tenant,
        level: Level,
        findings: Sequence[Finding],
        version_us: int,
        wrong: Collection[tuple[str, int, str]],
    ) -> None:
        """`wrong`: the devices, windows and metrics that are mended in all."""
        rows, tags = _rows(tenant.name, level, findings, version_us), list[Rows]()
        if level is HOURS:
            # An hour that lost its whole row lost its tags as well. Others keep theirs, which must not become older than
            # the records: see `hours_of_devices`.
            device, start_us = rows.keys["device_id"], np.asarray(rows.keys["start_us"]).tolist()
            assert isinstance(device, Coded)
            empty = np.zeros(len(rows), np.bool_)
            for i, (name, at_us) in enumerate(zip(device.to_list(), start_us, strict=True)):
                there = self._row(tenant, level, name, at_us)
                empty[i] = not there
                tags += _valid_tags(there, {m for d, s, m in wrong if (d, s) == (name, at_us)}, version_us)
            tags.append(self._tagged(tenant.name, rows.take(empty)))
            rows = rows.take(~empty)
        self._engine.write([change for part in (*tags, rows) for change in self._rollups.changes(tenant, level, part)])

    def _remove(self, tenant: Tenant, f: Finding, version_us: int) -> None:
        key: Key = (tenant.name, f.device, f.start_us - f.start_us % f.level.period_us)
        table = self._rollups.table(f.level, kept_at(tenant, f.level, f.start_us))
        span = Span(f.start_us, f.start_us + 1)
        tags = [_only_tags(rows, version_us) for rows in self._row(tenant, f.level, f.device, f.start_us, f.metric)]
        self._engine.delete(table, [key], span, version_us=f.version_us, columns=[f.metric])
        # A tag that has the metric's name went with it.
        self._engine.write([change for rows in tags for change in self._rollups.changes(tenant, f.level, rows)])

    def _row(self, tenant: Tenant, level: Level, device: str, start_us: int, column: str | None = None) -> list[Rows]:
        span, columns = TimeSpan(start_us, start_us + 1), [column] if column is not None else None
        return self._rollups.read(tenant, [device], level, span, metrics=columns, beyond_us=GUARD_US)


def mend_fleet(fleet: Fleet, tenant: Tenant, findings: Sequence[Finding]) -> list[Finding]:
    """Compute the hours of the fleet again that something was found in, of the shards it was found in; gives what was.

    Not those of which nobody can tell what is right, or which cannot be read.
    """
    done = []
    for hour_us in sorted({f.start_us for f in findings}):
        mine = [f for f in findings if f.start_us == hour_us]
        if not all(f.mendable for f in mine):
            continue
        shards = sorted({f.shard for f in mine if f.shard is not None})
        try:
            fleet.recompute(tenant, hour_us, shards, newer_than_us=max(f.version_us for f in mine))
        except Corrupt:
            continue  # an hour of a device cannot be read: that is mended first
        done += mine
    return done


def _rows(tenant: str, level: Level, findings: Sequence[Finding], version_us: int) -> Rows:
    devices = sorted({f.device for f in findings})
    place = {name: i for i, name in enumerate(devices)}
    records = Records(
        np.array([place[f.device] for f in findings], np.int64),
        np.array([f.start_us for f in findings], np.int64),
        Coded.of([f.metric for f in findings]),
        Names.of_bytes([f.right for f in findings]),
        np.full(len(findings), version_us, np.int64),
    )
    return rows_of_records(tenant, devices, level, records)


def _valid_tags(row: Sequence[Rows], wrong: Collection[str], version_us: int) -> list[Rows]:
    """The tags of one row at another version, unless they are older than its records. Those that are wrong do not count."""
    newest_us = -1
    for part in row:
        cells = part.cells
        right = np.array([name not in wrong for name in cells.names.to_list()], np.bool_)[cells.name]
        of_records = part.version_us[cells.rows()[right & (cells.kind == CellKind.RECORD)]]
        newest_us = max(newest_us, *of_records.tolist(), -1)
    return [_only_tags(part.take(part.version_us >= newest_us), version_us) for part in row]


def _only_tags(rows: Rows, version_us: int) -> Rows:
    cells = rows.cells.keep(rows.cells.kind == CellKind.TAG)
    tags = Rows(rows.keys, np.full(len(rows), version_us), rows.expire_us, cells)
    return tags.take(lengths(cells.offsets) > 0)
