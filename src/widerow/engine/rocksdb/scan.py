"""Scans of sparse tables: from partitions and spans to chunks of live rows with cursors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from widerow.engine.port import ALL, Span
from widerow.engine.rocksdb.database import Database, items
from widerow.engine.rocksdb.keys import decode_keys, encode_key, encode_part, split_key
from widerow.engine.rocksdb.pieces import PIECE, ROWS, Fragments, PartitionReader, Piece, decode, names_of, shapes_of
from widerow.engine.rows import Column, Cursor, Key, Rows
from widerow.model.names import Coded
from widerow.schema.table import Table


@dataclass(slots=True)
class _Place:
    """Where a scan stands: in which partition, behind which key, after how many of its rows."""

    index: int
    family: str = ""
    next_key: bytes = b""
    taken: int = 0

    def to_cursor(self) -> Cursor:
        return msgspec.msgpack.encode((self.index, self.family, self.next_key, self.taken))

    @classmethod
    def of(cls, cursor: Cursor | None) -> _Place:
        if cursor is None:
            return cls(0)
        try:
            return cls(*msgspec.msgpack.decode(cursor, type=tuple[int, str, bytes, int]))
        except msgspec.DecodeError:
            raise ValueError("not a cursor of this engine") from None


def bounds(table: Table, key: Key, span: Span) -> tuple[bytes, bytes, bytes]:
    """The prefix of a partition, and the keys between which its rows of the span lie.

    A key that goes on into the clustering columns means the rows it is the start of.
    """
    n = len(table.partition)
    prefix = encode_key(table.partition, key)
    if len(key) == n:
        return prefix, *span_bounds(table, prefix + ROWS, span)
    start = prefix + ROWS + encode_key(table.clustering, key[n:])
    if not within(key[n], span):
        return prefix, start, start
    return prefix, start, _after(start)


def within(value: str | int, span: Span) -> bool:
    """Whether a value of the first clustering column lies in the span; texts by their bytes."""
    return (span.start is None or _ordered(value) >= _ordered(span.start)) and (
        span.stop is None or _ordered(value) < _ordered(span.stop)
    )


def _ordered(value: str | int) -> Any:
    return value.encode() if isinstance(value, str) else value


def span_bounds(table: Table, base: bytes, span: Span) -> tuple[bytes, bytes]:
    """[start, stop) of the keys whose first clustering column lies in the span."""
    start, stop = base, base[:-1] + bytes([base[-1] + 1]) if base else b"\xff"
    if not table.clustering:
        return start, stop
    column = table.clustering[0]
    low = None if span.start is None else base + encode_part(column, span.start)
    high = None if span.stop is None else base + encode_part(column, span.stop)
    if column.descending:
        # Newest first: the span's stop comes first and is itself left out, its start comes last and is kept.
        return (start if high is None else _after(high), stop if low is None else _after(low))
    return low or start, high or stop


def _after(part: bytes) -> bytes:
    """The first key behind all that start with `part`. Parts are prefix-free and never all 0xFF."""
    return part + b"\xff" * 32


@dataclass(slots=True)
class _Target:
    """A partition being read."""

    index: int
    partition: Key
    family: str
    reader: PartitionReader
    taken: int = 0


class SparseScan:
    """One scan: what is wanted, and how to get it piece by piece."""

    def __init__(
        self,
        db: Database,
        table: Table,
        *,
        now_s: int,
        family_of: Callable[[Table, Key], str],
        span: Span = ALL,
        limit: int | None = None,
        columns: Sequence[str] | None = None,
        first: bool = False,
    ) -> None:
        self.db, self.table, self.span, self.limit, self.first = db, table, span, limit, first
        self.now_s, self.family_of, self.wanted = now_s, family_of, names_of(columns)
        self._first: tuple[str | int | None, bytes] = (None, b"")

    def run(self, partitions: Sequence[Key] | None, after: Cursor | None) -> Iterator[Rows]:
        start = _Place.of(after)
        everything = partitions is None
        piece, keys, place = Piece(), list[Key](), start
        for target in self._all(start) if partitions is None else self._given(partitions, start):
            while not target.reader.done:
                before = self._place(target, everything)
                rows, shapes = self._read(target)
                if not rows:
                    continue
                if not piece.fits(shapes):
                    yield from self._chunk(piece, keys, before)
                    piece, keys = Piece(), []
                piece.add(len(keys), len(target.reader.prefix), rows, shapes)
                keys.append(target.partition)
                place = self._place(target, everything)
                if self.limit is not None:
                    yield from self._limited(piece, target, everything)
                elif len(piece.keys) >= PIECE:
                    yield from self._chunk(piece, keys, place)
                else:
                    continue
                piece, keys = Piece(), []
        yield from self._chunk(piece, keys, place)

    def _read(self, target: _Target) -> tuple[list[tuple[bytes, bytes]], dict[bytes, bytes]]:
        reader = target.reader
        with self.db.reading():
            handle = self.db.family(target.family)
            if handle is None:  # its window was dropped meanwhile
                reader.done = True
                return [], {}
            if self.first:
                rows, shapes = reader.read_first(handle, self.now_s)
                if all(key[-8:] in shapes for key, _ in rows):
                    return rows, shapes
            else:
                rows = reader.read(handle, PIECE if self.limit is None else min(PIECE, max(1, self.limit - target.taken)))
            # Shapes after rows: a row written meanwhile brought its shape with it.
            return rows, shapes_of(handle, reader.prefix) if rows else {}

    def _place(self, target: _Target, everything: bool) -> _Place:
        """Where to go on behind what was read of a partition so far."""
        if not target.reader.done:
            return _Place(target.index, target.family, target.reader.next_key, target.taken)
        return _Place(0, target.family, target.reader.prefix + b"\2") if everything else _Place(target.index + 1)

    def _limited(self, piece: Piece, target: _Target, everything: bool) -> Iterator[Rows]:
        """The rows of one partition's piece that its limit still allows."""
        assert self.limit is not None
        found = decode(piece, now_s=self.now_s, wanted=self.wanted)
        ordinal = np.cumsum(np.diff(found.logical, prepend=-1) > 0)
        kept = ordinal <= self.limit - target.taken
        if kept.any():
            target.taken += int(ordinal[kept][-1])
        if target.taken >= self.limit:
            target.reader.done = True
        if kept.any():
            rows = self.rows_of(piece, found, [target.partition]).take(kept)
            yield _with_cursor(rows, self._place(target, everything))

    def _chunk(self, piece: Piece, keys: list[Key], place: _Place) -> Iterator[Rows]:
        if piece.keys:
            found = decode(piece, now_s=self.now_s, wanted=self.wanted)
            if len(found.row):
                yield _with_cursor(self.rows_of(piece, found, keys), place)

    def _given(self, partitions: Sequence[Key], start: _Place) -> Iterator[_Target]:
        for index in range(start.index, len(partitions)):
            partition = partitions[index]
            family = self.family_of(self.table, partition)
            if self.db.family(family) is None:
                continue
            resumed = index == start.index and start.next_key
            yield self._target(index, partition, family, start if resumed else None)

    def _all(self, start: _Place) -> Iterator[_Target]:
        table = self.table.name
        for family in sorted(n for n in self.db.names() if n == table or n.startswith(f"{table}@")):
            if family < start.family:
                continue
            key = start.next_key if family == start.family else b""
            while (found := self._next_key(family, key)) is not None:
                partition, length = split_key(self.table.partition, found)
                resumed = family == start.family and start.next_key.startswith(found[:length] + ROWS)
                yield self._target(0, partition, family, start if resumed else None)
                key = found[:length] + b"\2"

    def _target(self, index: int, partition: Key, family: str, resumed: _Place | None) -> _Target:
        if len(partition) == len(self.table.partition) and self.span == ALL:
            prefix = self._prefix(partition)
            low, high = prefix + ROWS, prefix + b"\2"
        else:
            prefix, low, high = bounds(self.table, partition, self.span)
        reader = PartitionReader(prefix, max(low, resumed.next_key) if resumed else low, high, wanted=self.wanted)
        return _Target(index, partition, family, reader, resumed.taken if resumed else 0)

    def _prefix(self, partition: Key) -> bytes:
        """As `encode_key`; the first column, a tenant mostly, is the same for all partitions of a scan."""
        column, *rest = self.table.partition
        if partition[0] != self._first[0]:
            self._first = (partition[0], encode_part(column, partition[0]))
        return self._first[1] + encode_key(rest, partition[1:])

    def _next_key(self, family: str, start: bytes) -> bytes | None:
        with self.db.reading():
            handle = self.db.family(family)
            return None if handle is None else next((key for key, _ in items(handle, start, None)), None)

    def rows_of(self, piece: Piece, found: Fragments, partitions: Sequence[Key]) -> Rows:
        """Decoded fragments with their key columns."""
        firsts = np.array([first for _, first, _ in piece.partition])
        which = np.searchsorted(firsts, found.row, side="right") - 1
        keys: dict[str, Column] = {}
        for k, column in enumerate(self.table.partition):
            values = [p[k] for p in partitions]
            if column.type == "text":
                coded = Coded.of([str(v) for v in values])
                keys[column.name] = coded.take(which)
            else:
                keys[column.name] = np.array(values, np.int64)[which]
        lengths = np.array([length for _, _, length in piece.partition])
        keys |= decode_keys(self.table.clustering, found.keys, found.keys.offsets[found.row] + lengths[which] + 1)
        return Rows(keys, found.version_us, found.expire_us, found.cells)


def _with_cursor(rows: Rows, place: _Place) -> Rows:
    return Rows(rows.keys, rows.version_us, rows.expire_us, rows.cells, place.to_cursor())
