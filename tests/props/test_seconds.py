"""Counts of the seconds of an hour come back as they were, in few bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.codec.seconds import SECONDS, decode_seconds, encode_seconds
from widerow.model.errors import Corrupt

COUNTS = st.one_of(st.integers(0, 3), st.integers(0, 1 << 40))


@given(st.lists(st.tuples(COUNTS, st.integers(1, 900)), max_size=40))
def test_what_was_counted_is_read_again(runs: list[tuple[int, int]]) -> None:
    counts = np.zeros(SECONDS, np.int64)
    at = 0
    for count, run in runs:
        counts[at : at + run] = count
        at += run
    assert decode_seconds(encode_seconds(counts)).tolist() == counts.tolist()


@given(st.binary(max_size=40))
def test_other_bytes_are_refused_or_read_as_an_hour(data: bytes) -> None:
    try:
        counts = decode_seconds(data)
    except Corrupt:
        return
    assert len(counts) == SECONDS


def test_a_second_takes_about_two_bytes_and_a_silent_hour_one() -> None:
    assert len(encode_seconds(np.zeros(SECONDS, np.int64))) == 1
    assert len(encode_seconds(np.full(SECONDS, 250))) < 8
    uneven = np.random.default_rng(7).poisson(1000, SECONDS)
    assert len(encode_seconds(uneven)) <= 2 * SECONDS + 1


def test_an_hour_cut_short_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        decode_seconds(encode_seconds(np.full(SECONDS, 250))[:-1])
    with pytest.raises(ValueError, match="seconds"):
        encode_seconds(np.zeros(60, np.int64))
