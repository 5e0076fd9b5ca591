"""Stable 64-bit hashes of byte strings.

The hash is part of stored formats (docs/format/rocksdb.md): its results may never change. It is not cryptographic: it
keeps apart what one tenant stores in one partition, never what belongs to different tenants.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.model.arrays import Bytes, Hashes, Ints
from widerow.model.kernel import inlined, kernel
from widerow.model.machine import peek64, umulh
from widerow.model.names import Names

U = np.uint64
SEED = U(0x9E3779B97F4A7C15)
_WORD = U(0xA0761D6478BD642F)
_TAIL = U(0xE7037ED1A0B428DB)


@inlined
def mix(h: Any, x: Any) -> Any:
    """Stir a word into a hash."""
    x = x ^ h
    return (x * _WORD) ^ umulh(x, _WORD)


@inlined
def hash_at(address: Any, length: Any) -> Any:
    """Of the `length` bytes at `address`; 8 readable bytes must follow them."""
    return hash_from(SEED, address, length)


@inlined
def hash_from(seed: Any, address: Any, length: Any) -> Any:
    """The same from another seed: a second, independent hash."""
    h = seed + U(length) * _TAIL  # multiplied: a longer text of small bytes must not undo it
    i = 0
    while i + 8 <= length:
        h = mix(h, peek64(address + i))
        i += 8
    if i < length:
        x = (peek64(address + i) & ((U(1) << U(8 * (length - i))) - U(1))) ^ h
        h = (x * _TAIL) ^ umulh(x, _TAIL)
    return h


@inlined
def same_at(a: Any, b: Any, length: Any) -> Any:
    """Whether the bytes at two addresses are equal; both have 8 readable bytes behind."""
    i = 0
    while i + 8 <= length:
        if peek64(a + i) != peek64(b + i):
            return False
        i += 8
    if i < length:
        return ((peek64(a + i) ^ peek64(b + i)) & ((U(1) << U(8 * (length - i))) - U(1))) == U(0)
    return True


@kernel
def _hash_all(data: Bytes, offsets: Ints, out: Hashes) -> None:
    base = data.ctypes.data
    for i in range(len(out)):
        out[i] = hash_at(base + offsets[i], offsets[i + 1] - offsets[i])


def hash_names(names: Names) -> Hashes:
    """The hash of each string."""
    out = np.empty(len(names), np.uint64)
    _hash_all(names.data, names.offsets, out)
    return out
