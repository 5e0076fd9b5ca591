"""Quantile sketches: how often values fell into bins whose width grows with their size.

A DDSketch: of any value that was added, the bin tells it to within `RELATIVE_ERROR`. Merging adds integers, so it is exact,
and the same in any order. Values of either sign, and zero, have bins; a bin's number grows with its values:

    ... -2 -1 | 0 | 1 2 ...      zero is bin 0; bins of positive values are above it, of negative ones below

Rule 1: which bin a value is in takes additions and multiplications only, no logarithm: so every machine says the same.
Rule 2: the bytes of a sketch are stored: they begin with a version. See docs/format/rollup.md before changing one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from widerow.codec.varint import put_varint, take_varint, unzigzag, zigzag
from widerow.model.arrays import PAD, Bytes, Codes, Floats, Ints, frozen, picked
from widerow.model.errors import Corrupt
from widerow.model.kernel import inlined, kernel, pasted
from widerow.model.names import Names

RELATIVE_ERROR = 0.01
FORMAT = 1

_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
# A cubic through log2 at the powers of two, with equal slopes where they meet: bins are 1% more than with a logarithm.
_A, _B, _C = 6 / 35, -3 / 5, 10 / 7
_BINS_PER_OCTAVE = 1 / (math.log(_GAMMA) * _C)
_MIDDLE = 2 / (1 + _GAMMA)
"""Of a bin's upper end: what is equally far, relatively, from both ends."""
_OFFSET = 1 << 16
"""Added to the bins of positive values: more than the bins of all values below 1, so that their numbers are positive."""

_FEW = 32
_NEARBY = 4096
"""Bins of so wide a range (two values of which one is 10^35 times the other) are counted in an array rather than sorted."""


@dataclass(frozen=True, slots=True, eq=False)
class Sketches:
    """Many sketches: sketch i has the bins `offsets[i]:offsets[i + 1]`, in ascending order, each with a count above zero."""

    offsets: Ints
    bins: Codes
    counts: Ints

    def __post_init__(self) -> None:
        for column in (self.offsets, self.bins, self.counts):
            frozen(column)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, values: Floats, offsets: Ints) -> Sketches:
        """The sketch of each group of values. Values are finite."""
        return cls(*_collected(bins_of(values), np.ones(len(values), np.int64), offsets))

    def merged(self, offsets: Ints) -> Sketches:
        """One sketch for each group of sketches."""
        return Sketches(*_collected(self.bins, self.counts, self.offsets[offsets]))

    def take(self, which: Ints) -> Sketches:
        offsets, where = picked(self.offsets, which)
        return Sketches(offsets, self.bins[where], self.counts[where])

    def quantiles(self, q: float) -> Floats:
        """A value within the relative error of each sketch's quantile; NaN where it is empty."""
        if not 0 <= q <= 1:
            raise ValueError(f"a quantile is 0 to 1, not {q}")
        out = np.empty(len(self))
        _quantiles(self.offsets, self.bins, self.counts, q, out)
        return out

    def encode(self) -> Names:
        """Each sketch as bytes."""
        starts = np.empty(len(self) + 1, np.int64)
        data = np.empty(most_bytes(len(self), len(self.bins)), np.uint8)
        _encode(self.offsets, self.bins, self.counts, data, starts)
        return Names(np.concatenate([data[: starts[-1]], np.zeros(PAD, np.uint8)]), starts)

    @classmethod
    def decode(cls, stored: Names) -> Sketches:
        """The sketches that `encode` made bytes of. `Corrupt`: they are no such bytes."""
        offsets, most = np.empty(len(stored) + 1, np.int64), int(stored.offsets[-1])  # a bin takes two bytes or more
        bins, counts = np.empty(most, np.int32), np.empty(most, np.int64)
        if not _decode(stored.data, stored.offsets, offsets, bins, counts):
            raise Corrupt("a sketch cannot be read: was it written by a newer release?")
        return cls(offsets, bins[: offsets[-1]].copy(), counts[: offsets[-1]].copy())


def no_sketches(n: int) -> Sketches:
    """That many empty sketches."""
    return Sketches(np.zeros(n + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64))


def stacked(parts: Sequence[Sketches]) -> Sketches:
    """All sketches in order."""
    ends = np.cumsum([0, *(len(part.bins) for part in parts)])
    offsets = [part.offsets[:-1] + end for part, end in zip(parts, ends, strict=False)]
    return Sketches(
        np.concatenate([*offsets, ends[-1:]]),
        np.concatenate([np.zeros(0, np.int32), *(part.bins for part in parts)]),
        np.concatenate([np.zeros(0, np.int64), *(part.counts for part in parts)]),
    )


def bins_of(values: Floats) -> Codes:
    out = np.empty(len(values), np.int32)
    _bins_of(values, out)
    return out


def values_of(bins: Codes) -> Floats:
    """What a bin stands for."""
    out = np.empty(len(bins))
    _values_of(bins, out)
    return out


@pasted
def bin_of(value: Any) -> Any:
    """The bin of a finite value."""
    if value == 0.0:
        return 0
    mantissa, exponent = math.frexp(abs(value))
    s = 2.0 * mantissa - 1.0
    bin_ = math.ceil((((_A * s + _B) * s + _C) * s + (exponent - 1)) * _BINS_PER_OCTAVE) + _OFFSET
    return bin_ if value > 0.0 else -bin_


@pasted
def value_of(bin_: Any) -> Any:
    if bin_ == 0:
        return 0.0
    octaves = (abs(bin_) - _OFFSET) / _BINS_PER_OCTAVE
    whole = math.floor(octaves)
    part = octaves - whole
    s = part
    for _ in range(6):  # Newton's: the cubic is close to a straight line
        s -= (((_A * s + _B) * s + _C) * s - part) / ((3.0 * _A * s + 2.0 * _B) * s + _C)
    upper = math.ldexp(1.0 + s, int(whole))
    # The bins at the very ends reach beyond what a float can hold.
    value = min(upper * _MIDDLE, 1.7976931348623157e308)
    return value if bin_ > 0 else -value


@kernel
def _bins_of(values: Floats, out: Codes) -> None:
    for i in range(len(values)):
        out[i] = bin_of(values[i])


@kernel
def _values_of(bins: Codes, out: Floats) -> None:
    for i in range(len(bins)):
        out[i] = value_of(np.int64(bins[i]))


def _collected(bins: Codes, counts: Ints, offsets: Ints) -> tuple[Ints, Codes, Ints]:
    """Equal bins of a group as one, in order."""
    bins, counts = bins[offsets[0] : offsets[-1]].copy(), counts[offsets[0] : offsets[-1]].copy()
    cuts = np.empty(len(offsets), np.int64)
    used = _collect(bins, counts, offsets - offsets[0], cuts)
    return cuts, bins[:used].copy(), counts[:used].copy()


@kernel
def _collect(bins: Codes, counts: Ints, offsets: Ints, cuts: Ints) -> int:
    """In place: nothing moves behind where it was."""
    space = histogram()
    used = 0
    cuts[0] = 0
    for g in range(len(offsets) - 1):
        used = collect(bins, counts, offsets[g], offsets[g + 1], used, space)
        cuts[g + 1] = used
    return used


@pasted
def histogram() -> Any:
    """Room for `collect` to count in: bins below zero and above it apart, for they lie far from each other."""
    return np.zeros((2, _NEARBY), np.int64)


@pasted
def collect(bins: Any, counts: Any, start: Any, stop: Any, used: Any, space: Any) -> Any:
    """The bins `start:stop` moved to `used`, not behind `start`: in order, equal ones as one. Where they end."""
    begun = used
    if stop - start > _FEW:
        zeros, below, above = np.int64(0), False, False
        low_below, high_below, low_above, high_above = np.int64(-1), np.int64(-1), np.int64(1), np.int64(1)
        for i in range(start, stop):
            b = np.int64(bins[i])
            if b > 0:
                low_above, high_above = (min(low_above, b), max(high_above, b)) if above else (b, b)
                above = True
            elif b < 0:
                low_below, high_below = (min(low_below, b), max(high_below, b)) if below else (b, b)
                below = True
        if high_above - low_above < _NEARBY and high_below - low_below < _NEARBY:
            for i in range(start, stop):
                b = np.int64(bins[i])
                if b > 0:
                    space[1, b - low_above] += counts[i]
                elif b < 0:
                    space[0, b - low_below] += counts[i]
                else:
                    zeros += counts[i]
            if below:
                used = _emptied(space[0], low_below, high_below, bins, counts, used)
            if zeros:
                bins[used], counts[used] = 0, zeros
                used += 1
            if above:
                used = _emptied(space[1], low_above, high_above, bins, counts, used)
            return used
    _sort(bins, counts, start, stop)
    for i in range(start, stop):
        if used > begun and bins[used - 1] == bins[i]:
            counts[used - 1] += counts[i]
        else:
            bins[used], counts[used] = bins[i], counts[i]
            used += 1
    return used


@pasted
def _emptied(space: Any, low: Any, high: Any, bins: Any, counts: Any, used: Any) -> Any:
    """What was counted, in order, and the room is empty again. Where it ends."""
    for k in range(high - low + 1):
        if space[k]:
            bins[used], counts[used] = low + k, space[k]
            space[k] = 0
            used += 1
    return used


@inlined
def _sort(bins: Any, counts: Any, start: Any, stop: Any) -> None:
    if stop - start > _FEW:
        order = np.argsort(bins[start:stop], kind="mergesort")
        b, c = bins[start:stop].copy(), counts[start:stop].copy()
        for i in range(stop - start):  # (assigning slices would take seconds to compile)
            bins[start + i], counts[start + i] = b[order[i]], c[order[i]]
        return
    for i in range(start + 1, stop):
        bin_, count = bins[i], counts[i]
        j = i - 1
        while j >= start and bins[j] > bin_:
            bins[j + 1], counts[j + 1] = bins[j], counts[j]
            j -= 1
        bins[j + 1], counts[j + 1] = bin_, count


@kernel
def _quantiles(offsets: Ints, bins: Codes, counts: Ints, q: float, out: Floats) -> None:
    for g in range(len(out)):
        total = np.int64(0)
        for i in range(offsets[g], offsets[g + 1]):
            total += counts[i]
        out[g] = np.nan
        rank = q * (total - 1)
        seen = np.int64(0)
        for i in range(offsets[g], offsets[g + 1]):
            seen += counts[i]
            if seen > rank:
                out[g] = value_of(np.int64(bins[i]))
                break


# Bytes: the version, how many bins, then for each the distance from the bin before and its count, all as varints. Of the
# first bin it is the number itself, its sign in the lowest bit.


@pasted
def put_sketch(data: Any, at: Any, bins: Any, counts: Any, start: Any, stop: Any) -> Any:
    """The sketch of the bins `start:stop` as bytes: at most `most_bytes` of them. Where they end."""
    data[at] = FORMAT
    at = put_varint(data, at + 1, stop - start)
    last = np.int64(0)
    for i in range(start, stop):
        b = np.int64(bins[i])
        at = put_varint(data, at, b - last if i > start else zigzag(b))
        at = put_varint(data, at, counts[i])
        last = b
    return at


def most_bytes(sketches: int, bins: int) -> int:
    """What so many sketches take at most, so many bins together."""
    return 6 * sketches + 14 * bins


@pasted
def take_sketch(data: Any, at: Any, stop: Any, bins: Any, counts: Any, used: Any) -> Any:
    """The bins that the bytes `at:stop` tell, from `used` on. Where they end; -1: these are not the bytes of a sketch."""
    if at >= stop or data[at] != FORMAT:
        return -1
    n, at = take_varint(data, at + 1, stop)
    if at < 0 or 2 * n > stop - at:
        return -1
    last = np.int64(0)
    for i in range(n):
        step, at = take_varint(data, at, stop)
        count, at = take_varint(data, at, stop)
        b = last + step if i else unzigzag(step)
        if at < 0 or count == 0 or step >> 32 or abs(b) >= 1 << 30 or (i and step == 0):
            return -1
        bins[used], counts[used] = b, count
        used += 1
        last = b
    return used if at == stop else -1


@kernel
def _encode(offsets: Ints, bins: Codes, counts: Ints, data: Bytes, starts: Ints) -> None:
    starts[0] = 0
    for g in range(len(offsets) - 1):
        starts[g + 1] = put_sketch(data, starts[g], bins, counts, offsets[g], offsets[g + 1])


@kernel
def _decode(data: Bytes, starts: Ints, offsets: Ints, bins: Codes, counts: Ints) -> bool:
    """False: a bin or a count cannot be, or the bytes end early or late."""
    offsets[0] = 0
    for g in range(len(starts) - 1):
        used = take_sketch(data, starts[g], starts[g + 1], bins, counts, offsets[g])
        if used < 0:
            return False
        offsets[g + 1] = used
    return True
