"""Statistics of numbers over windows of time: what a rollup says of one metric.

Rule 1: `Stats.of` is a function of the values and their times, `merged` of the statistics beneath it; both go through them
in the order of time, so computing again gives the same bits.
Rule 2: of values, quantiles are exact (linear between ranks). Of merged statistics they come from the sketch, to within its
error, and never lie outside the extremes.
Rule 3: a sum that overflows on the way is added up again, scaled: the mean of numbers is a number. Sums and squares that are
themselves too large are infinite, which is what is stored; a merged sum then comes from the mean.
Rule 4: `increase` is what a counter gained within the window: each step up counts, and a step down means that it began again
at zero. What it gained between two windows is counted when they are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from widerow.codec.sketch import Sketches, no_sketches
from widerow.codec.sketch import stacked as stacked_sketches
from widerow.model.arrays import Flags, Floats, Ints, frozen, lengths
from widerow.model.kernel import inlined, kernel, pasted

QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True, eq=False)
class Stats:
    """Statistics of many groups of numbers, none of them empty."""

    count: Ints
    first_us: Ints
    last_us: Ints
    first: Floats
    last: Floats
    min: Floats
    max: Floats
    sum: Floats
    mean: Floats
    m2: Floats
    """The sum of squared distances from the mean."""
    increase: Floats
    p50: Floats
    p95: Floats
    p99: Floats
    sketch: Sketches

    def __post_init__(self) -> None:
        for column in self.columns():
            frozen(column)

    def __len__(self) -> int:
        return len(self.count)

    def columns(self) -> list[Any]:
        """All but the sketches, in the order of the fields."""
        return [getattr(self, name) for name in COLUMNS]

    def rows(self) -> Floats:
        """A row for each, of all columns but the first three."""
        return np.stack(self.columns()[3:], axis=1)

    def stddev(self) -> Floats:
        """Of the population."""
        return np.sqrt(self.m2 / self.count)

    @staticmethod
    def of(time_us: Ints, values: Floats, offsets: Ints) -> Stats:
        """Group g has the values `offsets[g]:offsets[g + 1]`, at least one, in order of time."""
        if (lengths(offsets) < 1).any():
            raise ValueError("a group without values has no statistics")
        return Stats.between(time_us[offsets[:-1]], time_us[offsets[1:] - 1], values, offsets)

    @staticmethod
    def between(first_us: Ints, last_us: Ints, values: Floats, offsets: Ints, *, quantiles: bool = True) -> Stats:
        """The same of groups, none empty, of whose times the first and the last are known.

        Without quantiles: these are no numbers, and the sketches are empty.
        """
        n = len(first_us)
        rows = np.empty((n, FLOATS))
        _of_values(values, offsets, quantiles, rows)
        sketch = Sketches.of(values, offsets) if quantiles else no_sketches(n)
        return stats_of((lengths(offsets), first_us, last_us), rows, sketch)

    def merged(self, offsets: Ints) -> Stats:
        """One for each group of statistics, which come in order of time."""
        if (lengths(offsets) < 1).any():
            raise ValueError("a group without statistics cannot be merged")
        if len(offsets) == len(self) + 1:
            return self  # each alone stays as it is
        ints, rows = np.empty((3, len(offsets) - 1), np.int64), np.empty((len(offsets) - 1, FLOATS))
        _merge(np.stack(self.columns()[:3]), self.rows(), offsets, ints, rows)
        sketch = self.sketch.merged(offsets)
        estimate_quantiles(rows, sketch, lengths(offsets) > 1)
        return stats_of(ints, rows, sketch)

    def take(self, which: Ints) -> Stats:
        return _stats([column[which] for column in self.columns()], self.sketch.take(which))


COLUMNS = tuple(field.name for field in fields(Stats) if field.name != "sketch")
FLOATS = len(COLUMNS) - 3
"""How many columns are numbers rather than a count or a time."""
_FIRST, _LAST, _MIN, _MAX, _SUM, _MEAN, _M2, _INCREASE, _P50, _P95, _P99 = range(FLOATS)
_COUNT, _FIRST_US, _LAST_US = range(3)
_SMALLER = 2.0**-64
"""By this values are scaled whose sum overflows: as many of the largest as there can be fit."""


def stacked(parts: Sequence[Stats]) -> Stats:
    """All statistics in order; at least one part."""
    columns = [np.concatenate(column) for column in zip(*(part.columns() for part in parts), strict=True)]
    return _stats(columns, stacked_sketches([part.sketch for part in parts]))


def stats_of(ints: Any, rows: Floats, sketch: Sketches) -> Stats:
    """From the first three columns, and rows of the others."""
    return _stats([*ints, *np.ascontiguousarray(rows.T)], sketch)


def _stats(columns: list[Any], sketch: Sketches) -> Stats:
    return Stats(**dict(zip(COLUMNS, columns, strict=True)), sketch=sketch)


def estimate_quantiles(rows: Floats, sketch: Sketches, which: Flags) -> None:
    """The quantiles of some statistics from their sketches; never outside the extremes."""
    some = np.flatnonzero(which)
    if len(some) == 0:
        return
    part = sketch if len(some) == len(which) else sketch.take(some)
    for q, column in zip(QUANTILES, (_P50, _P95, _P99), strict=True):
        # Of 0 and -0 `clip` takes either, by its place in the array: adding 0 makes both 0.
        rows[some, column] = np.clip(part.quantiles(q), rows[some, _MIN], rows[some, _MAX]) + 0.0


@pasted
def gain(before: Any, after: Any) -> Any:
    """What a counter gained from one value to the next."""
    return after - before if after >= before else after


@pasted
def _rank(sorted_values: Any, n: Any, q: Any) -> Any:
    at = q * (n - 1)
    low = int(at)
    if low + 1 >= n:
        return sorted_values[n - 1]
    step = sorted_values[low + 1] - sorted_values[low]
    if step == np.inf:
        return sorted_values[low] * (1 - (at - low)) + sorted_values[low + 1] * (at - low)
    return sorted_values[low] + step * (at - low)


# The kernels have the numbers of a group in a row, in the order of the fields.


@pasted
def put_values(values: Any, start: Any, stop: Any, row: Any) -> None:
    """What the values `start:stop` say in order of time: all but the quantiles."""
    total = 0.0
    increase = 0.0
    before = values[start]
    low, high = before, before
    for i in range(start, stop):
        v = values[i]
        total += v
        if i > start:
            increase += gain(before, v)
        # As in a stable order by size: of equal ones (0 and -0) the first is the smallest, the last the greatest.
        low = min(low, v)
        high = max(v, high)
        before = v
    mean = total / (stop - start)
    if not np.isfinite(total):
        total = 0.0
        for i in range(start, stop):
            total += values[i] * _SMALLER
        mean = min(max(total / (stop - start) / _SMALLER, low), high)
        total = total / _SMALLER
    m2 = 0.0
    for i in range(start, stop):
        m2 += (values[i] - mean) * (values[i] - mean)
    row[_FIRST], row[_LAST], row[_MIN], row[_MAX] = values[start], before, low, high
    row[_SUM], row[_MEAN], row[_M2], row[_INCREASE] = total, mean, m2, increase


@pasted
def put_quantiles(values: Any, start: Any, stop: Any, by_size: Any, row: Any) -> None:
    """The exact quantiles of the values `start:stop`. `by_size` has room for them."""
    n = stop - start
    _sort(values, start, n, by_size)
    row[_P50], row[_P95], row[_P99] = _rank(by_size, n, 0.5), _rank(by_size, n, 0.95), _rank(by_size, n, 0.99)


@inlined
def _sort(values: Any, start: Any, n: Any, by_size: Any) -> None:
    if n > 64:
        found = np.sort(values[start : start + n])
        for i in range(n):  # (assigning a slice would take seconds to compile)
            by_size[i] = found[i]
        return
    for i in range(n):
        v = values[start + i]
        j = i - 1
        while j >= 0 and by_size[j] > v:
            by_size[j + 1] = by_size[j]
            j -= 1
        by_size[j + 1] = v


@pasted
def no_quantiles(row: Any) -> None:
    row[_P50], row[_P95], row[_P99] = np.nan, np.nan, np.nan


@pasted
def add_later(n: Any, row: Any, more: Any, later: Any) -> None:
    """To the statistics of n values those of `more` later ones: all but the quantiles."""
    apart = later[_MEAN] - row[_MEAN]
    both = n + more
    row[_M2] += later[_M2] + apart * apart * (n / both) * more
    row[_MIN] = min(row[_MIN], later[_MIN])
    row[_MAX] = max(row[_MAX], later[_MAX])
    if np.isfinite(apart):
        row[_MEAN] += apart * (more / both)
    else:
        mean = row[_MEAN] * (n / both) + later[_MEAN] * (more / both)
        row[_MEAN] = min(max(mean, row[_MIN]), row[_MAX])
    row[_SUM] += later[_SUM]
    if not np.isfinite(row[_SUM]):
        row[_SUM] = row[_MEAN] * both
    row[_INCREASE] += gain(row[_LAST], later[_FIRST]) + later[_INCREASE]
    row[_LAST] = later[_LAST]


@kernel
def _of_values(values: Floats, offsets: Ints, quantiles: bool, rows: Floats) -> None:
    most = 0
    for g in range(len(offsets) - 1):
        most = max(most, offsets[g + 1] - offsets[g])
    by_size = np.empty(most)
    for g in range(len(offsets) - 1):
        put_values(values, offsets[g], offsets[g + 1], rows[g])
        if quantiles:
            put_quantiles(values, offsets[g], offsets[g + 1], by_size, rows[g])
        else:
            no_quantiles(rows[g])


@kernel
def _merge(known_ints: Ints, known: Floats, offsets: Ints, ints: Ints, rows: Floats) -> None:
    for g in range(len(offsets) - 1):
        start, stop = offsets[g], offsets[g + 1]
        for k in range(FLOATS):
            rows[g, k] = known[start, k]
        n = known_ints[_COUNT, start]
        for i in range(start + 1, stop):
            add_later(n, rows[g], known_ints[_COUNT, i], known[i])
            n += known_ints[_COUNT, i]
        ints[_COUNT, g] = n
        ints[_FIRST_US, g], ints[_LAST_US, g] = known_ints[_FIRST_US, start], known_ints[_LAST_US, stop - 1]
