"""Laws of tables by column: they are like any other sparse table. And an engine on which all are, to try the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from widerow.engine.contract.plain import Shape, Tag, keys, logical, sparse_rows, values
from widerow.engine.contract.scans import check_resume
from widerow.engine.contract.tables import BY_COLUMN, BY_COLUMN_BACKWARDS, START_US, V1, V2, V3
from widerow.engine.port import ALL, Definition, Engine, EngineStats, Expired, Span, TableSize
from widerow.engine.rows import NEVER, Cursor, Key, Row, Rows
from widerow.model.arrays import Flags
from widerow.model.times import HOUR
from widerow.schema.table import Table

_AT = ("p", START_US)


class ByColumnLaws:
    def test_cells_that_lie_apart_are_one_row_again(self, engine: Engine) -> None:
        cells: Shape = {"b": 1.0, "a": "x", Tag("a"): "tag", "c": b"\x00"}
        rows = [((*_AT, n), cells) for n in range(5)]
        engine.write([(BY_COLUMN, sparse_rows(BY_COLUMN, rows, version_us=V2))])
        engine.write([(BY_COLUMN, sparse_rows(BY_COLUMN, [((*_AT, 3), {"a": "y"})], version_us=V3))])
        for asked in ([_AT], None):
            chunks = list(engine.scan(BY_COLUMN, asked))
            assert sum(map(len, chunks)) == 6, "one fragment a version"
            found = logical(engine, BY_COLUMN, asked)
            assert values(found[_AT]) == [((n,), cells | {"a": "y" if n == 3 else "x"}) for n in (4, 3, 2, 1, 0)]
            assert found[_AT][1][1]["a"] == ("y", V3, NEVER)
            assert found[_AT][1][1]["b"] == (1.0, V2, NEVER)

    def test_columns_of_unlike_length_are_read_side_by_side(self, engine: Engine) -> None:
        parts: list[Key] = [("p", START_US - n * HOUR) for n in range(2)]
        for at in parts:
            rows: list[tuple[Key, Shape]] = [((*at, n), {"every": 1.0}) for n in range(1500)]
            for _, cells in rows[::7]:
                cells["some"] = 2.0
            rows[800][1]["once"] = "x"
            engine.write([(BY_COLUMN, sparse_rows(BY_COLUMN, rows, version_us=V1))])
            few = [(key, {"some": 3.0}) for key, _ in rows[::35]]
            engine.write([(BY_COLUMN, sparse_rows(BY_COLUMN, few, version_us=V2, expire_us=START_US + HOUR))])
        for asked in (parts, None):
            assert [n for at in parts for (n,) in keys(logical(engine, BY_COLUMN, asked)[at])] == [*range(1499, -1, -1)] * 2
            check_resume(engine, BY_COLUMN, asked)
            check_resume(engine, BY_COLUMN, asked, limit=1200)
            for columns in (["some"], ["some", "once"]):
                check_resume(engine, BY_COLUMN, asked, Span(100, 900), columns=columns)
                check_resume(engine, BY_COLUMN, asked, limit=60, columns=columns)

    def test_a_column_is_deleted_and_its_neighbours_stay(self, engine: Engine) -> None:
        at = (0, "p")
        names = ["", "a", "a\x00", "b"]
        whole: Shape = {"t": 1.0, "t\x00": 2.0, Tag("t"): "x"}
        rows = [((*at, name, n), whole) for name in names for n in (0, 1)]
        engine.write([(BY_COLUMN_BACKWARDS, sparse_rows(BY_COLUMN_BACKWARDS, rows, version_us=V2))])
        engine.write([(BY_COLUMN_BACKWARDS, sparse_rows(BY_COLUMN_BACKWARDS, [((*at, "a", 0), {"t": 3.0})], version_us=V3))])
        engine.delete(BY_COLUMN_BACKWARDS, [at], version_us=V1, columns=["t"])
        engine.delete(BY_COLUMN_BACKWARDS, [at], Span("a", "b"), version_us=V2, columns=["t"])
        found = logical(engine, BY_COLUMN_BACKWARDS, [at])[at]
        want: dict[Key, Shape] = {(name, n): whole for name in names for n in (0, 1)}
        for key in want:
            if key[0] in ("a", "a\x00"):
                want[key] = {"t\x00": 2.0}
        want["a", 0] = {"t\x00": 2.0, "t": 3.0}
        assert values(found) == [(key, want[key]) for key in sorted(want, reverse=True)]
        assert keys(logical(engine, BY_COLUMN_BACKWARDS, [at], columns=["t"])[at]) == [
            ("b", 1), ("b", 0), ("a", 0), ("", 1), ("", 0)
        ]  # fmt: skip


class AllByColumn:
    """An engine whose sparse tables are all by column, whatever they say: for trying every law on them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.features = engine.features
        self.clock = engine.clock

    def apply(self, tables: Sequence[Table]) -> None:
        self.engine.apply([_turned(table) for table in tables])

    def outline(self, tables: Sequence[Table]) -> Sequence[Definition]:
        return self.engine.outline([_turned(table) for table in tables])

    def write(self, changes: Sequence[tuple[Table, Rows]]) -> None:
        self.engine.write([(_turned(table), rows) for table, rows in changes])

    def put_if(self, table: Table, key: Key, row: Row | None, expected: Row | None) -> bool:
        return self.engine.put_if(table, key, row, expected)

    def insert(self, table: Table, rows: Rows) -> Flags:
        return self.engine.insert(table, rows)

    def get(self, table: Table, key: Key, *, may_lag: bool = False) -> Row | None:
        return self.engine.get(_turned(table), key, may_lag=may_lag)

    def scan(
        self,
        table: Table,
        partitions: Sequence[Key] | None,
        span: Span = ALL,
        *,
        after: Cursor | None = None,
        **options: Any,
    ) -> Iterator[Rows]:
        return self.engine.scan(_turned(table), partitions, span, after=after, **options)

    def delete(self, table: Table, partitions: Sequence[Key], span: Span = ALL, **options: Any) -> None:
        self.engine.delete(_turned(table), partitions, span, **options)

    def expire(self, now_us: int) -> Expired:
        return self.engine.expire(now_us)

    def pending_compactions(self) -> int | None:
        return self.engine.pending_compactions()

    def stats(self) -> EngineStats:
        return self.engine.stats()

    def sizes(self) -> Mapping[str, TableSize]:
        return self.engine.sizes()

    def close(self) -> None:
        self.engine.close()


@lru_cache(64)
def _turned(table: Table) -> Table:
    return replace(table, by_column=table.sparse)
