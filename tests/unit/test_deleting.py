"""Deleting a device: done as a whole or still to be done, whatever fails in between, and whatever is sent meanwhile."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from widerow.config import Config, Store
from widerow.engine.open import open_engine
from widerow.engine.port import Engine
from widerow.model.batch import Report, batch_of
from widerow.model.errors import Conflict, NotFound, Unavailable
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.model.times import MS, SECOND, Clock, ManualClock, TimeSpan, whole_ms
from widerow.pipeline.job import Job, Outcome
from widerow.schema.tables import DEVICE_VERSIONS
from widerow.service import Service
from widerow.telemetry.store import Telemetry, TelemetrySettings

CALLS = ("get", "scan", "put_if", "insert", "write", "delete")


def filled(service: Service, tenant: Tenant, device: str) -> None:
    """A device with a report and a former state."""
    service.catalog.devices.register(tenant, Names.of([device]))
    service.catalog.devices.update(tenant.name, device, lambda d: replace(d, location="hall"))
    report(service, tenant, device, 1.0)


def report(service: Service, tenant: Tenant, device: str, value: float) -> None:
    now_us = service.clock.now_us()
    service.telemetry.write(tenant, batch_of([Report(device, now_us, {"x": value}, {}, whole_ms(now_us))]))


def values(service: Service, tenant: Tenant, device: str) -> list[float]:
    now_us = service.clock.now_us()
    points = service.queries.series(tenant, device, span=TimeSpan(now_us - 60 * SECOND, now_us + SECOND), limit=100).points
    return list(points.number)


class Failing:
    """Makes the nth call of this thread to the engine fail, before it is done or after."""

    def __init__(self, service: Service, patch: pytest.MonkeyPatch, nth: int, *, done: bool) -> None:
        self.left, self.done, self.thread = nth, done, threading.get_ident()
        for name in CALLS:
            patch.setattr(service.engine, name, self._failing(getattr(service.engine, name)))

    def _failing(self, real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if threading.get_ident() != self.thread:
                return real(*arguments, **options)
            self.left -= 1
            if self.left == 0 and not self.done:
                raise Unavailable("before")
            answer = real(*arguments, **options)
            if self.left == 0:
                raise Unavailable("after")
            return answer

        return call


@pytest.mark.parametrize("done", [False, True], ids=["not-done", "done"])
def test_deleting_again_after_any_failure_finishes_the_job(
    service: Service, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    tenant = service.create_tenant(Tenant(name="acme"))
    for nth in range(1, 100):
        device = f"d{nth}"
        filled(service, tenant, device)
        with monkeypatch.context() as patch:
            failing = Failing(service, patch, nth, done=done)
            try:
                service.delete_device(tenant, device)
            except Unavailable:
                pass
            else:
                assert failing.left > 0
                break
        try:
            service.delete_device(tenant, device)
        except NotFound:
            assert done, "a retry finds the device unless the last step was done"
        check_gone(service, tenant, device)
    assert nth > 4, "it takes a look at the device, a mark, a look at its history, a delete, and the removal of its row"


def check_gone(service: Service, tenant: Tenant, device: str) -> None:
    """Unknown, off the disk, and without a past when it comes back."""
    with pytest.raises(NotFound):
        service.catalog.devices.get(tenant.name, device)
    service.house.purge()
    assert not [rows for rows in service.engine.scan(DEVICE_VERSIONS, [(tenant.name, device)]) if len(rows)]
    service.catalog.devices.register(tenant, Names.of([device]))
    assert values(service, tenant, device) == []
    report(service, tenant, device, 2.0)
    assert values(service, tenant, device) == [2.0]
    assert len(service.catalog.devices.history(tenant.name, device)) == 1


def test_what_is_not_as_expected_is_not_erased(service: Service) -> None:
    tenant = service.create_tenant(Tenant(name="acme"))
    filled(service, tenant, "d")
    with pytest.raises(Conflict):
        service.delete_device(tenant, "d", expected=1)
    with pytest.raises(NotFound):
        service.delete_device(tenant, "e")
    assert service.telemetry.erasure.unfinished() == []
    assert values(service, tenant, "d") == [1.0]
    assert len(service.catalog.devices.history("acme", "d")) == 2
    assert service.catalog.devices.count("acme") == 1
    service.delete_device(tenant, "d", expected=2)
    check_gone(service, tenant, "d")


def test_a_report_that_comes_while_its_device_is_deleted_makes_a_new_device(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = service.create_tenant(Tenant(name="acme"))
    filled(service, tenant, "d")
    outcomes: list[Outcome] = []
    erase = service.telemetry.erase

    def erase_slowly(tenant: Tenant, **what: Any) -> object:
        mark = erase(tenant, **what)
        while (now_us := service.clock.now_us()) < mark.version_us + MS:
            time.sleep(0.001)
        body = f"m,device=d x=2 {now_us}".encode()
        decode = service.bodies.lines(body, encoding="", precision="us", max_bytes=1 << 20)
        service.pipeline.submit(Job(tenant, len(body), decode, outcomes.append))
        time.sleep(0.2)
        return mark

    monkeypatch.setattr(service.telemetry, "erase", erase_slowly)
    service.delete_device(tenant, "d")
    deadline = time.monotonic() + 10
    while not outcomes and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [outcome.accepted for outcome in outcomes] == [1]
    assert values(service, tenant, "d") == [2.0]
    assert service.catalog.devices.get("acme", "d").location == ""
    assert service.catalog.devices.count("acme") == 1


def test_a_deleted_tenant_takes_the_history_of_its_devices_along(service: Service) -> None:
    kept, gone = (service.create_tenant(Tenant(name=name)) for name in ("kept", "gone"))
    for tenant in (kept, gone):
        filled(service, tenant, "d")
    service.delete_tenant("gone")
    service.house.purge()
    left = {str(rows.key(DEVICE_VERSIONS, 0)[0]) for rows in service.engine.scan(DEVICE_VERSIONS, None)}
    assert left == {"kept"}
    again = service.create_tenant(Tenant(name="gone"))
    service.catalog.devices.register(again, Names.of(["d"]))
    assert len(service.catalog.devices.history("gone", "d")) == 1
    assert len(service.catalog.devices.history("kept", "d")) == 2


def test_what_another_process_still_took_for_a_deleted_tenant_is_not_found_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(1_760_000_000 * SECOND)

    def shared(config: Config, clock: Clock) -> Engine:  # whose versions come from the clock of each process
        engine = open_engine(config, clock)
        monkeypatch.setattr(engine, "clock", clock)
        return engine

    monkeypatch.setattr("widerow.service.open_engine", shared)
    with Service.open(Config(store=Store(url=f"rocksdb:{tmp_path}", reserve_mib=0)), clock) as service:
        refresh_us = service.config.time.refresh_s * SECOND
        other = Telemetry(service.engine, clock, TelemetrySettings(max_future_us=SECOND, refresh_us=refresh_us))
        monkeypatch.setattr("widerow.service.is_shared", lambda _url: True)
        service.house.stop()  # deleting wakes it: what is counted here would be purged by its thread, now and then
        tenant = service.create_tenant(Tenant(name="acme"))

        def report_to_other(value: float) -> None:
            service.catalog.devices.register(tenant, Names.of(["d"]))
            other.write(tenant, batch_of([Report("d", clock.time_us, {"x": value}, {}, whole_ms(clock.time_us))]))

        report_to_other(1.0)
        service.delete_tenant("acme")
        clock.time_us += refresh_us - SECOND
        report_to_other(2.0)
        assert service.house.purge() == 0
        with pytest.raises(Conflict, match="still being deleted"):
            service.create_tenant(Tenant(name="acme"))
        clock.time_us += refresh_us + 2 * SECOND
        assert service.house.purge() == 1
        again = service.create_tenant(Tenant(name="acme"))
        assert service.catalog.devices.count("acme") == 0
        service.catalog.devices.register(again, Names.of(["d"]))
        report(service, again, "d", 3.0)
        assert values(service, again, "d") == [3.0]
