"""Sketches against an implementation that is not ours, and their laws."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
from ddsketch import DDSketch
from ddsketch.mapping import CubicallyInterpolatedMapping
from ddsketch.store import DenseStore
from hypothesis import given
from hypothesis import strategies as st

from widerow.codec.sketch import RELATIVE_ERROR, Sketches, bins_of, no_sketches, stacked, values_of
from widerow.model.errors import Corrupt
from widerow.model.names import Names

finite = st.floats(allow_nan=False, allow_infinity=False)
usual = st.floats(min_value=-1e9, max_value=1e9).filter(lambda x: x == 0 or abs(x) > 1e-9)
groups = st.lists(st.lists(usual, max_size=80), max_size=6)


def sketches(groups: list[list[float]]) -> Sketches:
    values = np.array([v for group in groups for v in group], np.float64)
    return Sketches.of(values, np.cumsum([0, *(len(group) for group in groups)]))


def plain(found: Sketches) -> list[dict[int, int]]:
    cuts = found.offsets.tolist()
    pairs = list(zip(found.bins.tolist(), found.counts.tolist(), strict=True))
    return [dict(pairs[a:b]) for a, b in pairwise(cuts)]


@given(st.lists(finite, min_size=1, max_size=50))
def test_a_bin_tells_its_values_to_within_the_error_and_keeps_their_order(values: list[float]) -> None:
    values.sort()
    bins = bins_of(np.array(values))
    assert (np.diff(bins) >= 0).all()
    for value, shown in zip(values, values_of(bins).tolist(), strict=True):
        # Below 1e-300 a float itself is less exact than the bins.
        assert abs(shown - value) <= RELATIVE_ERROR * abs(value) * (1 + 1e-9) or abs(value) < 1e-300


@given(st.lists(usual.filter(bool), min_size=1, max_size=50))
def test_bins_are_those_of_the_reference(values: list[float]) -> None:
    mapping = CubicallyInterpolatedMapping(RELATIVE_ERROR)
    for value, found in zip(values, bins_of(np.array(values)).tolist(), strict=True):
        want = mapping.key(abs(value)) + (1 << 16)
        assert abs(found) in (want, want + 1, want - 1)  # a border may be rounded to either side
        assert math.copysign(1, found) == math.copysign(1, value)
    exact = sum(
        abs(found) == mapping.key(abs(value)) + (1 << 16)
        for value, found in zip(values, bins_of(np.array(values)).tolist(), strict=True)
    )
    assert exact >= len(values) - 1


@given(st.lists(usual, min_size=1, max_size=200), st.sampled_from([0.0, 0.01, 0.5, 0.95, 0.99, 1.0]))
def test_quantiles_are_as_exact_as_those_of_the_reference(values: list[float], q: float) -> None:
    mine = float(sketches([values]).quantiles(q)[0])
    theirs = DDSketch(RELATIVE_ERROR)
    for value in values:
        theirs.add(value)
    exact = sorted(values)[int(q * (len(values) - 1))]
    assert abs(mine - exact) <= RELATIVE_ERROR * abs(exact) * (1 + 1e-9)
    reference = theirs.get_quantile_value(q)
    assert reference is not None
    assert abs(mine - reference) <= 2.1 * RELATIVE_ERROR * abs(exact) + 1e-12


@given(groups, st.randoms())
def test_merging_is_counting_and_the_same_in_any_order(groups: list[list[float]], random: object) -> None:
    everything = [v for group in groups for v in group]
    want = plain(sketches([everything]))
    parts = sketches(groups)
    assert plain(parts.merged(np.array([0, len(groups)]))) == want
    shuffled = list(range(len(groups)))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    turned = parts.take(np.array(shuffled, np.int64))
    cut = len(groups) // 2
    halves = turned.merged(np.array([0, cut, len(groups)]))
    assert plain(halves.merged(np.array([0, 2]))) == want
    assert plain(stacked([parts, parts]).merged(np.array([0, 2 * len(groups)]))) == [{b: 2 * c for b, c in want[0].items()}]


@given(st.lists(st.lists(finite, max_size=80), max_size=6))
def test_bytes_give_the_sketch_back(groups: list[list[float]]) -> None:
    made = sketches(groups)
    assert plain(Sketches.decode(made.encode())) == plain(made)


@given(st.lists(st.binary(max_size=30), max_size=4), st.binary(max_size=12))
def test_other_bytes_are_refused_or_read_but_never_beyond_their_end(parts: list[bytes], tail: bytes) -> None:
    with suppress(Corrupt):
        Sketches.decode(Names.of_bytes([*parts, b"\x01" + tail]))
    made = sketches([[1.0, 2.0, 3.0]]).encode().bytes_at(0)
    for cut in range(len(made)):
        with pytest.raises(Corrupt):
            Sketches.decode(Names.of_bytes([made[:cut]]))
    with pytest.raises(Corrupt):
        Sketches.decode(Names.of_bytes([made + b"\0"]))


GOLDEN = "0104dd800801af80040180800402e90101"


def test_the_stored_bytes_never_change() -> None:
    made = sketches([[1.0, 1.0, -2.5, 0.0, 100.0], []]).encode()
    assert made.to_bytes_list() == [bytes.fromhex(GOLDEN), b"\x01\x00"]


def test_the_quantile_of_nothing_is_no_number() -> None:
    assert np.isnan(no_sketches(2).quantiles(0.5)).all()
    with pytest.raises(ValueError, match="0 to 1"):
        no_sketches(1).quantiles(1.5)


def test_a_dense_store_of_the_reference_has_the_same_counts() -> None:
    values = np.random.default_rng(3).lognormal(3, 2, 5000)
    store, mapping = DenseStore(), CubicallyInterpolatedMapping(RELATIVE_ERROR)
    for value in values.tolist():
        store.add(mapping.key(value))
    found = plain(Sketches.of(values, np.array([0, len(values)])))[0]
    want = {key + store.offset + (1 << 16): int(count) for key, count in enumerate(store.bins) if count}
    differing = sum(abs(want.get(b, 0) - found.get(b, 0)) for b in want.keys() | found.keys())
    assert differing <= 2, "borders may be rounded, nothing else"
