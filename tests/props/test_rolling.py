"""The law of rollups: whatever happened on the way, they say what one computation from the raw reports says, bit for bit."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.rollup_suite import DEVICES, NOW, TENANT, Site, check_law
from widerow.engine.memory import MemoryEngine
from widerow.engine.rocksdb import RocksEngine, RocksSettings
from widerow.model.batch import Report, batch_of
from widerow.model.times import HOUR, SECOND, ManualClock
from widerow.rollup.unit import Unit
from widerow.schema.rollups import LEVELS

cells = st.tuples(
    st.sampled_from(DEVICES),
    st.integers(0, 200).map(lambda n: NOW - n * 37 * SECOND) | st.integers(1, 30 * 24).map(lambda n: NOW - n * HOUR),
    st.sampled_from(["temp", "flow"]),
    st.integers(-1000, 1000).map(lambda n: n / 8) | st.sampled_from(["on", "off"]),
)
writes = st.tuples(st.just("write"), st.lists(cells, min_size=1, max_size=12), st.integers(0, 3))
others = st.tuples(st.sampled_from(["roll", "roll", "close", "close", "restart", "again", "fail"]))
histories = st.lists(writes | others, max_size=14)

SMALL = RocksSettings(cache_bytes=1 << 20, write_buffer_bytes=1 << 20, reserve_bytes=0)


@settings(max_examples=25)
@given(histories)
def test_rollups_are_a_function_of_raw_in_memory(history: list[Any]) -> None:
    clock = ManualClock(NOW)
    check_law(MemoryEngine(clock), clock, history)


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(histories)
def test_rollups_are_a_function_of_raw_on_rocksdb(history: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock(NOW)
        engine = RocksEngine(Path(folder), clock=clock, settings=SMALL)
        try:
            check_law(engine, clock, history)
        finally:
            engine.close()


@pytest.fixture
def site() -> Site:
    clock = ManualClock(NOW)
    return Site(MemoryEngine(clock), clock)


def marked(site: Site) -> list[Unit]:
    found = list(site.marks.units())
    assert sorted(site.marks.pending()) == found, "what is known is what is stored"
    return found


def test_an_hour_of_a_device_is_marked_once_and_again_after_it_was_taken(site: Site) -> None:
    def plan(at: int) -> int:
        batch = batch_of([Report("a", at, {"temp": 1.0}, {}, NOW)])
        made = site.marks.plan("acme", batch)
        site.engine.write(made.changes)
        site.marks.settle(made, written=True)
        return len(made.changes)

    hour = NOW - NOW % HOUR
    assert plan(hour) == 1
    assert plan(hour + 1) == 0
    (unit,) = marked(site)
    assert (unit.tenant, unit.start_us) == ("acme", hour)
    taken = site.marks.take(unit)
    assert taken.devices == ["a"]
    assert plan(hour + 2) == 1, "it came after what was taken"
    site.marks.finish(taken)
    assert marked(site) == [unit], "and so is still to be rolled"
    site.marks.finish(site.marks.take(unit))
    assert marked(site) == []


def test_taking_waits_for_what_was_planned_before(site: Site) -> None:
    batch = batch_of([Report("a", NOW, {"temp": 1.0}, {}, NOW)])
    site.write([Report("a", NOW, {"temp": 0.5}, {}, NOW)])
    plan, marks = site.telemetry.plan(TENANT, batch), site.marks.plan("acme", batch)
    assert not marks.changes, "it relies on the mark of the write before"
    (unit,) = marked(site)
    ended = threading.Event()

    def roll() -> None:
        site.roller.roll(TENANT, unit)
        ended.set()

    thread = threading.Thread(target=roll)
    thread.start()
    assert not ended.wait(0.2), "the report may come any moment"
    site.engine.write(plan.changes)
    site.windows.add(TENANT.name, plan.reports)
    site.marks.settle(marks, written=True)
    thread.join(10)
    assert ended.is_set()
    site.roll()
    alone = Site(MemoryEngine(site.clock), site.clock)
    alone.write([Report("a", NOW, {"temp": 1.0}, {}, NOW)])
    alone.roll()
    assert site.records() == alone.records()


def test_a_roll_that_breaks_off_is_done_again(site: Site) -> None:
    site.write([Report("a", NOW, {"temp": 1.0}, {}, NOW)])
    (unit,) = marked(site)
    taken = site.marks.take(unit)
    assert len(taken.devices) == 1
    site.restart()  # before anything was rolled
    assert marked(site) == [unit]
    site.roll()
    assert len(site.records()) == len(LEVELS)
