"""The law of rollups: whatever happened on the way, they say what one computation from the raw reports says, bit for bit."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.engine.rocksdb import RocksEngine, RocksSettings
from widerow.model.batch import Report, batch_of
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MS, SECOND, ManualClock, TimeSpan
from widerow.rollup.marks import Marks, Unit
from widerow.rollup.roll import Roller
from widerow.rollup.store import Rollups
from widerow.schema.rollups import LEVELS
from widerow.schema.tables import TABLES
from widerow.telemetry.store import Telemetry, TelemetrySettings

NOW = 1_800_000_000_000_000
DEVICES = ("a", "b", "ü#/")
TENANT = Tenant(name="acme")

cells = st.tuples(
    st.sampled_from(DEVICES),
    st.integers(0, 200).map(lambda n: NOW - n * 37 * SECOND) | st.integers(1, 30 * 24).map(lambda n: NOW - n * HOUR),
    st.sampled_from(["temp", "flow"]),
    st.integers(-1000, 1000).map(lambda n: n / 8),
)
writes = st.tuples(st.just("write"), st.lists(cells, min_size=1, max_size=12), st.integers(0, 3))
others = st.tuples(st.sampled_from(["roll", "roll", "restart", "again", "fail"]))
histories = st.lists(writes | others, max_size=14)

SMALL = RocksSettings(cache_bytes=1 << 20, write_buffer_bytes=1 << 20, reserve_bytes=0)

Records: TypeAlias = dict[Any, bytes]


class Site:
    """A store with what writes and rolls it; `restart` forgets everything that is not in the store."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.engine, self.clock = engine, clock
        engine.apply(TABLES)
        self.restart()

    def restart(self) -> None:
        settings = TelemetrySettings(max_future_us=HOUR, refresh_us=SECOND)
        self.telemetry = Telemetry(self.engine, self.clock, settings)
        self.marks = Marks(self.engine, self.clock)
        self.rollups = Rollups(self.engine)
        self.roller = Roller(self.engine, self.telemetry, self.rollups, self.marks, self.clock)

    def write(self, reports: list[Report], *, written: bool = True) -> None:
        batch = batch_of(reports)
        plan, marks = self.telemetry.plan(TENANT, batch), self.marks.plan(TENANT.name, batch)
        # A write that fails leaves whole earlier entries: here the marks alone.
        self.engine.write([*marks.changes, *plan.changes] if written else marks.changes)
        if not written:
            self.telemetry.failed(plan)
        self.marks.settle(marks, written=written)

    def roll(self, most: int | None = None) -> None:
        for unit in list(self.marks.units([TENANT.name]))[:most]:
            self.roller.roll(TENANT, unit)

    def records(self) -> Records:
        """(level, device, window, metric) -> record."""
        found: Records = {}
        span = TimeSpan(NOW - 40 * DAY, NOW + DAY)
        for level in LEVELS:
            for device in DEVICES:
                for rows in self.rollups.read(TENANT, [device], level, span):
                    starts = np.asarray(rows.keys["start_us"])
                    for i in range(len(rows)):
                        for c in range(int(rows.cells.offsets[i]), int(rows.cells.offsets[i + 1])):
                            key = (level.name, device, int(starts[i]), rows.cells.names[int(rows.cells.name[c])])
                            assert key not in found
                            found[key] = rows.cells.texts.bytes_at(int(rows.cells.text[c]))
        return found


def reports_of(cells: list[tuple[str, int, str, float]], version_us: int) -> list[Report]:
    """One report for each device and time; of a metric that is given twice the last counts."""
    rows: dict[tuple[str, int], dict[str, float | str]] = {}
    for device, at, metric, value in cells:
        rows.setdefault((device, at), {})[metric] = value
    return [Report(device, at, values, {}, version_us) for (device, at), values in rows.items()]


def check_law(engine: Engine, clock: ManualClock, history: list[Any]) -> None:
    site, sent = Site(engine, clock), []
    for n, action in enumerate(history):
        clock.time_us += 7 * MS
        if action[0] == "write":
            # Some come with the version of long ago: a replay, or a slow way.
            batch = reports_of(action[1], NOW + (n - action[2]) * MS * 10)
            sent.append(batch)
            site.write(batch)
        elif action[0] == "again" and sent:
            site.write(sent[n % len(sent)])
        elif action[0] == "fail":
            site.write(reports_of([("a", NOW - HOUR, "temp", 1.0)], NOW), written=False)
        elif action[0] == "restart":
            site.restart()
        else:
            site.roll(most=2)
    site.roll()
    assert not list(site.marks.units([TENANT.name])), "everything that was marked is rolled"
    alone_clock = ManualClock(clock.time_us)
    alone = Site(MemoryEngine(alone_clock), alone_clock)
    for batch in sent:
        alone.write(batch)
    alone.roll()
    assert site.records() == alone.records()


@given(histories)
def test_rollups_are_a_function_of_raw_in_memory(history: list[Any]) -> None:
    clock = ManualClock(NOW)
    check_law(MemoryEngine(clock), clock, history)


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow], deadline=None)
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
    return list(site.marks.units([TENANT.name]))


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
    assert (unit.tenant, unit.hour_us) == ("acme", hour)
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
    site.marks.settle(marks, written=True)
    thread.join(10)
    assert ended.is_set()
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
