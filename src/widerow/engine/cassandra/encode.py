"""From rows to batches of bound statements.

Rule 1: a batch is unlogged and of one partition, so it is one mutation on each replica; it is cut by bytes.
Rule 2: values are packed here, a column at a time: the driver's own binding costs several times as much per value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, BoundStatement, PreparedStatement

from widerow.engine.cassandra.names import Naming
from widerow.engine.cassandra.physical import Physical, cell_name, escaped, readable_time
from widerow.engine.cassandra.summary import packed_columns
from widerow.engine.rows import Row, Rows
from widerow.model.arrays import Ints, lengths
from widerow.model.batch import CellKind
from widerow.model.names import Coded
from widerow.model.times import MAX_TIME_US, MS, SECOND
from widerow.schema.table import Table

BATCH_BYTES = 40 << 10
"""Cassandra refuses batches over 50 KiB unless told otherwise."""
MAX_TTL_S = 20 * 365 * 86_400
"""What lasts longer has no TTL; `expires` still says when it ends."""

_BIGINT, _DOUBLE, _INT, _INTS = Struct(">q"), Struct(">d"), Struct(">i"), Struct(">ii")
_OVERHEAD = 36
"""Bytes of a statement in a batch besides its values, about."""

Packed: TypeAlias = list[Any]
"""The values of one statement, packed; or `UNSET_VALUE`, which leaves a column alone."""


@dataclass(frozen=True, slots=True)
class Statements:
    """What is prepared for writing a table."""

    write: PreparedStatement
    name_cells: PreparedStatement | None = None
    """For sparse tables."""
    write_summary: PreparedStatement | None = None
    delete_row: PreparedStatement | None = None
    """For tables of rollups."""


def batches(physical: Physical, prepared: Statements, rows: Rows, now_us: int, naming: Naming) -> Iterator[Any]:
    """The writes of some rows, each a statement or a batch of one partition."""
    packer = _packer(physical, prepared, rows, now_us)
    for group in _by_partition(physical.table, rows):
        batch = _Batch()
        if prepared.name_cells is not None:
            assert isinstance(packer, _SparsePacker)
            batch.put(prepared.name_cells, packer.naming(group, naming))
        for i in group.tolist():
            for statement, values in packer.statements(i):
                if batch.is_full(values):
                    yield batch.statement()
                    batch = _Batch()
                batch.put(statement, values)
        if batch.statements:
            yield batch.statement()


def _packer(physical: Physical, prepared: Statements, rows: Rows, now_us: int) -> _SparsePacker | _FixedPacker:
    if not physical.table.sparse:
        return _FixedPacker(physical, prepared, rows, now_us)
    kind = _SummaryPacker if physical.table.summaries else _SparsePacker
    return kind(physical, prepared, rows, now_us)


class _Batch:
    """Statements of one partition."""

    def __init__(self) -> None:
        self.statements: list[BoundStatement] = []
        self._size = 0

    def is_full(self, values: Packed) -> bool:
        return bool(self.statements) and self._size + _size(values) > BATCH_BYTES

    def put(self, prepared: PreparedStatement, values: Packed | None) -> None:
        if values is not None:
            self.statements.append(bound_to(prepared, values))
            self._size += _size(values)

    def statement(self) -> Any:
        if len(self.statements) == 1:
            return self.statements[0]
        batch = BatchStatement(BatchType.UNLOGGED)
        for statement in self.statements:
            batch.add(statement)
        batch.is_idempotent = True
        return batch


def _size(values: Packed) -> int:
    return _OVERHEAD + sum([len(value) for value in values if value is not UNSET_VALUE])


def bound_to(prepared: PreparedStatement, packed: Packed) -> BoundStatement:
    """A statement with values that are packed already."""
    bound = BoundStatement(prepared)
    bound.values = packed
    return bound


def _by_partition(table: Table, rows: Rows) -> list[Ints]:
    """Rows grouped by partition, in order within each."""
    columns = []
    for column in table.partition:
        values = rows.keys[column.name]
        # Codes will do, but two codes may stand for one name.
        columns.append(_canonical(values) if isinstance(values, Coded) else np.asarray(values))
    order = np.lexsort(columns)
    changed = np.zeros(max(len(order) - 1, 0), np.bool_)
    for values in columns:
        changed |= values[order][1:] != values[order][:-1]
    return np.split(order, np.flatnonzero(changed) + 1)


def _canonical(column: Coded) -> Ints:
    first: dict[bytes, int] = {}
    same = np.array([first.setdefault(name, len(first)) for name in column.names.to_bytes_list()], np.int64)
    return same[column.codes]


class _Packer:
    """The values of every row, packed by columns."""

    def __init__(self, physical: Physical, prepared: Statements, rows: Rows, now_us: int) -> None:
        self._table, self._prepared = physical.table, prepared
        self._rows, self._now_us = rows, now_us
        self._keys = list(zip(*_keys(physical, rows), strict=True))
        self._expires, self._ttl = _lifetimes(rows.expire_us, now_us)
        self._version = _bigints(rows.version_us)


class _SparsePacker(_Packer):
    def __init__(self, physical: Physical, prepared: Statements, rows: Rows, now_us: int) -> None:
        super().__init__(physical, prepared, rows, now_us)
        cells = rows.cells
        names = cells.names.to_list()
        self._names = [name.encode() for name in names]
        self._plain = [cell_name(name, tag=False).encode() for name in names]
        self._tags = [cell_name(name, tag=True).encode() for name in names]
        self._texts = cells.texts.to_bytes_list()
        self._numbers: list[bytes] = np.ascontiguousarray(cells.number).astype(">f8").view("V8").tolist()
        self._kind, self._name, self._text = cells.kind.tolist(), cells.name.tolist(), cells.text.tolist()
        self._cuts = cells.offsets.tolist()

    def statements(self, i: int) -> Iterator[tuple[PreparedStatement, Packed]]:
        """For each cell of a row. Its tags stand beside each value, for people; they are read from their own cells."""
        kinds, unset, write = self._kind, UNSET_VALUE, self._prepared.write
        found = range(self._cuts[i], self._cuts[i + 1])
        tags = {self._names[self._name[c]]: self._texts[self._text[c]] for c in found if kinds[c] == CellKind.TAG}
        beside = _pack_map(tags) if tags else unset
        head, key, end = [self._version[i], self._ttl[i]], self._keys[i], self._expires[i]
        for c in found:
            name = self._name[c]
            if kinds[c] == CellKind.NUMBER:
                yield write, [*head, self._numbers[c], unset, unset, beside, end, *key, self._plain[name]]
            elif kinds[c] == CellKind.TAG:
                yield write, [*head, unset, self._texts[self._text[c]], unset, unset, end, *key, self._tags[name]]
            elif kinds[c] == CellKind.TEXT:
                yield write, [*head, unset, self._texts[self._text[c]], unset, beside, end, *key, self._plain[name]]
            else:
                yield from self._record(i, c, beside)

    def _record(self, i: int, c: int, beside: Any) -> Iterator[tuple[PreparedStatement, Packed]]:
        record, key = self._texts[self._text[c]], [*self._keys[i], self._plain[self._name[c]]]
        head = [self._version[i], self._ttl[i], UNSET_VALUE, UNSET_VALUE]
        yield self._prepared.write, [*head, record, beside, self._expires[i], *key]

    def naming(self, group: Ints, naming: Naming) -> Packed | None:
        """What names the cells of a partition's rows; None where they are named already."""
        names = {
            (self._tags if self._kind[c] == CellKind.TAG else self._plain)[self._name[c]]
            for i in group.tolist()
            for c in range(self._cuts[i], self._cuts[i + 1])
        }
        partition = self._keys[int(group[0])][: len(self._table.partition)]
        expire_us = int(self._rows.expire_us[group].max())
        missing, until_us = naming.add((self._table.name.encode(), *partition), names, expire_us)
        if not missing:
            return None
        _, (ttl,) = _lifetimes(np.array([until_us]), self._now_us)
        # Timestamps of names only order them: a later one lives longer, or as long.
        return [_BIGINT.pack(self._now_us), ttl, _pack_set(missing), *partition]


class _SummaryPacker(_SparsePacker):
    """Records are written with what they say."""

    def __init__(self, physical: Physical, prepared: Statements, rows: Rows, now_us: int) -> None:
        super().__init__(physical, prepared, rows, now_us)
        assert physical.table.summaries
        cells, begin = rows.cells, np.asarray(rows.keys[physical.table.summaries.begin])
        records = np.flatnonzero(cells.kind == CellKind.RECORD)
        window_us = np.repeat(begin, lengths(cells.offsets))[records]
        statistics = [statistic for _, statistic in physical.shown]
        shown = packed_columns(cells.texts.take(cells.text[records]), window_us, statistics)
        self._shown = dict(zip(records.tolist(), shown, strict=True))
        self._before = _bigints(rows.version_us - 1)
        self._nothing = [UNSET_VALUE] * len(statistics)

    def _record(self, i: int, c: int, beside: Any) -> Iterator[tuple[PreparedStatement, Packed]]:
        shown, key = self._shown[c], [*self._keys[i], self._plain[self._name[c]]]
        if shown is None:
            # What an older record showed goes. Nulls would do that, too, but each is a tombstone that reads count.
            yield self._prepared.delete_row, [self._before[i], *key]
        record = [self._texts[self._text[c]], beside, self._expires[i]]
        yield self._prepared.write_summary, [*record, *(shown or self._nothing), *key, self._version[i], self._ttl[i]]


class _FixedPacker(_Packer):
    def statements(self, i: int) -> Iterator[tuple[PreparedStatement, Packed]]:
        body = pack_row(self._table, self._rows.row(i))
        yield self._prepared.write, [self._version[i], self._ttl[i], body, self._expires[i], *self._keys[i]]


def _keys(physical: Physical, rows: Rows) -> list[Sequence[bytes]]:
    """The key columns of all rows, packed, but for the name of a cell."""
    table = physical.table
    out: list[Sequence[bytes]] = []
    for k, column in enumerate(table.key):
        values = rows.keys[column.name]
        if isinstance(values, Coded):
            single = len(table.partition) == 1 and k == 0
            encoded = [(escaped(t) if single else t).encode() for t in values.names.to_list()]
            out.append([encoded[c] for c in values.codes.tolist()])
        elif unit := physical.units.get(column.name):
            out.append(unit.packed(values))
        else:
            if k >= len(table.partition) and readable_time(table, column):
                out.append(_bigints(values // MS))
            out.append(_bigints(values))
    return out


def _bigints(values: Ints) -> list[bytes]:
    packed: list[bytes] = np.ascontiguousarray(values).astype(">i8").view("V8").tolist()
    return packed


def _lifetimes(expire_us: Ints, now_us: int) -> tuple[list[Any], list[bytes]]:
    """For each row the value of `expires`, and the TTL. What has expired lives for a second: it hides what is older."""
    never = expire_us > MAX_TIME_US
    expire_s = np.where(never, 0, -(-np.clip(expire_us, 0, MAX_TIME_US) // SECOND))
    ttl = np.clip(expire_s - now_us // SECOND, 1, None)
    ttl = np.where(never | (ttl > MAX_TTL_S), 0, ttl)
    expires: list[Any] = _bigints(expire_s * 1_000)
    for i in np.flatnonzero(never).tolist():
        expires[i] = UNSET_VALUE
    return expires, [_INT.pack(t) for t in ttl.tolist()]


def pack_row(table: Table, row: Row) -> bytes:
    """A fixed row: a frozen map from a column's name to (number, text), one of which is null. Equal rows are equal bytes."""
    strange = sorted(set(row) - set(table.columns))
    if strange:
        raise ValueError(f"{table.name} has no column {', '.join(strange)}")
    if not row:
        raise ValueError(f"{table.name}: a row has at least one column; None removes it")
    packed = {}
    for name, value in row.items():
        if isinstance(value, str):
            text = value.encode()
            packed[name.encode()] = _INTS.pack(-1, len(text)) + text
        else:
            packed[name.encode()] = _INT.pack(8) + _DOUBLE.pack(float(value)) + _INT.pack(-1)
    return _pack_map(packed)


def _pack_map(entries: dict[bytes, bytes]) -> bytes:
    """As a map that compares equal to its equals: in the order of its keys."""
    parts = [_INT.pack(len(entries))]
    for key in sorted(entries):
        parts += [_INT.pack(len(key)), key, _INT.pack(len(entries[key])), entries[key]]
    return b"".join(parts)


def _pack_set(entries: set[bytes]) -> bytes:
    return b"".join([_INT.pack(len(entries)), *(_INT.pack(len(e)) + e for e in sorted(entries))])
