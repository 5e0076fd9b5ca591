"""States of texts against plain Python, and their records."""

from __future__ import annotations

from contextlib import suppress
from itertools import accumulate, pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.rollup import merged_states, said_by_states, states_of
from widerow.codec.record import BOTH, TEXTS, decode, encode_stats, forms_of, has_numbers, has_texts
from widerow.codec.states import States, no_states, stacked
from widerow.codec.stats import Stats
from widerow.codec.text_record import decode_states, encode_states, together
from widerow.model.errors import Corrupt
from widerow.model.names import Coded, Names

texts = (
    st.sampled_from(["on", "off", "", "ü", "on and on"])
    | st.integers(0, 99).map(str)
    | st.integers(1, 4).map(lambda i: "x" * 1000 * i)
)
times = st.integers(0, 10**6) | st.integers(0, 1000).map(lambda ms: ms * 1000)
Reports = list[tuple[int, str]]
groups = st.lists(st.lists(st.tuples(times, texts), min_size=1, max_size=100), min_size=1, max_size=4).map(
    lambda parts: [sorted((at + i * 10**6, text) for at, text in part) for i, part in enumerate(parts)]
)
"""Texts with their times, in windows of a second, one after the other."""


def states(groups: list[Reports]) -> States:
    flat = [report for group in groups for report in group]
    offsets = np.array(list(accumulate(map(len, groups), initial=0)))
    return States.of(np.array([at for at, _ in flat], np.int64), Coded.of([text for _, text in flat]), offsets)


def window_us(n: int) -> np.ndarray:
    return np.arange(n) * 10**6


def encoded(groups: list[Reports]) -> Names:
    return encode_states(window_us(len(groups)), states(groups))


@given(groups)
def test_states_are_those_of_the_reference(groups: list[Reports]) -> None:
    assert said_by_states(states(groups)) == [states_of(group) for group in groups]


@given(groups, st.randoms())
def test_merging_says_what_the_reference_says(groups: list[Reports], random: Random) -> None:
    n = len(groups)
    cuts = sorted({0, n, *(random.randint(0, n) for _ in range(2))})
    want = [merged_states([states_of(group) for group in groups[a:b]]) for a, b in pairwise(cuts)]
    assert said_by_states(states(groups).merged(np.array(cuts))) == want
    for merged in want:
        assert merged.count == sum(count for count, _ in merged.values.values()) + merged.others[0]
        assert merged.last_us - merged.first_us == sum(us for _, us in merged.values.values()) + merged.others[1]
    apart = stacked([states([group]) for group in groups])
    assert said_by_states(apart) == [states_of(group) for group in groups]
    assert said_by_states(apart.merged(np.array(cuts))) == want
    turned = np.arange(n)[::-1]
    assert said_by_states(apart.take(turned)) == said_by_states(apart)[::-1]


@given(groups)
def test_bytes_give_the_states_back(groups: list[Reports]) -> None:
    n, records = len(groups), encoded(groups)
    assert said_by_states(decode_states(records, np.arange(n), window_us(n))) == [states_of(group) for group in groups]
    assert encode_states(window_us(n), decode_states(records, np.arange(n), window_us(n))).to_bytes_list() == (
        records.to_bytes_list()
    )


@given(groups, st.randoms())
def test_numbers_and_texts_stand_in_one_record(groups: list[Reports], random: Random) -> None:
    n, records = len(groups), encoded(groups)
    stats = Stats.of(window_us(n), np.arange(n) / 4, np.arange(n + 1))
    numbers = encode_stats(window_us(n), stats)
    kinds = [random.choice(["number", "text", "both"]) for _ in range(n)]
    of_numbers = np.array([i for i, kind in enumerate(kinds) if kind != "text"], np.int64)
    of_texts = np.array([i for i, kind in enumerate(kinds) if kind != "number"], np.int64)
    made = together(n, numbers.take(of_numbers), of_numbers, records.take(of_texts), of_texts)
    forms = forms_of(made, np.arange(n))
    assert (np.flatnonzero(has_numbers(forms)).tolist(), np.flatnonzero(has_texts(forms)).tolist()) == (
        of_numbers.tolist(),
        of_texts.tolist(),
    )
    assert said_by_states(decode_states(made, of_texts, window_us(n)[of_texts])) == [states_of(groups[i]) for i in of_texts]
    assert decode(made.take(of_numbers), window_us(n)[of_numbers]).sum.tolist() == stats.sum[of_numbers].tolist()
    for i, kind in enumerate(kinds):
        assert forms[i] == {"number": 2, "text": TEXTS, "both": BOTH}[kind]


def test_a_state_lasts_until_the_next_report_also_of_the_next_window() -> None:
    merged = states([[(0, "on"), (10, "off"), (40, "on")], [(100, "off")], [(150, "off"), (160, "on")]]).merged(
        np.array([0, 3])
    )
    (found,) = said_by_states(merged)
    assert found.values == {"off": (3, 30 + 50 + 10), "on": (3, 10 + 60)}
    assert (found.first, found.last, found.count) == ("on", "on", 6)


def test_the_first_and_the_last_are_kept_and_of_others_the_most_frequent() -> None:
    reports = [(0, "first"), *((1 + i, f"{i % 80:02}") for i in range(100)), (200, "the last")]
    (found,) = said_by_states(states([reports]))
    assert len(found.values) == 64
    assert {"first", "the last", *(f"{i:02}" for i in range(20))} <= found.values.keys()
    assert found.others == (18, 18), "the last 18 of those that came once, in the order of their bytes"
    long = [(0, "a" * 9000), (1, "b" * 3000), (2, "c" * 3000), (3, "d"), (4, "e" * 9000)]
    assert [text[0] for text in said_by_states(states([long]))[0].values] == ["a", "b", "e"]


def test_a_group_without_texts_is_refused() -> None:
    with pytest.raises(ValueError, match="without texts"):
        States.of(np.zeros(1, np.int64), Coded.of(["a"]), np.array([0, 1, 1]))
    with pytest.raises(ValueError, match="without states"):
        states([[(0, "a")]]).merged(np.array([0, 1, 1]))
    assert len(no_states()) == 0


@given(st.lists(st.binary(max_size=40), max_size=3), st.sampled_from([TEXTS, BOTH]), st.binary(max_size=40))
def test_other_bytes_are_refused_or_read_but_never_beyond_their_end(parts: list[bytes], form: int, tail: bytes) -> None:
    stored = Names.of_bytes([*parts, bytes([form]) + tail])
    n = len(stored)
    with suppress(Corrupt):
        decode_states(stored, np.arange(n), np.zeros(n, np.int64))
    with suppress(Corrupt):
        decode(stored, np.zeros(n, np.int64))


def test_a_record_that_breaks_off_or_is_of_another_kind_is_refused() -> None:
    alone = encoded([[(0, "on"), (500, "off")]])
    numbers = encode_stats(np.zeros(1, np.int64), Stats.of(np.zeros(1, np.int64), np.ones(1), np.array([0, 1])))
    one = np.zeros(1, np.int64)
    for made in (alone, together(1, numbers, one, alone, one)):
        whole = made.bytes_at(0)
        for cut in range(len(whole)):
            with pytest.raises(Corrupt):
                decode_states(Names.of_bytes([whole[:cut]]), one, one)
        with pytest.raises(Corrupt):
            decode_states(Names.of_bytes([whole + b"\0"]), one, one)
    with pytest.raises(Corrupt):
        decode_states(numbers, one, one)
    with pytest.raises(Corrupt):
        decode(alone, one)


def test_the_stored_bytes_never_change() -> None:
    alone = encoded([[(0, "on"), (500_000, "off"), (501_000, "off")]])
    assert alone.bytes_at(0).hex() == "03800300f5030000020100036f66660201026f6e01f403"
    numbers, one = "01820300d00fcc2131f125", np.zeros(1, np.int64)
    made = together(1, Names.of_bytes([bytes.fromhex(numbers)]), one, alone, one)
    assert made.bytes_at(0).hex() == "0400060b" + numbers + alone.bytes_at(0).hex()
