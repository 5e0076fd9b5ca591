"""Fixed tables: rows replaced in place, whole, by greater versions. Small ones, mostly: the catalog, last-seen buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from struct import Struct, unpack_from

import numpy as np
from rocksdict import WriteBatch

from widerow.engine.port import Columns, Span
from widerow.engine.rocksdb.database import Database, items, next_rows
from widerow.engine.rocksdb.keys import Strings, decode_keys, encode_all, encode_key, encode_keys, split_key
from widerow.engine.rocksdb.scan import span_bounds
from widerow.engine.rocksdb.values import (
    FIXED_FORMAT,
    FIXED_HEAD,
    HEADER,
    ShapeTable,
    column_masks,
    decode_cells,
    encode_fixed,
    fixed_heads,
    mask_shape,
    value_expiry,
)
from widerow.engine.rows import NEVER, Column, Cursor, Key, Row, Rows, key_columns
from widerow.model.arrays import Flags, Ints, lengths
from widerow.model.batch import CellKind, Value
from widerow.model.errors import Corrupt
from widerow.model.times import SECOND
from widerow.schema.table import Table

_PIECE = 4096
_FIXED = Struct("<BIQQ")
"""What stands before the cells: format, expiry, version, column mask."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Rows ready to be put."""

    keys: list[bytes]
    values: list[bytes]
    version_us: Ints

    def __len__(self) -> int:
        return len(self.keys)


def encode(table: Table, rows: Rows) -> Encoded:
    cells = rows.cells
    try:
        ordinals = np.array([table.columns.index(name) for name in cells.names], np.int32)
    except ValueError:
        strange = sorted(set(cells.names) - set(table.columns))
        raise ValueError(f"{table.name} has no column {', '.join(strange)}") from None
    ordinal = ordinals[cells.name]
    order = np.lexsort((ordinal, cells.rows()))
    if (order[1:] < order[:-1]).any():
        cells = type(cells)(
            cells.offsets,
            cells.names,
            cells.name[order],
            cells.kind[order],
            cells.number[order],
            cells.texts,
            cells.text[order],
        )
        ordinal = ordinal[order]
    values = encode_fixed(cells, rows.expire_us, rows.version_us, column_masks(cells, ordinal))
    return Encoded(encode_keys(table.key, rows.keys, len(rows)).to_list(), values.to_list(), rows.version_us)


def put_newer(batch: WriteBatch, db: Database, family: str, encoded: Encoded, waiting: dict[tuple[str, bytes], int]) -> None:
    """Add the rows that are newer than what is stored, and than each other, to a write. Inside `Database.writing()`.

    `waiting` has the versions of what the same write holds already.
    """
    batch.set_default_column_family(db.handle(family))
    newest: dict[bytes, int] = {}
    versions = encoded.version_us.tolist()
    for i, key in enumerate(encoded.keys):
        j = newest.setdefault(key, i)
        if versions[i] > versions[j]:
            newest[key] = i
    keys = list(newest)
    for key, stored in zip(keys, get_many(db, family, keys), strict=True):
        i = newest[key]
        known = max(-1 if stored is None else _version(stored), waiting.get((family, key), -1))
        if known < versions[i]:
            waiting[family, key] = versions[i]
            batch.put(key, encoded.values[i])


def _version(stored: bytes) -> int:
    return int.from_bytes(stored[HEADER : HEADER + 8], "little")


def get_many(db: Database, family: str, keys: list[bytes]) -> list[bytes | None]:
    """Stored values. The list form of `get` releases the GIL."""
    handle = db.family(family)
    if handle is None or not keys:
        return [None] * len(keys)
    try:
        found: list[bytes | None] = handle.get(keys)  # type: ignore[assignment, arg-type]
    except Exception as error:
        raise db.unreadable(error) from error
    return found


def get_row(db: Database, table: Table, key: bytes, *, now_s: int) -> dict[str, Value] | None:
    """One row, plainly: a tenth of what the machinery for many costs. Inside `Database.reading()` or `writing()`."""
    stored = get_many(db, table.name, [key])[0]
    if stored is None:
        return None
    form, expire_s, _, mask = _FIXED.unpack_from(stored)
    if form != FIXED_FORMAT:
        raise _strange(table)
    if 0 < expire_s <= now_s:
        return None
    shape = _mask_shape(table.columns, mask)
    numbers = [name for name, kind in zip(shape.names, shape.kinds, strict=True) if kind == CellKind.NUMBER]
    at = _FIXED.size + 8 * len(numbers)
    row: dict[str, Value] = {}
    found = iter(unpack_from(f"<{len(numbers)}d", stored, _FIXED.size))
    for name, kind in zip(shape.names, shape.kinds, strict=True):
        if kind == CellKind.NUMBER:
            row[name.decode()] = next(found)
        else:
            length = int.from_bytes(stored[at : at + 4], "little")
            row[name.decode()] = stored[at + 4 : at + 4 + length].decode()
            at += 4 + length
    return row


def _strange(table: Table) -> Corrupt:
    return Corrupt(f"a row of {table.name} has an unknown format: was the store written by a newer release?")


def plain(row: Row) -> dict[str, Value]:
    """A row as it would be read back: numbers as floats."""
    return {name: value if isinstance(value, str) else float(value) for name, value in row.items()}


def scan(
    db: Database,
    table: Table,
    partitions: Sequence[Key] | None,
    span: Span,
    *,
    limit: int | None,
    columns: Columns | None,
    after: Cursor | None,
    now_s: int,
) -> Iterator[Rows]:
    """Live rows, as the port's `scan`. The cursor is the partition's index and the last key."""
    if partitions and after is None and span == Span() and all(len(p) == len(table.key) for p in partitions):
        yield from _look_up(db, table, partitions, columns, now_s)
        return
    index, behind, taken = (0, b"", 0) if after is None else _cursor(after)
    for i in range(index, 1 if partitions is None else len(partitions)):
        low, high = (b"", None) if partitions is None else _bounds(table, partitions[i], span)
        if i > index or not behind:
            taken = 0
        else:
            low = max(low, behind + b"\0")
        for keys, values in _pieces(db, table.name, low, high):
            rows = _decode(table, _columns(table, keys), values)
            wanted = (rows.expire_us > now_s * SECOND) & _has_any(rows, columns)
            if partitions is None and span != Span():
                wanted &= _in_span(table, rows, span)
            if limit is not None and partitions is not None:
                wanted &= np.cumsum(wanted) <= limit - taken
                taken += int(wanted.sum())
            elif limit is not None:
                taken = _limit_each(table, keys, wanted, limit, behind, taken)
                behind = keys[-1]
            done = limit is not None and partitions is not None and taken >= limit
            if wanted.any():
                last = keys[int(np.flatnonzero(wanted)[-1])]
                last = last if partitions is not None else keys[-1]  # what is over its limit is behind us, too
                place = _to_cursor(i + 1, b"", 0) if done else _to_cursor(i, last, taken)
                yield replace(_only(rows.take(wanted), columns), cursor=place)
            if done:
                break


def _limit_each(table: Table, keys: list[bytes], wanted: Flags, limit: int, before: bytes, taken: int) -> int:
    """Leave at most `limit` rows of each partition; gives how many the last one has had, counting those `before`."""
    current = before[: split_key(table.partition, before)[1]] if before else b""
    for i, key in enumerate(keys):
        if not current or not key.startswith(current):
            current, taken = key[: split_key(table.partition, key)[1]], 0
        wanted[i] &= taken < limit
        taken += int(wanted[i])
    return taken


def _bounds(table: Table, key: Key, span: Span) -> tuple[bytes, bytes | None]:
    """The keys between which the rows that `key` is the start of lie."""
    base = encode_key(table.key, key)
    n = len(table.partition)
    if len(key) == n:
        return span_bounds(table, base, span)
    return (base, base + b"\xff" * 32) if span.holds(key[n]) else (base, base)


def _has_any(rows: Rows, columns: Columns | None) -> Flags:
    """Rows that have one of the named cells."""
    has = np.ones(len(rows), np.bool_)
    if columns is not None:
        named = np.array([n in columns for n in rows.cells.names], np.bool_)
        has[:] = False
        has[rows.cells.rows()[named[rows.cells.name]]] = True
    return has


def _look_up(db: Database, table: Table, keys: Sequence[Key], columns: Columns | None, now_s: int) -> Iterator[Rows]:
    """Rows by their whole keys, in the order asked."""
    stored_keys = encode_all(table.key, keys)
    with db.reading():
        found = get_many(db, table.name, stored_keys)
    values = [value for value in found if value is not None]
    if values:
        present = keys if len(values) == len(keys) else [k for k, v in zip(keys, found, strict=True) if v is not None]
        rows = _decode(table, key_columns(table.key, present), values)
        live = rows.expire_us > now_s * SECOND
        rows = _only(rows if live.all() else rows.take(live), columns)
        yield replace(rows, cursor=_to_cursor(len(keys), b"", 0))


def _only(rows: Rows, columns: Columns | None) -> Rows:
    """The rows with the named cells alone; those that have none are left out."""
    if columns is None:
        return rows
    keep = np.array([n in columns for n in rows.cells.names], np.bool_)
    cells = rows.cells.keep(keep[rows.cells.name])
    return replace(rows, cells=cells).take(lengths(cells.offsets) > 0)


def _pieces(db: Database, family: str, low: bytes, high: bytes | None) -> Iterator[tuple[list[bytes], list[bytes]]]:
    while True:
        with db.reading():
            handle = db.family(family)
            if handle is None:
                return
            rows = next_rows(items(db, handle, low, high), _PIECE)
        if rows:
            yield [key for key, _ in rows], [value for _, value in rows]
        if len(rows) < _PIECE:
            return
        low = rows[-1][0] + b"\0"


def _columns(table: Table, keys: list[bytes]) -> dict[str, Column]:
    strings = Strings.of(keys)
    return decode_keys(table.key, strings, strings.offsets[:-1].copy())


def _decode(table: Table, keys: dict[str, Column], stored: list[bytes]) -> Rows:
    values = Strings.of(stored)
    expire_s, version_us = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    mask = np.empty(len(values), np.uint64)
    if value_expiry(values.data, values.offsets, FIXED_FORMAT, expire_s):
        raise _strange(table)
    fixed_heads(values.data, values.offsets, version_us, mask)
    if (mask == mask[0]).all():  # mostly: every column is set
        masks, shape = (int(mask[0]),), np.zeros(len(values), np.int32)
    else:
        distinct, inverse = np.unique(mask, return_inverse=True)
        masks, shape = tuple(distinct.tolist()), inverse.astype(np.int32).reshape(-1)
    cells = decode_cells(values, HEADER + FIXED_HEAD, shape, _shape_table(table.columns, masks))
    expire_us = np.where(expire_s == 0, NEVER, expire_s * SECOND)
    return Rows(keys, version_us, expire_us, cells)


_mask_shape = lru_cache(256)(mask_shape)


@lru_cache(256)
def _shape_table(columns: tuple[str, ...], masks: tuple[int, ...]) -> ShapeTable:
    return ShapeTable([mask_shape(columns, m) for m in masks])


def doomed_keys(db: Database, table: Table, partition: Key, span: Span, version_us: int) -> list[bytes]:
    """Keys of the rows that a delete removes. Inside `Database.writing()`."""
    low, high = span_bounds(table, encode_key(table.partition, partition), span)
    return [
        key
        for keys, values in _pieces(db, table.name, low, high)
        for key, value in zip(keys, values, strict=True)
        if table.conditional or _version(value) <= version_us
    ]


def _in_span(table: Table, rows: Rows, span: Span) -> Flags:
    column = rows.keys[table.clustering[0].name]
    values: Sequence[str | int] = column.tolist() if isinstance(column, np.ndarray) else column.to_list()
    return np.array([span.holds(v) for v in values], np.bool_)


def _to_cursor(index: int, key: bytes, taken: int) -> Cursor:
    return index.to_bytes(4, "big") + taken.to_bytes(8, "big") + key


def _cursor(cursor: Cursor) -> tuple[int, bytes, int]:
    return int.from_bytes(cursor[:4], "big"), cursor[12:], int.from_bytes(cursor[4:12], "big")
