"""Until when closed minutes answer for an hour that is not rolled yet, and what makes raw reports answer for all of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from contract.rollup_suite import NOW, TENANT, Site
from widerow.catalog.catalog import Catalog
from widerow.engine.memory import MemoryEngine
from widerow.engine.rows import Rows
from widerow.model.batch import Report
from widerow.model.errors import NotTheWriter, Unavailable
from widerow.model.names import Names
from widerow.model.times import HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.query.budget import Budget, QuerySettings
from widerow.query.stepped import Sources, Stepped, stepped
from widerow.query.steps import whole_span
from widerow.rollup.pyramid import Pyramid, PyramidSettings
from widerow.rollup.roll import Rolled
from widerow.rollup.windows import Windows, WindowSettings
from widerow.schema.table import Table
from widerow.telemetry.store import Telemetry, TelemetrySettings

BEGAN = NOW - NOW % HOUR
"""A whole hour."""


class Shaky(MemoryEngine):
    """Does not answer when it is told not to."""

    down = False

    def write(self, changes: Sequence[tuple[Table, Rows]]) -> None:
        if self.down:
            raise Unavailable("no answer")
        super().write(changes)

    def scan(self, *args: Any, **how: Any) -> Iterator[Rows]:
        if self.down:
            raise Unavailable("no answer")
        return super().scan(*args, **how)


@pytest.fixture
def site() -> Site:
    clock = ManualClock(BEGAN)
    return Site(Shaky(clock), clock)


def send(site: Site, *times_us: int, device: str = "a", value: float = 1.0) -> None:
    """Reports of times from the begin of the hour on."""
    site.clock.time_us += MS
    site.write([Report(device, BEGAN + at, {"temp": value}, {}, site.clock.time_us) for at in times_us])


def close(site: Site, before_us: int = HOUR) -> None:
    site.clock.time_us += MS
    site.roller.close(TENANT, before_us=BEGAN + before_us)


def until(site: Site, *devices: str, hour_us: int = 0) -> int:
    """From the begin of the hour on; as readers are told."""
    dirt = site.roller.dirt(TENANT, devices or ("a",))
    return dirt.minutes.get(BEGAN + hour_us, BEGAN + hour_us) - BEGAN - hour_us


def asked(site: Site, *devices: str) -> Stepped:
    span = TimeSpan(BEGAN, BEGAN + HOUR)
    sources = Sources(site.telemetry, site.rollups, site.roller.dirt, site.clock)
    budget = Budget(QuerySettings(), TENANT)
    return stepped(sources, TENANT, devices or ("a",), span=span, steps=whole_span(span), budget=budget)


def test_minutes_answer_up_to_the_first_that_is_open(site: Site) -> None:
    send(site, SECOND, 2 * SECOND, 61 * SECOND, 5 * MINUTE, 5 * MINUTE + SECOND)
    assert until(site) == 0, "nothing is closed"
    close(site, 3 * MINUTE)
    assert until(site) == 5 * MINUTE
    found = asked(site)
    assert (found.values("count").tolist(), found.used) == ([5], {"minute": 2, "raw": 2})
    close(site)
    assert until(site) == HOUR, "everything that came is in minutes"
    found = asked(site)
    assert (found.values("count").tolist(), found.used) == ([5], {"minute": 3})


def test_what_comes_in_is_open_at_once(site: Site) -> None:
    send(site, SECOND, 5 * MINUTE)
    close(site)
    send(site, 7 * MINUTE)
    assert until(site) == 7 * MINUTE
    send(site, 6 * MINUTE, HOUR + 3 * MINUTE)
    assert (until(site), until(site, hour_us=HOUR)) == (6 * MINUTE, 3 * MINUTE)
    assert asked(site).values("count").tolist() == [4]


def test_a_minute_is_open_until_it_is_durable(site: Site) -> None:
    send(site, 3 * MINUTE)
    send(site, 9 * MINUTE)
    rows = site.windows.close(TENANT.name, before_us=BEGAN + 5 * MINUTE)
    assert until(site) == 3 * MINUTE
    site.windows.closed(TENANT.name, rows, written=True)
    assert until(site) == 9 * MINUTE


def test_a_minute_that_could_not_be_written_makes_its_hour_stale(site: Site) -> None:
    for at, step in ((0, "write"), (HOUR, "erasure")):
        send(site, at + SECOND, at + 10 * MINUTE)
        send(site, at + SECOND, device="b")
        # What was erased is read again when it is older than a second: then that is what fails.
        if step == "write":
            site.telemetry.erasure.marks(TENANT.name)
        else:
            site.clock.time_us += 2 * SECOND
        site.engine.down = True  # type: ignore[attr-defined]
        with pytest.raises(Unavailable):
            site.roller.close(TENANT, before_us=BEGAN + at + MINUTE)
        site.engine.down = False  # type: ignore[attr-defined]
        site.roller.close(TENANT, before_us=BEGAN + at + HOUR)
        assert until(site, hour_us=at) == 0
        done = [site.roller.roll(TENANT, unit) for unit in sorted(site.marks.pending()) if unit.start_us == BEGAN + at]
        assert sum(r.devices for r in done) == 2
        assert sum(r.from_minutes for r in done) == 0, step


def test_a_late_report_is_answered_by_raw_reports_and_only_of_its_device(site: Site) -> None:
    send(site, SECOND, 5 * MINUTE)
    send(site, SECOND, 5 * MINUTE, device="b")
    close(site)
    send(site, 2 * MINUTE)
    assert until(site) == until(site, "b") == 2 * MINUTE, "it is not yet known whose it is"
    close(site, 0)
    assert (until(site), until(site, "a", "b"), until(site, "b")) == (0, 0, HOUR)
    assert asked(site, "a", "b").values("count").tolist() == [3, 2]


def test_a_report_that_comes_twice_is_answered_by_raw_reports(site: Site) -> None:
    send(site, SECOND)
    send(site, SECOND, value=2.0)
    send(site, SECOND, device="b")
    close(site)
    assert until(site, "b") == 0, "it is not yet known whose it is"
    close(site)
    assert (until(site), until(site, "b")) == (0, HOUR)
    found = asked(site)
    assert (found.values("sum").tolist(), found.used) == ([2.0], {"raw": 1})


def test_what_was_not_kept_makes_its_hour_stale_before_it_is_acknowledged(site: Site) -> None:
    site.windows = Windows(site.clock, WindowSettings(max_bytes=100), alone_from_us=0)
    site.roller._windows = site.windows
    send(site, SECOND)
    send(site, 2 * SECOND)
    close(site)
    assert until(site) == HOUR
    send(site, 3 * MINUTE)
    send(site, 4 * MINUTE)
    send(site, 5 * MINUTE)
    assert until(site) == 0
    close(site)
    assert (until(site), asked(site).values("count").tolist()) == (0, [5])


def test_a_write_that_failed_makes_its_hour_stale(site: Site) -> None:
    send(site, SECOND)
    close(site)
    site.write([Report("a", BEGAN + 20 * MINUTE, {"temp": 1.0}, {}, NOW)], written=False)
    assert until(site) == 0
    close(site)
    assert until(site) == 0


def test_after_a_restart_only_later_hours_and_new_devices_have_minutes_to_rely_on(site: Site) -> None:
    send(site, SECOND)
    close(site)
    site.restart()
    assert until(site) == 0, "nothing is known"
    send(site, 10 * MINUTE)
    close(site)
    assert until(site) == 0
    site.clock.time_us = BEGAN + HOUR
    send(site, 2 * HOUR)
    close(site, 3 * HOUR)
    assert until(site, hour_us=2 * HOUR) == HOUR
    assert until(site, "a", "never seen", hour_us=2 * HOUR) == HOUR, "who was silent all along said nothing"
    site.write([Report("new", BEGAN + 5 * MINUTE, {"temp": 1.0}, {}, site.clock.time_us)], fresh=Names.of(["new"]))
    close(site)
    assert (until(site, "new"), until(site, "a", "new")) == (HOUR, 0)


def test_an_hour_that_was_taken_for_rolling_and_those_before_it_are_raw_until_they_are_rolled(site: Site) -> None:
    send(site, SECOND, HOUR + SECOND, 2 * HOUR + SECOND)
    close(site, 3 * HOUR)
    assert until(site, hour_us=HOUR) == HOUR
    site.windows.take(TENANT.name, BEGAN + HOUR, ["a"])
    assert [until(site, hour_us=at * HOUR) for at in range(3)] == [0, 0, HOUR]
    site.roll()
    assert site.roller.dirt(TENANT, ["a"]).hours == frozenset()


def test_who_was_away_relies_on_nothing(site: Site) -> None:
    send(site, SECOND)
    close(site)
    site.windows.forget(site.clock.time_us + HOUR)
    assert until(site) == 0
    close(site)
    assert until(site) == 0


def test_where_a_part_of_the_hour_was_erased_raw_reports_answer(site: Site) -> None:
    send(site, SECOND, 2 * SECOND, HOUR + SECOND)
    close(site, 2 * HOUR)
    site.clock.time_us += SECOND
    site.telemetry.erase(TENANT, device="a", metric="temp", span=TimeSpan(BEGAN, BEGAN + 2 * SECOND))
    assert (until(site), until(site, hour_us=HOUR)) == (0, HOUR)
    assert asked(site).values("count").tolist() == [1]


def test_a_process_that_does_not_have_the_lease_looks_into_the_store() -> None:
    clock = ManualClock(BEGAN)
    site = Site(MemoryEngine(clock), clock)
    held = True

    def may_roll() -> None:
        if not held:
            raise NotTheWriter("another has it")

    settings = PyramidSettings(max_future_us=0, rolls=True)
    telemetry = Telemetry(site.engine, clock, TelemetrySettings(max_future_us=HOUR, refresh_us=SECOND))
    pyramid = Pyramid(site.engine, telemetry, Catalog(site.engine, clock), clock, settings, may_roll=may_roll)
    site.roller, site.windows, site.marks = pyramid.roller, pyramid.windows, pyramid.marks  # type: ignore[assignment]
    send(site, HOUR + SECOND)
    close(site, 2 * HOUR)
    assert pyramid.dirt(TENANT, ["a"]).minutes == {BEGAN + HOUR: BEGAN + 2 * HOUR}
    held = False
    dirt = pyramid.dirt(TENANT, ["a"])
    assert BEGAN + HOUR in dirt.hours
    assert dirt.minutes == {}
    assert pyramid.stale(TENANT).within(TimeSpan(BEGAN, BEGAN + 2 * HOUR))


def test_what_was_acknowledged_before_a_question_is_in_its_answer(site: Site) -> None:
    """Minutes are closed by one thread, reports written by another, some of them late; a third one asks."""
    random, acknowledged, sent, ended = Random(5), 0, 0, threading.Event()
    times = [*range(0, HOUR, 10 * SECOND)]
    late = random.sample(times[:40], 3)
    on_time = [time for time in times if time not in late]

    def write() -> None:
        nonlocal acknowledged, sent
        for n, at in enumerate(on_time):
            now = [at, late.pop()] if n > 250 and n % 20 == 0 and late else [at]
            sent += len(now)
            site.write([Report("a", BEGAN + time, {"temp": 1.0}, {}, NOW + n * MS) for time in now])
            acknowledged += len(now)
        ended.set()

    def close_minutes() -> None:
        while not ended.is_set():
            open_us = BEGAN + acknowledged * 10 * SECOND
            site.roller.close(TENANT, before_us=open_us - 2 * MINUTE)

    threads = [threading.Thread(target=write), threading.Thread(target=close_minutes)]
    for thread in threads:
        thread.start()
    minutes = 0
    while not ended.is_set():
        least = acknowledged
        found = asked(site)
        count = sum(found.values("count").tolist())
        minutes += found.used.get("minute", 0)
        assert least <= count <= sent
    for thread in threads:
        thread.join()
    assert asked(site).values("count").tolist() == [360]
    assert minutes > 0, "it was not all raw"
    assert Rolled(1) in [site.roller.roll(TENANT, unit) for unit in sorted(site.marks.pending())]
