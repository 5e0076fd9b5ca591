"""How far rolling is behind, how much time is left, and who is told."""

from __future__ import annotations

import logging

import pytest

from contract import rollup_suite
from contract.rollup_suite import TENANT, Site
from widerow.engine.memory import MemoryEngine
from widerow.model.batch import Report
from widerow.model.tenant import GUARD_US, Retention, RetentionEpoch, RollupEpoch, Tenant
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, ManualClock
from widerow.rollup.guard import Guard, Lag, Pending, lags, marked_in_store, standing
from widerow.rollup.unit import Unit

NOW = rollup_suite.NOW + 30 * MINUTE
HOUR_US = NOW // HOUR * HOUR
DAY_US = NOW // DAY * DAY


def known(name: str) -> Tenant | None:
    return TENANT if name == TENANT.name else None


def unit(start_us: int, tenant: str = TENANT.name) -> Unit:
    return Unit(tenant, start_us, 3)


def look(level: str, start_us: int, since_us: int, now_us: int, tenant: Tenant = TENANT) -> Lag:
    found = lags({level: {unit(start_us): since_us}}, lambda _: tenant, now_us, wait_us=MINUTE)
    return next(lag for lag in found if lag.level == level)


def test_nothing_that_waits_is_nothing_behind() -> None:
    assert lags({}, known, NOW) == [Lag(level, 0, 0, GUARD_US) for level in ("hour", "day", "fleet")]
    gone: Pending = {"hour": {unit(HOUR_US - 50 * DAY, "deleted"): 0}}
    assert lags(gone, known, NOW) == lags({}, known, NOW)


def test_a_window_is_due_when_it_has_ended_and_when_it_was_marked() -> None:
    def check(level: str, start_us: int, since_us: int, behind_us: int) -> None:
        assert look(level, start_us, since_us, NOW).behind_us == behind_us

    check("hour", HOUR_US, NOW - MINUTE, 0)
    check("hour", HOUR_US - HOUR, NOW - 2 * HOUR, NOW - HOUR_US - MINUTE)
    check("hour", HOUR_US - 9 * DAY, NOW - 30 * MINUTE, 29 * MINUTE)
    check("hour", HOUR_US - 9 * DAY, 0, NOW - HOUR_US + 9 * DAY - HOUR - MINUTE)
    check("day", DAY_US, 0, 0)
    check("day", DAY_US - DAY, 0, NOW - DAY_US - MINUTE)
    check("fleet", HOUR_US - HOUR, 0, NOW - HOUR_US - MINUTE)


def test_the_margin_shrinks_once_what_is_to_be_rolled_has_passed_its_retention() -> None:
    def check(level: str, age_us: int, margin_us: int, tenant: Tenant = TENANT) -> None:
        assert look(level, NOW - age_us, 0, NOW, tenant).margin_us == margin_us

    check("hour", 29 * DAY, GUARD_US)
    check("hour", 30 * DAY, GUARD_US)
    check("hour", 34 * DAY, GUARD_US - 4 * DAY)
    check("hour", 38 * DAY, 0)
    check("day", 34 * DAY, GUARD_US)
    check("day", 366 * DAY, GUARD_US - DAY)
    check("fleet", 366 * DAY, GUARD_US - DAY)
    for_ever = Tenant(name="acme", retention=Retention(raw_us=0, minute_us=0, hour_us=0, day_us=0))
    check("hour", 5000 * DAY, GUARD_US, for_ever)


def test_the_margin_of_a_window_in_which_retention_changed_is_that_of_what_goes_first() -> None:
    def check(level: str, tenant: Tenant, left_us: int) -> None:
        start_us = HOUR_US - 10 * DAY if level == "hour" else DAY_US - 50 * DAY
        now_us = start_us + (12 * DAY if level == "hour" else 60 * DAY)
        assert look(level, start_us, 0, now_us, tenant).margin_us == left_us

    half = HOUR_US - 10 * DAY + 30 * MINUTE
    shorter = Tenant(name="acme", raw_epochs=(RetentionEpoch(0, 30 * DAY), RetentionEpoch(half, 10 * DAY)))
    longer = Tenant(name="acme", raw_epochs=(RetentionEpoch(0, 10 * DAY), RetentionEpoch(half, 30 * DAY)))
    check("hour", shorter, GUARD_US - 2 * DAY + 30 * MINUTE)
    check("hour", longer, GUARD_US - 2 * DAY)
    noon = DAY_US - 50 * DAY + 12 * HOUR
    rollups = (RollupEpoch(0, 90 * DAY, 365 * DAY, 0), RollupEpoch(noon, 30 * DAY, 58 * DAY, 0))
    check("day", Tenant(name="acme", rollup_epochs=rollups), GUARD_US - 2 * DAY + 12 * HOUR)


def test_what_is_held_back_is_kept_within_the_margin_and_rolled_from_it() -> None:
    """Nothing is rolled for longer than raw reports can be read: the guard says so, and nothing is lost."""
    in_time, late = (Site(MemoryEngine(clock), clock) for clock in (ManualClock(NOW), ManualClock(NOW)))
    for site in (in_time, late):
        site.write([Report("a", NOW - i * MINUTE, {"temp": float(i)}, {}, NOW) for i in range(100)])
        site.clock.time_us += SECOND
    in_time.roll()
    late.clock.time_us += 33 * DAY
    late.restart()
    (hours, *_) = lags(marked_in_store(late.engine), known, late.clock.now_us())
    assert hours.pending == 3
    assert hours.behind_us > 32 * DAY
    assert 3 * DAY < hours.margin_us < 4 * DAY
    late.roll()
    assert late.records() == in_time.records() != {}
    assert {lag.pending for lag in lags(marked_in_store(late.engine), known, late.clock.now_us())} == {0}


def test_the_log_tells_of_it_now_and_then_and_louder_as_time_runs_out(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(NOW)
    pending: Pending = {"hour": {unit(HOUR_US - 3 * HOUR): 0}}
    guard = Guard(lambda: pending, known, clock, wait_us=0, reads_store=False)

    def told() -> list[int]:
        caplog.clear()
        guard.look()
        return [record.levelno for record in caplog.records]

    assert told() == [], "at the start there may be much to catch up on"
    clock.time_us += 10 * MINUTE
    assert told() == [logging.WARNING]
    assert "level hour is 2.7h behind, 1 windows wait; their sources are there for 7d more" in caplog.text
    clock.time_us += 9 * MINUTE
    assert told() == []
    clock.time_us += MINUTE
    assert told() == [logging.WARNING]
    clock.time_us += 34 * DAY
    assert told() == [logging.ERROR]
    pending = {}
    clock.time_us += DAY
    assert told() == []


def test_a_process_that_reads_the_store_for_it_does_so_once_a_minute() -> None:
    clock, asked = ManualClock(NOW), 0

    def pending() -> Pending:
        nonlocal asked
        asked += 1
        return {}

    guard = Guard(pending, known, clock, wait_us=0, reads_store=True)
    for _ in range(3):
        guard.look()
    assert asked == 1
    clock.time_us += MINUTE
    guard.look()
    assert asked == 2


def test_what_an_operator_is_shown() -> None:
    found = [Lag("hour", 3, 5 * HOUR, 6 * DAY), Lag("day", 1, HOUR, GUARD_US), Lag("fleet", 0, 0, GUARD_US)]
    shown = standing(found)
    assert (shown["behind_s"], shown["margin_s"], shown["pending"]) == (5 * 3600, 6 * 86_400, 4)
    assert list(shown["levels"]) == ["hour", "day", "fleet"]  # type: ignore[call-overload]
