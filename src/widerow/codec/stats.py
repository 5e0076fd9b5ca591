"""Statistics of numbers over windows of time: what a rollup says of one metric.

Rule 1: `Stats.of` is a function of the values and their times, `merged` of the statistics beneath it; both go through them
in the order of time, so computing again gives the same bits.
Rule 2: of values, quantiles are exact (linear between ranks). Of merged statistics they come from the sketch, to within its
error, and never lie outside the extremes.
Rule 3: `increase` is what a counter gained within the window: each step up counts, and a step down means that it began again
at zero. What it gained between two windows is counted when they are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from widerow.codec.sketch import Sketches
from widerow.codec.sketch import stacked as stacked_sketches
from widerow.model.arrays import Floats, Ints, frozen, lengths
from widerow.model.kernel import inlined, kernel

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

    def stddev(self) -> Floats:
        """Of the population."""
        return np.sqrt(self.m2 / self.count)

    @staticmethod
    def of(time_us: Ints, values: Floats, offsets: Ints) -> Stats:
        """Group g has the values `offsets[g]:offsets[g + 1]`, at least one, in order of time."""
        if (lengths(offsets) < 1).any():
            raise ValueError("a group without values has no statistics")
        ints, floats = np.empty((3, len(offsets) - 1), np.int64), np.empty((11, len(offsets) - 1))
        _of_values(time_us, values, offsets, ints, floats)
        return _stats([*ints, *floats], Sketches.of(values, offsets))

    def merged(self, offsets: Ints) -> Stats:
        """One for each group of statistics, which come in order of time."""
        if (lengths(offsets) < 1).any():
            raise ValueError("a group without statistics cannot be merged")
        ints, floats = np.empty((3, len(offsets) - 1), np.int64), np.empty((11, len(offsets) - 1))
        _merge(tuple(self.columns()[:3]), tuple(self.columns()[3:]), offsets, ints, floats)
        sketch = self.sketch.merged(offsets)
        several = np.flatnonzero(lengths(offsets) > 1)
        if len(several):
            low, high = floats[_MIN][several], floats[_MAX][several]
            some = sketch.take(several)
            for q, column in zip(QUANTILES, (_P50, _P95, _P99), strict=True):
                floats[column][several] = np.clip(some.quantiles(q), low, high)
        return _stats([*ints, *floats], sketch)

    def take(self, which: Ints) -> Stats:
        return _stats([column[which] for column in self.columns()], self.sketch.take(which))


COLUMNS = tuple(field.name for field in fields(Stats) if field.name != "sketch")
_FIRST, _LAST, _MIN, _MAX, _SUM, _MEAN, _M2, _INCREASE, _P50, _P95, _P99 = range(11)
_COUNT, _FIRST_US, _LAST_US = range(3)


def stacked(parts: Sequence[Stats]) -> Stats:
    """All statistics in order; at least one part."""
    columns = [np.concatenate(column) for column in zip(*(part.columns() for part in parts), strict=True)]
    return _stats(columns, stacked_sketches([part.sketch for part in parts]))


def _stats(columns: list[Any], sketch: Sketches) -> Stats:
    return Stats(**dict(zip(COLUMNS, columns, strict=True)), sketch=sketch)


@inlined
def _gain(before: Any, after: Any) -> Any:
    """What a counter gained from one value to the next."""
    return after - before if after >= before else after


@inlined
def _rank(sorted_values: Any, n: Any, q: Any) -> Any:
    at = q * (n - 1)
    low = int(at)
    if low + 1 >= n:
        return sorted_values[n - 1]
    return sorted_values[low] + (sorted_values[low + 1] - sorted_values[low]) * (at - low)


@kernel
def _of_values(time_us: Ints, values: Floats, offsets: Ints, ints: Ints, floats: Floats) -> None:
    most = 0
    for g in range(len(offsets) - 1):
        most = max(most, offsets[g + 1] - offsets[g])
    by_size = np.empty(most)
    for g in range(len(offsets) - 1):
        start, stop = offsets[g], offsets[g + 1]
        n = stop - start
        total = 0.0
        increase = 0.0
        for i in range(start, stop):
            total += values[i]
            if i > start:
                increase += _gain(values[i - 1], values[i])
        mean = total / n
        m2 = 0.0
        for i in range(start, stop):
            m2 += (values[i] - mean) * (values[i] - mean)
        if n <= 64:
            for i in range(n):
                v = values[start + i]
                j = i - 1
                while j >= 0 and by_size[j] > v:
                    by_size[j + 1] = by_size[j]
                    j -= 1
                by_size[j + 1] = v
        else:
            by_size[:n] = np.sort(values[start:stop])
        ints[_COUNT, g], ints[_FIRST_US, g], ints[_LAST_US, g] = n, time_us[start], time_us[stop - 1]
        floats[_FIRST, g], floats[_LAST, g] = values[start], values[stop - 1]
        floats[_MIN, g], floats[_MAX, g] = by_size[0], by_size[n - 1]
        floats[_SUM, g], floats[_MEAN, g], floats[_M2, g], floats[_INCREASE, g] = total, mean, m2, increase
        floats[_P50, g], floats[_P95, g], floats[_P99, g] = (
            _rank(by_size, n, 0.5),
            _rank(by_size, n, 0.95),
            _rank(by_size, n, 0.99),
        )


@kernel
def _merge(known_ints: Any, known: Any, offsets: Ints, ints: Ints, floats: Floats) -> None:
    count, first_us, last_us = known_ints
    first, last, low, high, total, mean, m2, increase, p50, p95, p99 = known
    for g in range(len(offsets) - 1):
        start, stop = offsets[g], offsets[g + 1]
        n, s, average, squares, gained = count[start], total[start], mean[start], m2[start], increase[start]
        smallest, greatest = low[start], high[start]
        for i in range(start + 1, stop):
            more = count[i]
            apart = mean[i] - average
            both = n + more
            squares += m2[i] + apart * apart * (n / both) * more
            average += apart * (more / both)
            n = both
            s += total[i]
            gained += _gain(last[i - 1], first[i]) + increase[i]
            smallest, greatest = min(smallest, low[i]), max(greatest, high[i])
        ints[_COUNT, g], ints[_FIRST_US, g], ints[_LAST_US, g] = n, first_us[start], last_us[stop - 1]
        floats[_FIRST, g], floats[_LAST, g] = first[start], last[stop - 1]
        floats[_MIN, g], floats[_MAX, g], floats[_SUM, g], floats[_MEAN, g] = smallest, greatest, s, average
        floats[_M2, g], floats[_INCREASE, g] = squares, gained
        floats[_P50, g], floats[_P95, g], floats[_P99, g] = p50[start], p95[start], p99[start]
