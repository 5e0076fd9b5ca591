"""Laws of blocks: what is packed is read bit for bit, a part read is the whole cut, and the greatest version wins."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.blocks import Entry, columns_of, entries_of, winners
from widerow.blocks.arrange import Given, of_batch, of_values, to_batch
from widerow.blocks.block import Block, Where, blocks_in, numbers_of
from widerow.blocks.columns import CODED, Columns, Kind
from widerow.blocks.layout import LIMIT, size_of
from widerow.blocks.pack import pack, split
from widerow.model.batch import Report, batch_of, reports_of
from widerow.model.errors import TooLarge
from widerow.model.names import Coded, Names
from widerow.model.times import TimeSpan
from widerow.simulate.fleet import Fleet

NANS = [0x7FF8000000000000, 0x7FF0000000000001, -1, 1, -(1 << 63), 0x7FEFFFFFFFFFFFFF, 1 << 52]
words = st.sampled_from(NANS) | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 3)
doubles = st.integers(-999, 999).map(lambda i: int(np.array(i / 10).view(np.int64)))
word_of: dict[Kind, st.SearchStrategy[int | bytes]] = {
    Kind.NUMBER: doubles | words,
    Kind.INTEGER: words,
    Kind.FLAG: st.integers(0, 1),
    Kind.TEXT: st.sampled_from([b"", b"run", b"stop", "Straße".encode()]),
    Kind.TAG: st.sampled_from([b"run", b"left"]),
    Kind.BYTES: st.binary(max_size=20),
}
devices = st.sampled_from(["a", "a\x00b", "press-7", "Halle 3/Ölpresse", "b"])
names = st.sampled_from(["temperature", "state", "x"])
times = st.integers(0, 4) | st.sampled_from([10**15, (1 << 53) - 1])
versions = st.sampled_from([0, 1000, 2000])


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    kind = draw(st.sampled_from(Kind))
    part = draw(st.sampled_from(["", "", "min", "count"])) if kind != Kind.TAG else ""
    return Entry(draw(devices), draw(times), draw(versions), draw(names), part, kind, draw(word_of[kind]))


some = st.lists(entries(), max_size=30)
encodings = st.booleans()


def read_back(columns: Columns, *, dense: bool) -> list[Entry]:
    blocks = pack(columns, dense=dense, level=3)
    assert all(len(block) <= LIMIT for block in blocks)
    assert all(block.header.level == 3 for block in blocks_in(b"".join(blocks)))
    return [entry for block in blocks for entry in entries_of(Block(block).read())]


@given(some)
def test_columns_hold_the_winners_whatever_the_order_of_values(given: list[Entry]) -> None:
    want = winners(given)
    assert entries_of(columns_of(given)) == want
    assert entries_of(columns_of(reversed(given))) == want


@given(some, encodings)
def test_what_is_packed_is_read_bit_for_bit(given: list[Entry], dense: bool) -> None:
    columns = columns_of(given)
    assert read_back(columns, dense=dense) == entries_of(columns)


LONG: dict[Kind, Callable[[np.random.Generator, int], np.ndarray]] = {
    Kind.NUMBER: lambda chance, n: chance.choice(np.array(NANS, np.int64), n),
    Kind.INTEGER: lambda chance, n: chance.integers(-(1 << 63), 1 << 63, n),
    Kind.FLAG: lambda chance, n: chance.integers(0, 2, n),
}


@given(st.lists(st.sampled_from([1, 20, 700, 1400, 3001, 7000]), min_size=1, max_size=6), st.integers(0, 1000))
def test_long_columns_are_read_bit_for_bit_from_whatever_pages(counts: list[int], seed: int) -> None:
    chance, n = np.random.default_rng(seed), sum(counts)
    device = Coded(Names.of(f"d{i}" for i in range(len(counts))), np.repeat(np.arange(len(counts), dtype=np.int32), counts))
    every = np.arange(n, dtype=np.int32)
    values: list[Given] = [(kind.name, "", kind, every, draw(chance, n)) for kind, draw in LONG.items()]
    decimals = np.round(np.cumsum(chance.normal(size=n)), 1).view(np.int64)
    texts = Coded(Names.of(["run", "stop", "fault"]), chance.integers(0, 3, n).astype(np.int32))
    sparse = every[chance.random(n) < 0.3]
    values += [("decimals", "", Kind.NUMBER, every, decimals), ("state", "", Kind.TEXT, every, texts)]
    values += [("sparse", "", Kind.NUMBER, sparse, decimals[sparse])]
    columns = of_values(device, np.arange(n) * 1000, chance.integers(0, 3, n) * 1000, values)
    at, some = 0, [f"d{i}" for i in range(0, len(counts), 2)]
    for block in map(Block, pack(columns, dense=True)):
        whole = columns.between(at, at := at + block.header.rows).compacted()
        assert bits(block.read()) == bits(whole)
        chosen = np.isin(whole.device_rows(), [i for i, name in enumerate(whole.devices) if name in some])
        assert bits(block.read(some)) == bits(whole.matching(chosen))
    assert at == n


def bits(columns: Columns) -> list[object]:
    """What columns are, byte by byte; names and texts as they are numbered after `compacted`."""
    c = columns.compacted()
    heads = [(head.key, head.rows.tobytes(), head.values.tobytes()) for head in c.heads]
    return [*map(list, (c.devices, c.names, c.texts)), c.time_us.tobytes(), c.version_us.tobytes(), heads]


@given(some, encodings, st.none() | st.lists(devices), st.none() | st.lists(names), st.integers(0, 3), st.booleans())
def test_reading_a_part_is_cutting_the_whole(
    given: list[Entry], dense: bool, of: list[str] | None, metrics: list[str] | None, start: int, spans: bool
) -> None:
    span = TimeSpan(start, start + 2) if spans else None
    columns = columns_of(given)
    want = [
        entry
        for entry in entries_of(columns)
        if (of is None or entry.device in of)
        and (metrics is None or entry.name in metrics)
        and (span is None or span.start_us <= entry.time_us < span.stop_us)
    ]
    for block in pack(columns, dense=dense):
        assert entries_of(Block(block).read(of, metrics, span)) == want


@given(some, encodings, st.floats(-100, 100), st.floats(-100, 100))
def test_rows_are_found_by_the_numbers_in_them(given: list[Entry], dense: bool, low: float, high: float) -> None:
    columns = columns_of(given)
    rows = {
        (head.name, int(row))
        for head in columns.heads
        if head.kind not in CODED and head.part < 0 and columns.names[head.name] == "x"
        for row in head.rows[(numbers_of(head) >= low) & (numbers_of(head) <= high)]
    }
    for block in pack(columns, dense=dense):
        found = Block(block).read(where=Where("x", low, high))
        assert len(found) == len({row for _, row in rows})


@given(some, st.integers(0, 30), st.integers(0, 30))
def test_rows_keep_their_numbers_in_a_view(given: list[Entry], a: int, b: int) -> None:
    columns = columns_of(given)
    first, last = sorted((min(a, len(columns)), min(b, len(columns))))
    view = columns.between(first, last)
    every = np.arange(len(columns))
    assert entries_of(view) == entries_of(columns.matching((every >= first) & (every < last)))
    assert entries_of(view.compacted()) == entries_of(view)
    assert read_back(view, dense=False) == entries_of(view)


@given(some, st.sampled_from([300, 400, 1000]))
def test_pieces_are_within_their_limit_and_together_the_whole(given: list[Entry], limit: int) -> None:
    columns = columns_of(given)
    try:
        pieces = split(columns, limit)
    except TooLarge:
        return
    assert all(size_of(piece) <= limit for piece in pieces)
    assert [entry for piece in pieces for entry in entries_of(piece)] == entries_of(columns)


def test_a_report_that_no_block_can_hold_is_refused() -> None:
    columns = of_batch(batch_of([Report("press-7", 10**15, {"log": "x" * LIMIT}, {})]))
    with pytest.raises(TooLarge, match=r"the report of 'press-7' at 2001-09-09T01:46:40Z takes 262,"):
        pack(columns, dense=False)


@pytest.mark.parametrize("dense", [False, True])
def test_a_name_that_no_block_can_hold_is_refused(dense: bool) -> None:
    columns = of_batch(batch_of([Report("d", time, {"x" * 70_000: 1.0}, {}) for time in range(5)]))
    with pytest.raises(TooLarge):
        pack(columns, dense=dense)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("kinds", [None, ("truck",)])
def test_reports_of_a_fleet_come_back_as_they_were(kinds: tuple[str, ...] | None, dense: bool) -> None:
    fleet = Fleet(5, 40, start_us=1_700_000_000_000_000, kinds=kinds, duplicates=0)
    batch = fleet.made(range(200))
    columns = of_batch(batch)
    want = sorted(reports_of(batch), key=lambda report: (report.device.encode(), report.time_us))
    found = [report for block in pack(columns, dense=dense) for report in reports_of(to_batch(Block(block).read()))]
    assert found == want
