"""Reading sparse tables: pieces of raw keys and values, and the live cells in them.

A piece is read in one go inside `Database.reading()`, so a scan that is consumed slowly holds nothing. Rows of one logical
key (a corrected report, say) come newest version first; a cell is taken from the first fragment that has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from rocksdict import ReadOptions

from widerow.engine.port import Columns
from widerow.engine.rocksdb.database import items, next_rows
from widerow.engine.rocksdb.keys import Strings
from widerow.engine.rocksdb.raw import RawRows, as_columns
from widerow.engine.rocksdb.values import (
    HEADER,
    SPARSE_FORMAT,
    ShapeTable,
    Wanted,
    decode_cells,
    decode_shape,
)
from widerow.engine.rows import NEVER, Key
from widerow.model.arrays import Bytes, Codes, Flags, Hashes, Ints, lengths
from widerow.model.batch import CellKind, Cells
from widerow.model.errors import Corrupt
from widerow.model.kernel import kernel
from widerow.model.labels import Selectors
from widerow.model.machine import peek64
from widerow.model.times import MS, SECOND

if TYPE_CHECKING:
    from rocksdict import Rdict, RdictIter

    from widerow.engine.rocksdb.database import Database
    from widerow.engine.rocksdb.iterators import Opened

SHAPES = b"\0"
"""Behind the partition's prefix: its shapes, ..."""
ROWS = b"\1"
"""... then its rows, ..."""
BEHIND = b"\2"
"""... then nothing."""
SUFFIX = 14
"""Behind a row's clustering columns: the version's milliseconds, inverted (6 bytes), and the hash of its shape (8)."""
PIECE = 4096
"""About how many rows are read in one go."""
_FEW = 16
"""So many rows are read sooner with an iterator that is there than with one that has to be made, but gives rows faster."""
_TAG = int(CellKind.TAG)


@dataclass(slots=True)
class Piece:
    """Raw rows of one or more partitions, with the shapes they need."""

    rows: RawRows = field(default_factory=list)
    partitions: list[Key] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """The first row of each partition, ..."""
    prefixes: list[int] = field(default_factory=list)
    """... and the length of its prefix."""
    shapes: dict[bytes, bytes] = field(default_factory=dict)
    """Hash, as in the key -> what it stands for."""

    def begin(self, partition: Key, prefix: bytes, first: int) -> None:
        """From row `first` on, the rows are of this partition."""
        self.partitions.append(partition)
        self.starts.append(first)
        self.prefixes.append(len(prefix))

    def add(self, partition: Key, prefix: bytes, rows: RawRows, shapes: dict[bytes, bytes]) -> None:
        self.begin(partition, prefix, len(self.rows))
        self.rows += rows
        self.shapes.update(shapes)

    def fits(self, shapes: dict[bytes, bytes]) -> bool:
        """Whether no hash would have to mean two things. (Partitions are of different tenants, perhaps.)"""
        return all(self.shapes.get(h, s) == s for h, s in shapes.items())


class PartitionReader:
    """Reads one partition from front to back, a piece at a time."""

    def __init__(self, prefix: bytes, start: bytes, stop: bytes) -> None:
        self.prefix = prefix
        self.next_key = start
        self.stop = stop
        self.done = False

    def read(self, opened: Opened, count: int) -> tuple[RawRows, dict[bytes, bytes]]:
        """Up to about `count` raw rows, never part of a logical row without the rest of it; and the shapes they need."""
        rows: RawRows = []
        if opened.scan.small:
            shapes = self._read_few(opened, min(count, _FEW), rows)
            if self.done or len(rows) >= count:
                return rows, shapes
            opened.scan.small = False  # the next partition will be like this one
        following = items(opened.scan.db, opened.family, self.next_key, self.stop)
        rows += next_rows(following, count - len(rows))
        if len(rows) < count:
            self.done = True
        else:
            logical = rows[-1][0][:-SUFFIX]
            for row in following:
                if row[0][:-SUFFIX] != logical:
                    break
                rows.append(row)
            else:
                self.done = True
            self.next_key = behind(logical)
        # Shapes after rows: a row written meanwhile brought its shape with it.
        return rows, shapes_of(opened.scan.db, opened.family, self.prefix) if rows else {}

    def _read_few(self, opened: Opened, most: int, rows: RawRows) -> dict[bytes, bytes]:
        """The first rows, with an iterator that others use as well. It shows shapes and rows of the same moment."""
        shapes = shapes_at(opened.scan.db, opened.at, self.prefix)
        if not shapes:
            self.done = True
            return shapes
        at, stop, logical = opened.at, self.stop, b""
        if at.valid() and at.key() < self.next_key:  # what is wanted is often the first
            at.seek(self.next_key)
        while at.valid() and (key := at.key()) < stop:
            if len(rows) >= most and key[:-SUFFIX] != logical:
                self.next_key = behind(logical)
                return shapes
            rows.append((key, at.value()))
            logical = key[:-SUFFIX]
            at.next()
        opened.scan.db.check_read(at)
        self.done = True
        return shapes


class FirstReader:
    """Reads partitions only until every cell has appeared: all that "the latest of each metric" needs, mostly one row.

    One iterator serves all partitions of a column family, as making one costs as much as two look-ups. Like any iterator
    it does not outlive a `reading()` block.
    """

    def __init__(self, db: Database, family: Rdict, *, now_s: int, wanted: Wanted | None) -> None:
        self._options = ReadOptions()  # the iterator only borrows it
        self._db, self._at = db, family.iter(self._options)
        self._now_s, self._wanted = now_s, wanted

    def add_to(self, piece: Piece, partition: Key, prefix: bytes, low: bytes, high: bytes) -> bool:
        """Add the rows in [low, high) of the partition until each shape has been seen alive. False: it does not fit."""
        at, wanted, start = self._at, self._wanted, len(prefix) + 1
        rows, shapes = piece.rows, piece.shapes
        rows_begin = prefix + ROWS
        pending: set[bytes] = set()
        at.seek(prefix + SHAPES)
        while at.valid() and (key := at.key()) < rows_begin:
            name, shape = key[start:], at.value()
            if shapes.setdefault(name, shape) != shape:
                return False
            if wanted is None or not wanted.isdisjoint(shape_of(shape).names):
                pending.add(name)
            at.next()
        self._db.check_read(at)
        if not pending:
            return True
        if low > rows_begin:
            at.seek(low)
        first, logical = len(rows), b""
        while at.valid() and (key := at.key()) < high:
            if not pending and key[:-SUFFIX] != logical:
                break
            value, logical = at.value(), key[:-SUFFIX]
            rows.append((key, value))
            expire_s = int.from_bytes(value[1:5], "little")
            if not expire_s or expire_s > self._now_s:
                pending.discard(key[-8:])
            at.next()
        self._db.check_read(at)
        if len(rows) > first:
            piece.begin(partition, prefix, first)
        return True


def shapes_of(db: Database, family: Rdict, prefix: bytes) -> dict[bytes, bytes]:
    """The shapes of a partition: hash -> what it stands for."""
    start = len(prefix) + 1
    return {key[start:]: shape for key, shape in items(db, family, prefix + SHAPES, prefix + ROWS)}


def shapes_at(db: Database, at: RdictIter, prefix: bytes) -> dict[bytes, bytes]:
    """The same by an iterator, which is left behind them: at the partition's first row."""
    start, rows_begin = len(prefix) + 1, prefix + ROWS
    found: dict[bytes, bytes] = {}
    at.seek(prefix + SHAPES)
    while at.valid() and (key := at.key()) < rows_begin:
        found[key[start:]] = at.value()
        at.next()
    db.check_read(at)
    return found


def behind(logical: bytes) -> bytes:
    """The first key after every fragment of a logical row."""
    return logical + b"\xff" * (SUFFIX + 1)


# Most partitions of a fleet have the same few shapes: what they mean is worked out once.
shape_of = lru_cache(4096)(decode_shape)


@lru_cache(256)
def _shape_table(shapes: tuple[bytes, ...]) -> ShapeTable:
    return ShapeTable([shape_of(s) for s in shapes])


@dataclass(frozen=True, slots=True)
class Fragments:
    """Decoded rows of a piece that are alive, and where in the piece they stood."""

    keys: Strings
    """Of all rows of the piece."""
    row: Ints
    version_us: Ints
    expire_us: Ints
    cells: Cells
    logical: Ints
    """Number of the logical row, counted within the piece from 0, for each fragment."""


def decode(piece: Piece, *, now_s: int, wanted: Wanted | None, resolve: bool = True) -> Fragments:
    """The live cells of a piece. Without `resolve`, every fragment as it is stored, expired and outdated ones too."""
    n = len(piece.rows)
    keys, values = as_columns(piece.rows)
    hashes, table = _shapes(piece)
    version_us, expire_us, logical = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    shape = np.empty(n, np.int32)
    seen = _read_heads(
        (keys.data, keys.offsets), (values.data, values.offsets), hashes, now_s, version_us, expire_us, shape, logical
    )
    if seen & _STRANGE:
        raise Corrupt("a stored row has an unknown format: was the store written by a newer release?")
    if seen & _SHAPELESS:
        raise Corrupt("a stored row's shape is missing from its partition")
    cells = decode_cells(values, HEADER, shape, table, wanted)
    rows = np.arange(n)
    resolve = resolve and bool(seen & (_PARTED | _EXPIRED) or table.repeats)
    if resolve:
        live = np.ones(len(cells), np.bool_)
        _mark_outdated(cells.offsets, cells.name, cells.kind, logical, len(cells.names), live)
        live &= np.repeat(expire_us > now_s * SECOND, lengths(cells.offsets))
        cells = cells.keep(live)
    elif wanted is None:  # the usual case
        return Fragments(keys, rows, version_us, expire_us, cells, logical)
    full = lengths(cells.offsets) > 0
    if full.all():
        return Fragments(keys, rows, version_us, expire_us, cells, logical)
    rows = rows[full]
    return Fragments(keys, rows, version_us[rows], expire_us[rows], cells.take(full), logical[rows])


def _shapes(piece: Piece) -> tuple[Hashes, ShapeTable]:
    """The shapes of a piece, in the order of their hashes."""
    known = sorted(piece.shapes.items())  # by hash, as its big-endian bytes
    hashes = np.frombuffer(b"".join([h for h, _ in known]), ">u8").astype(np.uint64)
    return hashes, _shape_table(tuple([s for _, s in known]))


_STRANGE, _SHAPELESS, _PARTED, _EXPIRED = 1, 2, 4, 8
"""What was seen: a row of unknown format or shape, a logical row of several fragments, a row that has expired."""


@kernel
def _read_heads(
    keys: tuple[Bytes, Ints],
    values: tuple[Bytes, Ints],
    hashes: Hashes,
    now_s: int,
    version_us: Ints,
    expire_us: Ints,
    shape: Codes,
    logical: Ints,
) -> int:
    """What stands around the cells of each row: the end of its key and the start of its value."""
    data, offsets = keys
    stored, starts = values
    seen = 0
    s = 0
    number = -1
    for i in range(len(version_us)):
        p = offsets[i + 1] - SUFFIX
        ms = np.int64(0)
        for k in range(6):
            ms = (ms << 8) | np.int64(data[p + k] ^ np.uint8(0xFF))
        version_us[i] = ms * MS
        h = np.uint64(0)
        for k in range(8):
            h = (h << np.uint64(8)) | np.uint64(data[p + 6 + k])
        if s >= len(hashes) or hashes[s] != h:  # neighbours mostly have the same
            s = int(np.searchsorted(hashes, h))
            if s == len(hashes) or hashes[s] != h:
                return seen | _SHAPELESS
        shape[i] = s
        length = p - offsets[i]
        same = i > 0 and offsets[i] - offsets[i - 1] - SUFFIX == length
        for k in range(length - 1 if same else -1, -1, -1):  # keys differ at their end
            if data[offsets[i] + k] != data[offsets[i - 1] + k]:
                same = False
                break
        if same:
            seen |= _PARTED
        else:
            number += 1
        logical[i] = number
        word = peek64(stored.ctypes.data + starts[i])
        if np.int64(word & np.uint64(0xFF)) != SPARSE_FORMAT:
            seen |= _STRANGE
        expire_s = np.int64((word >> np.uint64(8)) & np.uint64(0xFFFFFFFF))
        if 0 < expire_s <= now_s:
            seen |= _EXPIRED
        expire_us[i] = expire_s * SECOND if expire_s else NEVER
    return seen


@kernel
def _mark_outdated(offsets: Ints, name: Codes, kind: Bytes, logical: Ints, names: int, live: Flags) -> None:
    """A cell is outdated if an earlier fragment of its logical row has one of that name. Tags have names of their own."""
    taken_by = np.full(2 * names, -1, np.int64)
    for i in range(len(logical)):
        for c in range(offsets[i], offsets[i + 1]):
            slot = 2 * np.int64(name[c]) + (kind[c] == _TAG)
            live[c] = taken_by[slot] != logical[i]
            taken_by[slot] = logical[i]


@dataclass(frozen=True, slots=True)
class _Meant:
    """The names that selectors mean. Scans look at the shapes of a partition anyway, and find the variants there."""

    selectors: Selectors

    def __contains__(self, name: object) -> bool:
        return isinstance(name, bytes) and name.decode() in self.selectors

    def isdisjoint(self, names: Iterable[bytes]) -> bool:
        return not any(name in self for name in names)


def names_of(columns: Columns | None) -> Wanted | None:
    if isinstance(columns, Selectors):
        return _Meant(columns)
    return None if columns is None else frozenset(c.encode() for c in columns)
