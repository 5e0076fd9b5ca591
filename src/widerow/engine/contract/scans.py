"""Laws of scanning: limits, columns, cursors, first appearances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from widerow.engine.contract.plain import (
    Fragment,
    Logical,
    Shape,
    Tag,
    gather,
    keys,
    logical,
    refusal,
    rows_from,
    sparse_rows,
    values,
)
from widerow.engine.contract.tables import (
    BY_COLUMN,
    CONDITIONAL,
    FACTS,
    FIXED,
    NAMED,
    SINGLE,
    SPARSE,
    START_US,
    V1,
    V2,
    V3,
    WINDOWED,
    A,
)
from widerow.engine.port import ALL, Columns, Engine, Span
from widerow.engine.rows import NEVER, Cursor, Key, Rows
from widerow.model.labels import Selectors
from widerow.model.times import HOUR, SECOND, ManualClock
from widerow.schema.table import Table


class ScanLaws:
    def test_get_gives_what_a_scan_for_the_whole_key_gives(self, engine: Engine, clock: ManualClock) -> None:
        fragments = [
            Fragment(("p", "n1"), {"size": 1.5, "body": "ä\0"}, V1, START_US + 5 * SECOND),
            Fragment(("p", "n2"), {"body": ""}, V1),
            Fragment(("p", "n3"), {"size": -0.0}, V2),
        ]
        engine.write([(FIXED, rows_from(FIXED, fragments))])
        assert engine.get(FIXED, ("p", "n1")) == {"size": 1.5, "body": "ä\0"}
        assert engine.get(FIXED, ("p", "n2")) == {"body": ""}
        assert engine.get(FIXED, ("p", "n3")) == {"size": 0.0}
        assert engine.get(FIXED, ("p", "n")) is None
        assert engine.get(FIXED, ("q", "n1")) is None
        clock.time_us = START_US + 5 * SECOND
        assert engine.get(FIXED, ("p", "n1")) is None
        assert engine.put_if(CONDITIONAL, ("o", "k"), {"body": "x"}, None)
        assert engine.get(CONDITIONAL, ("o", "k")) == {"body": "x"}
        assert SPARSE.name in refusal(lambda: engine.get(SPARSE, (*A, 1)))

    def test_a_limit_counts_logical_rows_in_each_partition(self, engine: Engine) -> None:
        parts: list[Key] = [("p", n) for n in range(3)]
        for version in (V1, V2, V3):  # three fragments a row
            rows = [((*at, n), {f"v{version}": 1.0}) for at in parts for n in range(6)]
            engine.write([(SPARSE, sparse_rows(SPARSE, rows, version_us=version))])
        whole = logical(engine, SPARSE, parts)
        for limit in (1, 2, 5, 6, 7, 1000):
            for asked in (parts, None):
                found = logical(engine, SPARSE, asked, limit=limit)
                assert found == {at: whole[at][:limit] for at in parts}
        assert keys(logical(engine, SPARSE, [parts[1]], Span(1, 4), limit=2)[parts[1]]) == [(3,), (2,)]

    def test_a_limit_counts_rows_of_fixed_tables_in_each_partition(self, engine: Engine) -> None:
        parts: list[Key] = [(owner,) for owner in "pqr"]
        rows = [((*at, f"n{n}"), {"size": 1.0} if n % 2 else {"body": "b"}) for at in parts for n in range(6)]
        engine.write([(FIXED, sparse_rows(FIXED, rows, version_us=V1))])
        for asked in (parts, None):
            found = logical(engine, FIXED, asked, Span("n1", "n6"), limit=2)
            assert {at: keys(rows) for at, rows in found.items()} == {at: [("n1",), ("n2",)] for at in parts}
            found = logical(engine, FIXED, asked, limit=2, columns=["size"])
            assert {at: keys(rows) for at, rows in found.items()} == {at: [("n1",), ("n3",)] for at in parts}

    def test_a_limit_counts_only_what_is_shown(self, engine: Engine, clock: ManualClock) -> None:
        fragments = [
            Fragment((*A, n), {"even" if n % 2 == 0 else "odd": 1.0}, V1, START_US + (n + 1) * SECOND) for n in range(10)
        ]
        engine.write([(SPARSE, rows_from(SPARSE, fragments))])
        assert keys(logical(engine, SPARSE, [A], limit=2, columns=["odd"])[A]) == [(9,), (7,)]
        engine.delete(SPARSE, [A], Span(8, 10), version_us=V1)
        clock.time_us = START_US + 5 * SECOND
        assert keys(logical(engine, SPARSE, [A], limit=2)[A]) == [(7,), (6,)]
        assert keys(logical(engine, SPARSE, [A], limit=9)[A]) == [(7,), (6,), (5,)]

    def test_a_key_may_go_on_into_the_clustering_columns(self, engine: Engine) -> None:
        names = ["", "a", "a\x00", "a0", "b"]
        rows = [((owner, name, n), {"t": float(n)}) for owner in "pq" for name in names for n in (-1, 0, 1)]
        engine.write([(NAMED, sparse_rows(NAMED, rows, version_us=V1))])
        asked: list[Key] = [("q", "a"), ("p", "a"), ("p", ""), ("p", "nobody"), ("r", "a"), ("q", "b")]
        want = {key: [((n,), {"t": (float(n), V1, NEVER)}) for n in (-1, 0, 1)] for key in asked if key[0] != "r"}
        del want["p", "nobody"]
        found = logical(engine, NAMED, asked)
        assert found == want
        assert list(found) == list(want), "in the order asked"
        found = logical(engine, NAMED, asked, limit=2)
        assert found == {key: rows[:2] for key, rows in want.items()}, "a limit counts for each key"

    def test_whole_keys_look_up_rows(self, engine: Engine) -> None:
        sparse = [(("p", part, n), {"t": float(n)}) for part in range(2) for n in range(5)]
        fixed = [((owner, f"n{n}"), {"size": float(n)}) for owner in "pq" for n in range(5)]
        engine.write(
            [(SPARSE, sparse_rows(SPARSE, sparse, version_us=V1)), (FIXED, sparse_rows(FIXED, fixed, version_us=V1))]
        )
        assert engine.put_if(CONDITIONAL, ("p", "n"), {"body": "b"}, None)
        assert engine.put_if(CONDITIONAL, ("p", "n0"), {"body": "c"}, None)

        def check(table: Table, asked: list[Key], want: list[Key]) -> None:
            found = logical(engine, table, asked)
            assert list(found) == want
            assert all(keys(rows) == [()] for rows in found.values())

        check(SPARSE, [("p", 1, 3), ("p", 0, 9), ("p", 0, 3), ("p", 1, 1)], [("p", 1, 3), ("p", 0, 3), ("p", 1, 1)])
        check(FIXED, [("q", "n3"), ("p", "n0"), ("p", "n"), ("q", "n0"), ("r", "")], [("q", "n3"), ("p", "n0"), ("q", "n0")])
        check(CONDITIONAL, [("q", "n"), ("p", "n0"), ("p", "n")], [("p", "n0"), ("p", "n")])
        check(FIXED, [("q", "nobody")], [])
        assert logical(engine, FIXED, [("p", "n1"), ("q", "n1")], columns=["body"]) == {}

    def test_columns_name_the_cells_wanted_tags_included(self, engine: Engine) -> None:
        cells: list[Shape] = [
            {"a": 1.0, "b": "x", Tag("a"): "tag"},
            {"b": "y"},
            {"c": 1.0, Tag("b"): "tag"},
            {"a": b"record"},
        ]
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, -n), row) for n, row in enumerate(cells)], version_us=V1))])

        def check(columns: list[str], want: list[tuple[int, Shape]]) -> None:
            for asked in ([A], None):
                found = logical(engine, SPARSE, asked, columns=columns)
                assert values(found.get(A, [])) == [((-n,), row) for n, row in want]

        check(["a"], [(0, {"a": 1.0, Tag("a"): "tag"}), (3, {"a": b"record"})])
        check(["b"], [(0, {"b": "x"}), (1, {"b": "y"}), (2, {Tag("b"): "tag"})])
        check(["c", "nobody"], [(2, {"c": 1.0})])
        check(["nobody"], [])
        check(["a", "b", "c"], list(enumerate(cells)))

    def test_a_wanted_column_shows_its_winner_whatever_else_the_row_holds(self, engine: Engine) -> None:
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), {"a": 1.0, "b": 1.0})], version_us=V1))])
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), {"a": "new"})], version_us=V2))])
        assert values(logical(engine, SPARSE, [A], columns=["a"])[A]) == [((7,), {"a": "new"})]
        assert values(logical(engine, SPARSE, [A], columns=["b"])[A]) == [((7,), {"b": 1.0})]

    def test_selectors_find_the_variants_that_each_partition_has(self, engine: Engine) -> None:
        cells: list[Shape] = [
            {"used": 1.0, "used_pct": 9.0, "used{a=1,path=/}": 2.0},
            {"used{path=/home}": "x", "free{path=/}": 9.0},
            {"#odd{path=/}": 3.0, "é\\,x{path=/}": 4.0},
            {"used{path=/,a=1}": b"not in the one form of names with labels"},
        ]
        parts: list[Key] = [("p", START_US), ("q", START_US)]
        for table in (SPARSE, BY_COLUMN):
            rows = [((*parts[n < 2], n), row) for n, row in enumerate(cells)]
            engine.write([(table, sparse_rows(table, rows, version_us=V1))])

            def check(names: list[str], want: dict[int, list[str]], table: Table = table) -> None:
                wanted = Selectors.of(names)
                for asked in (parts, None):
                    found = logical(engine, table, asked, columns=wanted)
                    rows = [row for at in parts for row in values(found.get(at, []))]
                    assert {n: sorted(map(str, row)) for (n,), row in rows} == want
                    check_resume(engine, table, asked, columns=wanted)
                whole = logical(engine, table, parts, columns=wanted)
                check_first(whole, logical(engine, table, parts, columns=wanted, first=True))

            check(["used"], {0: ["used", "used{a=1,path=/}"], 1: ["used{path=/home}"]})
            check(["used{path=/}"], {0: ["used{a=1,path=/}"]})
            check(["used{path=/,a=1}"], {0: ["used{a=1,path=/}"], 3: ["used{path=/,a=1}"]})
            check(["#odd", "free", "é,x"], {1: ["free{path=/}"], 2: ["#odd{path=/}", "é\\,x{path=/}"]})
            check(["use", "used{b=1}", "path"], {})

    def test_columns_of_a_fixed_table_can_be_chosen(self, engine: Engine) -> None:
        rows: list[tuple[Key, Shape]] = [
            (("p", "n"), {"size": 1.0, "body": "b"}),
            (("p", "o"), {"more": "m"}),
        ]
        engine.write([(FIXED, sparse_rows(FIXED, rows, version_us=V1))])
        assert values(logical(engine, FIXED, [("p",)], columns=["body"])[("p",)]) == [(("n",), {"body": "b"})]

    def test_cells_of_a_fixed_row_come_in_the_order_of_its_columns(self, engine: Engine) -> None:
        cells: Shape = {"more": "m", "size": 1.0, "body": "b"}
        engine.write([(FIXED, sparse_rows(FIXED, [(("p", n), cells) for n in "ab"], version_us=V1))])
        for asked in ([("p",)], [("p", "a"), ("p", "b")], None):
            found = [cells for rows in logical(engine, FIXED, asked).values() for _, cells in rows]
            assert [list(cells) for cells in found] == [["size", "body", "more"]] * 2

    def test_cells_of_a_sparse_row_come_in_the_same_order_every_time(self, engine: Engine) -> None:
        cells: Shape = {"b": 1.0, Tag("a"): "tag", "c": "x", "a": 2.0, "d": b"record"}
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 1), cells)], version_us=V1))])
        orders = {tuple(row[0][1]) for _ in range(10) for row in logical(engine, SPARSE, [A]).values()}
        assert len(orders) == 1, "a store that sends its cells in any order must be put in order by its engine"

    def test_every_chunk_can_be_resumed_after(self, engine: Engine) -> None:
        parts = self._several_chunks(engine)
        for asked in (parts, parts[::-1], None):
            for span in (ALL, Span(5, 1200)):
                check_resume(engine, SPARSE, asked, span)
        check_resume(engine, SPARSE, parts, columns=["even"])

    def test_a_resumed_scan_keeps_to_its_limit(self, engine: Engine) -> None:
        parts = self._several_chunks(engine)
        for asked in (parts, None):
            for limit in (1, 19, 20, 21, 2500):
                check_resume(engine, SPARSE, asked, limit=limit)
        check_resume(engine, SPARSE, parts, Span(5, 1200), limit=600, columns=["even"])

    def test_chunks_of_fixed_tables_can_be_resumed_too(self, engine: Engine) -> None:
        parts: list[Key] = [(owner,) for owner in "pqr"]
        rows = [((*at, f"n{n:04}"), {"size": float(n)}) for at in parts for n in range(700)]
        engine.write([(FIXED, sparse_rows(FIXED, rows, version_us=V1))])
        for asked in (parts, parts[::-1], None):
            for limit in (None, 1, 600):
                check_resume(engine, FIXED, asked, Span("n0005", "n0650"), limit=limit)
        engine.write([(FIXED, sparse_rows(FIXED, [(("s", "n"), {"body": "b"})], version_us=V1))])
        for limit in (1, 600):
            check_resume(engine, FIXED, None, limit=limit, columns=["size"])  # its last row is not shown

    def test_a_cursor_outlives_its_row(self, engine: Engine) -> None:
        parts = self._several_chunks(engine)
        for asked in (parts, None):
            chunk, *rest = engine.scan(SPARSE, asked)
            want = gather(SPARSE, rest)
            at, (last,) = chunk.key(SPARSE, len(chunk) - 1)[:2], chunk.key(SPARSE, len(chunk) - 1)[2:]
            assert isinstance(last, int)
            engine.delete(SPARSE, [at], Span(last, None), version_us=V3)
            assert logical(engine, SPARSE, asked, after=chunk.cursor) == want
            engine.delete(SPARSE, [at], version_us=V3)
            want.pop(at, None)
            assert logical(engine, SPARSE, asked, after=chunk.cursor) == want

    def _several_chunks(self, engine: Engine) -> list[Key]:
        """Partitions with 6,000 rows together, some of several versions."""
        parts: list[Key] = [("p", n) for n in range(4)]
        for at, count in zip(parts, (2000, 1, 3979, 20), strict=True):
            rows = [((*at, n), {"odd" if n % 2 else "even": float(n), "t": 1.0}) for n in range(count)]
            engine.write([(SPARSE, sparse_rows(SPARSE, rows, version_us=V1))])
            engine.write([(SPARSE, sparse_rows(SPARSE, [(key, {"t": 2.0}) for key, _ in rows[::3]], version_us=V2))])
        return parts

    def test_the_last_cursor_gives_nothing_more(self, engine: Engine) -> None:
        def check(table: Table, key: Key) -> None:
            for asked in ([key[: len(table.partition)]], [key], None):
                *_, last = engine.scan(table, asked)
                assert last.cursor is not None, "None would start the scan again"
                assert logical(engine, table, asked, after=last.cursor) == {}

        row = {"t": 1.0}
        for table, key in (
            (SPARSE, ("p", 0, 1)),
            (SINGLE, ("p", "q")),
            (NAMED, ("p", "", 0)),
            (WINDOWED, ("p", START_US, 1)),
        ):
            engine.write([(table, sparse_rows(table, [(key, row)], version_us=V1))])
            check(table, key)
        engine.write([(FIXED, sparse_rows(FIXED, [(("p", "n"), {"size": 1.0})], version_us=V1))])
        check(FIXED, ("p", "n"))
        assert engine.put_if(FACTS, ("p",), {"body": "b"}, None)
        check(FACTS, ("p",))

    def test_a_scan_of_all_shows_every_window_once(self, engine: Engine) -> None:
        buckets = [START_US - n * HOUR // 2 for n in range(30)]
        rows = [((owner, bucket, bucket + n), {"t": float(n)}) for owner in "abc" for bucket in buckets for n in range(3)]
        engine.write([(WINDOWED, sparse_rows(WINDOWED, rows, version_us=V1))])
        found = logical(engine, WINDOWED, None)
        assert set(found) == {(owner, bucket) for owner in "abc" for bucket in buckets}
        assert all(keys(rows) == [(at[1] + n,) for n in (2, 1, 0) if isinstance(at[1], int)] for at, rows in found.items())
        check_resume(engine, WINDOWED, None)

    def test_first_shows_the_first_appearance_of_every_cell(self, engine: Engine) -> None:
        parts: list[Key] = [("p", 0), ("p", 1)]
        shapes: list[Shape] = [
            {"t": 1.0},
            {"t": 2.0, "u": "x"},
            {Tag("t"): "tag", "u": "y"},
            {"w": b"z", "t": "s"},
        ]
        rows = [((*at, -n), shapes[n % 4] if n < 60 else {"rare": 1.0}) for at in parts for n in range(64)]
        engine.write([(SPARSE, sparse_rows(SPARSE, rows, version_us=V1))])
        engine.write([(SPARSE, sparse_rows(SPARSE, [(("p", 1, -7), {"v": 0.5})], version_us=V2))])
        for asked in (parts, None):
            for span in (ALL, Span(-60, -2)):
                for columns in (None, ["t", "v"], ["nobody"]):
                    whole = logical(engine, SPARSE, asked, span, columns=columns)
                    check_first(whole, logical(engine, SPARSE, asked, span, columns=columns, first=True))


def check_resume(
    engine: Engine,
    table: Table,
    partitions: Sequence[Key] | None,
    span: Span = ALL,
    *,
    limit: int | None = None,
    columns: Columns | None = None,
) -> None:
    """A scan resumed after any of its chunks gives the rest of it."""

    def scan(after: Cursor | None) -> Iterator[Rows]:
        return engine.scan(table, partitions, span, limit=limit, columns=columns, after=after)

    chunks = list(scan(None))
    assert all(chunk.cursor is not None for chunk in chunks)
    for i in {0, len(chunks) // 2, len(chunks) - 2, len(chunks) - 1} & set(range(len(chunks))):
        assert gather(table, scan(chunks[i].cursor)) == gather(table, chunks[i + 1 :])


def check_first(whole: Logical, found: Logical) -> None:
    """What `first` found is part of the whole, and holds the first appearance of every cell of each partition."""
    assert list(found) == list(whole)
    for at, rows in whole.items():
        here = dict(found[at])
        assert keys(found[at]) == [clustering for clustering, _ in rows if clustering in here], "rows in order"
        seen: set[str | Tag] = set()
        for clustering, cells in rows:
            shown = here.get(clustering, {})
            assert shown.items() <= cells.items(), "nothing but live cells"
            assert cells.keys() - seen <= shown.keys(), "first appearances"
            seen |= cells.keys()
