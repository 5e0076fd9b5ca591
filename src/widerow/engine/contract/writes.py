"""Laws of writing: which version wins, and what comes back."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from math import inf
from struct import pack

import numpy as np

from widerow.engine.contract.plain import Fragment, Plain, Shape, Tag, logical, refusal, rows_from, sparse_rows, values
from widerow.engine.contract.tables import CONDITIONAL, FIXED, NAMED, SINGLE, SPARSE, START_US, V1, V2, V3, WINDOWED, A
from widerow.engine.port import Engine
from widerow.engine.rows import NEVER, Key, Rows
from widerow.model.batch import Cells
from widerow.model.check import MAX_TEXT_BYTES
from widerow.model.names import Coded, Names
from widerow.model.times import MAX_TIME_US, SECOND


class WriteLaws:
    """Sparse tables keep the greatest version of each cell, fixed tables that of each row."""

    def test_a_written_row_comes_back(self, engine: Engine) -> None:
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), {"t": 1.5, "s": "on"})], version_us=V1))])
        want = {A: [((7,), {"t": (1.5, V1, NEVER), "s": ("on", V1, NEVER)})]}
        assert logical(engine, SPARSE, [A]) == want
        assert logical(engine, SPARSE, None) == want

    def test_nothing_is_where_nothing_was_written(self, engine: Engine) -> None:
        assert logical(engine, SPARSE, [A]) == {}
        assert logical(engine, SPARSE, []) == {}
        assert logical(engine, SPARSE, None) == {}

    def test_writing_twice_changes_nothing(self, engine: Engine) -> None:
        changes = [
            (SPARSE, sparse_rows(SPARSE, [((*A, n), {"t": float(n), Tag("x"): "y"}) for n in range(5)], version_us=V1)),
            (FIXED, sparse_rows(FIXED, [(("a", "n"), {"size": 1.0, "body": "b"})], version_us=V1)),
        ]
        engine.write(changes)
        before = [logical(engine, table, None) for table, _ in changes]
        engine.write(changes)
        assert [logical(engine, table, None) for table, _ in changes] == before

    def test_the_greatest_version_of_a_cell_wins_in_any_order(self, engine: Engine) -> None:
        for n, order in enumerate(permutations([V1, V2, V3])):
            key = (*A, n)
            for version in order:
                cells: Shape = {"both": float(version), f"only_{version}": "x"}
                engine.write([(SPARSE, sparse_rows(SPARSE, [(key, cells)], version_us=version))])
            ((_, row),) = logical(engine, SPARSE, [A], limit=1)[A]
            assert row == {
                "both": (float(V3), V3, NEVER),
                **{f"only_{version}": ("x", version, NEVER) for version in order},
            }

    def test_the_greatest_version_wins_within_one_write(self, engine: Engine) -> None:
        fragments = [Fragment((*A, 7), {"t": float(v)}, v) for v in (V2, V3, V1)]
        engine.write([(SPARSE, rows_from(SPARSE, fragments)), (SPARSE, rows_from(SPARSE, fragments[::-1]))])
        assert logical(engine, SPARSE, [A]) == {A: [((7,), {"t": (float(V3), V3, NEVER)})]}
        rows = [rows_from(FIXED, [Fragment(("a", "n"), {"size": float(v)}, v)]) for v in (V2, V3, V1)]
        engine.write([(FIXED, row) for row in rows])
        assert logical(engine, FIXED, None) == {("a",): [(("n",), {"size": (float(V3), V3, NEVER)})]}

    def test_each_cell_keeps_its_own_version_and_expiry(self, engine: Engine) -> None:
        later = START_US + 60 * SECOND
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), {"a": 1.0, "b": 1.0, "c": 1.0})], version_us=V2))])
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), {"b": 2.0})], version_us=V3, expire_us=later))])
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), {"c": 3.0, "d": 3.0})], version_us=V1))])
        assert logical(engine, SPARSE, [A])[A] == [
            ((7,), {"a": (1.0, V2, NEVER), "b": (2.0, V3, later), "c": (1.0, V2, NEVER), "d": (3.0, V1, NEVER)})
        ]

    def test_what_a_scan_gives_can_be_written_elsewhere_as_it_is(self, engine: Engine) -> None:
        engine.write([(NAMED, sparse_rows(NAMED, [(("x", "r", 1), {"a": 1.0, "b": "b"})], version_us=V1))])
        engine.write([(NAMED, sparse_rows(NAMED, [(("x", "r", 1), {"b": b"\xff\x00"})], version_us=V2))])
        before = logical(engine, NAMED, [("x",)])
        elsewhere = Coded.constant("y", 1)
        for chunk in list(engine.scan(NAMED, None)):
            keys = {**chunk.keys, "owner": elsewhere.take(np.zeros(len(chunk), np.int32))}
            engine.write([(NAMED, replace(chunk, keys=keys))])
        assert logical(engine, NAMED, [("y",)]) == {("y",): before[("x",)]}

    def test_equal_versions_settle_on_one_value_and_keep_it(self, engine: Engine) -> None:
        for value in (1.0, 3.0, 2.0):
            cells: Shape = {"t": value, "u": str(value)}
            engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), cells)], version_us=V1))])
            engine.write([(FIXED, sparse_rows(FIXED, [(("a", "n"), {"size": value, "body": str(value)})], version_us=V1))])
        ((_, row),) = logical(engine, SPARSE, [A])[A]
        assert row["t"].value in (1.0, 2.0, 3.0)
        assert row["u"].value in ("1.0", "2.0", "3.0")
        ((_, fixed),) = logical(engine, FIXED, [("a",)])[("a",)]
        assert str(fixed["size"].value) == fixed["body"].value, "a fixed row is never mixed from two"
        assert logical(engine, SPARSE, None) == {A: [((7,), row)]}
        assert logical(engine, FIXED, None) == {("a",): [(("n",), fixed)]}

    def test_a_cell_given_twice_in_a_row_is_one_cell(self, engine: Engine) -> None:
        row = sparse_rows(SPARSE, [((*A, 7), {"t": 1.0})], version_us=V1)
        twice = Cells.numbers(np.array([0, 2]), Names.of(("t",)), np.zeros(2, np.int32), np.array([1.0, 1.0]))
        engine.write([(SPARSE, replace(row, cells=twice))])
        assert logical(engine, SPARSE, [A]) == {A: [((7,), {"t": (1.0, V1, NEVER)})]}

    def test_values_share_a_name_space_and_tags_have_their_own(self, engine: Engine) -> None:
        def check(key: Key, first: Plain, second: Plain) -> None:
            cells: Shape = {"x": first, Tag("x"): "tag"}
            engine.write([(SINGLE, sparse_rows(SINGLE, [(key, cells)], version_us=V1))])
            engine.write([(SINGLE, sparse_rows(SINGLE, [(key, {"x": second})], version_us=V2))])
            assert values(logical(engine, SINGLE, [key])[key]) == [((), {"x": second, Tag("x"): "tag"})]

        firsts: list[Plain] = [1.0, "text", b"\x00record\xff"]
        seconds: list[Plain] = [2.0, "other", b"", ""]
        for i, first in enumerate(firsts):
            for j, second in enumerate(seconds):
                check((str(i), str(j)), first, second)

    def test_a_fixed_row_is_replaced_as_a_whole_in_any_order(self, engine: Engine) -> None:
        for n, order in enumerate(permutations([V1, V2, V3])):
            for version in order:
                cells: Shape = {"size": float(version)} if version == V3 else {"size": 0.0, "body": "old"}
                engine.write([(FIXED, sparse_rows(FIXED, [(("a", f"n{n}"), cells)], version_us=version))])
        assert logical(engine, FIXED, [("a",)]) == {
            ("a",): [((f"n{n}",), {"size": (float(V3), V3, NEVER)}) for n in range(6)]
        }

    def test_a_fixed_row_has_declared_columns_only(self, engine: Engine) -> None:
        undeclared = sparse_rows(FIXED, [(("a", "n"), {"size": 1.0, "colour": "red"})], version_us=V1)
        assert FIXED.name in refusal(lambda: engine.write([(FIXED, undeclared)]))

    def test_columns_can_be_appended_to_a_fixed_table(self, engine: Engine) -> None:
        engine.write([(FIXED, sparse_rows(FIXED, [(("a", "old"), {"body": "b"})], version_us=V1))])
        wider = replace(FIXED, columns=(*FIXED.columns, "extra"))
        engine.apply([wider])
        engine.write([(wider, sparse_rows(wider, [(("a", "new"), {"extra": 1.0})], version_us=V1))])
        assert values(logical(engine, wider, [("a",)])[("a",)]) == [(("new",), {"extra": 1.0}), (("old",), {"body": "b"})]

    def test_applying_again_changes_nothing(self, engine: Engine) -> None:
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), {"t": 1.0})], version_us=V1))])
        engine.apply([SPARSE, FIXED])
        assert values(logical(engine, SPARSE, [A])[A]) == [((7,), {"t": 1.0})]

    def test_an_unknown_table_is_refused_by_name(self, engine: Engine) -> None:
        unknown = replace(SPARSE, name="contract_unknown")
        row = sparse_rows(unknown, [((*A, 7), {"t": 1.0})], version_us=V1)
        assert "contract_unknown" in refusal(lambda: engine.write([(unknown, row)]))
        assert "contract_unknown" in refusal(lambda: list(engine.scan(unknown, [A])))
        assert "contract_unknown" in refusal(lambda: engine.delete(unknown, [A], version_us=V1))
        nobody = replace(CONDITIONAL, name="contract_unknown")
        assert "contract_unknown" in refusal(lambda: engine.put_if(nobody, ("a", "n"), {"body": "b"}, None))

    def test_a_version_is_whole_milliseconds(self, engine: Engine) -> None:
        row = sparse_rows(SPARSE, [((*A, 7), {"t": 1.0})], version_us=V1 + 1)
        refusal(lambda: engine.write([(SPARSE, row)]))
        assert logical(engine, SPARSE, None) == {}

    def test_versions_may_be_any_time(self, engine: Engine) -> None:
        for n, version in enumerate((0, 1000, MAX_TIME_US - MAX_TIME_US % 1000)):
            engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, -n), {"t": 1.0})], version_us=version))])
            assert logical(engine, SPARSE, [A])[A][n] == ((-n,), {"t": (1.0, version, NEVER)})

    def test_a_write_holds_many_tables_and_all_of_it_is_there(self, engine: Engine) -> None:
        bucket = START_US
        changes = [
            (SPARSE, sparse_rows(SPARSE, [((*A, 1), {"t": 1.0})], version_us=V1)),
            (FIXED, sparse_rows(FIXED, [(("a", "n"), {"body": "b"})], version_us=V1)),
            (SPARSE, sparse_rows(SPARSE, [((*A, 2), {"t": 2.0})], version_us=V1)),
            (WINDOWED, sparse_rows(WINDOWED, [(("a", bucket, 0), {})], version_us=V1).take(np.zeros(0, np.int64))),
            (WINDOWED, sparse_rows(WINDOWED, [(("a", bucket, 3), {"t": 3.0})], version_us=V1)),
        ]
        engine.write(changes)
        assert values(logical(engine, SPARSE, [A])[A]) == [((2,), {"t": 2.0}), ((1,), {"t": 1.0})]
        assert values(logical(engine, FIXED, None)[("a",)]) == [(("n",), {"body": "b"})]
        assert values(logical(engine, WINDOWED, None)["a", bucket]) == [((3,), {"t": 3.0})]

    def test_nothing_written_is_fine(self, engine: Engine) -> None:
        engine.write([])
        engine.write([(SPARSE, rows_from(SPARSE, [])), (FIXED, rows_from(FIXED, []))])
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), {})], version_us=V1))])
        assert logical(engine, SPARSE, None) == {}
        assert logical(engine, FIXED, None) == {}

    def test_numbers_come_back_bit_for_bit(self, engine: Engine) -> None:
        numbers = [0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1e308, -1.7976931348623157e308, 0.1, inf, -inf]
        numbers += [1.0, 2.0**53, -(2.0**53), 2.0**63, 1e-9, 20.25, 1_800_000_000_000.0]
        cells: Shape = {f"n{i}": number for i, number in enumerate(numbers)}
        fixed = [(("a", f"n{i:02}"), {"size": number}) for i, number in enumerate(numbers)]
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), cells)], version_us=V1))])
        engine.write([(FIXED, sparse_rows(FIXED, fixed, version_us=V1))])
        ((_, row),) = logical(engine, SPARSE, [A])[A]
        want = [pack("=d", number) for number in numbers]
        assert [pack("=d", row[name].value) for name in cells] == want
        assert [pack("=d", cells["size"].value) for _, cells in logical(engine, FIXED, None)[("a",)]] == want

    def test_text_of_any_kind_and_up_to_32_kib_comes_back(self, engine: Engine) -> None:
        texts = ["", " ", "\x00", "a\x00b", "Zürich", "日本", "\U0001f69a", "\uffff", "é" * (MAX_TEXT_BYTES // 2)]
        cells: Shape = {f"n{i}": text for i, text in enumerate(texts)}
        cells |= {Tag(f"n{i}"): text for i, text in enumerate(texts)}
        cells |= {f"Größe/{i} #%": bytes(range(256)) * i for i in range(9)}
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), cells)], version_us=V1))])
        assert values(logical(engine, SPARSE, [A])[A]) == [((7,), cells)]

    def test_a_row_may_have_300_cells_and_its_neighbours_any_shape(self, engine: Engine) -> None:
        shapes: list[Shape] = [
            {f"m{i}": float(i) for i in range(300)},
            {"one": 1.0},
            {Tag("only"): "a tag"},
            {f"m{i}": str(i) for i in range(0, 300, 7)},
            {"one": "now a text", "record": b"\x01", Tag("one"): "t"},
        ]
        rows: Rows = sparse_rows(SPARSE, [((*A, -n), cells) for n, cells in enumerate(shapes)], version_us=V1)
        engine.write([(SPARSE, rows)])
        assert values(logical(engine, SPARSE, [A])[A]) == [((-n,), cells) for n, cells in enumerate(shapes)]

    def test_a_partition_may_have_2000_rows(self, engine: Engine) -> None:
        want = [((n,), {"t": float(n), "u": str(n)}) for n in reversed(range(2000))]
        shuffled: list[tuple[Key, Shape]] = [
            ((*A, n * 1217 % 2000), {"t": float(n * 1217 % 2000), "u": str(n * 1217 % 2000)}) for n in range(2000)
        ]
        for part in range(0, 2000, 250):
            engine.write([(SPARSE, sparse_rows(SPARSE, shuffled[part : part + 250], version_us=V1))])
        assert values(logical(engine, SPARSE, [A])[A]) == want
