"""The limit of series: a report passes with all that it brings or not at all, and never more than the limit do."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.catalog.series import Fit, Series, series_in
from widerow.catalog.store import bring_up
from widerow.engine.memory import MemoryEngine
from widerow.engine.rows import Key, Rows, rows_of
from widerow.model.batch import Batch, Report, batch_of
from widerow.model.errors import StorageFull, Unavailable
from widerow.model.tenant import LimitMode, Limits, Tenant
from widerow.model.times import MINUTE, MS, ManualClock
from widerow.schema.shards import shard_of
from widerow.schema.table import Table
from widerow.schema.usage import SERIES

NOW = 1_800_000_000_000_000
names = st.sampled_from(["a", "b", "c", "d", "ü#/"])
reports = st.builds(
    lambda device, metrics: Report(device, NOW, dict.fromkeys(metrics, 1.0), {"tag": "x"}),
    names,
    st.sets(names, min_size=1, max_size=4),
)
batches = st.lists(st.lists(reports, min_size=1, max_size=8), max_size=8)


def limited(to: int, mode: LimitMode = LimitMode.ENFORCE) -> Tenant:
    return Tenant(name="acme", limits=Limits(series=to), limit_modes={"series": mode})


def made(clock: ManualClock) -> tuple[MemoryEngine, Series]:
    engine = MemoryEngine(clock)
    bring_up(engine)
    series = Series(engine, clock)
    series.learn("acme", ())
    return engine, series


def store(engine: MemoryEngine, series: Series, fit: Fit | None) -> None:
    assert fit is not None
    engine.write(fit.changes)
    series.settle(fit, written=True)


def pairs_in(fit: Fit, sent: list[Report]) -> set[tuple[str, str]]:
    """The series of the reports that passed."""
    return {
        (report.device, metric)
        for report, over in zip(sent, fit.over.tolist(), strict=True)
        for metric in report.values
        if not over
    }


@given(batches, st.integers(1, 12), st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_what_fits_passes_in_order_and_is_known_after_a_restart(
    sent: list[list[Report]], most: int, restarts: set[int], failures: set[int]
) -> None:
    clock = ManualClock(NOW)
    engine, series = made(clock)
    known: set[tuple[str, str]] = set()
    for n, batch in enumerate(sent):
        clock.time_us += MS
        if n in restarts:
            series = Series(engine, clock)
        fit = series.admit(limited(most), batch_of(batch))
        assert fit is not None
        before = set(known)
        for report, over in zip(batch, fit.over.tolist(), strict=True):
            brings = {(report.device, metric) for metric in report.values} - known
            assert over == (bool(brings) and len(known) + len(brings) > most)
            if not over:
                known |= brings
        assert len(known) <= most
        if n in failures:
            known = before
            series.settle(fit, written=False)
        else:
            store(engine, series, fit)
        assert series.count(limited(most)) == len(known)


@given(batches, st.integers(1, 12), st.data())
def test_what_is_written_is_known_whatever_else_is_being_written_or_fails(
    sent: list[list[Report]], most: int, data: st.DataObject
) -> None:
    clock = ManualClock(NOW)
    engine, series = made(clock)
    under_way: list[tuple[Fit, set[tuple[str, str]]]] = []
    written: set[tuple[str, str]] = set()
    for batch in [*sent, *[None] * len(sent)]:
        clock.time_us += MS
        if batch:
            fit = series.admit(limited(most), batch_of(batch))
            assert fit is not None
            under_way.append((fit, pairs_in(fit, batch)))
        if under_way and (batch is None or data.draw(st.booleans())):
            fit, pairs = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            if data.draw(st.booleans()):
                store(engine, series, fit)
                written |= pairs
            else:
                series.settle(fit, written=False)
        assert len(written.union(*[pairs for _, pairs in under_way])) <= most
        restarted = Series(engine, clock)
        assert restarted.count(limited(most)) == len(written)
    assert series.count(limited(most)) == len(written)


def test_what_another_is_writing_is_written_by_those_that_pass_and_by_no_others() -> None:
    clock = ManualClock(NOW)
    engine, series = made(clock)
    first = series.admit(limited(2), batch_of([Report("a", NOW, {"x": 1.0}, {})]))
    sent = [Report("a", NOW, {"x": 2.0, "y": 1.0, "z": 1.0}, {}), Report("b", NOW, {"x": 1.0}, {"tag": "x"})]
    second = series.admit(limited(2), batch_of(sent))
    assert first is not None
    assert second is not None
    assert second.over.tolist() == [True, False]
    assert [rows.keys["device_id"][0] for _, rows in second.changes] == ["b"]
    third = series.admit(limited(2), batch_of([Report("a", NOW, {"x": 3.0}, {"tag": "x"})]))
    series.settle(first, written=False)
    store(engine, series, third)
    series.settle(second, written=False)
    assert series.count(limited(2)) == Series(engine, clock).count(limited(2)) == 1


def test_a_series_that_is_erased_while_it_is_written_is_written_again() -> None:
    clock = ManualClock(NOW)
    engine, series = made(clock)
    batch = batch_of([Report("a", NOW, {"x": 1.0}, {})])
    fit = series.admit(limited(1), batch)
    assert fit is not None
    engine.write(fit.changes)
    series.erase("acme", device="a", version_us=clock.time_us)
    assert series.count(limited(1)) == 1, "it counts until that is known"
    series.settle(fit, written=True)
    assert series.count(limited(1)) == 0
    clock.time_us += MS
    store(engine, series, series.admit(limited(1), batch))
    assert Series(engine, clock).count(limited(1)) == 1


@given(batches)
def test_without_a_limit_they_can_be_counted_all_the_same(sent: list[list[Report]]) -> None:
    _, series = made(ManualClock(NOW))
    fits = [series.admit(limited(1_000), batch_of(batch)) for batch in sent]
    written = [rows for fit in fits if fit is not None for _, rows in fit.changes]
    pairs = {(report.device, metric) for batch in sent for report in batch for metric in report.values}
    assert series_in([*written, *written]) == len(pairs)


def test_without_the_limit_nothing_is_counted_or_kept() -> None:
    clock = ManualClock(NOW)
    _, series = made(clock)
    batch = batch_of([Report("a", NOW, {"x": 1.0}, {})])
    for tenant in (Tenant(name="acme"), limited(1, LimitMode.OFF)):
        assert series.admit(tenant, batch) is None
        assert series.count(tenant) is None


def test_a_series_goes_with_its_device_or_metric_and_makes_room() -> None:
    clock = ManualClock(NOW)
    engine, series = made(clock)
    tenant = limited(4)
    fit = series.admit(tenant, batch_of([Report(d, NOW, {"x": 1.0, "y": 1.0}, {}) for d in ("a", "b")]))
    store(engine, series, fit)
    new = batch_of([Report("c", NOW, {"x": 1.0}, {})])
    over = series.admit(tenant, new)
    assert over is not None
    assert over.over.tolist() == [True]
    series.erase("acme", device="a", metric="x", version_us=clock.time_us)
    assert series.count(tenant) == 3
    series.erase("acme", device="a", version_us=clock.time_us)
    assert series.count(tenant) == 2
    series.erase("acme", metric="y", version_us=clock.time_us)
    assert series.count(tenant) == 1
    fits = series.admit(tenant, new)
    assert fits is not None
    assert fits.over.tolist() == [False]
    store(engine, series, fits)
    series.erase("acme", version_us=clock.time_us + MS)
    assert series.count(tenant) == 0


def test_erasing_a_metric_of_any_name_leaves_the_limit_in_force() -> None:
    clock = ManualClock(NOW)
    engine, series = made(clock)
    marked = {name for rows in engine.scan(SERIES, None) for name in rows.cells.names.to_list()}
    assert marked, "that the limit holds is a cell, too"
    for metric in marked:
        series.erase("acme", metric=metric, version_us=clock.time_us + MS)
    assert series.count(limited(4)) == 0
    assert series.unlearned() == []


def test_the_limit_holds_when_what_was_there_is_learned() -> None:
    clock = ManualClock(NOW)
    engine = MemoryEngine(clock)
    bring_up(engine)
    series, tenant = Series(engine, clock), limited(2)
    woken: list[bool] = []
    series.wake = lambda: woken.append(True)
    many = batch_of([Report("a", NOW, {f"m{i}": 1.0}, {}) for i in range(5)])
    first = series.admit(tenant, many)
    assert first is not None
    assert not first.over.any(), "not before it is known what there is"
    assert (woken, series.unlearned()) == ([True], ["acme"])
    store(engine, series, first)
    old = [rows for _, rows in first.changes]
    series.learn("acme", old)
    assert (series.unlearned(), series.count(tenant)) == ([], 5)
    for known in (series, Series(engine, clock)):
        later = known.admit(tenant, batch_of([Report("a", NOW, {"m1": 2.0}, {}), Report("b", NOW, {"m1": 2.0}, {})]))
        assert later is not None
        assert later.over.tolist() == [False, True], "what there is goes on, also beyond the limit"


def test_what_could_not_be_noted_while_it_was_looked_up_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(NOW)
    engine = MemoryEngine(clock)
    bring_up(engine)
    series, tenant = Series(engine, clock), limited(2)
    had = rows_of(SERIES, [(("acme", shard_of(device), device), {"x": 1.0}) for device in "ab"], version_us=NOW)

    def full(_changes: object) -> None:
        raise StorageFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "write", full)
        with pytest.raises(StorageFull):
            series.learn("acme", [had])
    series.learn("acme", [had])
    assert Series(engine, clock).count(tenant) == series.count(tenant) == 2


@pytest.mark.parametrize("count", [10_000])
def test_the_table_grows_with_what_it_holds(count: int) -> None:
    clock = ManualClock(NOW)
    engine, series = made(clock)
    batch = batch_of([Report(f"d{i}", NOW, {"x": 1.0, "y": 1.0}, {}) for i in range(count)])
    fit = series.admit(limited(2 * count - 1), batch)
    assert fit is not None
    assert fit.over.tolist() == [False] * (count - 1) + [True]
    store(engine, series, fit)
    again = series.admit(limited(2 * count - 1), batch)
    assert again is not None
    assert (again.changes, int(again.over.sum())) == ([], 1)


def test_a_limit_that_holds_again_looks_up_what_came_meanwhile() -> None:
    clock = ManualClock(NOW)
    engine, series = made(clock)
    before = batch_of([Report("a", NOW, {"x": 1.0}, {})])
    fit = series.admit(limited(1), before)
    store(engine, series, fit)
    assert series.admit(limited(1, LimitMode.OFF), before) is None
    meanwhile = batch_of([Report(f"d{i}", NOW, {"x": 1.0}, {}) for i in range(5)])
    assert series.admit(limited(1, LimitMode.OFF), meanwhile) is None, "nothing is noted"
    clock.time_us += MS
    series.begin_anew("acme")
    again = series.admit(limited(3), meanwhile)
    assert again is not None
    assert not again.over.any(), "they are there, and go on"
    assert series.unlearned() == ["acme"]
    store(engine, series, again)
    clock.time_us += MS
    series.learn("acme", ())
    assert series.count(limited(3)) == 6


@given(st.lists(reports, max_size=8), st.lists(reports, min_size=1, max_size=8), st.integers(1, 12))
def test_in_shadow_those_are_told_that_enforcing_would_have_refused(
    before: list[Report], sent: list[Report], most: int
) -> None:
    clock = ManualClock(NOW)
    engine, series = made(clock)
    first = series.admit(limited(1_000), batch_of(before)) if before else None
    if before:
        store(engine, series, first)
    told = Series(engine, clock).admit(limited(most, LimitMode.SHADOW), batch_of(sent))
    refused = Series(engine, clock).admit(limited(most), batch_of(sent))
    assert told is not None
    assert refused is not None
    assert told.over.tolist() == refused.over.tolist()
    engine.write(told.changes)
    pairs = {(report.device, metric) for report in [*before, *sent] for metric in report.values}
    assert Series(engine, clock).count(limited(most)) == len(pairs), "all are noted"


def test_in_shadow_what_is_over_is_told_and_noted() -> None:
    clock = ManualClock(NOW)
    engine, series = made(clock)
    shadow = limited(2, LimitMode.SHADOW)
    fit = series.admit(shadow, batch_of([Report(f"d{i}", NOW, {"x": 1.0}, {}) for i in range(2)]))
    assert fit is not None
    assert not fit.over.any()
    store(engine, series, fit)
    third = batch_of([Report("d0", NOW, {"x": 1.0}, {}), Report("d2", NOW, {"x": 1.0}, {})])
    fit = series.admit(shadow, third)
    assert fit is not None
    assert fit.over.tolist() == [False, True]
    store(engine, series, fit)
    enforced = series.admit(limited(2), third)
    assert enforced is not None
    assert not enforced.over.any(), "it was accepted, so it goes on"


def of_device(*names: str) -> Batch:
    return batch_of([Report(name, NOW, {"x": 1.0}, {}) for name in names])


def shared(clock: ManualClock) -> tuple[MemoryEngine, Series, Series]:
    """Two processes that share a store."""
    engine, _ = made(clock)
    return engine, Series(engine, clock, reload_us=MINUTE), Series(engine, clock, reload_us=MINUTE)


def test_what_other_processes_added_or_erased_is_read_aside_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, tenant = ManualClock(NOW), limited(3)
    engine, mine, others = shared(clock)
    store(engine, mine, mine.admit(tenant, of_device("a", "b")))
    woken: list[bool] = []
    mine.wake = lambda: woken.append(True)
    mine.read_again()
    others.erase("acme", device="a", version_us=clock.time_us)
    store(engine, others, others.admit(tenant, of_device("c", "d")))
    clock.time_us += MINUTE

    def fails(*_: object) -> None:
        raise Unavailable("it does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "scan", fails)
        for _ in range(2):
            fit = mine.admit(tenant, of_device("b"))
            assert fit is not None
            assert not fit.over.any()
        assert (mine.count(tenant), woken) == (2, [True])
        with pytest.raises(Unavailable):
            mine.read_again()
        assert mine.count(tenant) == 2, "it goes on with what was known"
        clock.time_us += MINUTE
        assert (mine.count(tenant), woken) == (2, [True, True]), "it is asked for again"
    mine.read_again()
    assert mine.count(tenant) == 3
    fit = mine.admit(tenant, of_device("d", "a"))
    assert fit is not None
    assert fit.over.tolist() == [False, True]


@pytest.mark.parametrize("erased", ["", "a", "written"])
def test_what_comes_while_it_is_read_again_is_kept(erased: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, tenant = ManualClock(NOW), limited(9)
    engine, series, others = shared(clock)
    store(engine, series, series.admit(tenant, of_device("a", "b")))
    store(engine, others, others.admit(tenant, of_device("c")))
    being_written = series.admit(tenant, of_device("before"))
    clock.time_us += MINUTE
    assert series.count(tenant) == 3
    scan, fits = engine.scan, [being_written]

    def slowly(table: Table, partitions: Sequence[Key] | None) -> list[Rows]:
        found = list(scan(table, partitions))
        if len(fits) == 1:  # there is one reading that this happens to
            fits.append(series.admit(tenant, of_device("while")))
            store(engine, series, series.admit(tenant, of_device("written")))
            if erased:
                series.erase("acme", device=erased, version_us=clock.time_us)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(engine, "scan", slowly)
        series.read_again()
    assert series.count(tenant) == 6 - bool(erased)
    for fit in fits:
        store(engine, series, fit)
    assert series.count(tenant) == Series(engine, clock).count(tenant) == 6 - bool(erased)


def test_that_a_limit_holds_is_not_lost_while_it_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, tenant = ManualClock(NOW), limited(1)
    engine = MemoryEngine(clock)
    bring_up(engine)
    series = Series(engine, clock, reload_us=MINUTE)
    assert series.count(tenant) == 0
    clock.time_us += MINUTE
    assert series.count(tenant) == 0
    scan = engine.scan

    def slowly(table: Table, partitions: Sequence[Key] | None) -> list[Rows]:
        found = list(scan(table, partitions))
        series.learn("acme", ())
        return found

    with monkeypatch.context() as patch:
        patch.setattr(engine, "scan", slowly)
        series.read_again()
    assert series.unlearned() == []


def test_nobody_waits_while_what_another_tenant_has_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(NOW)
    engine, series = made(clock)
    assert series.count(limited(1)) == 0
    scan, begun, go_on = engine.scan, threading.Event(), threading.Event()

    def slowly(table: Table, partitions: Sequence[Key] | None) -> Iterator[Rows]:
        begun.set()
        assert go_on.wait(30)
        return scan(table, partitions)

    monkeypatch.setattr(engine, "scan", slowly)
    slow = threading.Thread(target=series.count, args=(replace(limited(1), name="slow"),))
    quick = threading.Thread(target=series.admit, args=(limited(1), of_device("a")))
    slow.start()
    assert begun.wait(30)
    quick.start()
    quick.join(5)
    waits = quick.is_alive()
    go_on.set()
    for thread in (slow, quick):
        thread.join()
    assert not waits
