"""Columns of text, and tables of names."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.model.combine import byte_order, stacked, united
from widerow.model.hashing import hash_names
from widerow.model.intern import NameTable
from widerow.model.names import Coded, Names

texts = st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40), max_size=30)


@given(texts)
def test_names_read_back(many: list[str]) -> None:
    names = Names.of(many)
    assert names.to_list() == many
    assert [names[i] for i in range(len(names))] == many


@given(texts)
def test_taking_names_gives_them_in_the_order_asked(many: list[str]) -> None:
    codes = np.array([i for i in range(len(many)) for _ in range(2)][::-1], np.int32)
    assert Names.of(many).take(codes).to_list() == [many[i] for i in codes]


@given(texts, st.integers(0, 30), st.integers(0, 30))
def test_names_between_two_places_are_a_list_of_their_own(many: list[str], a: int, b: int) -> None:
    first, last = sorted((min(a, len(many)), min(b, len(many))))
    assert Names.of(many).between(first, last).to_list() == many[first:last]


@pytest.mark.parametrize("repeats", [1, 300])  # few names are sorted in Python, many as words
@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"", b"a", b"a\0", b"press-1", b"press-10"]), max_size=30))
def test_the_order_of_bytes_has_each_name_once(repeats: int, many: list[bytes]) -> None:
    many = many * repeats
    order, rank = byte_order(Names.of_bytes(many))
    assert [many[i] for i in order] == sorted(set(many))
    assert [many[order[place]] for place in rank] == many


def test_columns_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Names.of(["a"]).data[0] = 1
    with pytest.raises(ValueError, match="spare"):
        Names(np.zeros(3, np.uint8), np.array([0, 3]))


@given(st.lists(texts.filter(bool), min_size=1, max_size=4))
def test_combined_columns_keep_every_row(parts: list[list[str]]) -> None:
    columns = [Coded.of(p) for p in parts]
    want = [text for p in parts for text in p]
    assert stacked(columns).to_list() == want
    one = united(columns)
    assert one.to_list() == want
    assert len(set(one.names)) == len(one.names)


@given(texts)
def test_a_table_gives_equal_names_equal_ids(many: list[str]) -> None:
    table = NameTable(100)
    ids = table.add(Names.of(many)).tolist()
    first: dict[str, int] = {}
    assert ids == [first.setdefault(text, len(first)) for text in many]
    assert table.names().to_list() == list(first)
    assert table.find(Names.of([*many, "nobody\0"])).tolist() == [*ids, -1]


def test_a_table_never_grows_beyond_its_capacity() -> None:
    table = NameTable(1500)
    ids = table.add(Names.of([f"n{i}" for i in range(4000)]))
    assert len(table) == 1500
    assert ids[:1500].tolist() == list(range(1500))
    assert (ids[1500:] == -1).all()


def test_a_table_may_be_filled_by_many_threads() -> None:
    table = NameTable(50_000)
    names = [f"device {i}" for i in range(20_000)]
    results: list[list[int]] = [[] for _ in range(4)]

    def fill(k: int) -> None:
        mine = names[k * 3000 :] + names[: k * 3000]
        for at in range(0, len(mine), 500):
            results[k] += table.add(Names.of(mine[at : at + 500])).tolist()

    threads = [threading.Thread(target=fill, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(table) == len(names)
    stored = table.names().to_list()
    for k, ids in enumerate(results):
        assert [stored[i] for i in ids] == names[k * 3000 :] + names[: k * 3000]


def test_hashes_are_stable_and_do_not_confuse_length_with_content() -> None:
    """The values are part of stored formats."""
    hashes = hash_names(Names.of(["", "a", "temperature", "Conveyor/Batch Qty"]))
    assert [f"{h:016x}" for h in hashes.tolist()] == [
        "9e3779b97f4a7c15",
        "668abdbdec1d57eb",
        "e6578829fc6f5f9d",
        "ce66b0589ed063e8",
    ]
    small = ["".join(chr(b) for b in (x, y)[:n]) for n in range(3) for x in range(8) for y in range(8)]
    assert len(set(hash_names(Names.of(sorted(set(small)))).tolist())) == len(set(small))
