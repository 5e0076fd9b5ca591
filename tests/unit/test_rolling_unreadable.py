"""What becomes of rollups whose reports, or hours, cannot be read."""

from __future__ import annotations

import pytest

from contract.rollup_suite import TENANT, Site
from unreadable import DamagedEngine, raw_of
from widerow.model.batch import Report
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, ManualClock
from widerow.rollup.roll import Rolled
from widerow.rollup.rolling import Rolling, RollingSettings

HOUR_US = 1_800_000_000_000_000 // DAY * DAY + 5 * HOUR
SETTINGS = RollingSettings(lateness_us=2 * MINUTE, settle_us=10 * SECOND, longest_us=5 * MINUTE)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(HOUR_US + 30 * MINUTE)


@pytest.fixture
def engine(clock: ManualClock) -> DamagedEngine:
    return DamagedEngine(clock)


@pytest.fixture
def site(engine: DamagedEngine, clock: ManualClock) -> Site:
    """Two devices, an hour and a day of which are rolled."""
    site = Site(engine, clock)
    both(site, 0)
    site.clock.time_us += DAY
    site.roll()
    return site


def both(site: Site, minute: int) -> None:
    site.write(
        [Report(device, HOUR_US + minute * MINUTE, {"temp": float(minute)}, {}, site.clock.now_us()) for device in "ab"]
    )


def rolling(site: Site, done: list[tuple[str, Rolled]] | None = None) -> Rolling:
    told = (lambda *rolled: done.append(rolled)) if done is not None else (lambda *_: None)
    return Rolling(site.marks, site.roller, lambda _: TENANT, site.clock, SETTINGS, fleet=site.fleet, rolled=told)


def of(records: dict[tuple[str, str, int, str], bytes], device: str) -> dict[tuple[str, str, int, str], bytes]:
    return {key: record for key, record in records.items() if key[1] == device}


def test_a_good_hour_is_not_rolled_again_from_its_readable_part(
    site: Site, engine: DamagedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    before, done = site.records(), list[tuple[str, Rolled]]()
    both(site, 1)
    site.clock.time_us += MINUTE
    engine.damaged = raw_of("a")
    roller = rolling(site, done)
    roller.roll_due()
    after = site.records()
    assert of(after, "a") == of(before, "a")
    assert len(of(after, "b")) == len(of(before, "b")) + 1, "its neighbour is rolled"
    assert "cannot be read" in caplog.text
    assert [len(rolled.unreadable) for level, rolled in done if level == "hour"] == [1]
    for _ in range(3):
        site.clock.time_us += MINUTE
        roller.roll_due()
    assert caplog.text.count("the hour from") == 1, "it is not tried all the time"
    engine.damaged = lambda *_: False
    site.clock.time_us += 5 * MINUTE
    roller.roll_due()
    assert len(of(site.records(), "a")) == len(of(before, "a")) + 1
    assert site.marks.pending() == {}


def test_other_windows_of_the_tenant_go_on(site: Site, engine: DamagedEngine) -> None:
    both(site, 1)
    site.clock.time_us += 2 * HOUR
    engine.damaged = lambda table, key: table == "telemetry_30d" and HOUR_US - HOUR < int(key[2]) < HOUR_US + HOUR
    site.write([Report("a", HOUR_US + DAY, {"temp": 5.0}, {}, site.clock.now_us())])
    site.clock.time_us += MINUTE
    rolling(site).roll_due()
    assert ("hour", "a", HOUR_US + DAY, "temp") in site.records()


@pytest.mark.parametrize("restarts", [False, True])
def test_marks_stay_until_the_window_can_be_read(site: Site, engine: DamagedEngine, restarts: bool) -> None:
    both(site, 1)
    site.clock.time_us += MINUTE
    engine.damaged = raw_of("a", "b")
    rolling(site).roll_due()
    engine.damaged = lambda *_: False
    if restarts:
        site.restart()
    assert len(site.marks.pending()) == 2
    site.clock.time_us += MINUTE
    rolling(site).roll_due()
    assert ("minute", "a", HOUR_US + MINUTE, "temp") in site.records()


def test_minutes_that_cannot_be_read_are_made_again_from_reports(site: Site, engine: DamagedEngine) -> None:
    site.write([Report("a", HOUR_US + DAY + 40 * MINUTE, {"temp": 5.0}, {}, site.clock.now_us())])
    site.clock.time_us += 2 * HOUR
    engine.damaged = lambda table, _: table.startswith("telemetry_1min")
    rolling(site).roll_due()
    engine.damaged = lambda *_: False
    assert ("hour", "a", HOUR_US + DAY, "temp") in site.records()


def test_a_day_and_a_fleet_hour_stay_while_hours_cannot_be_read(site: Site, engine: DamagedEngine) -> None:
    before, fleet = site.records(), site.fleet_records()
    both(site, 1)
    site.clock.time_us += MINUTE
    for unit in site.marks.pending():
        site.roller.roll(TENANT, unit)
    engine.damaged = lambda table, key: table.startswith("telemetry_hourly") and key[1] == "a"
    roller = rolling(site)
    roller.roll_due()
    engine.damaged = lambda *_: False
    key = ("day", "a", HOUR_US - HOUR_US % DAY, "temp")
    assert site.records()[key] == before[key]
    assert (
        {unit.shard for unit in site.roller.days.pending()} == {unit.shard for unit in site.roller.fleet.pending()} != set()
    )
    site.clock.time_us += 5 * MINUTE
    roller.roll_due()
    assert site.records()[key] != before[key]
    assert site.fleet_records() != fleet
    assert site.roller.days.pending() == site.roller.fleet.pending() == {}
