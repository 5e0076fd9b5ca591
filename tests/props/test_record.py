"""Rollup records: what is written is read, in whichever form it was shorter."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.rollup import decoded, plain
from reference.rollup import merged as reference
from widerow.codec.record import STATISTICS, VALUES, decode, encode_stats, encode_values, merged
from widerow.codec.stats import COLUMNS, Stats
from widerow.model.arrays import Floats, Ints
from widerow.model.errors import Corrupt
from widerow.model.names import Names

finite = st.floats(allow_nan=False, allow_infinity=False)
decimal = st.integers(-(10**9), 10**9).map(lambda i: i / 100)
groups = st.lists(
    st.tuples(
        st.integers(0, 2**50),
        st.lists(st.tuples(st.integers(0, 60_000_000), finite | decimal | st.just(-0.0)), min_size=1, max_size=60),
    ),
    max_size=5,
)


def columns(groups: list[tuple[int, list[tuple[int, float]]]]) -> tuple[np.ndarray, ...]:
    reports = [[(window + at, value) for at, value in sorted(rows)] for window, rows in groups]
    flat = [report for rows in reports for report in rows]
    return (
        np.array([window for window, _ in groups], np.int64),
        np.array([at for at, _ in flat], np.int64),
        np.array([value for _, value in flat], np.float64),
        np.cumsum([0, *map(len, reports)]),
    )


def encoded(window_us: Ints, time_us: Ints, values: Floats, offsets: Ints) -> Names:
    return encode_values(window_us, time_us[offsets[:-1]], time_us[offsets[1:] - 1], values, offsets)


def bits(found: Stats) -> list[bytes]:
    return [c.tobytes() for c in (*found.columns(), found.sketch.offsets, found.sketch.bins, found.sketch.counts)]


@given(groups)
def test_records_of_values_and_of_statistics_say_the_same_bit_for_bit(
    groups: list[tuple[int, list[tuple[int, float]]]],
) -> None:
    window_us, time_us, values, offsets = columns(groups)
    want = Stats.of(time_us, values, offsets)
    short, long = encoded(window_us, time_us, values, offsets), encode_stats(window_us, want)
    assert bits(decode(short, window_us)) == bits(want)
    assert bits(decode(long, window_us)) == bits(want)
    assert (np.diff(short.offsets) <= np.diff(long.offsets)).all()


@given(groups)
def test_without_sketches_a_record_says_the_same_of_itself(groups: list[tuple[int, list[tuple[int, float]]]]) -> None:
    window_us, time_us, values, offsets = columns(groups)
    want, n = Stats.of(time_us, values, offsets), len(window_us)
    for records in (encoded(window_us, time_us, values, offsets), encode_stats(window_us, want)):
        alone = merged(records, np.arange(n), window_us, np.arange(n + 1), sketches=False)
        assert [c.tobytes() for c in alone.columns()] == [c.tobytes() for c in want.columns()]
        assert len(alone.sketch) == n
        assert not len(alone.sketch.bins)
        if n > 1:
            several = [
                merged(records, np.arange(n), window_us, np.array([0, n]), sketches=wanted) for wanted in (False, True)
            ]
            assert bits(several[0]) == bits(several[1]), "what is merged needs them"


def said(found: Stats) -> list[Any]:
    """As the reference has it, to be compared bit for bit."""
    sketch, out = found.sketch, []
    for i in range(len(found)):
        which = slice(int(sketch.offsets[i]), int(sketch.offsets[i + 1]))
        bins = dict(zip(sketch.bins[which].tolist(), sketch.counts[which].tolist(), strict=True))
        out.append(plain([*(column[i].item() for column in found.columns()), bins]).bits())
    return out


@given(groups, st.randoms())
def test_merging_records_says_what_the_reference_says_bit_for_bit(
    groups: list[tuple[int, list[tuple[int, float]]]], random: Random
) -> None:
    window_us, time_us, values, offsets = columns(groups)
    kept, summed = encoded(window_us, time_us, values, offsets), encode_stats(window_us, Stats.of(time_us, values, offsets))
    n = len(groups)
    records = Names.of_bytes([*kept.to_bytes_list(), *summed.to_bytes_list()])
    which = np.array([i + random.choice([0, n]) for i in range(n)], np.int64)  # either form, as a mix
    cuts = np.array(sorted({0, n, *(random.randint(0, n) for _ in range(3))}))
    found = merged(records, which, window_us, cuts)
    parts = [decoded(records.bytes_at(w), int(begin)) for w, begin in zip(which, window_us, strict=True)]
    assert said(found) == [reference(parts[a:b]).bits() for a, b in pairwise(cuts.tolist())]
    assert bits(found) == bits(decode(records.take(which), window_us).merged(cuts))
    quick = merged(records, which, window_us, cuts, quantiles=False)
    for name in COLUMNS:
        if name in ("p50", "p95", "p99"):
            assert np.isnan(getattr(quick, name)).all()
        else:
            assert getattr(quick, name).tobytes() == getattr(found, name).tobytes()
    assert len(quick.sketch.bins) == 0
    assert (
        bits(quick.merged(np.array([0, len(quick)])) if n else quick)[:11]
        == (bits(found.merged(np.array([0, len(found)])) if n else found)[:11])
    )


def test_few_values_are_kept_and_many_are_summed_up() -> None:
    def form(values: list[float]) -> tuple[int, int]:
        n = len(values)
        made = encoded(np.array([0]), np.arange(n) * 10**6, np.array(values), np.array([0, n])).bytes_at(0)
        return made[0], len(made)

    kind, size = form([21.5, 21.6, 21.4, 21.5, 21.7, 21.5])
    assert (kind, size <= 16) == (VALUES, True)
    assert form([float(np.pi * i) for i in range(6)])[0] == VALUES
    assert form([float(np.sqrt(i)) for i in range(600)])[0] == STATISTICS


@given(st.lists(st.binary(max_size=40), max_size=3), st.sampled_from([VALUES, STATISTICS]), st.binary(max_size=40))
def test_other_bytes_are_refused_or_read_but_never_beyond_their_end(parts: list[bytes], kind: int, tail: bytes) -> None:
    with suppress(Corrupt):
        decode(Names.of_bytes([*parts, bytes([kind]) + tail]), np.zeros(len(parts) + 1, np.int64))


def test_a_record_that_breaks_off_is_refused() -> None:
    times, values, offsets = np.arange(3), np.array([1.5, 2.5, np.pi]), np.array([0, 3])
    for made in (
        encoded(np.array([0]), times, values, offsets).bytes_at(0),
        encode_stats(np.array([0]), Stats.of(times, values, offsets)).bytes_at(0),
    ):
        for cut in range(len(made)):
            with pytest.raises(Corrupt):
                decode(Names.of_bytes([made[:cut]]), np.zeros(1, np.int64))


def test_the_stored_bytes_never_change() -> None:
    def check(values: list[float], want: str) -> None:
        n = len(values)
        made = encoded(np.array([60 * 10**6]), np.arange(60, 60 + n) * 10**6, np.array(values), np.array([0, n]))
        assert made.bytes_at(0).hex() == want

    check([21.5, 21.25, -3.0], "01820300d00fcc2131f125")
    check([float(np.pi)], "018f010000182d4454fb210940")
