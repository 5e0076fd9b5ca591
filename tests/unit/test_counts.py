"""What is counted as stored goes with what is erased, comes again with what is sent again, and takes what is said."""

from __future__ import annotations

import pytest

from contract.rollup_suite import TENANT, Site
from unit.test_rollup_erase import BEGAN, purge, reports
from widerow.engine.memory import MemoryEngine
from widerow.model.batch import Report
from widerow.model.names import Names
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.schema.rollups import DAYS, HOURS
from widerow.schema.usage import counts, totals

KEPT = TENANT.retention


@pytest.fixture
def site() -> Site:
    clock = ManualClock(BEGAN)
    return Site(MemoryEngine(clock), clock)


def counted(site: Site, hours: range = range(8)) -> dict[tuple[str, int], int]:
    """(device, hour of the day) -> reports."""
    found = site.stored(HOURS, [BEGAN + hour * HOUR for hour in hours])
    return {(device, (at - BEGAN) // HOUR): row[0] for (device, at), row in found.items()}


def test_a_report_takes_what_is_said_of_it(site: Site) -> None:
    site.write([Report("a", BEGAN + i * SECOND, {"temp": 1.0, "state": "on!"}, {"site": "x"}, BEGAN) for i in range(3)])
    site.clock.time_us += DAY
    site.roll()
    ((count, values, raw_bytes, minute_rows, _, records, _),) = site.stored(HOURS, [BEGAN]).values()
    names = len("acme") + len("a")
    shape = 23 + names + sum(3 + len(name) for name in ("temp", "state", "type"))
    assert (count, values, minute_rows, records) == (3, 6, 1, 3), "the type of the device stands beside its two metrics"
    assert raw_bytes == 3 * (41 + names + 8 + 4 + len("on!")) + shape


def test_a_device_that_is_erased_is_not_counted_and_the_sums_follow(site: Site) -> None:
    for device in ("a", "b"):
        site.write(reports(device, range(3), ("temp",)))
    site.clock.time_us += 2 * DAY
    site.roll()
    before = counted(site)
    assert {device for device, _ in before} == {"a", "b"}
    site.clock.time_us += SECOND
    mark = site.telemetry.erase(TENANT, device="a")
    left = {key: count for key, count in before.items() if key[0] == "b"}
    assert counted(site) == left, "at once"
    purge(site, mark)
    site.clock.time_us += SECOND
    site.roll()
    for level, starts in ((HOURS, 3), (DAYS, 1)):
        sums = site.sums(level)
        assert len(sums) == starts
        assert all(row[0] == 1 for row in sums.values()), "one device is left"
    assert sum(row[1] for row in site.sums(HOURS).values()) == sum(left.values())
    for level, keep_us in ((HOURS, KEPT.hour_us), (DAYS, KEPT.day_us)):
        table = counts(level, keep_us)
        on_disk = {rows.key(table, i)[-1] for rows in site.engine.scan(table, None) for i in range(len(rows))}
        assert on_disk == {"b"}


def test_a_device_that_comes_back_within_the_hour_counts_from_there_on(site: Site) -> None:
    site.write([Report("a", BEGAN + i * SECOND, {"temp": 1.0}, {}, BEGAN) for i in range(5)], fresh=Names.of(["a"]))
    site.clock.time_us = BEGAN + 10 * MINUTE
    site.roller.close(TENANT)
    mark = site.telemetry.erase(TENANT, device="a")
    purge(site, mark)
    site.clock.time_us += MS
    version_us = site.clock.time_us
    again = [Report("a", BEGAN + 11 * MINUTE + i * SECOND, {"temp": 2.0}, {}, version_us) for i in range(3)]
    site.write(again, fresh=Names.of(["a"]))
    site.clock.time_us = BEGAN + 2 * HOUR
    site.roll()
    assert counted(site) == {("a", 0): 3}


def test_erasing_a_metric_leaves_reports_that_say_something_else(site: Site) -> None:
    site.write(
        [Report("a", BEGAN + i * SECOND, {"temp": 1.0, **({"flow": 1.0} if i % 2 else {})}, {}, BEGAN) for i in range(6)]
    )
    site.write([Report("a", BEGAN + MINUTE + i * SECOND, {"flow": 1.0}, {"site": "x"}, BEGAN) for i in range(4)])
    site.clock.time_us += 2 * HOUR
    site.roll()
    assert counted(site) == {("a", 0): 10}
    site.clock.time_us += SECOND
    mark = site.telemetry.erase(TENANT, metric="flow", span=TimeSpan(BEGAN, BEGAN + HOUR))
    purge(site, mark)
    site.clock.time_us += SECOND
    site.roll()
    assert counted(site) == {("a", 0): 6}
    site.clock.time_us += SECOND
    purge(site, site.telemetry.erase(TENANT, metric="temp", span=TimeSpan(BEGAN, BEGAN + HOUR)))
    site.clock.time_us += SECOND
    site.roll()
    assert counted(site) == {}
    assert site.sums(HOURS) == {}


def test_a_tenant_that_is_gone_leaves_nothing(site: Site) -> None:
    for device in ("a", "b"):
        site.write(reports(device, range(3), ("temp",)))
    site.clock.time_us += 2 * DAY
    site.roll()
    site.clock.time_us += SECOND
    mark = site.telemetry.erase(TENANT)
    site.counts.forget_tenant(TENANT.name, mark)
    for level, keep_us in ((HOURS, KEPT.hour_us), (DAYS, KEPT.day_us)):
        for table in (counts(level, keep_us), totals(level, keep_us)):
            assert not sum(len(rows) for rows in site.engine.scan(table, None)), table.name


def test_counts_are_kept_as_long_as_the_hours_they_stand_beside(site: Site) -> None:
    site.write(reports("a", range(3), ("temp",)))
    site.clock.time_us += 2 * DAY
    site.roll()
    site.clock.time_us = BEGAN + KEPT.raw_us + 30 * DAY
    assert len(counted(site)) == 3, "when the reports are gone"
    site.clock.time_us = BEGAN + KEPT.hour_us + 30 * DAY
    assert counted(site) == {}
    assert len(site.stored(DAYS, [BEGAN])) == 1
