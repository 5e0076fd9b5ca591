"""How much is stored of each device, hour and day, and of each shard: counted by rolls, as a function of what is there.

Rule 1: nothing is incremented. The count of an hour is written with the hour, from the reports that it is rolled from, and
replaces the one before: exact after crashes, and however often something is sent again. The sum of a shard is computed from
the counts of its devices, and replaces the one before.
Rule 2: a report is a time of a device that has a value. What it takes is said in `model.sizes`, before compression.
Rule 3: counts are kept as long as the hours and days they stand beside, and go with their device when it is erased.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from widerow.engine.port import Engine, Span
from widerow.engine.rows import NEVER, Column, Key, Row, Rows, rows_of
from widerow.model.arrays import PAD, Codes, Flags, Ints, lengths
from widerow.model.batch import CellKind, Cells
from widerow.model.errors import Corrupt
from widerow.model.intern import NameTable
from widerow.model.names import Coded, Names
from widerow.model.sizes import REPORT_BYTES, SHAPE_BYTES, cell_bytes, name_bytes, payloads
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import Clock, TimeSpan
from widerow.rollup.gather import devices_of, in_order_of_time
from widerow.rollup.store import kept, kept_at
from widerow.schema.rollups import DAYS, HOURS, Level
from widerow.schema.shards import SHARDS, shard_of, shards_of
from widerow.schema.table import Table
from widerow.schema.usage import COUNTED_LEVELS, TOTALS_PERIOD_US, counts, totals
from widerow.telemetry.erasure import Erasure, Mark

EVENT_COUNT, SIZES = "event_count", "sizes"
SIZE_NAMES = ("values", "raw_bytes", "minute_rows", "minute_bytes", "records", "record_bytes")
"""What `sizes` holds, in order; of days the last two alone. Stored: see docs/format/usage.md before changing it."""
TOTAL_NAMES = ("devices", "reports", *SIZE_NAMES)
"""The cells of a sum."""

_FORMAT = 1
_SIZES_BYTES = 1 + 4 * len(SIZE_NAMES)
_MINUTE_ROW, _RECORD = 40, 42
"""What a row of minutes and a record of hours or days take, besides names and what they hold: docs/format/rocksdb.md."""
_NAMED = 3
_TEXT = int(CellKind.TEXT)


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Of devices in an order that its owner knows: their reports, the values in these, and the bytes of values."""

    reports: Ints
    values: Ints
    payload: Ints

    def take(self, which: Ints | Flags) -> Counted:
        return Counted(self.reports[which], self.values[which], self.payload[which])


NOTHING_COUNTED = Counted(*(np.zeros(0, np.int64) for _ in range(3)))


def count_raw(raw: Sequence[Rows], devices: Sequence[str]) -> Counted:
    """Of devices, from all their reports of an hour, in any chunks and order."""
    raw = [rows for rows in raw if len(rows)]
    if not raw:
        nothing = np.zeros(len(devices), np.int64)
        return Counted(nothing, nothing, nothing)
    named = devices_of(raw)
    place = _index(devices).find(named.names)[named.codes]
    reports, values, payload = (np.concatenate(column) for column in zip(*(of_rows(rows) for rows in raw), strict=True))
    time_us = np.concatenate([np.asarray(rows.keys["event_us"]) for rows in raw])
    some = np.flatnonzero(reports)
    some = some[in_order_of_time(place[some], time_us[some])]
    first = np.ones(len(some), np.bool_)  # a report may come in several pieces, one for each version
    first[1:] = (place[some][1:] != place[some][:-1]) | (time_us[some][1:] != time_us[some][:-1])
    return Counted(
        np.bincount(place[some[first]], minlength=len(devices)),
        _sums(place, values, len(devices)),
        _sums(place, payload, len(devices)),
    )


def of_rows(rows: Rows) -> tuple[Flags, Ints, Ints]:
    """Of each row of raw reports: whether it has values, how many, and their bytes."""
    cells = rows.cells
    if (cells.kind <= _TEXT).all():
        values = lengths(cells.offsets)
    else:
        upto = np.zeros(len(cells) + 1, np.int64)
        np.cumsum(cells.kind <= _TEXT, out=upto[1:])
        values = lengths(upto[cells.offsets])
    return values > 0, values, payloads(cells)


class Counts:
    """Counts of devices and sums of shards in the store. Safe to share between threads."""

    def __init__(self, engine: Engine, clock: Clock, erasure: Erasure) -> None:
        self._engine, self._clock, self._erasure = engine, clock, erasure
        self._applied: set[str] = set()

    # -- writing

    def hour(
        self,
        tenant: Tenant,
        hour_us: int,
        devices: Sequence[str],
        counted: Counted,
        minutes: Sequence[Rows],
        hours: Rows,
        version_us: int,
    ) -> tuple[Table, Rows]:
        """What to write with an hour of devices: `counted` of them in this order, from which minutes and hours were made."""
        names = Names.of(devices)
        entity = name_bytes(names) + len(tenant.name)
        beneath, above = _sizes(minutes, devices), _sizes([hours], devices)
        shapes = np.where(counted.reports > 0, SHAPE_BYTES + entity, 0) + _NAMED * above.cells + above.names
        sizes = [
            counted.values,
            counted.reports * (REPORT_BYTES + entity) + counted.payload + shapes,
            beneath.rows,
            beneath.rows * (_MINUTE_ROW + entity) + beneath.bytes,
            above.cells,
            above.cells * (_RECORD + entity) + above.names + above.bytes,
        ]
        return self._rows(tenant, HOURS, hour_us, names, counted.reports, np.stack(sizes, axis=1), version_us)

    def day(self, tenant: Tenant, day_us: int, devices: Sequence[str], days: Rows, version_us: int) -> tuple[Table, Rows]:
        """What to write with a day of devices."""
        names = Names.of(devices)
        above = _sizes([days], devices)
        sizes = np.zeros((len(devices), len(SIZE_NAMES)), np.int64)
        sizes[:, -2] = above.cells
        sizes[:, -1] = above.cells * (_RECORD + name_bytes(names) + len(tenant.name)) + above.names + above.bytes
        return self._rows(tenant, DAYS, day_us, names, None, sizes, version_us)

    def _rows(
        self, tenant: Tenant, level: Level, start_us: int, names: Names, reports: Ints | None, sizes: Ints, version_us: int
    ) -> tuple[Table, Rows]:
        n = len(names)
        keep_us = kept_at(tenant, level, start_us)
        keys: dict[str, Column] = {
            "tenant_id": Coded.constant(tenant.name, n),
            "bucket": np.full(n, start_us),
            "shard": shards_of(names),
            "device_id": Coded(names, np.arange(n, dtype=np.int32)),
        }
        expire_us = np.full(n, start_us + level.width_us + keep_us + GUARD_US if keep_us else NEVER)
        rows = Rows(keys, np.full(n, version_us), expire_us, _cells(reports, sizes))
        return self._table(counts(level, keep_us)), rows

    def sums_of(
        self, tenant: Tenant, level: Level, start_us: int, shards: Iterable[int], version_us: int
    ) -> tuple[Table, Rows]:
        """What to write for what is stored of the devices of some shards, in an hour or a day, put together."""
        rows: list[tuple[Key, Row]] = []
        period = start_us - start_us % TOTALS_PERIOD_US
        for shard in shards:
            sums = np.zeros(len(TOTAL_NAMES))
            for found in self.of_shard(tenant, level, start_us, shard):
                sums += (len(found.reports), found.reports.sum(), *found.sizes.sum(axis=0))
            row = dict(zip(TOTAL_NAMES, sums.tolist(), strict=True))
            rows.append(((tenant.name, period, start_us, shard), row))
        keep_us = kept_at(tenant, level, start_us)
        table = self._table(totals(level, keep_us))
        expire_us = start_us + level.width_us + keep_us + GUARD_US if keep_us else NEVER
        return table, rows_of(table, rows, version_us=version_us, expire_us=expire_us)

    # -- reading

    def of_shard(self, tenant: Tenant, level: Level, start_us: int, shard: int) -> Iterator[Stored]:
        """What is stored of each device of a shard that has something in an hour or a day."""
        marks = self._erasure.marks(tenant.name)
        table = self._table(counts(level, kept_at(tenant, level, start_us)))
        for rows in self._engine.scan(table, [(tenant.name, start_us, shard)]):
            device = rows.keys["device_id"]
            assert isinstance(device, Coded)
            found = _stored(device, rows)
            live = (found.reports > 0) | (found.sizes.sum(axis=1) > 0)
            if marks.any():
                live &= rows.version_us > marks.erased_us(device.names)[device.codes]
            yield found if live.all() else found.take(live)

    def sums(self, tenant: Tenant, level: Level, span: TimeSpan) -> Iterator[tuple[Ints, Ints]]:
        """The begins of windows within a span, and of each a row of `TOTAL_NAMES`; a window may come in several parts."""
        for keep_us, held in kept(tenant, level):
            start, stop = max(span.start_us, held.start_us, self._oldest_us(level, keep_us)), min(span.stop_us, held.stop_us)
            if start >= stop:
                continue
            periods = range(start - start % TOTALS_PERIOD_US, stop, TOTALS_PERIOD_US)
            keys: list[Key] = [(tenant.name, period) for period in periods]
            for rows in self._engine.scan(self._table(totals(level, keep_us)), keys, Span(start, stop)):
                column = {name: i for i, name in enumerate(TOTAL_NAMES)}
                place = np.array([column.get(name, -1) for name in rows.cells.names], np.int64)[rows.cells.name]
                table = np.zeros((len(rows), len(TOTAL_NAMES)), np.int64)
                known = place >= 0
                table[rows.cells.rows()[known], place[known]] = rows.cells.number[known]
                yield np.asarray(rows.keys["start_us"]), table

    def _oldest_us(self, level: Level, keep_us: int) -> int:
        return self._clock.now_us() - keep_us - GUARD_US - level.width_us if keep_us else 0

    # -- erasing

    def forget_device(self, tenant: Tenant, device: str, level: Level, starts: Ints, mark: Mark) -> None:
        """Take the counts of a device in some hours or days off the disk. They are shown to nobody any more."""
        by_class: dict[int, list[Key]] = {}
        shard = shard_of(device)
        for start_us in starts.tolist():
            by_class.setdefault(kept_at(tenant, level, start_us), []).append((tenant.name, start_us, shard))
        for keep_us, keys in by_class.items():
            table = self._table(counts(level, keep_us))
            self._engine.delete(table, keys, Span(device, device + "\0"), version_us=mark.version_us)

    def forget_tenant(self, tenant: str, mark: Mark) -> None:
        """Everything of a tenant that is gone. May be repeated, and interrupted, at will."""
        now_us = self._clock.now_us()
        for level in COUNTED_LEVELS:
            for keep_us in mark.rollup_classes(level.name):
                start_us = max(0, self._oldest_us(level, keep_us))
                sums, each = self._table(totals(level, keep_us)), self._table(counts(level, keep_us))
                stop_us = max(now_us, mark.version_us) + GUARD_US
                periods = range(start_us - start_us % TOTALS_PERIOD_US, stop_us, TOTALS_PERIOD_US)
                keys: list[Key] = [(tenant, period) for period in periods]
                for rows in self._engine.scan(sums, keys):  # these go last: they name the others
                    starts = np.unique(np.asarray(rows.keys["start_us"])).tolist()
                    of_shards: list[Key] = [(tenant, start, shard) for start in starts for shard in range(SHARDS)]
                    self._engine.delete(each, of_shards, version_us=mark.version_us)
                self._engine.delete(sums, keys, version_us=mark.version_us)

    def _table(self, table: Table) -> Table:
        """The table, made if it is new."""
        if table.name not in self._applied:
            self._engine.apply([table])
            self._applied.add(table.name)
        return table


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """What is stored of devices in one hour or day. `sizes` has a row for each, of `SIZE_NAMES`."""

    device: Coded
    reports: Ints
    sizes: Ints

    def take(self, which: Flags) -> Stored:
        return Stored(self.device.take(which), self.reports[which], self.sizes[which])


@dataclass(frozen=True, slots=True, eq=False)
class _Sizes:
    """Of devices: rows, cells in them, the bytes of these, and the bytes of their names."""

    rows: Ints
    cells: Ints
    bytes: Ints
    names: Ints


def _sizes(parts: Sequence[Rows], devices: Sequence[str]) -> _Sizes:
    table, n = _index(devices), len(devices)
    total = np.zeros((4, n), np.int64)
    for rows in parts:
        device, cells = rows.keys["device_id"], rows.cells
        assert isinstance(device, Coded)
        place = table.find(device.names)[device.codes]
        of_cell = np.repeat(place, lengths(cells.offsets))
        total += (
            np.bincount(place, minlength=n),
            np.bincount(of_cell, minlength=n),
            _sums(of_cell, cell_bytes(cells), n),
            _sums(of_cell, name_bytes(cells.names)[cells.name], n),
        )
    return _Sizes(*total)


def _index(devices: Sequence[str]) -> NameTable:
    """From a device's name to its place."""
    table = NameTable(max(1, len(devices)))
    table.add(Names.of(devices))
    return table


def _sums(place: Ints | Codes, numbers: Ints, n: int) -> Ints:
    return np.bincount(place, weights=numbers, minlength=n).astype(np.int64)


def _cells(reports: Ints | None, sizes: Ints) -> Cells:
    """A cell `event_count`, unless it is of a day, and one `sizes` in each row."""
    n = len(sizes)
    data = np.zeros(n * _SIZES_BYTES + PAD, np.uint8)
    table = data[: n * _SIZES_BYTES].reshape(n, _SIZES_BYTES)
    table[:, 0] = _FORMAT
    table[:, 1:] = np.minimum(sizes, 0xFFFF_FFFF).astype("<u4").view(np.uint8).reshape(n, -1)
    records = Names(data, np.arange(n + 1, dtype=np.int64) * _SIZES_BYTES)
    number = np.full((n, 2), np.nan)
    text = np.full((n, 2), -1, np.int32)
    text[:, 1] = np.arange(n)
    kinds = np.array([CellKind.NUMBER, CellKind.RECORD], np.uint8)
    name = np.array([0, 1], np.int32)
    which = slice(1, None) if reports is None else slice(None)
    if reports is not None:
        number[:, 0] = reports
    width = 1 if reports is None else 2
    return Cells(
        np.arange(n + 1, dtype=np.int64) * width,
        Names.of((EVENT_COUNT, SIZES)),
        np.tile(name[which], n),
        np.tile(kinds[which], n),
        number[:, which].ravel(),
        records,
        text[:, which].ravel(),
    )


def _stored(device: Coded, rows: Rows) -> Stored:
    """Cells of one row have one version, so a row is in one piece."""
    cells, names = rows.cells, rows.cells.names.to_list()
    owner = cells.rows()
    is_count = np.array([name == EVENT_COUNT for name in names], np.bool_)[cells.name]
    reports = np.zeros(len(rows), np.int64)
    reports[owner[is_count]] = cells.number[is_count]
    which = np.flatnonzero(np.array([name == SIZES for name in names], np.bool_)[cells.name])
    packed = cells.texts.take(cells.text[which])
    if (lengths(packed.offsets) < _SIZES_BYTES).any() or (packed.data[packed.offsets[:-1]] != _FORMAT).any():
        raise Corrupt("the counts of a device cannot be read; perhaps a newer release wrote them")
    at = packed.offsets[:-1, None] + np.arange(1, _SIZES_BYTES)
    sizes = np.zeros((len(rows), len(SIZE_NAMES)), np.int64)
    sizes[owner[which]] = packed.data[at].view("<u4")
    return Stored(device, reports, sizes)
