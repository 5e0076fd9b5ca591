"""`limits.series` and what a tenant has stored before the limit was set: known is what is stored."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import pytest

from widerow.config import Config, Store
from widerow.model.tenant import Limits, Tenant
from widerow.model.times import DAY, HOUR, MINUTE, MS, ManualClock
from widerow.pipeline.job import Job, Outcome
from widerow.service import Service

_T = 1_800_000_000_000_000 // DAY * DAY + 10 * HOUR + 5 * MINUTE
_KNOWN = 129


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(_T)


@pytest.fixture
def service(clock: ManualClock) -> Iterator[Service]:
    with Service.open(Config(store=Store(url="memory:")), clock) as service:
        service.catalog.tenants.create(Tenant(name="acme"))
        yield service


def sent(service: Service, devices: Sequence[str], metric: str = "temp") -> Outcome:
    tenant, done, outcomes = service.catalog.tenants.get("acme"), threading.Event(), list[Outcome]()
    now_ms = service.clock.now_us() // MS
    body = msgspec.json.encode([{"device": name, "time": now_ms, "values": {metric: 1.0}} for name in devices])

    def finish(outcome: Outcome) -> None:
        outcomes.append(outcome)
        done.set()

    decode = service.bodies.reports(body, content_type="application/json", encoding="", precision="ms", max_bytes=1 << 20)
    service.pipeline.submit(Job(tenant, len(body), decode, finish))
    assert done.wait(60)
    return outcomes[0]


def roll(service: Service) -> None:
    roller, tenant = service.pyramid.roller, service.catalog.tenants.get("acme")
    roller.recover()
    for unit in sorted(service.pyramid.marks.pending()):
        roller.roll(tenant, unit)
    for unit in sorted(roller.days.pending()):
        roller.roll_day(tenant, unit)


def limited(service: Service, series: int) -> None:
    service.catalog.tenants.update("acme", lambda t: replace(t, limits=Limits(series=series)))
    service.catalog.series.count(service.catalog.tenants.get("acme"))
    service.house.learn_series()


def refused(service: Service, devices: Sequence[str], metric: str = "temp") -> list[str]:
    return [refusal.code for refusal in sent(service, devices, metric).refusals]


def names(count: int, prefix: str = "known") -> list[str]:
    return [f"{prefix}-{i}" for i in range(count)]


def test_series_that_are_stored_and_not_rolled_yet_are_known(service: Service, clock: ManualClock) -> None:
    assert sent(service, names(_KNOWN)).accepted == _KNOWN
    limited(service, _KNOWN)
    clock.time_us += MINUTE
    assert refused(service, names(1, "new")) == ["series-limit"]
    assert refused(service, names(1), "another") == ["series-limit"]
    assert refused(service, names(_KNOWN)) == []
    assert service.catalog.series.count(service.catalog.tenants.get("acme")) == _KNOWN


def test_series_of_a_day_that_is_not_rolled_yet_are_known(service: Service, clock: ManualClock) -> None:
    sent(service, names(3))
    clock.time_us += 9 * DAY
    roll(service)
    sent(service, names(3), "other")
    roller = service.pyramid.roller
    for unit in sorted(service.pyramid.marks.pending()):
        roller.roll(service.catalog.tenants.get("acme"), unit)
    clock.time_us += 9 * DAY
    limited(service, 6)
    assert refused(service, names(1, "new")) == ["series-limit"]
    for metric in ("temp", "other"):
        assert refused(service, names(3), metric) == []


def test_series_of_a_device_that_was_silent_for_months_are_known(service: Service, clock: ManualClock) -> None:
    sent(service, names(3))
    clock.time_us += 2 * DAY
    roll(service)
    clock.time_us += 100 * DAY
    limited(service, 3)
    assert refused(service, names(1, "new")) == ["series-limit"]
    assert refused(service, names(3)) == []
