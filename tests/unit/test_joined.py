"""Rows of several parts as one: what each row says stays as it was."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from widerow.engine.rows import Row, Rows, joined, rows_of
from widerow.model.intern import NameTable
from widerow.model.names import Names
from widerow.schema.table import KeyColumn, Table

TABLE = Table("t", partition=(KeyColumn("device"),), clustering=(KeyColumn("at", "int"),), columns=())

names = st.sampled_from(["a", "b", "ä", "long name", ""])
cells = st.dictionaries(st.sampled_from(["x", "y", "z"]), st.one_of(st.floats(-9, 9), names), min_size=1)
parts = st.lists(st.lists(st.tuples(names, st.integers(0, 99), cells), max_size=5), min_size=1, max_size=5)


def read(rows: Rows) -> list[tuple[object, int, Row]]:
    return [(rows.key(TABLE, i), int(rows.version_us[i]), rows.row(i)) for i in range(len(rows))]


@given(parts)
def test_rows_of_all_parts_are_there_in_order(given_parts: list[list[tuple[str, int, Row]]]) -> None:
    made = [
        rows_of(TABLE, [((device, at), row) for device, at, row in part], version_us=1000 * number)
        for number, part in enumerate(given_parts)
    ]
    whole = joined(made)
    assert read(whole) == [row for part in made for row in read(part)]
    assert len(set(whole.cells.names)) == len(whole.cells.names)


def test_parts_that_share_a_dictionary_have_it_once() -> None:
    part = rows_of(TABLE, [(("a", 1), {"x": "long", "y": 1.0}), (("b", 2), {"x": "short"})], version_us=0)
    whole = joined([part, part.take(np.array([1]))])
    assert whole.cells.texts is part.cells.texts
    assert read(whole) == [*read(part), read(part)[1]]


def test_the_names_of_some_ids() -> None:
    table = NameTable(100)
    table.add(Names.of(["a", "", "ä", "a longer one"]))
    assert list(table.at(np.array([3, 1, 2, 3]))) == ["a longer one", "", "ä", "a longer one"]
    assert list(table.at(np.zeros(0, np.int64))) == []
