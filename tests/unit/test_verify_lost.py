"""What `verify` says, and `repair` leaves, where reports are gone or cannot be read."""

from __future__ import annotations

import pytest

from contract.rollup_suite import NOW, TENANT, Site, all_stored, tampered
from unreadable import DamagedEngine, raw_of
from widerow.engine.port import Span
from widerow.model.batch import Report
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.rollup.repair import Repairer, mend_fleet
from widerow.rollup.verify import Checked, Finding, Kind, Verifier
from widerow.rollup.verify_fleet import FleetVerifier
from widerow.schema.rollups import DAYS, HOURS, MINUTES
from widerow.schema.shards import shard_of

DAY_US = NOW // DAY * DAY - 2 * DAY
HOUR_US = DAY_US + 5 * HOUR


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def engine(clock: ManualClock) -> DamagedEngine:
    return DamagedEngine(clock)


@pytest.fixture
def site(engine: DamagedEngine, clock: ManualClock) -> Site:
    """Three hours of two devices, rolled."""
    site = Site(engine, clock)
    site.write(
        [
            Report(device, HOUR_US + i * 5 * MINUTE, {"temp": i / 4, "flow": float(i % 5)}, {}, NOW)
            for device in "ab"
            for i in range(36)
        ]
    )
    site.clock.time_us += SECOND
    site.roll()
    site.clock.time_us += SECOND
    return site


def check(site: Site) -> Checked:
    return Verifier(site.engine, site.telemetry, site.rollups, site.clock).check(site.tenant, ["a", "b"], DAY_US)


def check_fleet(site: Site) -> list[Finding]:
    devices = Verifier(site.engine, site.telemetry, site.rollups, site.clock)
    verifier = FleetVerifier(site.fleet, devices, site.telemetry.erasure, site.clock)
    return verifier.check(site.tenant, TimeSpan(DAY_US, DAY_US + DAY)).findings


def mend(site: Site, findings: list[Finding]) -> list[Finding]:
    site.clock.time_us += SECOND
    return Repairer(site.engine, site.rollups).mend(site.tenant, findings, read_us=site.clock.now_us())


def lose(site: Site, span: Span) -> None:
    """Raw reports of one device, as if their file were gone."""
    for epochs in site.telemetry.places.by_epochs("acme", ["a"]):
        for table, _, places in site.telemetry._stretches(TENANT, epochs, TimeSpan(HOUR_US, HOUR_US + 3 * HOUR)):
            keys = [("acme", "a", place.bucket, place.sub_bucket) for place in places]
            site.engine.delete(table, keys, span, version_us=NOW + HOUR)


@pytest.mark.parametrize("lost_us", [20 * MINUTE, HOUR, 3 * HOUR], ids=["part of an hour", "an hour", "all"])
def test_nothing_is_removed_or_made_less_because_reports_are_gone(site: Site, lost_us: int) -> None:
    before = all_stored(site)
    lose(site, Span(HOUR_US, HOUR_US + lost_us))
    found = check(site).findings
    assert len(found) == 2 * lost_us // (5 * MINUTE), "the minutes; what stands above them is right, as far as they tell"
    assert {(f.kind, f.level, f.device, f.mendable) for f in found} == {(Kind.UNKNOWN, MINUTES, "a", False)}
    assert mend(site, found) == []
    assert all_stored(site) == before


def test_a_record_that_says_less_than_the_reports_that_are_left_is_mended(site: Site) -> None:
    before = all_stored(site)
    first = next(f for f in before if f[0] == "hour" and f[1] == "a")
    site.write([Report("a", HOUR_US + 7 * SECOND, {"temp": 1.0, "flow": 2.0}, {}, NOW)])
    site.clock.time_us += SECOND
    site.roll()
    site.clock.time_us += SECOND
    tampered(site, HOURS, before[first][0])
    found = check(site).findings
    assert [(f.kind, f.level, f.mendable) for f in found] == [(Kind.WRONG, HOURS, True)]
    assert mend(site, found) == found
    assert check(site).findings == []


def test_what_an_erasure_covers_is_removed_and_what_it_only_touches_is_not(site: Site) -> None:
    before = all_stored(site)
    for metric, span in (
        ("covered", TimeSpan(DAY_US, DAY_US + DAY)),
        ("touched", TimeSpan(HOUR_US, HOUR_US + HOUR + MINUTE)),
    ):
        site.telemetry.erase(site.tenant, metric=metric, span=span)
        tampered(site, HOURS, metric=metric, version_us=site.clock.now_us() // MS * MS + MS)
    for name, mark, place in site.telemetry.erasure.unfinished():
        site.telemetry.erasure.finish(name, mark, place)
    site.clock.time_us += 2 * SECOND
    found = {f.metric: f for f in check(site).findings if f.level is HOURS}
    assert {metric: (f.kind, f.mendable) for metric, f in found.items()} == {
        "covered": (Kind.EXTRA, True),
        "touched": (Kind.UNKNOWN, False),
    }
    assert mend(site, list(found.values())) == [found["covered"]]
    left = all_stored(site)
    assert {key[3] for key in left.keys() - before.keys()} == {"touched"}


def test_hours_whose_reports_cannot_be_read_are_named_and_left(site: Site, engine: DamagedEngine) -> None:
    tampered(site, HOURS)
    before = all_stored(site)
    engine.damaged = raw_of("a", "b")
    found = check(site).findings
    assert {(f.kind, f.device, f.level, f.mendable) for f in found} >= {(Kind.UNREADABLE, d, HOURS, False) for d in "ab"}
    assert {f.start_us for f in found} >= {HOUR_US, HOUR_US + HOUR, HOUR_US + 2 * HOUR}
    assert "cannot be read" in found[0].note
    assert mend(site, [f for f in found if f.level is not DAYS]) == []
    assert all_stored(site) == before


def test_a_device_is_mended_beside_one_that_cannot_be_read(site: Site, engine: DamagedEngine) -> None:
    before = all_stored(site)
    key = tampered(site, HOURS, b"\xff nonsense")
    site.clock.time_us += SECOND
    engine.damaged = raw_of("b" if key[1] == "a" else "a")
    found = check(site).findings
    assert {(f.kind, f.level, f.device == key[1]) for f in found} == {
        (Kind.UNREADABLE, HOURS, False),
        (Kind.WRONG, HOURS, True),
    }
    assert len(mend(site, found)) == 1
    assert {k: record for k, (record, _) in all_stored(site).items()} == {k: record for k, (record, _) in before.items()}


def test_rollups_that_cannot_be_read_are_named_and_the_next_device_is_checked(site: Site, engine: DamagedEngine) -> None:
    engine.damaged = lambda table, key: table.startswith("telemetry_hourly") and key[1] == "a"
    done = check(site)
    assert [(f.kind, f.device, f.level, f.start_us) for f in done.findings] == [(Kind.UNREADABLE, "a", DAYS, DAY_US)]
    assert done.checked == {"minute": 2 * 36, "hour": 2 * 3, "day": 2}


def test_the_fleet_stays_while_hours_of_a_device_cannot_be_read(site: Site, engine: DamagedEngine) -> None:
    before = site.fleet_records()
    engine.damaged = lambda table, key: table.startswith("telemetry_hourly") and key[1] == "a"
    found = check_fleet(site)
    assert [(f.kind, f.shard, f.mendable) for f in found] == [(Kind.UNREADABLE, shard_of("a"), False)]
    assert mend_fleet(site.fleet, site.tenant, found) == []
    engine.damaged = lambda *_: False
    assert (site.fleet_records(), check_fleet(site)) == (before, [])


def test_the_fleet_is_not_made_less_because_hours_of_a_device_are_gone(site: Site) -> None:
    before = site.fleet_records()
    site.clock.time_us += site.tenant.retention.raw_us + 10 * DAY
    for table, part, keys in site.rollups.places(site.tenant, ["a"], HOURS, TimeSpan(HOUR_US, HOUR_US + 3 * HOUR)):
        site.engine.delete(table, keys, Span(part.start_us, part.stop_us), version_us=NOW + HOUR)
    for table, part, keys in site.rollups.places(site.tenant, ["a"], MINUTES, TimeSpan(HOUR_US, HOUR_US + 3 * HOUR)):
        site.engine.delete(table, keys, Span(part.start_us, part.stop_us), version_us=NOW + HOUR)
    found = check_fleet(site)
    assert {(f.kind, f.mendable) for f in found} == {(Kind.UNKNOWN, False)}
    assert mend_fleet(site.fleet, site.tenant, found) == []
    assert site.fleet_records() == before
