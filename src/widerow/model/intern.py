"""A bounded table of byte strings: name -> small dense id.

Stages keep process-wide ids of names in one of these and index plain arrays with them. Ids are given in order of arrival
and never change while the table lives. Looking up is lock-free and without the GIL; adding takes a lock.
Rule: a table never grows beyond its capacity. What does not fit gets -1, and its owner decides (usually: start afresh).
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from widerow.model.arrays import PAD, Bytes, Codes, Hashes, Ints, lengths, picked
from widerow.model.hashing import hash_at, same_at
from widerow.model.kernel import inlined, kernel
from widerow.model.names import Coded, Names

_FIRST_CAPACITY = 1 << 10


class NameTable:
    """Byte strings and their ids, 0 .. len - 1. Safe to share between threads."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._lock = threading.Lock()
        self._space = _Space(min(capacity, _FIRST_CAPACITY), 64 * min(capacity, _FIRST_CAPACITY))

    def __len__(self) -> int:
        return int(self._space.count[0])

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        return self._space.bytes

    def find(self, names: Names) -> Codes:
        """The id of each name, -1 where it is not in the table."""
        out = np.empty(len(names), np.int32)
        s = self._space
        _find_all(names.data, names.offsets, s.slots, s.hashes, s.offsets, s.arena, out)
        return out

    def add(self, names: Names) -> Codes:
        """The id of each name, new ones added; -1 where the table is full."""
        out = self.find(names)
        if len(out) and out.min() < 0:
            with self._lock:
                self._add_missing(names, out)
        return out

    def _add_missing(self, names: Names, out: Codes) -> None:
        s = self._space
        missing = out < 0
        count = len(self)
        want = min(self.capacity, count + int(missing.sum()))
        text = int(s.offsets[count]) + int(lengths(names.offsets)[missing].sum())
        if want > s.capacity or text + PAD > len(s.arena):
            self._space = s = s.grown(max(want, min(2 * s.capacity, self.capacity)), max(text, 2 * len(s.arena)))
        _add_all(names.data, names.offsets, s.slots, s.hashes, s.offsets, s.arena, s.count, self.capacity, out)

    def at(self, ids: Ints | Codes) -> Names:
        """The names of some ids, in their order. What it takes does not grow with the table."""
        s = self._space
        offsets, where = picked(s.offsets, ids)
        return Names(np.concatenate([s.arena[where], np.zeros(PAD, np.uint8)]), offsets)

    def names(self) -> Names:
        """All names, by id."""
        s, count = self._space, len(self)
        offsets = s.offsets[: count + 1].copy()
        return Names(s.arena[: offsets[-1] + PAD].copy(), offsets)


class _Space:
    """The arrays of a table. A bigger table is a new space, so readers of the old one are never disturbed."""

    def __init__(self, capacity: int, text_bytes: int) -> None:
        self.capacity = capacity
        self.slots = np.full(1 << int(np.ceil(np.log2(2 * capacity))), -1, np.int32)
        self.hashes = np.empty(capacity, np.uint64)
        self.offsets = np.zeros(capacity + 1, np.int64)
        self.arena = np.zeros(text_bytes + PAD, np.uint8)
        self.count = np.zeros(1, np.int64)

    @property
    def bytes(self) -> int:
        return self.slots.nbytes + self.hashes.nbytes + self.offsets.nbytes + self.arena.nbytes

    def grown(self, capacity: int, text_bytes: int) -> _Space:
        new = _Space(capacity, text_bytes)
        n = int(self.count[0])
        used = self.offsets[n]
        new.hashes[:n], new.offsets[: n + 1], new.arena[:used] = (
            self.hashes[:n],
            self.offsets[: n + 1],
            self.arena[:used],
        )
        new.count[0] = n
        _fill_slots(new.slots, new.hashes, n)
        return new


@kernel
def _fill_slots(slots: Codes, hashes: Hashes, n: int) -> None:
    mask = len(slots) - 1
    for i in range(n):
        p = np.int64(hashes[i] & np.uint64(mask))
        while slots[p] >= 0:
            p = (p + 1) & mask
        slots[p] = i


@inlined
def find_id(h: Any, address: Any, length: Any, slots: Any, hashes: Any, offsets: Any, arena: Any) -> Any:
    """The id of the `length` bytes at `address`, whose hash is h, or -1."""
    mask = len(slots) - 1
    base = arena.ctypes.data
    p = np.int64(h & np.uint64(mask))
    while True:
        i = np.int64(slots[p])
        if i < 0:
            return i
        same = hashes[i] == h and offsets[i + 1] - offsets[i] == length
        if same and same_at(address, base + offsets[i], length):
            return i
        p = (p + 1) & mask


@kernel
def _find_all(data: Bytes, starts: Ints, slots: Codes, hashes: Hashes, offsets: Ints, arena: Bytes, out: Codes) -> None:
    base = data.ctypes.data
    for k in range(len(out)):
        address, length = base + starts[k], starts[k + 1] - starts[k]
        out[k] = find_id(hash_at(address, length), address, length, slots, hashes, offsets, arena)


@kernel
def _add_all(
    data: Bytes,
    starts: Ints,
    slots: Codes,
    hashes: Hashes,
    offsets: Ints,
    arena: Bytes,
    count: Ints,
    capacity: int,
    out: Codes,
) -> None:
    mask = len(slots) - 1
    base = data.ctypes.data
    for k in range(len(out)):
        if out[k] >= 0:
            continue
        start, stop = starts[k], starts[k + 1]
        h = hash_at(base + start, stop - start)
        i = find_id(h, base + start, stop - start, slots, hashes, offsets, arena)
        if i < 0 and count[0] < capacity:
            i = count[0]
            for b in range(stop - start):
                arena[offsets[i] + b] = data[start + b]
            offsets[i + 1] = offsets[i] + stop - start
            hashes[i] = h
            p = np.int64(h & np.uint64(mask))
            while slots[p] >= 0:
                p = (p + 1) & mask
            count[0] = i + 1
            slots[p] = i  # last: a reader that sees the slot sees the name
        out[k] = i


def slices(data: Bytes, starts: Ints, sizes: Ints) -> Names:
    """Pieces of a buffer as strings of their own."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    out = np.zeros(int(offsets[-1]) + PAD, np.uint8)
    _copy_slices(data, starts, offsets, out)
    return Names(out, offsets)


def coded_slices(data: Bytes, starts: Ints, sizes: Ints) -> Coded:
    """Pieces of a buffer as a column, each distinct one a name once; PAD bytes follow the last."""
    codes, firsts = np.empty(len(starts), np.int32), np.empty(len(starts), np.int64)
    slots = np.full(1 << (2 * len(starts)).bit_length(), -1, np.int32)
    firsts = firsts[: _code_slices(data, starts, sizes, slots, firsts, codes)]
    return Coded(slices(data, starts[firsts], sizes[firsts]), codes)


@kernel
def _copy_slices(data: Bytes, starts: Ints, offsets: Ints, out: Bytes) -> None:
    for i in range(len(starts)):
        p = starts[i]
        for k in range(offsets[i], offsets[i + 1]):
            out[k] = data[p]
            p += 1


@kernel
def _code_slices(data: Bytes, starts: Ints, sizes: Ints, slots: Codes, firsts: Ints, codes: Codes) -> int:
    """Codes in order of first appearance; `firsts` says where that was."""
    mask = len(slots) - 1
    base = data.ctypes.data
    count = 0
    for i in range(len(starts)):
        p = np.int64(hash_at(base + starts[i], sizes[i]) & np.uint64(mask))
        while slots[p] >= 0:
            other = firsts[slots[p]]
            if sizes[other] == sizes[i] and same_at(base + starts[i], base + starts[other], sizes[i]):
                break
            p = (p + 1) & mask
        if slots[p] < 0:
            slots[p] = count
            firsts[count] = i
            count += 1
        codes[i] = slots[p]
    return count
