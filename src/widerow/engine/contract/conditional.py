"""Laws of conditional tables: one row, compared and set at once."""

from __future__ import annotations

from widerow.engine.contract.plain import fixed_rows, logical, refusal, rows_from, sparse_rows
from widerow.engine.contract.tables import CONDITIONAL, FACTS, FIXED, SPARSE, START_US, V1, A
from widerow.engine.port import Engine, Span
from widerow.engine.rows import NEVER, Key, Row, rows_of
from widerow.model.times import DAY, SECOND, ManualClock

KEY = ("p", "n")


class ConditionalLaws:
    def test_only_conditional_tables_are_put_and_they_are_never_written(self, engine: Engine) -> None:
        row = rows_of(CONDITIONAL, [(KEY, {"body": "b"})], version_us=V1)
        assert CONDITIONAL.name in refusal(lambda: engine.write([(CONDITIONAL, row)]))
        assert FIXED.name in refusal(lambda: engine.put_if(FIXED, KEY, {"body": "b"}, None))
        assert FIXED.name in refusal(lambda: engine.insert(FIXED, rows_of(FIXED, [(KEY, {"body": "b"})], version_us=V1)))
        sparse = sparse_rows(SPARSE, [((*A, 7), {"t": 1.0})], version_us=V1)
        assert SPARSE.name in refusal(lambda: engine.insert(SPARSE, sparse))
        assert fixed_rows(engine, CONDITIONAL, None) == {}

    def test_put_if_sets_a_row_that_is_as_expected(self, engine: Engine) -> None:
        first: Row = {"body": "one", "revision": 1.0}
        second: Row = {"body": "two", "revision": 2.0}
        assert engine.put_if(CONDITIONAL, KEY, first, None)
        assert fixed_rows(engine, CONDITIONAL, [("p",)]) == {KEY: first}
        assert not engine.put_if(CONDITIONAL, KEY, second, None)
        assert not engine.put_if(CONDITIONAL, KEY, second, {**first, "revision": 1.5})
        assert fixed_rows(engine, CONDITIONAL, [("p",)]) == {KEY: first}
        assert engine.put_if(CONDITIONAL, KEY, second, first)
        assert fixed_rows(engine, CONDITIONAL, [("p",)]) == {KEY: second}

    def test_put_if_compares_the_whole_row(self, engine: Engine) -> None:
        row: Row = {"body": "one", "revision": 1.0}
        assert engine.put_if(CONDITIONAL, KEY, row, None)
        others: list[Row] = [
            {"body": "one"},
            {"revision": 1.0},
            {"body": "one", "revision": "1.0"},
            {"body": "", "revision": 1.0},
        ]
        for other in others:
            assert not engine.put_if(CONDITIONAL, KEY, {"body": "new"}, other)
        assert engine.put_if(CONDITIONAL, KEY, {"body": "new"}, {"revision": 1.0, "body": "one"})
        assert fixed_rows(engine, CONDITIONAL, None) == {KEY: {"body": "new"}}, "a column left out is gone"
        assert not engine.put_if(CONDITIONAL, KEY, row, {"body": "new", "revision": 0.0})

    def test_put_if_of_none_removes(self, engine: Engine) -> None:
        row = {"body": "one"}
        assert engine.put_if(CONDITIONAL, KEY, None, None), "absent, as expected"
        assert not engine.put_if(CONDITIONAL, KEY, None, row)
        assert engine.put_if(CONDITIONAL, KEY, row, None)
        assert not engine.put_if(CONDITIONAL, KEY, None, None)
        assert not engine.put_if(CONDITIONAL, KEY, None, {"body": "two"})
        assert engine.put_if(CONDITIONAL, KEY, None, row)
        assert fixed_rows(engine, CONDITIONAL, None) == {}
        assert engine.put_if(CONDITIONAL, KEY, row, None), "as if it had never been"

    def test_put_if_touches_one_row(self, engine: Engine) -> None:
        for key in (("p", ""), ("p", "n"), ("p", "n0"), ("", "pn"), ("pn", "")):
            assert engine.put_if(CONDITIONAL, key, {"body": repr(key)}, None)
        assert engine.put_if(CONDITIONAL, KEY, None, {"body": repr(KEY)})
        assert fixed_rows(engine, CONDITIONAL, None) == {
            key: {"body": repr(key)} for key in (("p", ""), ("p", "n0"), ("", "pn"), ("pn", ""))
        }

    def test_a_conditional_row_has_declared_columns_and_at_least_one(self, engine: Engine) -> None:
        refusal(lambda: engine.put_if(CONDITIONAL, KEY, {"colour": "red"}, None))
        refusal(lambda: engine.put_if(CONDITIONAL, KEY, {}, None))
        assert fixed_rows(engine, CONDITIONAL, None) == {}

    def test_a_table_without_clustering_has_one_row_a_partition(self, engine: Engine) -> None:
        for what in ("a", "a\x00", "b"):
            assert engine.put_if(FACTS, (what,), {"body": what}, None)
        assert fixed_rows(engine, FACTS, [("a\x00",), ("c",)]) == {("a\x00",): {"body": "a\x00"}}
        assert fixed_rows(engine, FACTS, None) == {(what,): {"body": what} for what in ("a", "a\x00", "b")}

    def test_insert_says_for_each_row_whether_it_was_new(self, engine: Engine) -> None:
        assert engine.put_if(CONDITIONAL, ("p", "old"), {"body": "old"}, None)
        rows: list[tuple[Key, Row]] = [(("p", name), {"body": f"new {name}", "revision": 1.0}) for name in ("x", "old", "y")]
        assert engine.insert(CONDITIONAL, rows_of(CONDITIONAL, rows, version_us=V1)).tolist() == [True, False, True]
        assert engine.insert(CONDITIONAL, rows_of(CONDITIONAL, rows, version_us=V1)).tolist() == [False] * 3
        assert fixed_rows(engine, CONDITIONAL, None) == {
            ("p", "old"): {"body": "old"},
            ("p", "x"): {"body": "new x", "revision": 1.0},
            ("p", "y"): {"body": "new y", "revision": 1.0},
        }
        assert engine.put_if(CONDITIONAL, ("p", "x"), None, {"body": "new x", "revision": 1.0})

    def test_of_duplicates_in_one_insert_the_first_is_kept(self, engine: Engine) -> None:
        rows = [
            (KEY, {"body": "first"}),
            (("p", "m"), {"body": "other"}),
            (KEY, {"body": "second"}),
            (KEY, {"body": "first"}),
        ]
        flags = engine.insert(CONDITIONAL, rows_of(CONDITIONAL, rows, version_us=V1))
        assert flags.tolist() == [True, True, False, False]
        assert fixed_rows(engine, CONDITIONAL, None) == {KEY: {"body": "first"}, ("p", "m"): {"body": "other"}}

    def test_inserting_nothing_is_fine(self, engine: Engine) -> None:
        assert engine.insert(CONDITIONAL, rows_from(CONDITIONAL, [])).tolist() == []

    def test_conditional_rows_do_not_expire(self, engine: Engine, clock: ManualClock) -> None:
        rows = rows_of(CONDITIONAL, [(KEY, {"body": "b"})], version_us=V1, expire_us=START_US + SECOND)
        assert engine.insert(CONDITIONAL, rows).tolist() == [True]
        assert engine.put_if(CONDITIONAL, ("p", "m"), {"body": "m"}, None)
        clock.time_us = START_US + 10_000 * DAY
        engine.expire(clock.now_us())
        found = logical(engine, CONDITIONAL, [("p",)])[("p",)]
        assert [(clustering, cells["body"].value, cells["body"].expire_us) for clustering, cells in found] == [
            (("m",), "m", NEVER),
            (("n",), "b", NEVER),
        ]
        assert engine.put_if(CONDITIONAL, KEY, None, {"body": "b"})

    def test_deleting_from_a_conditional_table_ignores_the_version(self, engine: Engine) -> None:
        rows = [((owner, name), {"body": "b"}) for owner in "pq" for name in "abc"]
        engine.insert(CONDITIONAL, rows_of(CONDITIONAL, rows, version_us=V1))
        engine.delete(CONDITIONAL, [("p",)], Span("b", "c"), version_us=0)
        assert set(fixed_rows(engine, CONDITIONAL, None)) == {key for key, _ in rows} - {("p", "b")}
        engine.delete(CONDITIONAL, [("q",), ("nobody",)], version_us=0)
        assert set(fixed_rows(engine, CONDITIONAL, None)) == {("p", "a"), ("p", "c")}
        assert engine.put_if(CONDITIONAL, ("q", "a"), {"body": "again"}, None)
