"""Rows as RocksDB gives them, a pair of byte strings each, as two columns.

Python would take three passes over the pairs, with a step for each row: keys, values, and how long each is. A kernel reads
the strings where they are instead, in a fifth of the time.
Rule: how CPython lays out lists, tuples and bytes is checked, not believed: where it is not as known, the passes are taken.
"""

from __future__ import annotations

import sys
from typing import TypeAlias

import numpy as np

from widerow.engine.rocksdb.keys import Strings
from widerow.model.arrays import PAD, Bytes, Ints
from widerow.model.kernel import kernel
from widerow.model.machine import copy_bytes, peek

RawRows: TypeAlias = list[tuple[bytes, bytes]]
"""Keys and values as they are stored."""

_LENGTH = 16
"""Behind what every object begins with: how many there are in it. ..."""
_ITEMS = 24
"""... Of a list, where its members are; a tuple's are here. ..."""
_CONTENT = 32
"""... The bytes."""
_KNOWN = sys.implementation.name == "cpython" and (
    list.__basicsize__,
    tuple.__basicsize__,
    tuple.__itemsize__,
    bytes.__basicsize__,  # with a zero behind the last
) == (_ITEMS + 16, _ITEMS, 8, _CONTENT + 1)


def as_columns(rows: RawRows) -> tuple[Strings, Strings]:
    """The keys and the values, in one buffer. Nobody else may change the list meanwhile."""
    n = len(rows)
    if not _KNOWN or not n:
        both = Strings.of([*[key for key, _ in rows], *[value for _, value in rows]])
        return Strings(both.data, both.offsets[: n + 1]), Strings(both.data, both.offsets[n:])
    offsets = np.empty(2 * n + 1, np.int64)
    _measure(id(rows), offsets)
    data = np.empty(int(offsets[-1]) + PAD, np.uint8)
    _copy(id(rows), offsets, data)
    return Strings(data, offsets[: n + 1]), Strings(data, offsets[n:])


@kernel
def _measure(rows: int, offsets: Ints) -> None:
    n, at = peek(rows + _LENGTH), peek(rows + _ITEMS)
    offsets[0] = 0
    for i in range(n):
        pair = peek(at + 8 * i)
        offsets[i + 1] = peek(peek(pair + _ITEMS) + _LENGTH)
        offsets[n + i + 1] = peek(peek(pair + _ITEMS + 8) + _LENGTH)
    for i in range(2 * n):
        offsets[i + 1] += offsets[i]


@kernel
def _copy(rows: int, offsets: Ints, out: Bytes) -> None:
    """By words. Behind the bytes of an object there is room for the rest of one: objects begin at multiples of 16."""
    n, at, to = peek(rows + _LENGTH), peek(rows + _ITEMS), out.ctypes.data
    for k in range(2):  # the values last: what is copied too far of a key is overwritten by the next
        for i in range(n):
            string = peek(peek(at + 8 * i) + _ITEMS + 8 * k)
            place = k * n + i
            copy_bytes(to + offsets[place], string + _CONTENT, offsets[place + 1] - offsets[place])
