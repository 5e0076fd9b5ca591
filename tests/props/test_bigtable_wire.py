"""What kernels write, Google's generated classes read; and what those write, kernels read."""

from __future__ import annotations

from contextlib import suppress
from struct import pack, unpack
from typing import Any

import numpy as np
import pytest
from google.cloud.bigtable_v2 import types as bigtable
from hypothesis import given
from hypothesis import strategies as st

from widerow.engine.bigtable import mutations
from widerow.engine.bigtable.answers import Page, read_page
from widerow.engine.bigtable.cells import decode
from widerow.engine.bigtable.families import EXPIRES, KEPT, NAMES
from widerow.engine.bigtable.keys import TableKeys
from widerow.engine.bigtable.mutations import DEFAULT_S, NEVER_S, encode_cells, encode_deletions, requests
from widerow.engine.contract import Fragment, Tag, rows_from
from widerow.engine.contract.tables import SPARSE
from widerow.model.errors import Corrupt
from widerow.model.names import Names

pytestmark = pytest.mark.rest  # Bigtable's kernels take half a minute to compile


texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.floats(allow_nan=False) | texts | st.binary(max_size=200)
shapes = st.dictionaries(texts, values, max_size=5)
keys = st.binary(min_size=1, max_size=300)
versions = st.integers(0, 2**53 // 1000).map(lambda ms: ms * 1000)
expiries = st.sampled_from([DEFAULT_S, NEVER_S, 0, 1_800_000_000])


def request_of(entries: Names) -> Any:
    return bigtable.MutateRowsRequest.deserialize(entries.data[entries.offsets[0] : entries.offsets[-1]].tobytes())


def expected(shape: dict[str, Any], version_us: int, expire_s: int, *, kept: bool) -> list[tuple[str, bytes, int, bytes]]:
    out = []
    for name, value in shape.items():
        family = "readings" if isinstance(value, float) else "logs" if isinstance(value, str) else "stats"
        stored = pack(">d", value) if isinstance(value, float) else value.encode() if isinstance(value, str) else value
        cells = [(family, name.encode(), stored)]
        if expire_s != DEFAULT_S:
            life = b"never" if expire_s == NEVER_S else str(expire_s).encode()
            cells.append((EXPIRES, f"{family}:{name}".encode(), life))
        for where, qualifier, content in cells:
            place = (KEPT, f"{where}:".encode() + qualifier) if kept else (where, qualifier)
            out.append((*place, version_us, content))
    return out


@given(st.lists(st.tuples(keys, shapes, versions, expiries), max_size=6), st.booleans())
def test_cells_are_what_the_generated_classes_read(rows: list[tuple[bytes, dict[str, Any], int, int]], kept: bool) -> None:
    columns = rows_from(SPARSE, [Fragment(("a", 0, i), shape, version) for i, (_, shape, version, _) in enumerate(rows)])
    expire_s = np.array([row[3] for row in rows], np.int64)
    row_keys = Names.of_bytes([row[0] for row in rows])
    entries, counts = encode_cells(row_keys, columns.version_us, expire_s, columns.cells, kept=kept)
    got = request_of(entries)
    assert [entry.row_key for entry in got.entries] == [row[0] for row in rows]
    for entry, (_, shape, version, expire), count in zip(got.entries, rows, counts.tolist(), strict=True):
        cells = [m.set_cell for m in entry.mutations]
        found = [(c.family_name, c.column_qualifier, c.timestamp_micros, c.value) for c in cells]
        assert found == expected(shape, version, expire, kept=kept)
        assert len(found) == count


@given(
    st.lists(st.tuples(keys, st.lists(st.tuples(st.integers(0, len(NAMES) - 1), texts), min_size=1, max_size=5)), max_size=5)
)
def test_deletions_are_what_the_generated_classes_read(rows: list[tuple[bytes, list[tuple[int, str]]]]) -> None:
    flat = [cell for _, cells in rows for cell in cells]
    names = sorted({name for _, name in flat})
    entries, _ = encode_deletions(
        Names.of_bytes([key for key, _ in rows]),
        np.cumsum([0, *(len(cells) for _, cells in rows)]),
        np.array([family for family, _ in flat], np.int64),
        np.array([names.index(name) for _, name in flat], np.int32),
        Names.of(names),
        5_000,
    )
    found = [
        (entry.row_key, [(m.delete_from_column.family_name, m.delete_from_column.column_qualifier) for m in entry.mutations])
        for entry in request_of(entries).entries
    ]
    assert found == [(key, [(NAMES[family], name.encode()) for family, name in cells]) for key, cells in rows]
    for entry in request_of(entries).entries:
        assert {m.delete_from_column.time_range.end_timestamp_micros for m in entry.mutations} == {5_000}


def test_requests_are_cut_by_bytes_and_by_mutations(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(sizes: list[int], counts: list[int], want: list[int]) -> None:
        entries = Names.of_bytes([bytes(size) for size in sizes])
        assert [len(part) for part in requests(entries, np.array(counts))] == want

    monkeypatch.setattr(mutations, "REQUEST_BYTES", 100)
    monkeypatch.setattr(mutations, "MAX_MUTATIONS", 10)
    check([], [], [])
    check([40, 40, 40], [1, 1, 1], [2, 1])
    check([400, 40, 400], [1, 1, 1], [1, 1, 1])
    check([1, 1, 1, 1], [5, 5, 5, 11], [2, 1, 1])


cells_of_rows = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=9),
        st.lists(
            st.tuples(st.sampled_from([*NAMES, "strange"]), st.binary(max_size=9), versions, st.binary(max_size=40)),
            min_size=1,
            max_size=5,
        ),
    ),
    max_size=5,
)
Chunk = bigtable.ReadRowsResponse.CellChunk


def chunks_of(rows: list[Any], data: st.DataObject) -> list[Any]:
    """The rows as a server may send them: names left out where they repeat, values cut, rows taken back."""
    out: list[Any] = []
    for key, cells in rows:
        if data.draw(st.integers(0, 9)) == 0:
            out += [Chunk(row_key=key, family_name="logs", qualifier=b"lost", value=b"x"), Chunk(reset_row=True)]
        for i, (family, qualifier, timestamp, value) in enumerate(cells):
            chunk = Chunk(timestamp_micros=timestamp, value=value)
            if i == 0 or data.draw(st.booleans()):
                chunk.row_key = key
            if i == 0 or cells[i - 1][:2] != (family, qualifier) or data.draw(st.booleans()):
                chunk.family_name, chunk.qualifier = family, qualifier
            out.append(chunk)
            if value and data.draw(st.integers(0, 9)) == 0:
                cut = data.draw(st.integers(0, len(value)))
                chunk.value, chunk.value_size = value[:cut], len(value)
                out.append(Chunk(value=value[cut:]))
        out[-1].commit_row = True
    return out


def plain(page: Page) -> list[Any]:
    found = page.values(np.arange(len(page.family)))
    names = [*NAMES, "strange"]
    rows = []
    for i, key in enumerate(page.keys.to_bytes_list()):
        cells = range(int(page.offsets[i]), int(page.offsets[i + 1]))
        qualifiers = [page.qualifiers.bytes_at(int(page.qualifier[c])) for c in cells]
        rows.append((key, [
            (names[int(page.family[c])], qualifier, int(page.timestamp_us[c]), found[c])
            for c, qualifier in zip(cells, qualifiers, strict=True)
        ]))  # fmt: skip
    return rows


@given(cells_of_rows, st.data())
def test_answers_are_read_as_the_generated_classes_wrote_them(rows: list[Any], data: st.DataObject) -> None:
    chunks = chunks_of(rows, data)
    cut = data.draw(st.integers(0, len(chunks)))
    parts = [bigtable.ReadRowsResponse(chunks=some) for some in (chunks[:cut], chunks[cut:])]
    parts.insert(1, bigtable.ReadRowsResponse(last_scanned_row_key=b"key"))
    answer = b"".join(bigtable.ReadRowsResponse.serialize(part) for part in parts)
    assert plain(read_page(answer)) == rows


@given(cells_of_rows, st.data())
def test_an_answer_that_breaks_off_is_refused_or_ends_with_a_row(rows: list[Any], data: st.DataObject) -> None:
    chunks = chunks_of(rows, data)
    answer = bigtable.ReadRowsResponse.serialize(bigtable.ReadRowsResponse(chunks=chunks))
    with suppress(Corrupt):
        found = plain(read_page(answer[: data.draw(st.integers(0, len(answer)))]))
        assert found == rows[: len(found)]


@given(st.binary(max_size=60))
def test_no_bytes_make_the_reader_read_beyond_them(noise: bytes) -> None:
    with suppress(Corrupt):
        page = read_page(noise)
        assert all(start + size <= len(noise) for start, size in zip(page.value, page.value_bytes, strict=True))


def test_a_tag_is_a_cell_of_its_family() -> None:
    columns = rows_from(SPARSE, [Fragment(("a", 0, 1), {Tag("site"): "x", "t": 1.5}, 1000)])
    entries, _ = encode_cells(Names.of(("k",)), columns.version_us, np.array([DEFAULT_S]), columns.cells, kept=False)
    tag, value = (m.set_cell for m in request_of(entries).entries[0].mutations)
    assert (tag.family_name, tag.column_qualifier, tag.value) == ("tags", b"site", b"x")
    assert unpack(">d", value.value) == (1.5,)


@given(
    st.permutations(
        [("readings", b"b", pack(">d", 1.5)), ("logs", b"a", b"x"), ("tags", b"site", b"s"), ("stats", b"r", b"r")]
    )
)
def test_cells_come_in_one_order_whatever_the_order_of_the_families(cells: list[tuple[str, bytes, bytes]]) -> None:
    keys = TableKeys(SPARSE)
    chunks = [
        Chunk(row_key=keys.row_key(("a", 0, row)), family_name=family, qualifier=name, timestamp_micros=1000, value=value)
        for row in (1, 2)
        for family, name, value in cells
    ]
    chunks[3].commit_row = chunks[7].commit_row = True
    page = read_page(bigtable.ReadRowsResponse.serialize(bigtable.ReadRowsResponse(chunks=chunks)))
    rows = decode(keys, page, now_us=0, columns=None).rows
    assert [rows.cells.names[int(code)] for code in rows.cells.name] == ["b", "a", "site", "r"] * 2
