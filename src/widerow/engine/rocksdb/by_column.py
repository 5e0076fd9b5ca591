"""Sparse tables by column: every cell is stored by itself, and the cells of one name lie together in their partition.

Rule 1: what is stored is an ordinary sparse table whose clustering begins with the name of the cell (`stored_as`), and whose
rows have one cell each. So keys, values, shapes and versions are those of every sparse table.
Rule 2: what is asked for and given is the table as it is known above: rows in clustering order, their cells joined again.
Rule 3: several columns are read side by side, as far as the one that ends first. Memory does not grow with the span.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from rocksdict import WriteBatch

from widerow.engine.port import Span
from widerow.engine.rocksdb import append
from widerow.engine.rocksdb.database import Database, items
from widerow.engine.rocksdb.iterators import Iterators
from widerow.engine.rocksdb.keys import decode_keys, encode_key, encode_part, split_key
from widerow.engine.rocksdb.pieces import (
    PIECE,
    ROWS,
    SHAPES,
    SUFFIX,
    Fragments,
    PartitionReader,
    Piece,
    behind,
    decode,
    names_of,
    shape_of,
    shapes_at,
    shapes_of,
)
from widerow.engine.rocksdb.raw import RawRows
from widerow.engine.rocksdb.scan import Place, SparseScan, Target, bounds, rows_of_piece, span_bounds
from widerow.engine.rocksdb.values import Wanted
from widerow.engine.rows import Column, Cursor, Key, Rows, key_columns
from widerow.model.arrays import Bytes, Hashes, Ints
from widerow.model.kernel import kernel
from widerow.model.names import Coded
from widerow.model.times import MS
from widerow.schema.table import KeyColumn, Table

if TYPE_CHECKING:
    from widerow.engine.rocksdb.iterators import Opened

_NAME = KeyColumn("")
"""The name of a cell, where it stands in a key."""
_LEAST = 64
"""Of each column so many rows are read in one go, however many columns there are."""
_WORD = 8
_LAST_MS = (1 << 48) - 1
"""The greatest version there is room for in a key."""


@lru_cache(1024)
def stored_as(table: Table) -> Table:
    """The table whose rows are what is stored."""
    return replace(table, clustering=(_NAME, *table.clustering), by_column=False)


def encode(table: Table, rows: Rows) -> append.Encoded:
    """Each cell as a row of its own."""
    cells, of_row = rows.cells, rows.cells.rows()
    keys: dict[str, Column] = {n: c.take(of_row) if isinstance(c, Coded) else c[of_row] for n, c in rows.keys.items()}
    keys[_NAME.name] = Coded(cells.names, cells.name)
    apart = replace(cells, offsets=np.arange(len(cells) + 1))
    return append.encode(stored_as(table), Rows(keys, rows.version_us[of_row], rows.expire_us[of_row], apart))


def delete(
    db: Database,
    table: Table,
    family: str,
    partition: Key,
    span: Span,
    *,
    version_us: int,
    columns: Sequence[str] | None,
) -> None:
    """Cells up to the version go. Nothing is written again: a cell has no neighbours. Durable on return."""
    prefix, wanted = encode_key(table.partition, partition), names_of(columns)
    low, high = bounds(table, partition, _WITHIN, span)
    if version_us < 0:
        return
    # Versions are inverted in keys: what is not newer has the same bytes, or greater ones.
    newest = (_LAST_MS - min(version_us // MS, _LAST_MS)).to_bytes(6, "big")
    with db.writing():
        rows = db.family(family)
        if rows is None:
            return
        stems = _stems(prefix, shapes_of(db, rows, prefix), wanted)
        found = (key for stem in stems for key, _ in items(db, rows, stem + low, stem + high))
        doomed = [key for key in found if key[-SUFFIX : 6 - SUFFIX] >= newest]
        if not doomed:
            return
        batch = WriteBatch(raw_mode=True)
        batch.set_default_column_family(db.handle(family))
        append.consume(map(batch.delete, doomed))
        ticket = db.write(batch)
    db.wait_durable(ticket)


_WITHIN = b"\0"
"""The last byte of a name in a key: bounds behind it are the same for all columns of a partition."""


def _stems(prefix: bytes, shapes: dict[bytes, bytes], wanted: Wanted | None) -> list[bytes]:
    """What the keys of each wanted column of a partition begin with, without `_WITHIN`; in order."""
    base = prefix + ROWS
    return [base + part for part in _name_parts(tuple(shapes.values()), wanted)]


@lru_cache(1024)  # most partitions have the same few shapes
def _name_parts(shapes: tuple[bytes, ...], wanted: Wanted | None) -> list[bytes]:
    names = {name for shape in shapes for name in shape_of(shape).names if wanted is None or name in wanted}
    return sorted(map(_name_part, names))


def _name_part(name: bytes) -> bytes:
    return encode_part(_NAME, name.decode())[: -len(_WITHIN)]


class ColumnsReader(PartitionReader):
    """Reads several columns of one partition side by side, from front to back, a piece at a time.

    `next_key` is no key that is stored: it goes on behind the mark of rows with where each column is to be resumed.
    """

    def __init__(self, prefix: bytes, within: tuple[bytes, bytes], wanted: Wanted | None) -> None:
        low, high = within
        super().__init__(prefix, prefix + ROWS + low, high)
        self._wanted = wanted

    def read(self, opened: Opened, count: int) -> tuple[RawRows, dict[bytes, bytes]]:
        """Column by column, all as far as the same clustering key."""
        at = opened.at
        shapes = shapes_at(opened.scan.db, at, self.prefix)
        stems = _stems(self.prefix, shapes, self._wanted)
        most = min(count, max(_LEAST, PIECE // max(1, len(stems))))
        low = self.next_key[len(self.prefix + ROWS) :]
        runs: list[RawRows] = []
        horizon: bytes | None = None
        for stem in stems:
            cut, stop = len(stem), stem + self.stop
            run: RawRows = []
            at.seek(stem + low)
            while at.valid() and (key := at.key()) < stop:
                if len(run) >= most and key[:-SUFFIX] != run[-1][0][:-SUFFIX]:
                    last = run[-1][0][cut:-SUFFIX]
                    horizon = last if horizon is None else min(horizon, last)
                    break
                run.append((key, at.value()))
                at.next()
            opened.scan.db.check_read(at)
            runs.append(run)
        if horizon is None:
            self.done = True
        else:
            self.next_key = self.prefix + ROWS + behind(horizon)
            for stem, run in zip(stems, runs, strict=True):
                del run[_first_behind(run, len(stem), horizon) :]
        return [row for run in runs for row in run], shapes


def _first_behind(run: RawRows, cut: int, horizon: bytes) -> int:
    return bisect_right(run, horizon, key=lambda row: row[0][cut:-SUFFIX])


class ColumnScan(SparseScan):
    """A scan of a table by column. A single column is read as any other range of keys."""

    @cached_property
    def _only(self) -> bytes | None:
        """The name of the column that is wanted, as in keys, if it is one."""
        return _name_part(next(iter(self.wanted))) if isinstance(self.wanted, frozenset) and len(self.wanted) == 1 else None

    @cached_property
    def _whole(self) -> tuple[bytes, bytes]:
        """The bounds within each column of a whole partition."""
        return span_bounds(self.table, _WITHIN, self.span)

    def _reader(self, partition: Key, prefix: bytes, resumed: Place | None = None) -> PartitionReader:
        whole = len(partition) == len(self.table.partition)
        low, high = self._whole if whole else bounds(self.table, partition, _WITHIN, self.span)
        reader: PartitionReader
        if self._only is not None:
            stem = prefix + ROWS + self._only
            reader = PartitionReader(prefix, stem + low, stem + high)
        else:
            reader = ColumnsReader(prefix, (low, high), self.wanted)
        if resumed:
            reader.next_key = max(reader.next_key, resumed.next_key)
        return reader

    def _read(self, target: Target, iterators: Iterators) -> tuple[RawRows, dict[bytes, bytes]]:
        """Only with the shapes of the wanted columns: everything after this has few names to deal with, not all."""
        rows, shapes = super()._read(target, iterators)
        if rows and self.wanted is not None:
            shapes = {h: stored for h, stored in shapes.items() if not self.wanted.isdisjoint(shape_of(stored).names)}
        return rows, shapes

    def _resumes_at(self, start: Place) -> bytes:
        """The begin of the partition, if it was not at its end."""
        if not start.next_key:
            return b""
        _, length = split_key(self.table.partition, start.next_key)
        inside = start.next_key[length : length + 1] == ROWS
        return start.next_key[:length] + SHAPES if inside else start.next_key

    def _live(self, piece: Piece, cursor: Cursor | None = None) -> tuple[Rows, Ints]:
        found = decode(piece, now_s=self.now_s, wanted=None)
        if self._only is None:
            return _joined(self.table, piece, found, cursor)
        skip = len(ROWS + self._only + _WITHIN)
        return rows_of_piece(self.table, piece, found, cursor, skip=skip), found.logical


def _joined(table: Table, piece: Piece, found: Fragments, cursor: Cursor | None) -> tuple[Rows, Ints]:
    """Cells as rows again, in order; and for each the number of its logical row."""
    part = np.searchsorted(np.array(piece.starts), found.row, side="right") - 1
    clustering = found.keys.offsets[found.row] + np.array(piece.prefixes)[part] + len(ROWS)
    ends = found.keys.offsets[found.row + 1] - SUFFIX
    place = np.empty(len(part), np.uint64)
    if _places(found.keys.data, clustering, ends, place):
        place = _long_places(found.keys.data, clustering, ends)
    version_us, expire_us, cells = found.version_us, found.expire_us, found.cells
    if ((place[1:] < place[:-1]) & (part[1:] == part[:-1])).any():
        order = np.lexsort((expire_us, version_us, place, part))
        part, place, clustering = part[order], place[order], clustering[order]
        version_us, expire_us = version_us[order], expire_us[order]
        cells = replace(
            cells, name=cells.name[order], kind=cells.kind[order], number=cells.number[order], text=cells.text[order]
        )
    other = np.ones(len(part), np.bool_)
    other[1:] = (place[1:] != place[:-1]) | (part[1:] != part[:-1])
    begins = other.copy()
    begins[1:] |= (version_us[1:] != version_us[:-1]) | (expire_us[1:] != expire_us[:-1])
    logical = np.cumsum(other) - 1
    if not begins.all():
        at = np.flatnonzero(begins)
        part, clustering, logical = part[at], clustering[at], logical[at]
        version_us, expire_us = version_us[at], expire_us[at]
        cells = replace(cells, offsets=np.append(at, len(begins)))
    keys: dict[str, Column] = {n: c.take(part) for n, c in key_columns(table.partition, piece.partitions).items()}
    keys |= decode_keys(table.clustering, found.keys, clustering)
    return Rows(keys, version_us, expire_us, cells, cursor), logical


@kernel
def _places(data: Bytes, position: Ints, ends: Ints, place: Hashes) -> bool:
    """Move behind the name of each cell, and give the clustering key there as a number. True: one is too long for that."""
    long = False
    for i in range(len(place)):
        p = position[i]
        while data[p] != 0 or data[p + 1] != 0:
            p += 2 if data[p] == 0 else 1
        p += 2
        position[i] = p
        length = ends[i] - p
        word = np.uint64(0)
        for k in range(min(length, _WORD)):
            word |= np.uint64(data[p + k]) << np.uint64(8 * (_WORD - 1 - k))
        place[i] = word
        long |= length > _WORD
    return long


def _long_places(data: Bytes, position: Ints, ends: Ints) -> Hashes:
    """Numbers in the order of clustering keys of any length."""
    text = data.tobytes()
    keys = [text[p:end] for p, end in zip(position.tolist(), ends.tolist(), strict=True)]
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.fromiter(map(ranks.__getitem__, keys), np.uint64, len(keys))
