"""Laws of merging: the same as a dictionary of cells, whatever the order, the groups and the repeats of its inputs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from props.test_blocks_laws import devices, entries, names
from reference.blocks import Entry, columns_of, entries_of, winners
from widerow.blocks.arrange import of_batch
from widerow.blocks.block import Block
from widerow.blocks.columns import Columns, Kind
from widerow.blocks.merge import Erasure, merge
from widerow.blocks.pack import pack
from widerow.model.batch import Report, batch_of
from widerow.model.times import TimeSpan
from widerow.simulate.fleet import Fleet

inputs = st.lists(st.lists(entries(), max_size=12), max_size=5)
spans = st.integers(0, 4).map(lambda start: TimeSpan(start, start + 2))
marks = st.lists(
    st.builds(Erasure, st.sampled_from([0, 1000, 2000]), st.none() | devices, st.none() | names, st.none() | spans),
    max_size=3,
)


def merged(of: Sequence[Block | Columns], erased: Sequence[Erasure] = (), rows_at_once: int = 3) -> list[Entry]:
    return [entry for columns in merge(of, erased, rows_at_once=rows_at_once) for entry in entries_of(columns)]


def blocks_of(given: Sequence[Sequence[Entry]], *, dense: bool = False) -> list[Block | Columns]:
    return [Block(block) for entries in given for block in pack(columns_of(entries), dense=dense)]


def is_erased(entry: Entry, mark: Erasure) -> bool:
    return (
        entry.version_us <= mark.version_us
        and mark.device in (None, entry.device)
        and (mark.metric is None or (mark.metric == entry.name and entry.kind != Kind.TAG))
        and (mark.span is None or mark.span.start_us <= entry.time_us < mark.span.stop_us)
    )


@given(inputs, marks, st.booleans(), st.sampled_from([1, 3, 1000]))
def test_merging_is_what_a_dictionary_of_cells_does(
    given: list[list[Entry]], erased: list[Erasure], dense: bool, rows_at_once: int
) -> None:
    every = winners(entry for entries in given for entry in entries)
    want = [entry for entry in every if not any(is_erased(entry, mark) for mark in erased)]
    assert merged(blocks_of(given, dense=dense), erased, rows_at_once) == want
    assert merged([columns_of(entries) for entries in given], erased, rows_at_once) == want


@given(inputs, marks, st.randoms(use_true_random=False), st.integers(0, 5))
def test_the_order_the_groups_and_the_repeats_of_inputs_do_not_matter(
    given: list[list[Entry]], erased: list[Erasure], chance: object, cut: int
) -> None:
    blocks = blocks_of(given)
    want = merged(blocks, erased)
    shuffled = [*blocks, *blocks[:cut]]
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert merged(shuffled, erased) == want
    first, second = list(merge(shuffled[:cut])), list(merge(shuffled[cut:], erased))
    assert merged([*second, *first], erased) == want
    assert merged(list(merge(blocks, erased))) == want


@given(inputs)
def test_every_row_that_merging_leaves_has_a_value(given: list[list[Entry]]) -> None:
    for columns in merge(blocks_of(given)):
        rows = {int(row) for head in columns.heads for row in head.rows}
        assert rows == set(range(len(columns)))


def test_a_newer_text_replaces_an_older_number_and_the_rest_of_the_report_stays() -> None:
    old = of_batch(batch_of([Report("d", 1, {"x": 1.0, "y": 2.0}, {"line": "7"}, 1000)]))
    new = of_batch(batch_of([Report("d", 1, {"x": "broken"}, {}, 2000)]))
    for order in ([old, new], [new, old], [old, new, old]):
        (columns,) = merge(order)
        assert columns.version_us.tolist() == [1000, 2000]
        assert [entry[2:4] for entry in entries_of(columns)] == [(1000, "line"), (1000, "y"), (2000, "x")]


def test_merging_takes_memory_for_the_devices_at_hand_not_for_the_inputs() -> None:
    peaks = []
    for count in (40, 160):
        fleet = Fleet(3, count, start_us=1_700_000_000_000_000)
        parts = [fleet.made(range(10 * part, 10 * part + 10)) for part in range(10)]
        packed = [block for part in parts for block in pack(of_batch(part), dense=True)]
        list(merge([Block(block) for block in packed]))  # what is compiled and imported on the way counts for neither
        blocks = [Block(block) for block in packed]
        tracemalloc.start()
        rows = sum(len(columns) for columns in merge(blocks, rows_at_once=2_000))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert rows == sum(block.header.rows for block in blocks)
    assert peaks[1] < 1.5 * peaks[0]


@pytest.mark.parametrize("dense", [False, True])
def test_blocks_in_order_of_arrival_become_those_of_the_whole_fleet(dense: bool) -> None:
    fleet = Fleet(7, 60, start_us=1_700_000_000_000_000)
    blocks = [Block(block) for tick in range(30) for block in pack(of_batch(fleet.batch(tick)), dense=dense)]
    (found,) = merge(blocks)
    cells = [entry for block in blocks for entry in entries_of(block.read())]
    assert entries_of(found) == winners(cells)
    assert np.array_equal(found.offsets[[0, -1]], [0, len(found)])
