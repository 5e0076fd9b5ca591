"""Laws of keys: whatever the text or number, partitions stay apart and rows stand in order."""

from __future__ import annotations

from itertools import product

from widerow.engine.contract.plain import Shape, keys, logical, sparse_rows, values
from widerow.engine.contract.tables import BACKWARDS, CONDITIONAL, NAMED, SINGLE, SPARSE, TWIN, V1, V2
from widerow.engine.port import Engine, Span
from widerow.engine.rows import Key

TEXTS = (
    "", "\x00", "\x00\x00", "\x00\x01", "\x01", " ", "#", "%", "/", "a", "a\x00", "a\x00b", "a\x01", "a#b", "a/b", "a0",
    "aa", "b", "Zürich", "zz", "ÿ", "\u07ff", "日本", "\uffff", "\U0001f69a", "x" * 256,
)  # fmt: skip
"""Each a trap for some encoding of keys: prefixes of each other, delimiters, and text that UTF-16 would sort differently."""

INTS = (-(2**63), -(2**63) + 1, -(2**32), -256, -255, -1, 0, 1, 127, 128, 255, 256, 2**32, 2**53, 2**63 - 2, 2**63 - 1)


def by_bytes(text: str) -> bytes:
    return text.encode()


class KeyLaws:
    def test_partitions_never_leak_into_each_other(self, engine: Engine) -> None:
        owners = list(product(TEXTS, TEXTS))
        engine.write([(SINGLE, sparse_rows(SINGLE, [(at, {"me": repr(at)}) for at in owners], version_us=V1))])
        found = logical(engine, SINGLE, owners)
        assert {at: values(rows) for at, rows in found.items()} == {at: [((), {"me": repr(at)})] for at in owners}
        gone = owners[::3]
        engine.delete(SINGLE, gone, version_us=V2)
        assert set(logical(engine, SINGLE, None)) == set(owners) - set(gone)

    def test_tables_stay_apart(self, engine: Engine) -> None:
        rows: list[tuple[Key, Shape]] = [(("p", 0, n), {"t": float(n)}) for n in range(3)]
        for table in (SPARSE, TWIN):
            assert logical(engine, table, [("p", 0)]) == {}
            engine.write([(table, sparse_rows(table, rows, version_us=V1))])
            for partitions in ([("p", 0)], None):
                assert values(logical(engine, table, partitions)["p", 0]) == [((n,), {"t": float(n)}) for n in (2, 1, 0)]
        engine.delete(SPARSE, [("p", 0)], version_us=V2)
        engine.write([(TWIN, sparse_rows(TWIN, rows, version_us=V2))])
        assert logical(engine, SPARSE, None) == {}
        assert len(logical(engine, TWIN, None)["p", 0]) == 3

    def test_a_partition_is_not_its_prefix(self, engine: Engine) -> None:
        for owner in ("a", "a0", "a\x00b", ""):
            row = ((owner, 0, 1), {"owner": owner})
            engine.write([(SPARSE, sparse_rows(SPARSE, [row, ((owner, 256, 1), {"owner": "other"})], version_us=V1))])
        for owner in ("a", "a0", "a\x00b", ""):
            assert values(logical(engine, SPARSE, [(owner, 0)])[owner, 0]) == [((1,), {"owner": owner})]
        assert logical(engine, SPARSE, [("a\x00", 0), ("a", 1), ("b", 0)]) == {}

    def test_partitions_come_in_the_order_asked(self, engine: Engine) -> None:
        owners = [(text,) for text in TEXTS]
        engine.write(
            [(NAMED, sparse_rows(NAMED, [((*at, "r", n), {"n": 1.0}) for at in owners for n in (2, 1)], version_us=V1))]
        )
        for asked in (owners, owners[::-1], owners[::2] + owners[1::2]):
            assert list(logical(engine, NAMED, asked)) == asked

    def test_rows_stand_in_order_of_text_bytes_then_numbers(self, engine: Engine) -> None:
        pairs = list(product(TEXTS, INTS))
        engine.write([(NAMED, sparse_rows(NAMED, [(("p", *pair), {"x": 1.0}) for pair in pairs[::-1]], version_us=V1))])
        assert keys(logical(engine, NAMED, [("p",)])[("p",)]) == list(product(sorted(TEXTS, key=by_bytes), INTS))

    def test_descending_columns_reverse_the_order(self, engine: Engine) -> None:
        pairs = list(product(TEXTS, INTS))
        at = (-(2**63), "p")
        engine.write([(BACKWARDS, sparse_rows(BACKWARDS, [((*at, *pair), {"x": 1.0}) for pair in pairs], version_us=V1))])
        want = list(product(sorted(TEXTS, key=by_bytes, reverse=True), INTS[::-1]))
        assert keys(logical(engine, BACKWARDS, [at])[at]) == want
        assert keys(logical(engine, BACKWARDS, None)[at]) == want

    def test_newest_comes_first_and_partitions_may_be_any_number(self, engine: Engine) -> None:
        parts = [("p", n) for n in INTS]
        rows = [((*at, n), {"n": float(at[1])}) for at in parts for n in INTS]
        engine.write([(SPARSE, sparse_rows(SPARSE, rows, version_us=V1))])
        found = logical(engine, SPARSE, parts)
        assert list(found) == parts
        for at in parts:
            assert values(found[at]) == [((n,), {"n": float(at[1])}) for n in INTS[::-1]]

    def test_conditional_tables_keep_order_too(self, engine: Engine) -> None:
        for name in TEXTS:
            assert engine.put_if(CONDITIONAL, ("p", name), {"body": name}, None)
        want = sorted(TEXTS, key=by_bytes)
        assert values(logical(engine, CONDITIONAL, [("p",)])[("p",)]) == [((name,), {"body": name}) for name in want]

    def test_a_span_of_numbers_is_start_to_before_stop(self, engine: Engine) -> None:
        at = ("p", 0)
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*at, n), {"x": 1.0}) for n in INTS], version_us=V1))])

        def check(start: int | None, stop: int | None) -> None:
            want = [(n,) for n in INTS[::-1] if (start is None or n >= start) and (stop is None or n < stop)]
            found = logical(engine, SPARSE, [at], Span(start, stop))
            assert keys(found.get(at, [])) == want, (start, stop)

        for start, stop in product((None, *INTS, 5), repeat=2):
            check(start, stop)

    def test_a_span_of_text_is_by_bytes_in_either_order(self, engine: Engine) -> None:
        pairs = list(product(TEXTS, (-1, 1)))
        down = (0, "p")
        engine.write([(NAMED, sparse_rows(NAMED, [(("p", *pair), {"x": 1.0}) for pair in pairs], version_us=V1))])
        engine.write([(BACKWARDS, sparse_rows(BACKWARDS, [((*down, *pair), {"x": 1.0}) for pair in pairs], version_us=V1))])

        def check(start: str | None, stop: str | None) -> None:
            want = [
                (text, n)
                for text in sorted(TEXTS, key=by_bytes)
                if (start is None or text.encode() >= start.encode()) and (stop is None or text.encode() < stop.encode())
                for n in (-1, 1)
            ]
            assert keys(logical(engine, NAMED, [("p",)], Span(start, stop)).get(("p",), [])) == want, (start, stop)
            assert keys(logical(engine, BACKWARDS, [down], Span(start, stop)).get(down, [])) == want[::-1], (start, stop)

        for start, stop in product((None, "", "\x00", "a", "a\x00", "a0", "b", "ÿ", "\U0001f69a", "\U0010ffff"), repeat=2):
            check(start, stop)

    def test_a_span_holds_for_every_partition(self, engine: Engine) -> None:
        parts = [("p", n) for n in range(5)]
        rows = [((*at, n), {"x": 1.0}) for at in parts for n in range(at[1], at[1] + 4)]
        engine.write([(SPARSE, sparse_rows(SPARSE, rows, version_us=V1))])
        want = {at: [n for n in range(at[1] + 3, at[1] - 1, -1) if 2 <= n < 5] for at in parts}
        for asked in (parts, None):
            found = logical(engine, SPARSE, asked, Span(2, 5))
            assert {at: [n for (n,) in keys(rows)] for at, rows in found.items()} == want
