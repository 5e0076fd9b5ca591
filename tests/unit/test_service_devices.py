"""Saving a device gives it the buckets its profile calls for, and it is read as any other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from widerow.config import Config, Placement, Store
from widerow.model.batch import Report, batch_of
from widerow.model.device import Device, Profile
from widerow.model.tenant import Tenant
from widerow.model.times import HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.service import Service
from widerow.telemetry.placement import Epoch

ACME = Tenant(name="acme")
NOW_US = 1_800_000_000_123_456
FAST = Device(name="fast", profile=Profile(reports_per_s=100, metrics_per_report=10))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_US)


@pytest.fixture
def service(clock: ManualClock) -> Iterator[Service]:
    with Service.open(Config(store=Store(url="memory:")), clock) as service:
        yield service


def shapes(service: Service) -> list[tuple[int, int]]:
    return [(e.width_us, e.sub_buckets) for e in service.telemetry.places.epochs("acme", "fast")]


def test_saving_again_adds_nothing(service: Service) -> None:
    service.save_device(ACME, Device(name="fast"))
    assert shapes(service) == []
    for _ in range(3):
        service.save_device(ACME, FAST)
        assert shapes(service) == [(15 * MINUTE, 16)]


def test_the_last_of_several_profiles_counts_even_within_a_second(service: Service) -> None:
    for profile in (Profile(reports_per_s=0.001), Profile(reports_per_s=5), FAST.profile, Profile(reports_per_s=5)):
        service.save_device(ACME, Device(name="fast", profile=profile))
    assert shapes(service) == [(6 * HOUR, 1), (15 * MINUTE, 1), (15 * MINUTE, 16), (15 * MINUTE, 1)]


def test_a_spread_that_has_another_reason_is_not_lowered(service: Service) -> None:
    places = service.telemetry.places
    places.add_epoch("acme", "fast", Epoch(places.earliest_epoch_us(), HOUR, 64, "hot"))
    service.save_device(ACME, FAST)
    assert shapes(service) == [(HOUR, 64), (15 * MINUTE, 64)]


def test_the_series_of_a_spread_device_is_in_order_page_by_page(service: Service, clock: ManualClock) -> None:
    service.save_device(ACME, FAST)
    start_us = NOW_US - NOW_US % HOUR + HOUR
    clock.time_us = start_us + HOUR
    times = [start_us + i * 7 * SECOND for i in range(500)]
    service.telemetry.write(ACME, batch_of([Report("fast", t, {"x": float(i)}, {}, MS) for i, t in enumerate(times)]))
    seen: list[float] = []
    after: str | None = None
    pages = 0
    while pages == 0 or after is not None:
        answer = service.queries.series(ACME, "fast", span=TimeSpan(start_us, start_us + HOUR), limit=60, after=after)
        seen += answer.points.number.tolist()
        after, pages = answer.next, pages + 1
    assert seen == [float(i) for i in range(500)]
    assert pages > 8
    assert service.queries.latest(ACME, ["fast"]).number.tolist() == [499.0]


def send(service: Service, clock: ManualClock, reports_per_s: float, minutes: int) -> None:
    for _ in range(minutes):
        times = [clock.time_us + int(i * SECOND / reports_per_s) for i in range(int(60 * reports_per_s))]
        clock.time_us += MINUTE
        service.telemetry.write(ACME, batch_of([Report("fast", t, {"x": 1.0}, {}, MS) for t in times]))


def test_buckets_follow_what_a_device_sends_and_saving_it_leaves_them(service: Service, clock: ManualClock) -> None:
    assert service.adapting is not None
    slow = Device(name="fast", profile=Profile(reports_per_s=0.1))
    service.catalog.devices.create(ACME, slow)
    service.save_device(ACME, slow)
    send(service, clock, 3, 21)
    assert service.adapting.look() == 1
    (epoch,) = service.telemetry.places.epochs("acme", "fast")
    assert (epoch.width_us, epoch.reason) == (15 * MINUTE, "observed rate: 3 reports/s of 1 values")
    assert epoch.from_us > clock.now_us() + MINUTE
    service.save_device(ACME, slow)
    assert service.adapting.look() == 0
    send(service, clock, 1000, 1)
    service.save_device(ACME, FAST)
    assert shapes(service) == [(15 * MINUTE, 1), (15 * MINUTE, 16)]


def test_a_device_that_was_deleted_gets_no_epoch(service: Service, clock: ManualClock) -> None:
    assert service.adapting is not None
    send(service, clock, 3, 21)  # it was never registered
    assert service.adapting.look() == 0
    assert shapes(service) == []


def test_buckets_that_are_not_to_adapt_do_not() -> None:
    with Service.open(Config(store=Store(url="memory:"), placement=Placement(adaptive=0))) as service:
        assert service.adapting is None
