"""What a tenant has stored: accounted as the engine has it on disk, and limited by that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from widerow.codec.decoded import Decoded
from widerow.config import Config, Store
from widerow.engine.rocksdb import RocksEngine
from widerow.model.batch import Batch, Report, batch_of
from widerow.model.errors import QuotaExceeded
from widerow.model.tenant import LimitMode, Limits, Retention, Tenant
from widerow.model.times import DAY, HOUR, SECOND, ManualClock, TimeSpan, whole_ms
from widerow.pipeline.job import Job, Outcome
from widerow.schema.rollups import DAYS, HOURS, MINUTES, rollups
from widerow.schema.tables import telemetry
from widerow.service import Service
from widerow.simulate.fleet import Fleet
from widerow.usage.storage import LEVEL_NAMES, Windows

BEGAN = 1_800_000_000_000_000 // DAY * DAY
DEVICES = 60


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BEGAN)


@pytest.fixture
def service(tmp_path: Path, clock: ManualClock) -> Iterator[Service]:
    with Service.open(Config(store=Store(url=f"rocksdb:{tmp_path}", reserve_mib=0)), clock) as service:
        yield service


def send(service: Service, tenant: str, batch: Batch, *, whole: bool = False) -> Outcome:
    """Through the whole path, as a front does."""
    answered, outcomes = threading.Event(), list[Outcome]()

    def done(outcome: Outcome) -> None:
        outcomes.append(outcome)
        answered.set()

    who = service.catalog.tenants.get(tenant)
    service.pipeline.submit(Job(who, len(batch) * 100, lambda: Decoded(batch), done, whole=whole))
    service.pipeline.wake()
    assert answered.wait(30)
    return outcomes[0]


def fill(service: Service, clock: ManualClock, tenant: str, hours: int) -> None:
    fleet = Fleet(3, DEVICES, start_us=clock.time_us, kinds=("press", "climate"), interval_us=10 * SECOND)
    for hour in range(hours):
        for part in range(0, 360, 90):
            batch = fleet.made(range(hour * 360 + part, hour * 360 + part + 90))
            clock.time_us = int(batch.time_us.max())
            outcome = send(service, tenant, replace(batch, version_us=np.full(len(batch), whole_ms(clock.time_us))))
            assert (outcome.error, outcome.refused) == (None, 0)


def purge(service: Service) -> None:
    """The clock of these tests jumps by hours and days, after which nothing is thrown away unless somebody says so."""
    assert service.clock_guard is not None
    service.clock_guard.confirm()
    service.house.purge()


def roll(service: Service, tenant: str) -> None:
    who, pyramid = service.catalog.tenants.get(tenant), service.pyramid
    for unit in sorted(pyramid.marks.pending()):
        pyramid.roller.roll(who, unit)
    for unit in sorted(pyramid.roller.days.pending()):
        pyramid.roller.roll_day(who, unit)
    for unit in sorted(pyramid.roller.fleet.pending()):
        pyramid.fleet.roll(who, unit)


def compact(service: Service) -> None:
    assert isinstance(service.engine, RocksEngine)
    for name in service.engine.db.names():
        family = service.engine.db.family(name)
        assert family is not None
        family.flush()
        family.compact_range(None, None)


def test_accounted_bytes_are_what_the_engine_has_on_disk(service: Service, clock: ManualClock) -> None:
    tenant = service.create_tenant(Tenant(name="acme"))
    fill(service, clock, "acme", 6)
    clock.time_us += 2 * DAY
    roll(service, "acme")
    compact(service)
    accounted = service.storage.levels(tenant)
    sizes = service.engine.sizes()
    keep = tenant.retention
    tables = {
        "raw": telemetry(keep.raw_us),
        "minute": rollups(MINUTES, keep.minute_us),
        "hour": rollups(HOURS, keep.hour_us),
        "day": rollups(DAYS, keep.day_us),
    }
    on_disk = {level: sizes[table.name].file_bytes for level, table in tables.items()}
    assert sum(accounted.values()) == pytest.approx(sum(on_disk.values()), rel=0.02)
    for level in ("raw", "minute"):
        assert accounted[level] == pytest.approx(on_disk[level], rel=0.02)
    everything = service.engine.stats().detail["table_files_bytes"]
    assert sum(accounted.values()) == pytest.approx(everything, rel=0.05), "the catalog and the fleet's hours included"


def test_a_full_quota_refuses_and_opens_again_when_something_is_deleted(service: Service, clock: ManualClock) -> None:
    service.create_tenant(Tenant(name="acme"))
    fill(service, clock, "acme", 1)
    clock.time_us += 2 * HOUR
    roll(service, "acme")
    tenant = service.catalog.tenants.get("acme")
    has = sum(service.storage.levels(tenant).values())
    assert has > 100_000

    def limited(to: int, mode: LimitMode = LimitMode.ENFORCE) -> None:
        limits, modes = Limits(storage_bytes=to), {"storage_bytes": mode}
        service.catalog.tenants.update("acme", lambda t: replace(t, limits=limits, limit_modes=modes))
        service.storage.bytes(service.catalog.tenants.get("acme"))
        service.storage.refresh()

    fleet = Fleet(9, DEVICES, start_us=clock.time_us - SECOND, interval_us=SECOND)
    some = replace(fleet.made(range(1)), version_us=np.full(DEVICES, whole_ms(clock.time_us)))
    limited(has // 2)
    outcome = send(service, "acme", some)
    (refusal,) = outcome.refusals
    assert (outcome.accepted, refusal.code, len(refusal)) == (0, "storage-limit", DEVICES)
    assert refusal.spent is not None
    assert (refusal.spent.limit, refusal.spent.allowed) == ("storage_bytes", has // 2)
    assert refusal.spent.seen == pytest.approx(has, rel=0.01)
    error = send(service, "acme", some, whole=True).error
    assert isinstance(error, QuotaExceeded)
    assert error.limit == "storage_bytes"
    limited(has // 2, LimitMode.SHADOW)
    assert send(service, "acme", some).accepted == DEVICES
    limited(has // 2)
    assert send(service, "acme", some).accepted == 0
    clock.time_us += SECOND
    for device in service.catalog.devices.list("acme").devices[5:]:
        service.delete_device(tenant, device.name)
    clock.time_us += SECOND
    purge(service)
    clock.time_us += SECOND
    roll(service, "acme")
    limited(has // 2)
    # The store's own clock: it went on while the devices were deleted, which takes seconds on a busy machine.
    again = replace(some, version_us=np.full(DEVICES, service.clock.version_us()))
    assert send(service, "acme", again).accepted == DEVICES


def test_what_has_expired_is_not_accounted(service: Service, clock: ManualClock) -> None:
    keep = Retention(raw_us=DAY, minute_us=2 * DAY, hour_us=10 * DAY, day_us=20 * DAY)
    tenant = service.create_tenant(Tenant(name="brief", retention=keep))
    fill(service, clock, "brief", 1)
    clock.time_us = BEGAN + DAY - HOUR
    roll(service, "brief")
    left = []
    for days in (0.9, 1.5, 2.5, 11, 22):
        clock.time_us = BEGAN + int(days * DAY)
        service.storage.forget("brief")
        accounted = service.storage.levels(tenant)
        left.append([level for level in LEVEL_NAMES if accounted[level]])
    # The day that is not over when it is rolled is rolled all the same.
    assert left == [["raw", "minute", "hour", "day"], ["minute", "hour", "day"], ["hour", "day"], ["day"], []]
    times = np.array([BEGAN + int(days * DAY) for days in (0.9, 1.5)])
    clock.time_us = BEGAN + 3 * DAY
    service.storage.forget("brief")
    before, after = service.storage.at(tenant, times)
    assert before["raw"] > 0 == after["raw"], "what it was then can still be told"


def test_a_full_quota_opens_again_when_something_has_expired(service: Service, clock: ManualClock) -> None:
    keep = Retention(raw_us=DAY, minute_us=2 * DAY, hour_us=10 * DAY, day_us=20 * DAY)
    service.create_tenant(Tenant(name="brief", retention=keep))
    fill(service, clock, "brief", 1)
    clock.time_us = BEGAN + DAY - HOUR
    roll(service, "brief")
    has = sum(service.storage.levels(service.catalog.tenants.get("brief")).values())
    limited = service.catalog.tenants.update("brief", lambda t: replace(t, limits=Limits(storage_bytes=has // 2)))
    told = []
    for days in (0.9, 2.5):
        clock.time_us = BEGAN + int(days * DAY)
        service.storage.bytes(limited)
        service.storage.refresh()
        fleet = Fleet(9, DEVICES, start_us=clock.time_us - SECOND, interval_us=SECOND)
        outcome = send(service, "brief", replace(fleet.made(range(1)), version_us=np.full(DEVICES, whole_ms(clock.time_us))))
        told.append((outcome.accepted, [refusal.code for refusal in outcome.refusals]))
    assert told == [(0, ["storage-limit"]), (DEVICES, [])]
    assert 0 < service.storage.bytes(limited) < has // 2, "hours and days are still there"


def test_what_is_erased_while_it_is_being_read_does_not_go_on_to_count(
    service: Service, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = service.create_tenant(Tenant(name="acme"))
    fill(service, clock, "acme", 1)
    clock.time_us += 5 * DAY  # so long ago that it is not read again each time
    roll(service, "acme")
    storage, read = service.storage, service.storage._windows

    def erased_behind(*asked: Any) -> Windows:
        monkeypatch.undo()
        found = read(*asked)
        clock.time_us += SECOND
        for device in service.catalog.devices.list("acme").devices:
            service.delete_device(tenant, device.name)
        clock.time_us += SECOND
        purge(service)
        clock.time_us += SECOND
        roll(service, "acme")
        return found

    monkeypatch.setattr(storage, "_windows", erased_behind)
    assert storage.levels(tenant)["raw"] > 0
    assert storage.levels(tenant)["raw"] == 0


def test_what_was_accepted_counts_before_it_is_rolled(service: Service, clock: ManualClock) -> None:
    tenant = service.create_tenant(Tenant(name="acme"))
    assert service.storage.bytes(tenant) == 0
    service.storage.refresh()
    fill(service, clock, "acme", 1)
    at_once = service.storage.bytes(tenant)
    assert at_once > 100_000
    service.storage.refresh()
    assert service.storage.bytes(tenant) == pytest.approx(at_once, rel=0.01)
    clock.time_us += 2 * HOUR
    roll(service, "acme")
    service.storage.forget("acme")
    assert service.storage.levels(tenant)["raw"] == pytest.approx(at_once, rel=0.05)


def test_a_new_series_beyond_the_limit_is_refused_and_its_neighbours_are_kept(service: Service, clock: ManualClock) -> None:
    service.create_tenant(Tenant(name="acme", limits=Limits(series=4)))

    def offer(*values: tuple[str, dict[str, float | str]]) -> Outcome:
        clock.time_us += SECOND
        made = [Report(device, clock.time_us, cells, {}, whole_ms(clock.time_us)) for device, cells in values]
        return send(service, "acme", batch_of(made))

    offer(("a", {"x": 1.0}))
    service.house.learn_series()
    assert offer(("a", {"x": 1.0, "y": 1.0}), ("b", {"x": 1.0})).accepted == 2
    outcome = offer(("a", {"x": 1.0}), ("b", {"y": 1.0, "z": 1.0}), ("b", {"x": 2.0}), ("c", {"x": 1.0}))
    (refusal,) = outcome.refusals
    assert (outcome.accepted, refusal.code, list(refusal.positions)) == (3, "series-limit", [1])
    assert refusal.spent is not None
    assert (refusal.spent.limit, refusal.spent.allowed) == ("series", 4)
    assert offer(("d", {"x": 1.0})).accepted == 0
    service.catalog.tenants.update("acme", lambda t: replace(t, limit_modes={"series": LimitMode.SHADOW}))
    clock.time_us += HOUR
    assert offer(("d", {"x": 1.0})).accepted == 1
    service.catalog.tenants.update("acme", lambda t: replace(t, limit_modes={}))
    service.delete_device(service.catalog.tenants.get("acme"), "a")
    purge(service)
    clock.time_us += HOUR
    assert offer(("d", {"x": 1.0})).accepted == 1, "a device less makes room"
    recorded = service.ledger.statement(
        service.catalog.tenants.get("acme"), TimeSpan(BEGAN, clock.time_us + SECOND), "day"
    ).total
    assert recorded.limited_by == {"series": 2}
