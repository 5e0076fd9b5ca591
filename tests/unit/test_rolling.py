"""When an hour is rolled, and what becomes of one that cannot be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contract.rollup_suite import TENANT, Site
from widerow.engine.memory import MemoryEngine
from widerow.model.batch import Report
from widerow.model.errors import NotFound, Unavailable
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, ManualClock
from widerow.rollup.roll import Rolled
from widerow.rollup.rolling import Rolling, RollingSettings, _in_turns
from widerow.rollup.unit import Unit
from widerow.schema.shards import shard_of

HOUR_US = 1_800_000_000_000_000 // HOUR * HOUR
SETTINGS = RollingSettings(lateness_us=2 * MINUTE, settle_us=10 * SECOND, longest_us=5 * MINUTE, every_s=0.01)


@pytest.fixture
def site() -> Site:
    clock = ManualClock(HOUR_US + 30 * MINUTE)
    return Site(MemoryEngine(clock), clock)


def named(_: str) -> Tenant:
    return TENANT


def report(site: Site, at_us: int, value: float = 1.0) -> None:
    site.write([Report("a", at_us, {"temp": value}, {}, 0)])


def test_an_hour_is_rolled_when_it_is_over_and_its_reports_had_time_to_come(site: Site) -> None:
    rolling = Rolling(site.marks, site.roller, named, site.clock, SETTINGS)
    report(site, HOUR_US + MINUTE)
    for minute, due in ((30, 0), (61, 0), (62, 1)):
        site.clock.time_us = HOUR_US + minute * MINUTE
        assert len(rolling.due()) == due
    assert rolling.roll_due() == 1
    assert [level for level, *_ in site.records()] == ["minute", "hour"], "its day is not over"
    assert rolling.due() == []
    site.clock.time_us += DAY
    assert rolling.roll_due() == 1
    assert [level for level, *_ in site.records()] == ["minute", "hour", "day"]
    assert rolling.roll_due() == 0


def test_a_backlog_is_rolled_once_it_rests_and_not_later_than_it_must(site: Site) -> None:
    rolling = Rolling(site.marks, site.roller, named, site.clock, SETTINGS)
    began_us = site.clock.time_us
    old = HOUR_US - 5 * HOUR
    report(site, old)
    assert rolling.due() == []
    site.clock.time_us += 10 * SECOND
    assert len(rolling.due()) == 1
    neighbours = (name for n in range(10_000) if shard_of(name := f"d{n}") == shard_of("a"))
    while site.clock.time_us < began_us + 5 * MINUTE:
        # Other devices come all the time, so that the hour is never at rest.
        site.write([Report(next(neighbours), old, {"temp": 1.0}, {}, 0)])
        assert rolling.due() == []
        site.clock.time_us += 5 * SECOND
    assert len(rolling.due()) == 1


def test_what_cannot_be_rolled_stays_marked_and_a_deleted_tenant_is_forgotten(site: Site) -> None:
    report(site, HOUR_US - HOUR)
    site.clock.time_us += MINUTE

    def unavailable(_: str) -> Tenant:
        raise Unavailable("the store is away")

    def deleted(name: str) -> Tenant:
        raise NotFound(f"no tenant {name!r}")

    assert Rolling(site.marks, site.roller, unavailable, site.clock, SETTINGS).roll_due() == 0
    assert len(site.marks.pending()) == 1
    assert Rolling(site.marks, site.roller, deleted, site.clock, SETTINGS).roll_due() == 0
    assert site.marks.pending() == {}
    assert list(site.marks.units()) == []


def test_of_a_deleted_tenant_no_minute_stays_open(site: Site) -> None:
    def deleted(name: str) -> Tenant:
        raise NotFound(f"no tenant {name!r}")

    rolling = Rolling(site.marks, site.roller, deleted, site.clock, SETTINGS, windows=site.windows)
    report(site, HOUR_US + MINUTE)
    site.windows.sort()
    report(site, HOUR_US + 2 * MINUTE)
    assert site.windows.bytes > 0
    rolling.roll_due()
    assert (site.windows.bytes, site.windows.held(), site.windows.tenants()) == (0, {}, [])
    report(site, HOUR_US + 3 * MINUTE)  # it is there again
    assert site.roller.roll(TENANT, *site.marks.pending()) == Rolled(1, from_minutes=0)
    assert site.windows.bytes == 0


def test_the_thread_rolls_and_stops(site: Site) -> None:
    report(site, HOUR_US - HOUR)
    site.clock.time_us += MINUTE
    done: list[tuple[str, Rolled]] = []
    rolling = Rolling(site.marks, site.roller, named, site.clock, SETTINGS, rolled=lambda *rolled: done.append(rolled))
    rolling.start()
    for _ in range(500):
        if done:
            break
        rolling._stopping.wait(0.01)
    rolling.stop()
    assert done == [("hour", Rolled(1, 1))]


def test_tenants_take_turns() -> None:
    def check(due: list[tuple[str, int, int]], want: list[tuple[str, list[int]]]) -> None:
        found = _in_turns(sorted(Unit(*unit) for unit in due))
        assert [(tenant, [unit.start_us for unit in units]) for tenant, units in found] == want

    check([], [])
    check([("a", 1, 0), ("a", 1, 5)], [("a", [1, 1])])
    backlog = [("a", hour, 0) for hour in range(4)]
    check([*backlog, ("b", 9, 0), ("b", 9, 1)], [("a", [0]), ("b", [9, 9]), ("a", [1]), ("a", [2]), ("a", [3])])


def test_a_tenant_for_which_something_breaks_waits_and_the_others_go_on(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(site, HOUR_US - HOUR)
    other = replace(TENANT, name="other")
    site.marks.again("other", "b", np.array([HOUR_US - HOUR]))
    site.clock.time_us += MINUTE
    asked: list[str] = []
    roll = site.roller.roll

    def breaks(tenant: Tenant, *units: Unit) -> Rolled:
        asked.append(tenant.name)
        if tenant.name == TENANT.name:
            raise ZeroDivisionError
        return roll(tenant, *units)

    monkeypatch.setattr(site.roller, "roll", breaks)
    known = {TENANT.name: TENANT, "other": other}
    rolling = Rolling(site.marks, site.roller, known.__getitem__, site.clock, SETTINGS)
    assert rolling.roll_due() == 1
    assert rolling.roll_due() == 0
    assert asked == [TENANT.name, "other"], "it is not tried at once"
    site.clock.time_us += 10 * SECOND
    monkeypatch.undo()
    rolling = Rolling(site.marks, site.roller, known.__getitem__, site.clock, SETTINGS)
    assert rolling.roll_due() == 1
    assert "rolling for acme failed" in caplog.text
