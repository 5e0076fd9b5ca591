"""The hours of a fleet: from the hours of its devices, by shards, for all devices and by type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from contract.rollup_suite import NOW, TENANT, Site
from widerow.engine.memory import MemoryEngine
from widerow.engine.rows import Rows
from widerow.model.batch import Report
from widerow.model.device import Device
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.rollup import fleet_summary
from widerow.rollup.erase import Eraser
from widerow.rollup.fleet import Fleet, Stale
from widerow.rollup.fleet_summary import ALL_TYPES, FleetSummary, summary_of_fleets
from widerow.rollup.unit import Unit
from widerow.rollup.versions import Versions
from widerow.schema.rollups import HOURS, rollups
from widerow.schema.shards import shard_of
from widerow.schema.table import Table

HOUR_US = NOW - NOW % HOUR - 5 * HOUR
SPAN = TimeSpan(HOUR_US, HOUR_US + HOUR)


class CountingEngine(MemoryEngine):
    """Remembers which partitions were read."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.read: list[tuple[str, Any]] = []

    def scan(self, table: Table, partitions: Sequence[Any] | None, *args: Any, **kwargs: Any) -> Iterator[Rows]:
        self.read += [(table.name, key) for key in partitions or ()]
        return super().scan(table, partitions, *args, **kwargs)


@pytest.fixture
def site() -> Site:
    clock = ManualClock(NOW)
    return Site(CountingEngine(clock), clock)


def report(site: Site, device: str, *values: float, at: int = HOUR_US, metric: str = "temp") -> None:
    site.clock.time_us += MS
    site.write([Report(device, at + i * SECOND, {metric: v}, {}, site.clock.time_us) for i, v in enumerate(values)])


def says(site: Site, *types: str, span: TimeSpan = SPAN) -> dict[tuple[str, str], tuple[int, int, float]]:
    """(type, metric) -> devices, count, sum."""
    found = summary_of_fleets(site.fleet.store.hours(TENANT, types or [ALL_TYPES], span))
    facts = zip(found.fleet.devices.tolist(), found.fleet.stats.count.tolist(), found.fleet.stats.sum.tolist(), strict=True)
    return dict(zip(zip(found.type.to_list(), found.metric.to_list(), strict=True), facts, strict=True))


def test_an_hour_is_summed_up_for_all_devices_and_by_type(site: Site) -> None:
    site.catalog.devices.create(TENANT, Device(name="c", type="pump"))
    for device, value in (("a", 1.0), ("b", 2.0), ("c", 4.0), ("none", 8.0)):
        report(site, device, value, value)
    report(site, "c", 0.5, metric="type")  # a metric of that name is not in the way of the tag
    site.roll()
    assert says(site, ALL_TYPES, "pump", "press %#/ü", "unknown") == {
        ("", "temp"): (4, 8, 30.0),
        ("", "type"): (1, 1, 0.5),
        ("pump", "temp"): (2, 4, 10.0),
        ("pump", "type"): (1, 1, 0.5),
        ("press %#/ü", "temp"): (1, 2, 4.0),
    }


def test_shards_of_an_hour_are_rolled_together_and_once(site: Site) -> None:
    for device in ("a", "b", "none"):
        report(site, device, 1.0)
    for unit in sorted(site.marks.pending()):
        site.roller.roll(TENANT, unit)
    units = sorted(site.roller.fleet.pending())
    assert len(units) == len({shard_of(name) for name in ("a", "b", "none")}) > 1
    site.fleet.roll(TENANT, *units)
    assert site.roller.fleet.pending() == {}
    site.engine.read.clear()  # type: ignore[attr-defined]
    assert site.fleet.roll(TENANT, units[1]).devices == 0
    assert site.engine.read == [], "it is rolled already"  # type: ignore[attr-defined]


def test_a_late_device_has_the_devices_of_one_shard_read(site: Site) -> None:
    names = [f"d{n}" for n in range(60)]
    for name in names:
        report(site, name, 1.0)
    site.roll()
    site.clock.time_us += DAY
    report(site, "d7", 5.0, at=HOUR_US + MINUTE)
    for unit in sorted(site.marks.pending()):
        site.roller.roll(TENANT, unit)
    site.engine.read.clear()  # type: ignore[attr-defined]
    for unit in sorted(site.roller.fleet.pending()):
        site.fleet.roll(TENANT, unit)
    hours = rollups(HOURS, TENANT.retention.hour_us).name
    read = [key[1] for table, key in site.engine.read if table == hours]  # type: ignore[attr-defined]
    assert sorted(read) == sorted(name for name in names if shard_of(name) == shard_of("d7"))
    assert 0 < len(read) < 20
    assert says(site) == {("", "temp"): (60, 61, 65.0)}


def late_reports_of_two_shards(site: Site) -> list[Unit]:
    """Of an hour that was rolled before; its fleet's marks."""
    assert shard_of("a") != shard_of("b")
    for device, value in (("a", 1.0), ("b", 2.0)):
        report(site, device, value)
    site.roll()
    site.clock.time_us += DAY
    for device, value in (("a", 10.0), ("b", 20.0)):
        report(site, device, value, at=HOUR_US + MINUTE)
    for unit in sorted(site.marks.pending()):
        site.roller.roll(TENANT, unit)
    return sorted(site.roller.fleet.pending())


def roll_beside(site: Site, patch: pytest.MonkeyPatch, first: Unit, second: Unit, ahead_us: int) -> None:
    """Another process, whose clock is ahead by so much, rolls the second while the first is read."""
    site.clock.time_us += SECOND  # versions may be ahead of it, as it stands still
    clock = ManualClock(site.clock.time_us + ahead_us + MS)
    versions = Versions(clock, lambda _: None)
    other = Fleet(site.engine, site.rollups, site.roller.fleet, site.catalog, clock, versions, counts=site.counts)
    real = site.fleet.shard_says

    def meanwhile(tenant: Tenant, hour_us: int, shard: int) -> tuple[FleetSummary, int]:
        other.roll(TENANT, second)
        site.clock.time_us += 5 * MS
        return real(tenant, hour_us, shard)

    with patch.context() as patched:
        patched.setattr(site.fleet, "shard_says", meanwhile)
        site.fleet.roll(TENANT, first)


def test_an_hour_that_two_roll_at_once_says_what_both_have_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = late_reports_of_two_shards(site)
    roll_beside(site, monkeypatch, first, second, ahead_us=0)
    assert says(site) == {("", "temp"): (2, 4, 33.0)}
    assert site.roller.fleet.pending() == {}


def test_an_hour_of_a_clock_that_is_ahead_is_rolled_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = late_reports_of_two_shards(site)
    roll_beside(site, monkeypatch, first, second, ahead_us=10 * SECOND)
    assert list(site.roller.fleet.pending()) == [first], "what it wrote has lost"
    site.clock.time_us += 11 * SECOND
    site.fleet.roll(TENANT, first)
    assert says(site) == {("", "temp"): (2, 4, 33.0)}
    assert site.roller.fleet.pending() == {}


def test_more_devices_than_are_read_at_once_make_no_difference(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(40):
        report(site, f"d{n}", 0.1 * n, 1 / 3)
    site.roll()
    at_once = site.fleet_records()
    monkeypatch.setattr("widerow.rollup.fleet._AT_ONCE", 3)
    site.fleet.recompute(TENANT, HOUR_US)
    assert len(at_once) >= 10
    assert site.fleet_records() == at_once


def test_a_change_of_type_counts_for_what_is_rolled_from_then_on(site: Site) -> None:
    report(site, "a", 1.0)
    site.roll()
    later = HOUR_US + HOUR
    site.catalog.devices.update(TENANT.name, "a", lambda device: replace(device, type="valve"))
    site.clock.time_us += 2 * MINUTE
    report(site, "a", 2.0, at=later)
    site.roll()
    assert set(says(site, ALL_TYPES, "pump", "valve")) == {("", "temp"), ("pump", "temp")}
    assert set(says(site, ALL_TYPES, "pump", "valve", span=TimeSpan(later, later + HOUR))) == {
        ("", "temp"),
        ("valve", "temp"),
    }
    # Rolled again it is what the device is now; and a type that was taken away leaves nothing behind.
    site.catalog.devices.update(TENANT.name, "a", lambda device: replace(device, type=""))
    site.clock.time_us += 2 * MINUTE
    report(site, "a", 3.0, at=HOUR_US + MINUTE)
    site.roll()
    assert says(site, ALL_TYPES, "pump", "valve") == {("", "temp"): (1, 2, 4.0)}
    assert not [key for key in site.fleet_records() if "pump" in str(key)]


def erase(site: Site, *, device: str, metric: str = "") -> None:
    mark = site.telemetry.erase(TENANT, device=device, metric=metric)
    site.clock.time_us += MS
    eraser = Eraser(site.engine, site.rollups, site.marks, site.roller, site.clock)
    eraser.purge(TENANT, mark, [device], TENANT.name)
    site.clock.time_us += MS


def test_a_device_that_is_deleted_leaves_the_fleet(site: Site) -> None:
    report(site, "a", 1.0)
    report(site, "b", 2.0)
    site.roll()
    for device, left in (("a", {("", "temp"): (1, 1, 2.0)}), ("b", {})):
        site.catalog.devices.delete(TENANT.name, device)
        erase(site, device=device)
        assert site.roller.fleet.pending()
        site.roll()
        assert says(site, ALL_TYPES, "pump") == left
    assert site.fleet_records() == {}, "neither in its shards"


def test_a_metric_that_is_erased_leaves_the_fleet(site: Site) -> None:
    report(site, "a", 1.0)
    report(site, "a", 2.0, metric="flow")
    site.roll()
    erase(site, device="a", metric="flow")
    site.roll()
    assert set(says(site, ALL_TYPES, "pump")) == {("", "temp"), ("pump", "temp")}


def test_only_so_many_types_are_summed_up_apart(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_summary, "MOST_TYPES", 2)
    types = ["v", "u", "x", "w", "y"]
    for n, type_ in enumerate(types):
        site.catalog.devices.create(TENANT, Device(name=f"d{n}", type=type_))
        report(site, f"d{n}", 1.0)
    site.roll()
    assert says(site, ALL_TYPES, *types) == {
        ("", "temp"): (5, 5, 5.0),
        ("u", "temp"): (1, 1, 1.0),
        ("v", "temp"): (1, 1, 1.0),
    }


def test_what_is_stale_is_known_by_hour_and_shard(site: Site) -> None:
    site.roll()
    report(site, "a", 1.0)
    a = shard_of("a")
    assert site.fleet.stale(TENANT, lambda: site.marks.of(TENANT.name)).within(SPAN) == {HOUR_US: {a}}
    assert site.fleet.stale_in_store(TENANT).within(SPAN) == {HOUR_US: {a}}
    for unit in sorted(site.marks.pending()):
        site.roller.roll(TENANT, unit)
    assert site.fleet.stale(TENANT, lambda: site.marks.of(TENANT.name)).hours == {HOUR_US: {a}}, (
        "its hour is rolled, the fleet's is not"
    )
    assert site.fleet.stale_in_store(TENANT).hours == {HOUR_US: {a}}
    site.roll()
    assert site.fleet.stale(TENANT, lambda: site.marks.of(TENANT.name)) == Stale() == site.fleet.stale_in_store(TENANT)
    mark = site.telemetry.erase(TENANT, device="a", metric="temp", span=TimeSpan(HOUR_US + 5, HOUR_US + 6))
    site.fleet.doubts.add(TENANT.name, mark)
    stale = site.fleet.stale(TENANT, list)
    assert stale.within(TimeSpan(HOUR_US - DAY, HOUR_US + DAY)) == {HOUR_US: {a}}
    site.fleet.doubts.settle([(TENANT.name, mark)])
    assert site.fleet.stale(TENANT, list) == Stale()


def test_a_unit_that_nobody_marked_is_left_alone(site: Site) -> None:
    assert site.fleet.roll(TENANT, Unit(TENANT.name, HOUR_US, 3)).devices == 0
    assert site.fleet_records() == {}


def test_nothing_is_left_of_a_tenant_that_is_gone(site: Site) -> None:
    for n, type_ in enumerate(("", "pump", "press")):
        site.catalog.devices.apply(TENANT, [Device(name=f"d{n}", type=type_)])
        report(site, f"d{n}", 1.0)
        report(site, f"d{n}", 1.0, at=HOUR_US - 20 * DAY)
    site.roll()
    assert site.fleet_records()
    site.clock.time_us += SECOND  # versions go by milliseconds, and the clock stood still
    site.fleet.purge(TENANT.name, site.telemetry.erase(TENANT))
    assert site.fleet_records() == {}
