"""Reading sparse tables: pieces of raw keys and values, and the live cells in them.

A piece is read in one go inside `Database.reading()`, so a scan that is consumed slowly holds nothing. Rows of one logical
key (a corrected report, say) come newest version first; a cell is taken from the first fragment that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from widerow.engine.rocksdb.database import items
from widerow.engine.rocksdb.keys import Strings
from widerow.engine.rocksdb.values import (
    HEADER,
    SPARSE_FORMAT,
    ShapeTable,
    decode_cells,
    decode_shape,
    value_expiry,
)
from widerow.engine.rows import NEVER, Key
from widerow.model.arrays import Bytes, Codes, Flags, Hashes, Ints, lengths
from widerow.model.batch import CellKind, Cells
from widerow.model.errors import Corrupt
from widerow.model.kernel import kernel
from widerow.model.times import MS, SECOND

if TYPE_CHECKING:
    from rocksdict import Rdict

SHAPES = b"\0"
"""Behind the partition's prefix: its shapes, ..."""
ROWS = b"\1"
"""... then its rows."""
SUFFIX = 14
"""Behind a row's clustering columns: the version's milliseconds, inverted (6 bytes), and the hash of its shape (8)."""
PIECE = 4096
"""About how many rows are read in one go."""
_ROWS_BYTE = ROWS[0]
_TAG = int(CellKind.TAG)

RawRows: TypeAlias = list[tuple[bytes, bytes]]
"""Keys and values as they are stored."""


@dataclass(slots=True)
class Piece:
    """Raw rows of one or more partitions, with the shapes they need."""

    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    partitions: list[Key] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """The first row of each partition, ..."""
    prefixes: list[int] = field(default_factory=list)
    """... and the length of its prefix."""
    shapes: dict[bytes, bytes] = field(default_factory=dict)
    """Hash, as in the key -> what it stands for."""

    def add(self, partition: Key, prefix: bytes, rows: RawRows, shapes: dict[bytes, bytes]) -> None:
        self.partitions.append(partition)
        self.starts.append(len(self.keys))
        self.prefixes.append(len(prefix))
        keys, values = zip(*rows, strict=True) if rows else ((), ())
        self.keys += keys
        self.values += values
        self.shapes.update(shapes)

    def fits(self, shapes: dict[bytes, bytes]) -> bool:
        """Whether no hash would have to mean two things. (Partitions are of different tenants, perhaps.)"""
        return all(self.shapes.get(h, s) == s for h, s in shapes.items())


class PartitionReader:
    """Reads one partition from front to back, a piece at a time."""

    def __init__(self, prefix: bytes, start: bytes, stop: bytes, *, wanted: frozenset[bytes] | None) -> None:
        self.prefix = prefix
        self.next_key = start
        self.stop = stop
        self.wanted = wanted
        self.done = False

    def read(self, family: Rdict, count: int) -> RawRows:
        """Up to about `count` raw rows: never part of a logical row without the rest of it."""
        following = items(family, self.next_key, self.stop)
        rows = list(islice(following, count))
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
        return rows

    def read_first(self, family: Rdict, now_s: int) -> tuple[RawRows, dict[bytes, bytes]]:
        """Rows until each shape has been seen alive: all that "the latest of each metric" needs, mostly a single row.

        With the shapes of the partition; one iterator sees both, so none is missing.
        """
        self.done = True
        shapes: dict[bytes, bytes] = {}
        rows: RawRows = []
        behind_prefix = len(self.prefix) + 1
        following = items(family, self.prefix + SHAPES, self.stop)
        for row in following:
            if row[0][behind_prefix - 1] == _ROWS_BYTE:
                break
            shapes[row[0][behind_prefix:]] = row[1]
        else:
            return rows, shapes
        pending = set(shapes) if self.wanted is None else {h for h, s in shapes.items() if self._wants(s)}
        is_next = row[0] >= self.next_key
        for key, value in chain((row,), following) if is_next else items(family, self.next_key, self.stop):
            if not pending and (not rows or key[:-SUFFIX] != rows[-1][0][:-SUFFIX]):
                break
            rows.append((key, value))
            expire_s = int.from_bytes(value[1:5], "little")
            if not expire_s or expire_s > now_s:
                pending.discard(key[-8:])
        return rows, shapes

    def _wants(self, shape: bytes) -> bool:
        return self.wanted is None or not self.wanted.isdisjoint(shape_of(shape).names)


def shapes_of(family: Rdict, prefix: bytes) -> dict[bytes, bytes]:
    """The shapes of a partition: hash -> what it stands for."""
    return {key[len(prefix) + 1 :]: shape for key, shape in items(family, prefix + SHAPES, prefix + ROWS)}


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


def decode(piece: Piece, *, now_s: int, wanted: frozenset[bytes] | None, resolve: bool = True) -> Fragments:
    """The live cells of a piece. Without `resolve`, every fragment as it is stored, expired and outdated ones too."""
    keys, values = Strings.of(piece.keys), Strings.of(piece.values)
    version_us, shape_hash, same = _suffixes(keys)
    row_shape, table = _row_shapes(piece, shape_hash)
    expire_s = np.empty(len(values), np.int64)
    if value_expiry(values.data, values.offsets, SPARSE_FORMAT, expire_s):
        raise Corrupt("a stored row has an unknown format: was the store written by a newer release?")
    cells = decode_cells(values, HEADER, row_shape, table)
    logical = np.cumsum(~same) - 1
    live = np.ones(len(cells), np.bool_)
    if resolve:
        if same.any() or table.repeats:
            _mark_outdated(cells.offsets, cells.name, cells.kind, logical, len(cells.names), live)
        expired = (expire_s > 0) & (expire_s <= now_s)
        if expired.any():
            live &= ~np.repeat(expired, lengths(cells.offsets))
    if wanted is not None:
        keep = np.array([n in wanted for n in cells.names.to_bytes_list()], np.bool_)
        live &= keep[cells.name] if len(keep) else live
    rows = np.arange(len(keys))
    if not live.all():
        cells = cells.keep(live)
        full = lengths(cells.offsets) > 0
        rows, cells = np.flatnonzero(full), cells.take(full)
    expire_us = np.where(expire_s == 0, NEVER, expire_s * SECOND)
    return Fragments(keys, rows, version_us[rows], expire_us[rows], cells, logical[rows])


def _suffixes(keys: Strings) -> tuple[Ints, Hashes, Flags]:
    n = len(keys)
    version_us, shape, same = np.empty(n, np.int64), np.empty(n, np.uint64), np.zeros(n, np.bool_)
    _take_suffixes(keys.data, keys.offsets, version_us, shape, same)
    return version_us, shape, same


@kernel
def _take_suffixes(data: Bytes, offsets: Ints, version_us: Ints, shape: Hashes, same: Flags) -> None:
    """Version and shape of each key, and whether it is of the same logical row as the key before."""
    for i in range(len(version_us)):
        p = offsets[i + 1] - SUFFIX
        ms = np.int64(0)
        for k in range(6):
            ms = (ms << 8) | np.int64(data[p + k] ^ np.uint8(0xFF))
        version_us[i] = ms * MS
        h = np.uint64(0)
        for k in range(8):
            h = (h << np.uint64(8)) | np.uint64(data[p + 6 + k])
        shape[i] = h
        length = p - offsets[i]
        if i and offsets[i] - offsets[i - 1] - SUFFIX == length:
            equal = True
            for k in range(length - 1, -1, -1):  # keys differ at their end
                if data[offsets[i] + k] != data[offsets[i - 1] + k]:
                    equal = False
                    break
            same[i] = equal


def _row_shapes(piece: Piece, shape_hash: Hashes) -> tuple[Codes, ShapeTable]:
    """Which shape each row has, and the shapes."""
    known = sorted(piece.shapes.items())  # by hash, as its big-endian bytes
    hashes = np.frombuffer(b"".join([h for h, _ in known]), ">u8").astype(np.uint64)
    at = np.searchsorted(hashes, shape_hash)
    if len(shape_hash) and (not known or (hashes[np.minimum(at, len(known) - 1)] != shape_hash).any()):
        raise Corrupt("a stored row's shape is missing from its partition")
    return at.astype(np.int32), _shape_table(tuple([s for _, s in known]))


@kernel
def _mark_outdated(offsets: Ints, name: Codes, kind: Bytes, logical: Ints, names: int, live: Flags) -> None:
    """A cell is outdated if an earlier fragment of its logical row has one of that name. Tags have names of their own."""
    taken_by = np.full(2 * names, -1, np.int64)
    for i in range(len(logical)):
        for c in range(offsets[i], offsets[i + 1]):
            slot = 2 * np.int64(name[c]) + (kind[c] == _TAG)
            live[c] = taken_by[slot] != logical[i]
            taken_by[slot] = logical[i]


def names_of(columns: Sequence[str] | None) -> frozenset[bytes] | None:
    return None if columns is None else frozenset(c.encode() for c in columns)
