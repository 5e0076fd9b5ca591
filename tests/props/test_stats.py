"""Statistics against plain Python, and the laws of merging."""

from __future__ import annotations

import math
import statistics
import sys
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.codec.record import decode, encode_stats, encode_values
from widerow.codec.record import merged as merged_records
from widerow.codec.sketch import RELATIVE_ERROR
from widerow.codec.stats import COLUMNS, Stats, stacked

numbers = st.floats(min_value=-1e6, max_value=1e6).map(lambda x: round(x, 3))
groups = st.lists(st.lists(numbers, min_size=1, max_size=90), min_size=1, max_size=5)


def stats(groups: list[list[float]]) -> Stats:
    """Values a second apart, group after group."""
    values = np.array([v for group in groups for v in group], np.float64)
    return Stats.of(np.arange(len(values)) * 10**6, values, np.cumsum([0, *map(len, groups)]))


def one(found: Stats, i: int = 0) -> dict[str, Any]:
    return {name: getattr(found, name)[i].item() for name in COLUMNS}


def plain(values: list[float], start_us: int = 0) -> dict[str, Any]:
    """The reference."""
    ordered, n = sorted(values), len(values)

    def rank(q: float) -> float:
        at = q * (n - 1)
        low = int(at)
        return ordered[low] + (ordered[min(low + 1, n - 1)] - ordered[low]) * (at - low)

    mean = sum(values) / n
    return {
        "count": n,
        "first_us": start_us,
        "last_us": start_us + (n - 1) * 10**6,
        "first": values[0],
        "last": values[-1],
        "min": ordered[0],
        "max": ordered[-1],
        "sum": sum(values),
        "mean": mean,
        "m2": statistics.pvariance(values) * n,
        "increase": sum(b - a if b >= a else b for a, b in pairwise(values)),
        "p50": rank(0.5),
        "p95": rank(0.95),
        "p99": rank(0.99),
    }


@given(groups)
def test_statistics_of_values_are_those_of_the_reference(groups: list[list[float]]) -> None:
    found = stats(groups)
    begun = 0
    for i, values in enumerate(groups):
        assert one(found, i) == pytest.approx(plain(values, begun * 10**6), rel=1e-9, abs=1e-6)
        assert found.stddev()[i] == pytest.approx(statistics.pstdev(values), rel=1e-6, abs=1e-4)
        begun += len(values)


@given(groups)
def test_merging_says_what_all_values_together_say(groups: list[list[float]]) -> None:
    everything = [v for group in groups for v in group]
    merged = stats(groups).merged(np.array([0, len(groups)]))
    whole = stats([everything])
    for name in ("count", "first_us", "last_us", "first", "last", "min", "max"):
        assert getattr(merged, name)[0] == getattr(whole, name)[0]
    for name in ("sum", "mean", "increase"):
        assert getattr(merged, name)[0] == pytest.approx(getattr(whole, name)[0], rel=1e-9, abs=1e-6)
    assert merged.m2[0] == pytest.approx(whole.m2[0], rel=1e-7, abs=1e-3)
    assert merged.sketch.bins.tolist() == whole.sketch.bins.tolist()
    assert merged.sketch.counts.tolist() == whole.sketch.counts.tolist()
    ordered = sorted(everything)
    for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        at = q * (len(ordered) - 1)
        low, high = ordered[int(at)], ordered[min(int(at) + 1, len(ordered) - 1)]
        allowed = RELATIVE_ERROR * max(abs(low), abs(high)) + 1e-9
        assert low - allowed <= getattr(merged, name)[0] <= high + allowed


@given(groups)
def test_computing_again_gives_the_same_bits_and_one_alone_stays_as_it_is(groups: list[list[float]]) -> None:
    def bits(found: Stats) -> list[bytes]:
        return [c.tobytes() for c in (*found.columns(), found.sketch.offsets, found.sketch.bins, found.sketch.counts)]

    n = len(groups)
    parts = stats(groups)
    assert bits(parts) == bits(stats(groups))
    assert bits(parts.merged(np.array([0, n]))) == bits(parts.merged(np.array([0, n])))
    assert bits(parts.merged(np.arange(n + 1))) == bits(parts)
    assert bits(stacked([parts.take(np.array([i])) for i in range(n)])) == bits(parts)


def test_a_counter_that_starts_again_loses_nothing() -> None:
    def check(groups: list[list[float]], want: float) -> None:
        assert stats(groups).merged(np.array([0, len(groups)])).increase[0] == want

    check([[5.0]], 0)
    check([[5.0, 7.0, 7.0, 10.0]], 5)
    check([[5.0, 7.0, 1.0, 2.0]], 2 + 1 + 1)
    check([[5.0, 7.0], [9.0], [3.0, 4.0]], 2 + 2 + 3 + 1)


def test_a_group_without_values_is_refused() -> None:
    with pytest.raises(ValueError, match="without values"):
        Stats.of(np.zeros(1, np.int64), np.ones(1), np.array([0, 1, 1]))
    with pytest.raises(ValueError, match="without statistics"):
        stats([[1.0]]).merged(np.array([0, 1, 1]))


LARGEST = sys.float_info.max
huge = st.lists(
    st.lists(st.floats(-LARGEST, LARGEST) | st.sampled_from([1.7e308, -1.7e308, LARGEST]), min_size=1, max_size=12),
    min_size=1,
    max_size=5,
)


def close(found: float, want: Fraction, size: Fraction) -> bool:
    """Whether a sum is the exact one, to within what adding up such sizes loses; infinite if there is no such number."""
    lost = size / 10**13
    if math.isinf(found):
        return abs(want) + lost >= Fraction(LARGEST) and (found > 0) == (want > 0)
    return abs(Fraction(found) - want) <= lost


@given(huge)
def test_sums_that_overflow_on_the_way_are_those_of_fractions(groups: list[list[float]]) -> None:
    """Of raw values, of what is merged, and of what rollups are read as and merged from."""
    flat = [value for group in groups for value in group]
    exact, size = sum(map(Fraction, flat), Fraction()), sum((abs(Fraction(value)) for value in flat), Fraction())
    whole, parts = stats([flat]), stats(groups)
    n, ends = len(groups), np.cumsum([0, *map(len, groups)])
    window_us = np.array(parts.first_us)
    of_values = encode_values(window_us, parts.first_us, parts.last_us, np.array(flat), ends)
    both = np.array([0, n])
    for found in (
        whole,
        parts.merged(both),
        decode(of_values, window_us).merged(both),
        merged_records(of_values, np.arange(n), window_us, both),
        merged_records(encode_stats(window_us, parts), np.arange(n), window_us, both),
    ):
        assert close(found.sum[0], exact, size)
        assert close(found.mean[0], exact / len(flat), size / len(flat))
        assert found.min[0] <= found.mean[0] <= found.max[0]
        assert found.min[0] <= found.p50[0] <= found.max[0]


def test_the_mean_of_the_largest_numbers_is_one_of_them() -> None:
    def check(values: list[float], mean: float, total: float) -> None:
        found = stats([values])
        assert (found.mean[0], found.sum[0]) == (mean, total)
        one_by_one = stats([[value] for value in values]).merged(np.array([0, len(values)]))
        assert (one_by_one.mean[0], one_by_one.sum[0]) == (pytest.approx(mean, abs=1e293), pytest.approx(total, abs=1e293))

    check([1.7e308, 1.7e308], 1.7e308, math.inf)
    check([LARGEST] * 3, LARGEST, math.inf)
    check([1.7e308, 1.7e308, -1.7e308], math.fsum([1.7e308, -1.7e308, 1.7e308]) / 3, 1.7e308)
    check([1.7e308, -1.7e308], 0.0, 0.0)
    check([-1.7e308, -1.7e308, 1.7e308, 1.7e308], 0.0, 0.0)
    assert stats([[1.7e308] * 4]).stddev()[0] == 0.0
    assert stats([[-1.7e308, 1.7e308]]).p50[0] == 0.0
