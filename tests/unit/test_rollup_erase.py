"""Nothing of what was erased goes on in a summary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from contract.rollup_suite import TENANT, Site
from widerow.engine.memory import MemoryEngine
from widerow.engine.rows import Rows
from widerow.model.batch import Report
from widerow.model.tenant import GUARD_US
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.rollup.backlog import Backlog
from widerow.rollup.crew import CrewSettings
from widerow.rollup.erase import Eraser
from widerow.rollup.fleet_summary import ALL_TYPES, summary_of_fleets
from widerow.rollup.guard import marked_in_store
from widerow.rollup.marks import Marks
from widerow.rollup.roll import Roller
from widerow.rollup.store import Rollups, kept_at
from widerow.rollup.unit import Unit
from widerow.schema.rollups import DAYS, LEVELS, MINUTES, rollups
from widerow.schema.shards import shard_of
from widerow.schema.table import Table
from widerow.telemetry.erasure import Mark
from widerow.telemetry.store import Telemetry, TelemetrySettings

BEGAN = 1_800_000_000_000_000 // DAY * DAY
STEP = 7 * MINUTE + 13 * SECOND


@pytest.fixture
def site() -> Site:
    clock = ManualClock(BEGAN)
    return Site(MemoryEngine(clock), clock)


def reports(device: str, hours: range, metrics: Iterable[str], without: TimeSpan | None = None) -> list[Report]:
    """Some for each hour; without `flow` in a span."""
    found = []
    for at in range(BEGAN, BEGAN + hours.stop * HOUR, STEP):
        if at < BEGAN + hours.start * HOUR:
            continue
        spared = without is None or not without.start_us <= at < without.stop_us
        values: dict[str, float | str] = {m: at % 1000 / 8 for m in metrics if m != "flow" or spared}
        if values:
            found.append(Report(device, at, values, {}, BEGAN))
    return found


def purge(site: Site, mark: Mark) -> None:
    eraser = Eraser(site.engine, site.rollups, site.marks, site.roller, site.clock)
    site.telemetry.purge(TENANT.name, mark, ["a", "b"] if not mark.device else [mark.device])
    eraser.purge(TENANT, mark, ["a", "b"] if not mark.device else [mark.device], TENANT.name)


def test_a_metric_over_a_span_leaves_what_was_never_reported(site: Site) -> None:
    span = TimeSpan(BEGAN + 2 * HOUR + 20 * MINUTE, BEGAN + 5 * HOUR + 40 * MINUTE)
    past, open_hours = range(5), range(5, 7)
    never = Site(MemoryEngine(ManualClock(BEGAN)), ManualClock(BEGAN))
    for device in ("a", "b"):
        site.write(reports(device, past, ("temp", "flow")))
    site.roll()
    for device in ("a", "b"):
        site.write(reports(device, open_hours, ("temp", "flow")))
        never.write(reports(device, range(7), ("temp", "flow"), without=span))
    site.clock.time_us = never.clock.time_us = BEGAN + 7 * HOUR
    site.roller.close(TENANT)  # minutes of hours that are not rolled yet, with what will be erased
    mark = site.telemetry.erase(TENANT, metric="flow", span=span)
    hidden = [key for key in site.records() if key[3] == "flow" and span.start_us <= key[2] < span.stop_us]
    assert not hidden, "at once, before anything was purged"
    site.clock.time_us += MS
    purge(site, mark)
    assert site.marks.pending()
    site.roll()
    never.roll()
    assert site.records() == never.records()
    purge(site, mark)  # once more does no harm
    site.roll()
    assert site.records() == never.records()


def test_a_device_leaves_nothing_and_has_the_fleet_computed_again(site: Site) -> None:
    for device in ("a", "b"):
        site.write(reports(device, range(3), ("temp",)))
    site.roll()
    kept = {key: record for key, record in site.records().items() if key[1] == "b"}
    for unit in site.roller.fleet.pending():
        site.roller.fleet.finish([unit], site.clock.time_us + DAY)
    site.clock.time_us += SECOND
    mark = site.telemetry.erase(TENANT, device="a")
    assert site.records() == kept, "at once"
    purge(site, mark)
    assert sorted(unit.start_us - BEGAN for unit in site.roller.fleet.pending()) == [0, HOUR, 2 * HOUR]
    assert site.records() == kept
    stored = [rows for level in LEVELS for rows in site.engine.scan(rollups(level, kept_at(TENANT, level, BEGAN)), None)]
    assert {rows.key(rollups(MINUTES, 0), i)[1] for rows in stored for i in range(len(rows))} == {"b"}, "nor on the disk"


def test_where_raw_reports_are_gone_windows_that_touch_the_span_go_whole(site: Site) -> None:
    site.write(reports("a", range(4), ("temp", "flow")))
    site.roll()
    before = site.records()
    site.clock.time_us = BEGAN + 40 * DAY
    span = TimeSpan(BEGAN + HOUR + 30 * MINUTE, BEGAN + 3 * HOUR)
    mark = site.telemetry.erase(TENANT, device="a", metric="flow", span=span)
    site.clock.time_us += MS
    purge(site, mark)
    site.roll()
    after = site.records()
    assert {key for key in before if key[3] == "temp"} == {key for key in after if key[3] == "temp"}
    hours = sorted((key[2] - BEGAN) // HOUR for key in after if key[0] == "hour" and key[3] == "flow")
    assert hours == [0, 3], "of the hour that was cut nothing may stay"
    (day,) = (key for key in after if key[0] == "day" and key[3] == "flow")
    assert after[day] != before[day], "the day is that of the hours that are left"


@pytest.mark.parametrize("level", ["hour", "day", "fleet"])
def test_what_another_process_erases_while_it_is_rolled_does_not_stay(site: Site, level: str) -> None:
    """It has begun to work off what it erased, and marked it, when the roll ends that does not know of it."""
    site.write([Report(device, BEGAN + MINUTE, {"temp": 1.0, "flow": 2.0}, {}, BEGAN) for device in ("a", "b")])
    site.clock.time_us = BEGAN + 2 * DAY
    elsewhere = Site(site.engine, site.clock)
    backlogs: dict[str, Marks | Backlog] = {"hour": site.marks, "day": site.roller.days, "fleet": site.roller.fleet}
    rolls = {"hour": site.roller.roll, "day": site.roller.roll_day, "fleet": site.fleet.roll}
    erased = False

    def write(changes: Sequence[tuple[Table, Rows]]) -> None:
        nonlocal erased
        real(changes)
        if not erased:
            erased = True
            purge(elsewhere, elsewhere.telemetry.erase(TENANT, device="a", metric="flow"))

    for name, backlog in backlogs.items():
        for unit in sorted(backlog.pending()):
            if name == level and unit.shard == shard_of("a"):
                real, site.engine.write = site.engine.write, write  # type: ignore[method-assign]
            rolls[name](TENANT, unit)
    assert erased
    assert {unit.shard for unit in backlogs[level].pending()} == {shard_of("a")}
    site.clock.time_us += 2 * SECOND
    site.roller.recover()
    site.roll()
    assert {key[1:] for key in site.records() if key[0] == "hour" and key[3] == "flow"} == {("b", BEGAN, "flow")}
    assert not any("flow" in key and "a" in key for key in site.records())
    rows = site.fleet.store.hours(TENANT, [ALL_TYPES], TimeSpan(BEGAN, BEGAN + HOUR), metrics=["flow"])
    assert summary_of_fleets(rows).fleet.devices.tolist() == [1]


def test_a_day_some_of_whose_hours_are_gone_stays_as_it_is(site: Site) -> None:
    site.write(reports("a", range(6), ("temp", "flow")))
    site.roll()
    (before,) = (record for key, record in site.records().items() if key[0] == "day" and key[3] == "temp")
    site.clock.time_us = BEGAN + TENANT.retention.hour_us + GUARD_US + 3 * HOUR + MINUTE  # there are three hours left
    mark = site.telemetry.erase(TENANT, metric="flow")
    site.clock.time_us += MS
    purge(site, mark)
    site.roll()
    assert {key[3]: record for key, record in site.records().items() if key[0] == "day"} == {"temp": before}
    assert (site.roller.days.pending(), marked_in_store(site.engine)["day"]) == ({}, {}), "nobody tries it again"


@pytest.mark.parametrize("left", [3, 0])
def test_of_days_whose_hours_are_gone_nothing_erased_stays_on_the_disk(site: Site, left: int) -> None:
    site.write(reports("a", range(6), ("temp", "flow")))
    site.roll()
    site.clock.time_us = BEGAN + TENANT.retention.hour_us + GUARD_US + (6 - left) * HOUR + MINUTE
    mark = site.telemetry.erase(TENANT, device="a", metric="flow", span=TimeSpan(BEGAN + HOUR, BEGAN + 5 * HOUR))
    site.clock.time_us += MS
    purge(site, mark)
    site.roll()
    table = rollups(DAYS, TENANT.retention.day_us)
    assert [rows.cells.names.to_list() for rows in site.engine.scan(table, None) if len(rows)] == [["temp"]]


@pytest.mark.parametrize("from_raw", [False, True], ids=["from minutes", "from raw"])
def test_what_is_erased_while_its_hour_is_rolled_leaves_the_rest_of_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, from_raw: bool
) -> None:
    span, write_hours = TimeSpan(BEGAN, BEGAN + 20 * MINUTE), Roller._write_hours
    never = Site(MemoryEngine(ManualClock(BEGAN)), ManualClock(BEGAN))
    site.write(reports("a", range(1), ("temp", "flow")))
    never.write(reports("a", range(1), ("temp", "flow"), without=span))
    if from_raw:
        site.restart()

    def meanwhile(*given: Any) -> None:
        """All that is to be rolled was read."""
        monkeypatch.undo()
        site.clock.time_us += MS
        mark = site.telemetry.erase(TENANT, device="a", metric="flow", span=span)
        site.clock.time_us += MS
        purge(site, mark)
        write_hours(*given)

    monkeypatch.setattr(Roller, "_write_hours", meanwhile)
    for _ in range(2):
        site.clock.time_us += MINUTE
        site.roll()
    never.roll()
    assert site.records() == never.records()
    assert site.marks.pending() == {}


def test_who_rolls_and_does_not_know_yet_what_another_erased_rolls_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads reports before these are purged, and writes their hour when whoever purges has looked for it."""
    site.write(reports("a", range(1), ("temp", "flow")))
    crew = CrewSettings(share_us=MINUTE)
    telemetry = Telemetry(site.engine, site.clock, TelemetrySettings(max_future_us=HOUR, refresh_us=SECOND))
    marks, own = Marks(site.engine, site.clock, crew), Rollups(site.engine, site.clock, telemetry.erasure)
    other = Roller(site.engine, telemetry, own, marks, site.clock, crew=crew)
    site.clock.time_us += HOUR
    telemetry.erasure.marks(TENANT.name)
    read_many = telemetry.read_many
    mark = site.telemetry.erase(TENANT, metric="flow")
    site.clock.time_us += 10 * MS

    def meanwhile(*given: Any, **more: Any) -> list[Rows]:
        found = read_many(*given, **more)
        purge(site, mark)
        return found

    monkeypatch.setattr(telemetry, "read_many", meanwhile)
    unit = Unit(TENANT.name, BEGAN, shard_of("a"))
    other.roll(TENANT, unit)
    monkeypatch.undo()
    site.clock.time_us += MINUTE
    other.roll(TENANT, unit)
    assert {key[3] for key in site.records()} == {"temp"}
    assert list(marks.units()) == []
