"""Laws of going: deleting, expiring, and staying when the process does not."""

from __future__ import annotations

from widerow.engine.contract.plain import (
    Fragment,
    Shape,
    Tag,
    fixed_rows,
    keys,
    logical,
    refusal,
    rows_from,
    sparse_rows,
    values,
)
from widerow.engine.contract.tables import (
    CONDITIONAL,
    FIXED,
    NAMED,
    SINGLE,
    SPARSE,
    START_US,
    TABLES,
    V1,
    V2,
    V3,
    WINDOWED,
    A,
    needs,
)
from widerow.engine.port import Engine, Span
from widerow.engine.rows import NEVER, rows_of
from widerow.model.times import DAY, HOUR, MAX_TIME_US, SECOND, ManualClock


class DeleteLaws:
    def test_delete_removes_what_is_not_newer(self, engine: Engine) -> None:
        for version in (V1, V2, V3):
            cells: Shape = {f"only_{version}": 1.0, "all": float(version)}
            engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), cells)], version_us=version))])
            engine.write([(FIXED, sparse_rows(FIXED, [(("p", str(version)), {"size": 1.0})], version_us=version))])
        engine.delete(SPARSE, [A], version_us=V2)
        engine.delete(FIXED, [("p",)], version_us=V2)
        want = {A: [((7,), {f"only_{V3}": (1.0, V3, NEVER), "all": (float(V3), V3, NEVER)})]}
        assert logical(engine, SPARSE, None) == want
        assert keys(logical(engine, FIXED, None)[("p",)]) == [(str(V3),)]
        engine.delete(SPARSE, [A], version_us=V2)
        assert logical(engine, SPARSE, None) == want, "repeating is harmless"
        engine.delete(SPARSE, [A], version_us=V3)
        assert logical(engine, SPARSE, None) == {}
        engine.delete(SPARSE, [A], version_us=V3)

    def test_delete_never_uncovers_what_was_replaced(self, engine: Engine) -> None:
        for version in (V2, V1):
            engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), {"t": float(version)})], version_us=version))])
            engine.write([(FIXED, sparse_rows(FIXED, [(("p", "n"), {"size": float(version)})], version_us=version))])
        engine.delete(SPARSE, [A], version_us=V2)
        engine.delete(FIXED, [("p",)], version_us=V2)
        assert logical(engine, SPARSE, None) == {}
        assert logical(engine, FIXED, None) == {}

    def test_older_data_written_after_a_delete_shows(self, engine: Engine) -> None:
        needs(engine, "forgets_deletes")
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), {"t": 1.0})], version_us=V2))])
        engine.delete(SPARSE, [A], version_us=V3)
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), {"t": 2.0})], version_us=V1))])
        assert logical(engine, SPARSE, [A]) == {A: [((7,), {"t": (2.0, V1, NEVER)})]}

    def test_newer_data_written_after_a_delete_shows(self, engine: Engine) -> None:
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), {"t": 1.0})], version_us=V1))])
        engine.write([(FIXED, sparse_rows(FIXED, [(("p", "n"), {"size": 1.0})], version_us=V1))])
        engine.delete(SPARSE, [A], version_us=V2)
        engine.delete(FIXED, [("p",)], version_us=V2)
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 7), {"t": 2.0})], version_us=V3))])
        engine.write([(FIXED, sparse_rows(FIXED, [(("p", "n"), {"body": "b"})], version_us=V3))])
        assert logical(engine, SPARSE, [A]) == {A: [((7,), {"t": (2.0, V3, NEVER)})]}
        assert logical(engine, FIXED, [("p",)]) == {("p",): [(("n",), {"body": ("b", V3, NEVER)})]}

    def test_delete_stays_in_its_partitions_and_span(self, engine: Engine) -> None:
        parts = [("p", n) for n in range(3)]
        every = {(*at, n) for at in parts for n in range(-3, 4)}
        engine.write([(SPARSE, sparse_rows(SPARSE, [(key, {"t": 1.0}) for key in sorted(every)], version_us=V1))])

        def left() -> set[tuple[str | int, ...]]:
            return {at + key for at, rows in logical(engine, SPARSE, None).items() for key in keys(rows)}

        engine.delete(SPARSE, parts[:2], Span(-1, 2), version_us=V1)
        want = {key for key in every if key[1] == 2 or not -1 <= key[2] < 2}
        assert left() == want
        engine.delete(SPARSE, [parts[2]], Span(stop=-2), version_us=V1)
        engine.delete(SPARSE, [parts[2]], Span(start=3), version_us=V1)
        want -= {("p", 2, -3), ("p", 2, 3)}
        assert left() == want
        engine.delete(SPARSE, [], version_us=V3)
        engine.delete(SPARSE, [("p", 9), ("nobody", 0)], version_us=V3)
        assert left() == want

    def test_delete_by_a_span_of_text(self, engine: Engine) -> None:
        names = ["", "a", "a\x00", "a0", "b", "ü"]
        rows = [(("p", name, n), {"t": 1.0}) for name in names for n in (-1, 1)]
        engine.write([(NAMED, sparse_rows(NAMED, rows, version_us=V1))])
        engine.delete(NAMED, [("p",)], Span("a", "b"), version_us=V1)
        assert keys(logical(engine, NAMED, None)[("p",)]) == [(name, n) for name in ("", "b", "ü") for n in (-1, 1)]

    def test_delete_of_columns_leaves_the_others(self, engine: Engine) -> None:
        cells: Shape = {"a": 1.0, "b": "x", "c": b"z", Tag("a"): "tag"}
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, n), cells) for n in range(3)], version_us=V1))])
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 1), {"a": 2.0})], version_us=V2))])
        engine.delete(SPARSE, [A], Span(0, 2), version_us=V1, columns=["a", "c", "nobody"])
        assert values(logical(engine, SPARSE, [A])[A]) == [((2,), cells), ((1,), {"a": 2.0, "b": "x"}), ((0,), {"b": "x"})]
        engine.delete(SPARSE, [A], version_us=V2, columns=["a", "b", "c"])
        assert logical(engine, SPARSE, [A]) == {}

    def test_columns_of_a_fixed_row_are_not_deleted_one_by_one(self, engine: Engine) -> None:
        assert FIXED.name in refusal(lambda: engine.delete(FIXED, [("p",)], version_us=V1, columns=["body"]))

    def test_delete_takes_partitions_and_no_longer_keys(self, engine: Engine) -> None:
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, n), {"t": 1.0}) for n in range(3)], version_us=V1))])
        assert SPARSE.name in refusal(lambda: engine.delete(SPARSE, [(*A, 1)], version_us=V1))
        assert len(logical(engine, SPARSE, [A])[A]) == 3

    def test_delete_where_no_window_is(self, engine: Engine) -> None:
        engine.delete(WINDOWED, [("p", START_US), ("p", 0), ("p", START_US + 1000 * DAY)], version_us=V3)
        engine.delete(WINDOWED, [("p", START_US)], Span(0, START_US), version_us=V3, columns=["t"])
        assert logical(engine, WINDOWED, None) == {}

    def test_delete_in_several_windows(self, engine: Engine) -> None:
        parts = [("p", START_US - n * HOUR) for n in range(4)]
        rows = [((*at, at[1] + n), {"t": 1.0}) for at in parts for n in range(2)]
        engine.write([(WINDOWED, sparse_rows(WINDOWED, rows, version_us=V1))])
        engine.delete(WINDOWED, parts[1:3], version_us=V1)
        assert set(logical(engine, WINDOWED, None)) == {parts[0], parts[3]}


class ExpiryLaws:
    def test_expiry_is_rounded_up_to_the_second(self, engine: Engine) -> None:
        base, far = START_US + 100 * SECOND, START_US + 50 * 365 * DAY
        want = {base: base, base + 1: base + SECOND, base + 999_999: base + SECOND, far: far, NEVER: NEVER}
        fragments = [Fragment((*A, -n), {"t": 1.0}, V1, expire_us) for n, expire_us in enumerate(want)]
        engine.write([(SPARSE, rows_from(SPARSE, fragments))])
        assert [cells["t"].expire_us for _, cells in logical(engine, SPARSE, [A])[A]] == list(want.values())

    def test_an_expiry_too_far_to_be_stored_is_never(self, engine: Engine) -> None:
        far = MAX_TIME_US - MAX_TIME_US % SECOND
        for expire_us in (far, NEVER - 1):
            engine.write([(SINGLE, sparse_rows(SINGLE, [(("a", ""), {"t": 1.0})], version_us=V1, expire_us=expire_us))])
            engine.write([(FIXED, rows_of(FIXED, [(("a", ""), {"size": 1.0})], version_us=V1, expire_us=expire_us))])
            ((_, sparse),) = logical(engine, SINGLE, None)["a", ""]
            ((_, fixed),) = logical(engine, FIXED, None)[("a",)]
            assert {sparse["t"].expire_us, fixed["size"].expire_us} <= {far, NEVER}

    def test_nothing_is_shown_from_its_expiry_on(self, engine: Engine, clock: ManualClock) -> None:
        fragments = [
            Fragment((*A, 3), {"short": 1.0}, V1, START_US + 10 * SECOND),
            Fragment((*A, 3), {"long": 1.0}, V2, START_US + 20 * SECOND - 1),
            Fragment((*A, 2), {"t": 1.0}, V1, START_US + 10 * SECOND),
            Fragment((*A, 1), {"t": 1.0}, V1, NEVER),
        ]
        engine.write([(SPARSE, rows_from(SPARSE, fragments))])
        fixed = rows_of(FIXED, [(("p", "n"), {"body": "b"})], version_us=V1, expire_us=START_US + 10 * SECOND)
        engine.write([(FIXED, fixed)])

        def check(after_us: int, want: list[tuple[int, list[str]]], fixed: int) -> None:
            clock.time_us = START_US + after_us
            for _ in range(2):
                found = logical(engine, SPARSE, [A])[A]
                assert [(key[0], sorted(map(str, cells))) for key, cells in found] == want
                assert len(fixed_rows(engine, FIXED, None)) == fixed
                engine.expire(clock.now_us())

        check(10 * SECOND - 1, [(3, ["long", "short"]), (2, ["t"]), (1, ["t"])], 1)
        check(10 * SECOND, [(3, ["long"]), (1, ["t"])], 0)
        check(20 * SECOND - 1, [(3, ["long"]), (1, ["t"])], 0)
        check(20 * SECOND, [(1, ["t"])], 0)
        check(10_000 * DAY, [(1, ["t"])], 0)

    def test_what_is_written_expired_is_never_shown(self, engine: Engine, clock: ManualClock) -> None:
        clock.time_us = START_US + 30 * DAY
        old = START_US - 5 * HOUR
        rows = sparse_rows(WINDOWED, [(("p", old, old), {"t": 1.0})], version_us=V1, expire_us=old + DAY)
        for _ in range(2):
            engine.write([(WINDOWED, rows)])
            engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 1), {"t": 1.0})], version_us=V1, expire_us=START_US))])
            assert logical(engine, WINDOWED, None) == {}
            assert logical(engine, WINDOWED, [("p", old)]) == {}
            assert logical(engine, SPARSE, None) == {}
            engine.expire(clock.now_us())

    def test_an_expiry_of_long_ago_has_passed(self, engine: Engine) -> None:
        for expire_us in (0, 1, -1, -(2**63)):
            row = sparse_rows(SPARSE, [((*A, 1), {"t": 1.0})], version_us=V1, expire_us=expire_us)
            engine.write(
                [(SPARSE, row), (FIXED, rows_of(FIXED, [(("p", "n"), {"size": 1.0})], version_us=V1, expire_us=expire_us))]
            )
            assert logical(engine, SPARSE, None) == {}
            assert logical(engine, FIXED, None) == {}

    def test_expire_drops_windows_that_ended_long_ago_and_no_others(self, engine: Engine, clock: ManualClock) -> None:
        parts = [("p", START_US + n * HOUR) for n in range(6)]
        engine.write([(WINDOWED, sparse_rows(WINDOWED, [((*at, at[1]), {"t": 1.0}) for at in parts], version_us=V1))])
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 1), {"t": 1.0})], version_us=V1))])
        engine.expire(clock.now_us())
        assert set(logical(engine, WINDOWED, None)) == set(parts)
        clock.time_us = START_US + 3 * HOUR + DAY + SECOND  # the first three ended more than a day ago
        engine.expire(clock.now_us())
        assert set(logical(engine, WINDOWED, None)) == set(parts[3:])
        assert set(logical(engine, WINDOWED, parts)) == set(parts[3:])
        assert logical(engine, WINDOWED, parts[:3]) == {}
        assert set(logical(engine, SPARSE, None)) == {A}
        engine.expire(clock.now_us())
        assert set(logical(engine, WINDOWED, None)) == set(parts[3:])

    def test_dropped_windows_give_their_space_back(self, engine: Engine, clock: ManualClock) -> None:
        needs(engine, "drops_windows")
        parts = [("p", START_US + n * HOUR) for n in range(6)]
        fragments = [Fragment((*at, at[1]), {"t": 1.0}, V1, at[1] + HOUR + DAY) for at in parts]
        engine.write([(WINDOWED, rows_from(WINDOWED, fragments))])
        before = engine.stats().windows
        clock.time_us = START_US + 3 * HOUR + DAY + SECOND
        assert engine.expire(clock.now_us()).windows == 3
        assert engine.stats().windows == before - 3
        assert engine.expire(clock.now_us()).windows == 0

    def test_a_dropped_window_can_be_written_again(self, engine: Engine, clock: ManualClock) -> None:
        row = sparse_rows(WINDOWED, [(("p", START_US, 1), {"t": 1.0})], version_us=V1, expire_us=START_US + 2 * HOUR)
        engine.write([(WINDOWED, row)])
        clock.time_us = START_US + 2 * DAY
        engine.expire(clock.now_us())
        engine.write([(WINDOWED, row)])
        now = START_US + 2 * DAY
        engine.write([(WINDOWED, sparse_rows(WINDOWED, [(("p", now, 1), {"t": 1.0})], version_us=V1))])
        assert set(logical(engine, WINDOWED, None)) == {("p", now)}
        engine.expire(clock.now_us())
        assert set(logical(engine, WINDOWED, None)) == {("p", now)}


class DurabilityLaws:
    def reopen(self) -> Engine:
        """Close the engine and open what it stored again. Durable engines override it."""
        raise NotImplementedError

    def test_what_was_acknowledged_is_there_after_reopening(self, engine: Engine, clock: ManualClock) -> None:
        needs(engine, "durable")
        soon = START_US + 10 * SECOND
        engine.write(
            [(SPARSE, sparse_rows(SPARSE, [((*A, n), {"t": 1.0, Tag("t"): "x"}) for n in range(5)], version_us=V1))]
        )
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 3), {"t": "new", "r": b"\xff"})], version_us=V2, expire_us=soon))])
        engine.write([(FIXED, rows_of(FIXED, [(("p", "n"), {"body": "b"})], version_us=V1))])
        rows = [(("p", START_US - n * HOUR, 1), {"t": 1.0}) for n in range(3)]
        engine.write([(WINDOWED, sparse_rows(WINDOWED, rows, version_us=V1))])
        engine.write([(SINGLE, sparse_rows(SINGLE, [((o, ""), {"t": 1.0}) for o in "ab"], version_us=V1))])
        engine.delete(SINGLE, [("a", "")], version_us=V1)
        assert engine.put_if(CONDITIONAL, ("p", "n"), {"body": "one"}, None)
        assert engine.put_if(CONDITIONAL, ("p", "n"), {"body": "two"}, {"body": "one"})
        assert engine.insert(CONDITIONAL, rows_of(CONDITIONAL, [(("p", "m"), {"body": "m"})], version_us=V1)).all()
        before = {table.name: logical(engine, table, None) for table in TABLES}
        for _ in range(2):
            engine = self.reopen()
            engine.apply(TABLES)
            assert {table.name: logical(engine, table, None) for table in TABLES} == before
        assert not engine.put_if(CONDITIONAL, ("p", "n"), {"body": "three"}, None)
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 3), {"t": "stale"})], version_us=V1))])
        assert logical(engine, SPARSE, None) == before[SPARSE.name]
        clock.time_us = soon
        assert "t" not in dict(logical(engine, SPARSE, [A])[A])[3,]

    def test_dropped_windows_stay_dropped_after_reopening(self, engine: Engine, clock: ManualClock) -> None:
        needs(engine, "durable")
        parts = [("p", START_US + n * HOUR) for n in range(4)]
        engine.write([(WINDOWED, sparse_rows(WINDOWED, [((*at, at[1]), {"t": 1.0}) for at in parts], version_us=V1))])
        clock.time_us = START_US + 2 * HOUR + DAY + SECOND
        engine.expire(clock.now_us())
        engine = self.reopen()
        engine.apply(TABLES)
        assert set(logical(engine, WINDOWED, None)) == set(parts[2:])

    def test_closing_twice_is_harmless(self, engine: Engine) -> None:
        engine.close()
        engine.close()
