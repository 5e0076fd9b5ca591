"""Writing sparse tables: rows to keys and values, and the shapes that go with them.

A shape is put once per partition, in the same write as the first row that needs it. Which (partition, shape) pairs are
there already is remembered in a bounded set of 128-bit hashes; forgetting costs one more put, never correctness.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rocksdict import WriteBatch

from widerow.engine.rocksdb.database import Database
from widerow.engine.rocksdb.keys import Strings, encode_row_keys
from widerow.engine.rocksdb.pieces import ROWS, SHAPES, SUFFIX
from widerow.engine.rocksdb.values import encode_shape, encode_sparse, shape_hashes
from widerow.engine.rows import Rows
from widerow.model.arrays import Bytes, Flags, Hashes, Ints
from widerow.model.hashing import SEED, U, hash_from, hash_names, mix
from widerow.model.kernel import kernel
from widerow.model.names import Names
from widerow.model.times import MS
from widerow.schema.table import Table

_ROWS = ROWS[0]
_SECOND_SEED = U(0xD6E8FEB86659FD93)
_SLOTS = 1 << 21
"""Of the set of known shapes: 32 MiB, room for 1.4M partitions being written at a time."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Rows ready to be put: everything that needs no lock is done."""

    rows: Rows
    keys: Strings
    values: Strings
    shapes: Hashes
    """Hash of each row's shape."""
    prefix_length: Ints
    pairs: Hashes
    """Two independent 64-bit hashes of (partition, shape) for each row, side by side."""
    first: int = 0
    """Which of `rows` the first one is."""

    def __len__(self) -> int:
        return len(self.shapes)

    def parts(self, most: int) -> Iterator[Encoded]:
        """The same in order, at most so many at a time."""
        if len(self) <= most:
            yield self
            return
        for start in range(0, len(self), most):
            stop = min(start + most, len(self))
            yield Encoded(
                self.rows,
                self.keys.part(start, stop),
                self.values.part(start, stop),
                self.shapes[start:stop],
                self.prefix_length[start:stop],
                self.pairs[start:stop],
                self.first + start,
            )


def encode(table: Table, rows: Rows) -> Encoded:
    keys, prefix_end = encode_row_keys(table, rows.keys, len(rows), SUFFIX)
    shapes = shape_hashes(rows.cells)
    pairs = np.empty((len(rows), 2), np.uint64)
    _finish_keys(keys.data, keys.offsets, prefix_end, np.ascontiguousarray(rows.version_us), shapes, pairs)
    values = encode_sparse(rows.cells, rows.expire_us)
    return Encoded(rows, keys, values, shapes, prefix_end - keys.offsets[:-1], pairs)


@kernel
def _finish_keys(data: Bytes, offsets: Ints, prefix_end: Ints, version_us: Ints, shape: Hashes, pairs: Hashes) -> None:
    """Fill in what `encode_row_keys` left free: the mark of rows, the version and the shape. Hash the partitions."""
    base = data.ctypes.data
    for i in range(len(version_us)):
        data[prefix_end[i]] = _ROWS
        p = offsets[i + 1] - SUFFIX
        ms = version_us[i] // MS
        for k in range(6):
            data[p + k] = np.uint8((ms >> (8 * (5 - k))) & 0xFF) ^ np.uint8(0xFF)
        for k in range(8):
            data[p + 6 + k] = np.uint8((shape[i] >> np.uint64(8 * (7 - k))) & np.uint64(0xFF))
        address, length = base + offsets[i], prefix_end[i] - offsets[i]
        pairs[i, 0] = mix(hash_from(SEED, address, length), shape[i])
        pairs[i, 1] = mix(hash_from(_SECOND_SEED, address, length), shape[i])


class KnownShapes:
    """Which (partition, shape) pairs are stored already. Used inside `Database.writing()` only."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything: after a failed write, a deletion or a dropped window."""
        self._set = np.zeros((_SLOTS, 2), np.uint64)
        self._count = 0
        self._salts: dict[str, np.uint64] = {}

    def claim(self, family: str, pairs: Hashes) -> Flags:
        """True for each row whose pair is new to the column family; it counts as known from now on."""
        if self._count + len(pairs) > _SLOTS * 2 // 3:
            self.clear()
        new = np.zeros(len(pairs), np.bool_)
        salt = self._salts.get(family)
        if salt is None:
            salt = self._salts[family] = hash_names(Names.of((family,)))[0]
        self._count += _claim(salt, pairs, self._set, new)
        return new


@kernel
def _claim(family: np.uint64, pairs: Hashes, known: Hashes, new: Flags) -> int:
    mask = len(known) - 1
    count = 0
    for i in range(len(new)):
        a, b = mix(family, pairs[i, 0]), mix(family, pairs[i, 1]) | np.uint64(1)  # an empty slot is all zeros
        p = np.int64(a & np.uint64(mask))
        while known[p, 1] != 0 and not (known[p, 0] == a and known[p, 1] == b):
            p = (p + 1) & mask
        if known[p, 1] == 0:
            known[p, 0] = a
            known[p, 1] = b
            new[i] = True
            count += 1
    return count


def put(batch: WriteBatch, db: Database, family: str, encoded: Encoded, known: KnownShapes) -> None:
    """Add rows, and the shapes that are new to their partitions, to a write. Inside `Database.writing()`."""
    batch.set_default_column_family(db.handle(family))
    keys = encoded.keys.to_list()
    new = np.flatnonzero(known.claim(family, encoded.pairs))
    if len(new):
        _put_shapes(batch, encoded, keys, new)
    consume(map(batch.put, keys, encoded.values.to_list()))


def _put_shapes(batch: WriteBatch, encoded: Encoded, keys: list[bytes], new: Ints) -> None:
    stored: dict[int, bytes] = {}
    hashes, lengths = encoded.shapes[new].tolist(), encoded.prefix_length[new].tolist()
    for row, shape, length in zip(new.tolist(), hashes, lengths, strict=True):
        if shape not in stored:
            stored[shape] = encode_shape(encoded.rows.cells, encoded.first + row)
        batch.put(keys[row][:length] + SHAPES + shape.to_bytes(8, "big"), stored[shape])


def consume(calls: Any) -> None:
    """Run an iterator of calls at C speed."""
    deque(calls, maxlen=0)
