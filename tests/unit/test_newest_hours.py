"""In which hour each metric of a device has its newest value."""

from __future__ import annotations

import pytest

from contract.rollup_suite import TENANT, Site
from widerow.engine.memory import MemoryEngine
from widerow.model.batch import Report
from widerow.model.times import DAY, HOUR, SECOND, ManualClock
from widerow.rollup.newest import MOST_BYTES, hours_of

BEGAN = 1_800_000_000_000_000 // DAY * DAY


@pytest.fixture
def site() -> Site:
    clock = ManualClock(BEGAN)
    return Site(MemoryEngine(clock), clock)


def send(site: Site, at_us: int, *metrics: str) -> None:
    site.clock.time_us = at_us + SECOND
    site.write([Report("a", at_us, dict.fromkeys(metrics, 1.0), {}, site.clock.time_us)])
    site.roll()


def row(site: Site) -> str:
    return site.rollups.newest.read(TENANT.name, ["a"]).get("a", "")


def test_a_row_has_each_metric_once_the_newest_hours_first(site: Site) -> None:
    send(site, BEGAN, "temp", "state")
    send(site, BEGAN + HOUR, "temp", "flow")
    assert row(site) == f'{{"{BEGAN + HOUR}":["flow","temp"],"{BEGAN}":["state"]}}'


def test_a_row_leaves_out_what_is_older_than_the_raw_retention(site: Site) -> None:
    send(site, BEGAN, "state")
    send(site, BEGAN + TENANT.retention.raw_us + 2 * HOUR, "temp")
    assert hours_of(row(site)) == {"temp": BEGAN + TENANT.retention.raw_us + 2 * HOUR}


def test_a_row_that_grows_too_long_leaves_out_the_oldest_hours(site: Site) -> None:
    many = [f"metric_{i}_{'x' * 500}" for i in range(400)]
    send(site, BEGAN, *many[:200])
    send(site, BEGAN + HOUR, "temp", *many[200:])
    send(site, BEGAN + 2 * HOUR, *(f"{name}y" for name in many[:300]))
    hour_of = hours_of(row(site))
    assert len(row(site)) <= MOST_BYTES
    assert sum(at_us == BEGAN + 2 * HOUR for at_us in hour_of.values()) == 300
    assert sum(at_us == BEGAN + HOUR for at_us in hour_of.values()) == 201
    assert sum(at_us == BEGAN for at_us in hour_of.values()) < 200
