"""A bounded sample of the keys that batches touch, taken in a few microseconds a batch.

Rule 1: a batch gives 128 samples at most, one from each stretch of as many rows, at random. A sample weighs as many rows as
it stands for, so sums of weights are unbiased estimates of counts. A batch of 128 rows or fewer is counted exactly.
Rule 2: when there is no room, one of each two samples goes, at random; the other weighs twice as much, and later batches
give fewer.
Rule 3: the sum of `weight * (weight - 1)` estimates the variance of a sum of weights, or is above it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from widerow.model.arrays import Bytes, Codes, Floats, Hashes, Ints, frozen
from widerow.model.check import MAX_NAME_BYTES
from widerow.model.kernel import inlined, kernel
from widerow.model.names import Names

MOST_OF_A_BATCH = 128
CAPACITY = 4096
_NAME_BYTES = 40
"""Room for each name on average; longer ones leave room for fewer."""
_COUNT, _LEVEL, _TOTAL = range(3)
_OWNER, _WEIGHT, _SIZE = range(3)


@dataclass(frozen=True, slots=True)
class Sample:
    """Sampled keys with their weights, and how many rows there were in all."""

    keys: list[str]
    """`OWNER/NAME`."""
    weight: Floats
    size_bytes: Floats
    """Of one row, before compression."""
    total: int


class KeySamples:
    """Samples of (owner, name). Safe to share between threads."""

    def __init__(self, seed: int, capacity: int = CAPACITY) -> None:
        self._lock = threading.Lock()
        self._owners: dict[str, int] = {}
        self._random = np.array([seed * 2 + 1], np.uint64)
        self._texts = np.zeros(max(capacity * _NAME_BYTES, 4 * MAX_NAME_BYTES), np.uint8)
        self._ends = np.zeros(capacity + 1, np.int64)
        self._facts = np.zeros((capacity, 3), np.float64)
        self._state = np.array([0, 1, 0], np.int64)
        self._each, self._no_values = np.arange(MOST_OF_A_BATCH, dtype=np.int32), np.zeros(MOST_OF_A_BATCH + 1, np.int64)
        frozen(self._each)
        frozen(self._no_values)

    def add(self, owner: str, names: Names, codes: Codes, cuts: Ints, row_bytes: int) -> None:
        """Rows by their name. Row i has `cuts[i + 1] - cuts[i]` values of 8 bytes, its name and `row_bytes` besides."""
        self._add(owner, names, codes, cuts, row_bytes, 1, len(codes))

    def add_some(self, owner: str, names: Names, weight: int, total: int) -> None:
        """Rows with nothing but names, 128 at most, of which the caller took one of each `weight`."""
        n = len(names)
        self._add(owner, names, self._each[:n], self._no_values[: n + 1], 0, weight, total)

    def _add(self, owner: str, names: Names, codes: Codes, cuts: Ints, row_bytes: int, weight: int, total: int) -> None:
        with self._lock:
            code = self._owners.setdefault(owner, len(self._owners))
            _sample(
                names.data,
                names.offsets,
                codes,
                cuts,
                row_bytes,
                code,
                weight,
                total,
                self._texts,
                self._ends,
                self._facts,
                self._state,
                self._random,
            )

    def take(self) -> Sample:
        """The samples since the last time. If they left half of the room empty, twice as many are taken from now on."""
        with self._lock:
            count, level, total = self._state.tolist()
            ends, facts = self._ends[: count + 1].tolist(), self._facts[:count].copy()
            text = self._texts[: ends[-1]].tobytes()
            owners = [f"{owner}/" for owner in self._owners]
            self._owners = {}
            self._state[:] = 0, max(1, level // 2 if 2 * count <= len(self._facts) else level), 0
        codes = facts[:, _OWNER].astype(np.int64).tolist()
        keys = [owners[code] + text[ends[i] : ends[i + 1]].decode() for i, code in enumerate(codes)]
        return Sample(keys, facts[:, _WEIGHT], facts[:, _SIZE], total)


@kernel
def _sample(
    data: Bytes,
    starts: Ints,
    codes: Codes,
    cuts: Ints,
    row_bytes: int,
    owner: int,
    weight: int,
    total: int,
    texts: Bytes,
    ends: Ints,
    facts: Floats,
    state: Ints,
    random: Hashes,
) -> None:
    n = len(codes)
    state[_TOTAL] += total
    step = max((n + MOST_OF_A_BATCH - 1) // MOST_OF_A_BATCH, (state[_LEVEL] + weight - 1) // weight)
    for first in range(0, n, step):
        i = first + _drawn(random, step)
        if i >= n:
            break
        start, stop = starts[codes[i]], starts[codes[i] + 1]
        if stop - start > MAX_NAME_BYTES:  # a question may name what no device can be called
            continue
        while state[_COUNT] == len(facts) or ends[state[_COUNT]] + stop - start > len(texts):
            _thin(texts, ends, facts, state, random)
        e = state[_COUNT]
        for b in range(start, stop):
            texts[ends[e] + b - start] = data[b]
        ends[e + 1] = ends[e] + stop - start
        facts[e, _OWNER], facts[e, _WEIGHT] = owner, step * weight
        facts[e, _SIZE] = row_bytes + stop - start + 8 * (cuts[i + 1] - cuts[i])
        state[_COUNT] = e + 1


@inlined
def _drawn(random: Hashes, below: int) -> int:
    """A number from 0 to `below - 1` (xorshift, 64 bits)."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return np.int64((x >> np.uint64(33)) % np.uint64(below))  # type: ignore[return-value]


@inlined
def _thin(texts: Bytes, ends: Ints, facts: Floats, state: Ints, random: Hashes) -> None:
    """Keep one of each two samples."""
    kept = 0
    for pair in range(0, state[_COUNT], 2):
        e = pair + _drawn(random, 2)
        if e >= state[_COUNT]:  # the last one of an odd number has none to win against but nothing
            break
        start, size = ends[e], ends[e + 1] - ends[e]
        for b in range(size):
            texts[ends[kept] + b] = texts[start + b]
        facts[kept] = facts[e]
        facts[kept, _WEIGHT] *= 2
        # `ends` of the next pair are read before they are written: kept + 1 <= pair + 1.
        ends[kept + 1] = ends[kept] + size
        kept += 1
    state[_COUNT] = kept
    state[_LEVEL] *= 2
