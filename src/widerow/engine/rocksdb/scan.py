"""Scans of sparse tables: from partitions and spans to chunks of live rows with cursors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import numpy as np

from widerow.engine.port import ALL, Columns, Span
from widerow.engine.rocksdb.database import Database, items
from widerow.engine.rocksdb.families import Families
from widerow.engine.rocksdb.iterators import Iterators
from widerow.engine.rocksdb.keys import decode_keys, encode_all, encode_key, encode_part, split_key
from widerow.engine.rocksdb.pieces import (
    BEHIND,
    PIECE,
    ROWS,
    FirstReader,
    Fragments,
    PartitionReader,
    Piece,
    decode,
    names_of,
)
from widerow.engine.rocksdb.raw import RawRows
from widerow.engine.rows import Column, Cursor, Key, Rows, key_columns
from widerow.model.arrays import Ints
from widerow.schema.table import Table

_CURSOR_DECODER = msgspec.msgpack.Decoder(tuple[int, str, bytes, int])

_AT_ONCE = 512
"""Partitions of which the first rows are decoded in one go ..."""
_STEP = 32
"""... and looked into, before iterators are given back: about half a millisecond."""


@dataclass(slots=True)
class Place:
    """Where a scan stands: in which partition, behind which key, after how many of its rows."""

    index: int
    family: str = ""
    next_key: bytes = b""
    taken: int = 0

    def to_cursor(self) -> Cursor:
        return msgspec.msgpack.encode((self.index, self.family, self.next_key, self.taken))

    @classmethod
    def of(cls, cursor: Cursor | None) -> Place:
        if cursor is None:
            return cls(0)
        try:
            return cls(*_CURSOR_DECODER.decode(cursor))
        except msgspec.DecodeError:
            raise ValueError("not a cursor of this engine") from None


def bounds(table: Table, key: Key, base: bytes, span: Span) -> tuple[bytes, bytes]:
    """The keys between which the rows of the span lie, where clustering keys follow `base`.

    A key that goes on into the clustering columns means the rows it is the start of.
    """
    n = len(table.partition)
    if len(key) == n:
        return span_bounds(table, base, span)
    start = base + encode_key(table.clustering, key[n:])
    return start, _after(start) if span.holds(key[n]) else start


def span_bounds(table: Table, base: bytes, span: Span) -> tuple[bytes, bytes]:
    """[start, stop) of the keys whose first clustering column lies in the span."""
    start, stop = base, base[:-1] + bytes([base[-1] + 1]) if base else b"\xff"
    if span is ALL or not table.clustering or span == ALL:
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
class Target:
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
        span: Span = ALL,
        limit: int | None = None,
        columns: Columns | None = None,
        first: bool = False,
    ) -> None:
        self.db, self.table, self.span, self.limit, self.first = db, table, span, limit, first
        self.now_s, self.wanted = now_s, names_of(columns)
        self._families = Families(table)

    def run(self, partitions: Sequence[Key] | None, after: Cursor | None) -> Iterator[Rows]:
        start = Place.of(after)
        if partitions is None:
            return self._pieces(self._all(start), everything=True)
        if self.first and self.limit is None:
            return self._firsts(partitions, start.index)
        return self._pieces(self._given(partitions, start), everything=False)

    # -- the first appearance of each cell: a row or two of many partitions

    def _firsts(self, partitions: Sequence[Key], index: int) -> Iterator[Rows]:
        """Chunks end between partitions."""
        prefixes = encode_all(self.table.partition, partitions)
        while index < len(partitions):
            piece, stop, until = Piece(), min(index + _AT_ONCE, len(partitions)), index
            while index == until < stop:
                until = min(index + _STEP, stop)
                index = self._add_firsts(piece, partitions, prefixes, range(index, until))
            yield from self._chunk(piece, Place(index))

    def _add_firsts(self, piece: Piece, partitions: Sequence[Key], prefixes: Sequence[bytes], which: range) -> int:
        """The first that does not fit into the piece any more, or the one behind all."""
        with self.db.reading():
            readers: dict[str, FirstReader] = {}
            try:
                for index in which:
                    if not self._add_first(piece, readers, partitions[index], prefixes[index]):
                        return index
            finally:
                readers.clear()
        return which.stop

    def _add_first(self, piece: Piece, readers: dict[str, FirstReader], partition: Key, prefix: bytes) -> bool:
        """False: it does not fit into the piece."""
        family = self._families.of(partition)
        reader = readers.get(family)
        if reader is None:
            handle = self.db.family(family)
            if handle is None:
                return True
            reader = readers[family] = FirstReader(self.db, handle, now_s=self.now_s, wanted=self.wanted)
        return reader.add_to(piece, partition, prefix, *bounds(self.table, partition, prefix + ROWS, self.span))

    # -- everything in the span

    def _pieces(self, targets: Iterator[Target], *, everything: bool) -> Iterator[Rows]:
        piece, place = Piece(), Place(0)
        iterators = Iterators(self.db)
        try:
            for target in targets:
                while not target.reader.done:
                    before = self._place(target, everything)
                    rows, shapes = self._read(target, iterators)
                    if not rows:
                        continue
                    if not piece.fits(shapes):
                        iterators.give_back()
                        yield from self._chunk(piece, before)
                        piece = Piece()
                    piece.add(target.partition, target.reader.prefix, rows, shapes)
                    place = self._place(target, everything)
                    if self.limit is None and len(piece.rows) < PIECE:
                        continue
                    iterators.give_back()
                    if self.limit is not None:
                        yield from self._limited(piece, target, everything)
                    else:
                        yield from self._chunk(piece, place)
                    piece = Piece()
        finally:
            iterators.give_back()
        yield from self._chunk(piece, place)

    def _read(self, target: Target, iterators: Iterators) -> tuple[RawRows, dict[bytes, bytes]]:
        reader, opened = target.reader, iterators.of(target.family)
        if opened is None:  # its window was dropped meanwhile
            reader.done = True
            return [], {}
        most = PIECE if self.limit is None else min(PIECE, max(1, self.limit - target.taken))
        rows, shapes = reader.read(opened, most)
        iterators.has_read(len(rows))
        return rows, shapes

    def _place(self, target: Target, everything: bool) -> Place:
        """Where to go on behind what was read of a partition so far."""
        if not target.reader.done:
            return Place(target.index, target.family, target.reader.next_key, target.taken)
        return Place(0, target.family, target.reader.prefix + BEHIND) if everything else Place(target.index + 1)

    def _limited(self, piece: Piece, target: Target, everything: bool) -> Iterator[Rows]:
        """The rows of one partition's piece that its limit still allows."""
        assert self.limit is not None
        rows, logical = self._live(piece)
        ordinal = np.cumsum(np.diff(logical, prepend=-1) > 0)
        kept = ordinal <= self.limit - target.taken
        if kept.any():
            target.taken += int(ordinal[kept][-1])
        if target.taken >= self.limit:
            target.reader.done = True
        if kept.any():
            yield replace(rows.take(kept), cursor=self._place(target, everything).to_cursor())

    def _chunk(self, piece: Piece, place: Place) -> Iterator[Rows]:
        if piece.rows:
            rows, _ = self._live(piece, place.to_cursor())
            if len(rows):
                yield rows

    def _live(self, piece: Piece, cursor: Cursor | None = None) -> tuple[Rows, Ints]:
        """The live rows of a piece, and for each the number of its logical row."""
        found = decode(piece, now_s=self.now_s, wanted=self.wanted)
        return rows_of_piece(self.table, piece, found, cursor), found.logical

    def _given(self, partitions: Sequence[Key], start: Place) -> Iterator[Target]:
        prefixes = encode_all(self.table.partition, partitions)
        for index in range(start.index, len(partitions)):
            partition = partitions[index]
            family = self._families.of(partition)
            if self.db.family(family) is None:
                continue
            resumed = start if index == start.index and start.next_key else None
            reader = self._reader(partition, prefixes[index], resumed)
            yield Target(index, partition, family, reader, resumed.taken if resumed else 0)

    def _all(self, start: Place) -> Iterator[Target]:
        for family in sorted(filter(self._families.has, self.db.names())):
            if family < start.family:
                continue
            key = self._resumes_at(start) if family == start.family else b""
            while (found := self._next_key(family, key)) is not None:
                partition, length = split_key(self.table.partition, found)
                prefix = found[:length]
                resumed = start if family == start.family and start.next_key.startswith(prefix + ROWS) else None
                reader = self._reader(partition, prefix, resumed)
                yield Target(0, partition, family, reader, resumed.taken if resumed else 0)
                key = prefix + BEHIND

    def _reader(self, partition: Key, prefix: bytes, resumed: Place | None = None) -> PartitionReader:
        if len(partition) == len(self.table.partition):
            low, high = prefix + self._whole[0], prefix + self._whole[1]
        else:
            low, high = bounds(self.table, partition, prefix + ROWS, self.span)
        return PartitionReader(prefix, max(low, resumed.next_key) if resumed else low, high)

    @cached_property
    def _whole(self) -> tuple[bytes, bytes]:
        """Where the span begins and ends behind the prefix of each whole partition."""
        return span_bounds(self.table, ROWS, self.span)

    def _resumes_at(self, start: Place) -> bytes:
        """A key from which on the partition is found that a scan of everything goes on with."""
        return start.next_key

    def _next_key(self, family: str, start: bytes) -> bytes | None:
        with self.db.reading():
            handle = self.db.family(family)
            return None if handle is None else next((key for key, _ in items(self.db, handle, start, None)), None)


def rows_of_piece(
    table: Table, piece: Piece, found: Fragments, cursor: Cursor | None = None, *, skip: int = len(ROWS)
) -> Rows:
    """Decoded fragments with their key columns. `skip`: so much stands between those of partitions and of clustering."""
    which = np.searchsorted(np.array(piece.starts), found.row, side="right") - 1
    keys: dict[str, Column] = {n: c.take(which) for n, c in key_columns(table.partition, piece.partitions).items()}
    clustering = found.keys.offsets[found.row] + np.array(piece.prefixes)[which] + skip
    keys |= decode_keys(table.clustering, found.keys, clustering)
    return Rows(keys, found.version_us, found.expire_us, found.cells, cursor)
