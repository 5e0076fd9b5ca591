"""The newest value of each metric, wherever it lies within the raw retention, on any engine."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import numpy as np

from contract.rollup_suite import Site
from widerow.engine.port import Engine
from widerow.engine.rows import Rows
from widerow.model.batch import Report, Value
from widerow.model.tenant import Retention, Tenant
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.query.queries import Queries
from widerow.rollup.erase import Eraser
from widerow.schema.rollups import NEWEST_HOURS
from widerow.schema.shards import shard_of
from widerow.telemetry.erasure import EVER

BEGAN = 1_800_000_000_000_000 // DAY * DAY


def site_at(engine: Engine, clock: ManualClock, retention: Retention | None = None) -> Site:
    clock.time_us = BEGAN
    return Site(engine, clock, Tenant(name=f"latest-{uuid4().hex[:8]}", retention=retention or Retention()))


def send(site: Site, device: str, at_us: int, **values: Value) -> None:
    """Reports arrive a second after the newest one was measured."""
    site.clock.time_us = max(site.clock.time_us + MS, at_us + SECOND)
    site.write([Report(device, at_us, values, {}, site.clock.time_us)])


def latest(site: Site, *devices: str, metrics: Sequence[str] | None = None) -> dict[tuple[str, str], tuple[int, Value]]:
    """(device, metric) -> minutes since it all began, and the value."""
    queries = Queries(site.telemetry, site.catalog, site.rollups, site.roller.dirt, site.clock)
    found = queries.latest(site.tenant, devices, metrics=metrics)
    values: list[Value] = [*found.number.tolist()]
    if found.text is not None:
        names = found.text.names.to_list()
        values = [names[c] if c >= 0 else number for c, number in zip(found.text.codes.tolist(), values, strict=True)]
    minutes = ((found.time_us - BEGAN) // MINUTE).tolist()
    keys = zip(found.device.to_list(), found.metric.to_list(), strict=True)
    return dict(zip(keys, zip(minutes, values, strict=True), strict=True))


def of(site: Site, device: str) -> dict[str, tuple[int, Value]]:
    return {metric: value for (_, metric), value in latest(site, device).items()}


def erase(site: Site, device: str, metric: str = "", span: TimeSpan = EVER) -> None:
    """What the housekeeping does of an erasure, but for the rolls that it asks for."""
    site.clock.time_us += SECOND
    mark = site.telemetry.erase(site.tenant, device=device, metric=metric, span=span)
    site.clock.time_us += SECOND
    site.telemetry.purge(site.tenant.name, mark, [device])
    eraser = Eraser(site.engine, site.rollups, site.marks, site.roller, site.clock)
    eraser.purge(site.tenant, mark, [device], site.tenant.name)


class LatestStories:
    """A subclass gives the `engine` and `clock` fixtures and nothing else."""

    def test_latest_has_a_state_of_hours_ago_beside_a_temp_of_now(self, engine: Engine, clock: ManualClock) -> None:
        site = site_at(engine, clock)
        for hour in range(4):
            for device in ("a", "b"):
                more: dict[str, Value] = {"state": "on"} if hour == 1 and device == "a" else {}
                send(site, device, BEGAN + hour * HOUR + MINUTE, temp=float(hour), **more)
        want = {("a", "temp"): (181, 3.0), ("a", "state"): (61, "on"), ("b", "temp"): (181, 3.0)}
        assert latest(site, "a", "b", "never") == want, "none of the hours is rolled"
        site.roll(most=2)
        assert latest(site, "a", "b", "never") == want, "some are"
        site.roll()
        assert latest(site, "a", "b", "never") == want, "all are"
        site.restart()
        assert latest(site, "a", "b", "never") == want
        assert latest(site, "a", metrics=["state"]) == {("a", "state"): (61, "on")}
        assert latest(site, "b", metrics=["state"]) == {}

    def test_latest_keeps_the_newer_value_when_an_older_hour_is_rolled_late(
        self, engine: Engine, clock: ManualClock
    ) -> None:
        site = site_at(engine, clock)
        send(site, "a", BEGAN + 2 * HOUR, state="newer", temp=1.0)
        send(site, "a", BEGAN + 5 * HOUR, temp=2.0)
        site.roll()
        send(site, "a", BEGAN + HOUR, state="late", flow=7.0)
        want = {"state": (120, "newer"), "temp": (300, 2.0), "flow": (60, 7.0)}
        assert of(site, "a") == want
        site.roll()
        assert of(site, "a") == want
        send(site, "a", BEGAN + 3 * HOUR, state="newest")
        site.roll()
        assert of(site, "a") == {**want, "state": (180, "newest")}

    def test_latest_goes_back_to_the_value_before_what_was_erased(self, engine: Engine, clock: ManualClock) -> None:
        site = site_at(engine, clock)
        for day, state in enumerate(("first", "second", "third")):
            send(site, "a", BEGAN + 3 * day * DAY, state=state, temp=1.0)
        send(site, "a", BEGAN + 7 * DAY, temp=2.0)
        site.roll()
        assert of(site, "a") == {"state": (6 * 24 * 60, "third"), "temp": (7 * 24 * 60, 2.0)}
        erase(site, "a", "state", TimeSpan(BEGAN + 6 * DAY, BEGAN + 8 * DAY))
        site.roll()
        assert of(site, "a") == {"state": (3 * 24 * 60, "second"), "temp": (7 * 24 * 60, 2.0)}
        erase(site, "a", "state")
        site.roll()
        assert of(site, "a") == {"temp": (7 * 24 * 60, 2.0)}
        send(site, "a", BEGAN + 5 * DAY, state="again")
        site.roll()
        assert of(site, "a") == {"state": (5 * 24 * 60, "again"), "temp": (7 * 24 * 60, 2.0)}

    def test_latest_of_an_erased_device_is_what_it_reports_after_that(self, engine: Engine, clock: ManualClock) -> None:
        site = site_at(engine, clock)
        for device in ("a", "b"):
            send(site, device, BEGAN + 6 * HOUR, state="gone", flow=1.0)
            send(site, device, BEGAN + 7 * HOUR, temp=1.0)
        site.roll()
        erase(site, "a")
        site.telemetry.erase(site.tenant, device="b")  # and is not off the disk yet
        assert latest(site, "a", "b") == {}
        for device in ("a", "b"):
            send(site, device, BEGAN + 5 * HOUR, state="back")
            send(site, device, BEGAN + 9 * HOUR, temp=2.0)
            site.roll()
            assert of(site, device) == {"state": (300, "back"), "temp": (540, 2.0)}
        assert "flow" not in str(site.rollups.newest.read(site.tenant.name, ["a", "b"]))

    def test_latest_is_put_right_with_the_day_if_two_processes_rolled_at_once(
        self, engine: Engine, clock: ManualClock
    ) -> None:
        site = site_at(engine, clock)
        send(site, "a", BEGAN, state="first")
        site.roll()
        (before,) = engine.scan(NEWEST_HOURS, [(site.tenant.name, shard_of("a"), "a")])
        send(site, "a", BEGAN + 2 * HOUR, state="second")
        send(site, "a", BEGAN + 5 * HOUR, temp=1.0)
        for unit in sorted(site.marks.pending()):
            site.roller.roll(site.tenant, unit)
        clock.time_us += SECOND
        stale = Rows(before.keys, np.full(1, clock.version_us()), before.expire_us, before.cells)
        engine.write([(NEWEST_HOURS, stale)])  # by a process that read before the last hours were rolled, and is slow
        assert of(site, "a")["state"] == (0, "first")
        clock.time_us += SECOND
        site.roll()
        assert of(site, "a") == {"state": (120, "second"), "temp": (300, 1.0)}

    def test_latest_finds_all_variants_of_a_name_where_each_has_its_newest_value(
        self, engine: Engine, clock: ManualClock
    ) -> None:
        site = site_at(engine, clock)
        send(site, "a", BEGAN, **{"used{path=/}": 1.0, "used{path=/home}": 2.0})
        send(site, "a", BEGAN + 2 * HOUR, **{"used{path=/}": 3.0})
        send(site, "a", BEGAN + 5 * HOUR, temp=1.0)
        site.roll()
        both = {("a", "used{path=/}"): (120, 3.0), ("a", "used{path=/home}"): (0, 2.0)}
        assert latest(site, "a", metrics=["used"]) == both
        assert latest(site, "a", metrics=["used{path=/home}"]) == {("a", "used{path=/home}"): (0, 2.0)}

    def test_latest_has_nothing_older_than_the_raw_retention(self, engine: Engine, clock: ManualClock) -> None:
        site = site_at(engine, clock, retention=Retention(raw_us=DAY))
        send(site, "a", BEGAN, state="old", temp=1.0)
        send(site, "a", BEGAN + DAY - HOUR, temp=2.0)
        site.roll()
        assert of(site, "a") == {"state": (0, "old"), "temp": (23 * 60, 2.0)}
        clock.time_us = BEGAN + DAY + HOUR
        assert of(site, "a") == {"temp": (23 * 60, 2.0)}
