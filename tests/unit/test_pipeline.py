"""The one path of a report, without a front."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from unit.one_path import send, values
from widerow.catalog.catalog import Catalog
from widerow.catalog.devices import Devices
from widerow.catalog.seats import Seats
from widerow.catalog.series import Series
from widerow.catalog.store import SCHEMA
from widerow.config import Config, Store
from widerow.engine.rows import Rows
from widerow.model.batch import Report, batch_of
from widerow.model.device import Device
from widerow.model.errors import ConfigError, NotTheWriter, StorageFull, TenantBusy, Unavailable
from widerow.model.tenant import LimitMode, Limits, Tenant
from widerow.model.times import HOUR, TimeSpan
from widerow.pipeline.job import Job, Lane, Outcome
from widerow.pipeline.pipeline import INLINE_BYTES
from widerow.schema.shards import shard_of
from widerow.schema.table import Table
from widerow.schema.tables import LAST_SEEN, META
from widerow.service import Service


def test_refusals_name_the_positions_of_their_own_request(service: Service) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme", registers_devices=False))
    now = service.clock.now_us()
    service.catalog.devices.create(tenant, service_device("known"))
    good, unknown = f"m,device=known x=1 {now}", f"m,device=stranger x=1 {now}"
    first, second = send(service, tenant, f"{good}\n{unknown}\n\nbroken\n", f"{unknown}\n{good}")
    assert first.accepted == second.accepted == 1
    assert {(r.code, tuple(r.positions)) for r in first.refusals} == {("device-missing", (3,)), ("unknown-device", (1,))}
    assert {(r.code, tuple(r.positions)) for r in second.refusals} == {("unknown-device", (0,))}


def service_device(name: str) -> Device:
    return Device(name=name)


def test_the_device_limit_is_exact_and_explains_itself(service: Service) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme", limits=Limits(devices=3)))
    now = service.clock.now_us()
    (outcome,) = send(service, tenant, "\n".join(f"m,device=d{i} x=1 {now}" for i in range(5)))
    assert outcome.accepted == 3
    ((code, reason, positions),) = [(r.code, r.reason, len(r.positions)) for r in outcome.refusals]
    assert (code, positions) == ("device-limit", 2)
    assert "limits.devices" in reason


def test_reports_that_bring_devices_beyond_a_limit_in_shadow_are_counted_and_kept(service: Service) -> None:
    shadow = Tenant(name="acme", limits=Limits(devices=3), limit_modes={"devices": LimitMode.SHADOW})
    tenant, now = service.catalog.tenants.create(shadow), service.clock.now_us()
    body = "\n".join(f"m,device=d{i} x=1 {now + k}" for i in range(5) for k in range(2))
    for _ in range(2):  # those that come again are of devices that are known
        (outcome,) = send(service, tenant, body)
        assert (outcome.accepted, list(outcome.refusals)) == (10, [])
        labels = {"tenant": "acme", "limit": "devices"}
        assert service.counters.registry.get_sample_value("widerow_reports_shadowed_total", labels) == 4


def test_many_small_requests_and_large_ones_all_land(service: Service) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    now = service.clock.now_us()
    small = [f"m,device=a x={i} {now - i}" for i in range(200)]
    lines = [f"m,device=b x={i} {now - i}" for i in range(INLINE_BYTES // 20)]
    outcomes = send(service, tenant, *small, "\n".join(lines))
    assert [o.accepted for o in outcomes] == [1] * 200 + [len(lines)]
    assert sorted(values(service, tenant, "a")) == [float(i) for i in range(200)]
    assert len(values(service, tenant, "b")) == len(lines)
    sample = service.counters.registry.get_sample_value
    assert sample("widerow_commit_reports_sum") == 200 + len(lines)
    assert sample("widerow_commit_reports_count") == sample("widerow_commits_total")


def test_a_failed_commit_acknowledges_nothing_and_the_next_one_works(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    now = service.clock.now_us()
    real = service.engine.write
    failures = [StorageFull("full"), RuntimeError("a bug")]

    def failing(changes: list[tuple[Table, Rows]]) -> None:
        if failures:
            raise failures.pop(0)
        real(changes)

    monkeypatch.setattr(service.engine, "write", failing)
    (full,) = send(service, tenant, f"m,device=d x=1 {now}")
    (bug,) = send(service, tenant, f"m,device=d x=1 {now}")
    assert isinstance(full.error, StorageFull)
    assert isinstance(bug.error, Unavailable)
    assert full.accepted == bug.accepted == 0
    (good,) = send(service, tenant, f"m,device=d x=1 {now}")
    assert good.accepted == 1
    assert service.queries.latest(tenant, ["d"]).number.tolist() == [1.0]


def test_limits_that_fail_unforeseen_are_answered_and_hold_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For small bodies, which the sender decodes, as for large ones, which a thread does that must go on."""
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    now = service.clock.now_us()
    bodies = [f"m,device=d a=1 {now}", "\n".join(f"m,device=d a={i} {now - i}" for i in range(10_000))]

    def fail(*_: object, **__: object) -> None:
        raise KeyError("out of thin air")

    with monkeypatch.context() as patch:
        patch.setattr(service.admission, "admit", fail)
        assert [type(outcome.error) for body in bodies for outcome in send(service, tenant, body)] == [Unavailable] * 2
    assert "asking limits failed" in caplog.text
    assert service.pipeline.in_flight() == 0
    (outcome,) = send(service, tenant, f"m,device=d a=1 {now}")
    assert outcome.accepted == 1


def test_handing_on_that_fails_unforeseen_is_answered_and_holds_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Backlog, which is cut into pieces: by the sender, by a thread that decodes, and by the one that decodes backlog."""
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    old = service.clock.now_us() - 2 * HOUR
    small, large = f"m,device=d a=1 {old}", "\n".join(f"m,device=d a={i} {old - i}" for i in range(10_000))
    told: list[Outcome] = []

    def fail(*_: object, **__: object) -> None:
        raise KeyError("out of thin air")

    with monkeypatch.context() as patch:
        patch.setattr("widerow.pipeline.pipeline.pieces", fail)
        for text, lane in ((small, Lane.LIVE), (large, Lane.LIVE), (large, Lane.BACKFILL)):
            told += send(service, tenant, text, lane=lane)
    assert [type(outcome.error) for outcome in told] == [Unavailable] * 3
    assert "handing on failed" in caplog.text
    assert service.pipeline.in_flight() == 0
    for lane in (Lane.LIVE, Lane.BACKFILL):
        (outcome,) = send(service, tenant, large, lane=lane)
        assert outcome.accepted == 10_000


def forbidden() -> None:
    """As the writer's lease says no."""
    raise NotTheWriter("on purpose")


def test_who_may_not_write_takes_nothing_in(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    with monkeypatch.context() as patch:
        patch.setattr(service.pipeline, "_may_write", forbidden)
        for size in (1, 2 * INLINE_BYTES):
            with pytest.raises(NotTheWriter):
                service.pipeline.submit(Job(tenant, size, lambda: pytest.fail("decoded"), lambda _: pytest.fail("done")))
        assert service.pipeline.in_flight() == 0
    (kept,) = send(service, tenant, f"m,device=d x=1 {service.clock.now_us()}")
    assert kept.accepted == 1


def test_what_waits_when_writing_is_forbidden_is_refused_and_not_written(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    now = service.clock.now_us()
    with monkeypatch.context() as patch:
        patch.setattr(service.pipeline._sink, "_may_write", forbidden)
        (refused,) = send(service, tenant, f"m,device=d x=1 {now}")
    assert isinstance(refused.error, NotTheWriter)
    assert service.catalog.devices.count("acme") == 0
    (kept,) = send(service, tenant, f"m,device=d x=2 {now}")
    assert kept.accepted == 1
    assert values(service, tenant, "d") == [2.0]


def test_after_another_process_wrote_nothing_is_known_by_heart() -> None:
    with Service.open(Config(store=Store(url="memory:"))) as service:
        tenant = service.catalog.tenants.create(Tenant(name="acme", limits=Limits(devices=2)))
        now = service.clock.now_us()
        send(service, tenant, f"m,device=a x=1 {now}")
        other = Catalog(service.engine, service.clock)
        other.devices.create(tenant, Device(name="b"))
        other.metrics.delete("acme", "m_x")
        service.engine.delete(LAST_SEEN, [("acme", shard_of("a"))], version_us=1 << 53)
        assert service.catalog.devices.count("acme") == 1
        service.forget()
        assert service.catalog.devices.count("acme") == 2
        (limited,) = send(service, tenant, f"m,device=a x=2 {now + 1}\nm,device=c x=2 {now + 1}")
        assert [r.code for r in limited.refusals] == ["device-limit"]
        assert service.queries.latest(tenant, ["a"]).number.tolist() == [2.0]
        assert [metric.name for metric in service.catalog.metrics.list("acme")] == ["m_x"]


def test_a_job_whose_new_device_another_process_may_leave_no_place_for_is_to_come_again_alone(service: Service) -> None:
    service.catalog.devices = Devices(service.engine, service.clock, reload_us=HOUR)  # as on a store that processes share
    tenant = service.catalog.tenants.create(Tenant(name="acme", limits=Limits(devices=2)))
    other = service.catalog.tenants.create(Tenant(name="other"))
    now = service.clock.now_us()
    send(service, tenant, f"m,device=a x=0 {now}")
    seats = Seats(service.engine, service.clock, refresh_us=HOUR)
    taken = seats.take(tenant, 1, 2, lambda: 1)
    bodies = [(tenant, "a", 1), (tenant, "b", 2), (tenant, "a", 3), (other, "b", 4)]
    for _ in range(5):
        outcomes: dict[int, Outcome] = {}
        for who, device, x in bodies:
            body = f"m,device={device} x={x} {now + x}\nm,device={device} {now + x}".encode()
            decode = service.bodies.lines(body, encoding="", precision="us", max_bytes=1 << 30)
            done = partial(outcomes.__setitem__, x)
            service.pipeline.submit(Job(who, len(body), decode, done), wake=False)
        service.pipeline.wake()
        deadline_s = time.monotonic() + 30
        while len(outcomes) < len(bodies) and time.monotonic() < deadline_s:
            time.sleep(0.001)
        assert [(outcomes[x].accepted, outcomes[x].refused) for x in (1, 3, 4)] == [(1, 1)] * 3
        assert isinstance(outcomes[2].error, TenantBusy)
        (alone,) = send(service, tenant, f"m,device=b x=2 {now}")
        assert isinstance(alone.error, TenantBusy)
    assert service.pipeline.pressure.healthy, "the store is not at fault"
    seats.settle("acme", taken, 0)
    (kept,) = send(service, tenant, f"m,device=b x=5 {now}")
    assert (kept.error, kept.accepted) == (None, 1)
    assert (values(service, tenant, "a"), values(service, tenant, "b")) == ([0.0, 1.0, 3.0], [5.0])


def test_series_that_another_process_added_are_read_by_the_housekeeping(service: Service) -> None:
    tenant, mine = Tenant(name="acme", limits=Limits(series=9)), service.catalog.series
    service.catalog.tenants.create(tenant)
    mine._reload_us = 0  # as on a store that processes share, and due at once
    assert mine.count(tenant) == 0
    other = Series(service.engine, service.clock)
    fit = other.admit(tenant, batch_of([Report("d", service.clock.now_us(), {"x": 1.0}, {})]))
    assert fit is not None
    service.engine.write(fit.changes)
    deadline_s = time.monotonic() + 30
    while mine.count(tenant) == 0 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert mine.count(tenant) == 1


def test_a_deleted_tenant_fails_alone(service: Service) -> None:
    acme = service.catalog.tenants.create(Tenant(name="acme"))
    now = service.clock.now_us()
    (gone,) = send(service, Tenant(name="gone"), f"m,device=d x=1 {now}")
    (kept,) = send(service, acme, f"m,device=d x=1 {now}")
    assert gone.error is not None
    assert gone.error.code == "not-found"
    assert kept.accepted == 1


def test_closing_finishes_what_was_taken_in(tmp_path: Path) -> None:
    config = Config(store=Store(url=f"rocksdb:{tmp_path}", reserve_mib=0))
    service = Service.open(config)
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    now = service.clock.now_us()
    outcomes: list[Outcome] = []
    for i in range(50):
        body = "\n".join(f"m,device=d{k} x={i} {now - i}" for k in range(3000)).encode()
        decode = service.bodies.lines(body, encoding="", precision="us", max_bytes=1 << 30)
        service.pipeline.submit(Job(tenant, len(body), decode, outcomes.append))
    service.close()
    assert [o.accepted for o in outcomes] == [3000] * 50
    with Service.open(replace(config)) as again:
        assert len(values(again, tenant, "d2999")) == 50


def test_a_deleted_device_is_gone_at_once_and_may_come_back(service: Service) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    now = service.clock.now_us()
    send(service, tenant, f"m,device=d x=1 {now}")
    service.delete_device(tenant, "d")
    send(service, tenant, f"m,device=d x=2 {now - 1}")
    assert values(service, tenant, "d") == [2.0]
    service.house.purge()
    assert values(service, tenant, "d") == [2.0]


def test_a_store_of_a_newer_release_is_not_touched(tmp_path: Path) -> None:
    config = Config(store=Store(url=f"rocksdb:{tmp_path}", reserve_mib=0))
    with Service.open(config) as service:
        assert service.engine.put_if(META, ("schema",), {"body": str(SCHEMA[0] + 1)}, service.engine.get(META, ("schema",)))
    with pytest.raises(ConfigError, match="newer release"):
        Service.open(config)


def test_a_deleted_tenant_leaves_nothing_behind(service: Service) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    now = service.clock.now_us()
    send(service, tenant, f"m,device=d x=1 {now}")
    service.delete_tenant("acme")
    service.house.purge()
    again = service.create_tenant(Tenant(name="acme"))
    assert service.catalog.devices.count("acme") == 0
    send(service, again, f"m,device=d x=2 {now - 1}")
    assert values(service, again, "d") == [2.0]


def used(service: Service, tenant: Tenant) -> dict[str, float]:
    """What was recorded, but for zeros and bytes."""
    service.usage.flush()
    now_us = service.clock.now_us()
    total: dict[str, float] = {}
    for hour in service.recorded.hours(tenant.name, TimeSpan(now_us - 2 * HOUR, now_us + HOUR)).values():
        for name, value in hour.items():
            total[name] = total.get(name, 0.0) + value
    return {name: value for name, value in total.items() if value and not name.endswith("_bytes")}


def test_what_was_offered_was_accepted_refused_or_has_failed(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme", limits=Limits(devices=1)))
    now = service.clock.now_us()
    send(service, tenant, f"m,device=a x=1 {now}\nm,device=b x=1 {now}\nm,device=a x=1 {now + HOUR}\nbroken")
    want = {"offered": 4, "accepted": 1, "values": 1, "refused:device-limit": 1, "limit:devices": 1}
    assert used(service, tenant) == {**want, "refused:future": 1, "refused:device-missing": 1}
    other = service.catalog.tenants.create(Tenant(name="other"))
    real, failures = service.engine.write, [StorageFull("full")]

    def failing(changes: list[tuple[Table, Rows]]) -> None:
        if failures and any(table.name.startswith("telemetry") for table, _ in changes):
            raise failures.pop()
        real(changes)

    monkeypatch.setattr(service.engine, "write", failing)
    body = f"m,device=a x=1 {now}\nbroken"
    assert [outcome.accepted for outcome in (*send(service, other, body), *send(service, other, body))] == [0, 1]
    assert used(service, other) == {"offered": 4, "failed": 2, "accepted": 1, "values": 1, "refused:device-missing": 1}


def test_what_another_process_took_in_is_not_counted_again(service: Service) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme", limits=Limits(devices=1)))
    body = "".join(f"m,device={device} x=1 {service.clock.now_us()}\n" for device in "abc").encode()
    done = threading.Event()
    decode = service.bodies.lines(body, encoding="", precision="us", max_bytes=1 << 30)
    service.pipeline.submit(Job(tenant, len(body), decode, lambda _: done.set(), counted=True))
    assert done.wait(30)
    assert used(service, tenant) == {"accepted": -2, "refused:device-limit": 2}, "which the front counted as accepted"


def test_the_bytes_of_a_body_that_cannot_be_read_are_received_all_the_same(service: Service) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    done, body = threading.Event(), b"[{"
    decode = service.bodies.reports(body, content_type="application/json", encoding="", precision="ms", max_bytes=1 << 30)
    service.pipeline.submit(Job(tenant, len(body), decode, lambda _: done.set()))
    assert done.wait(30)
    service.usage.flush()
    now_us = service.clock.now_us()
    (hour,) = service.recorded.hours("acme", TimeSpan(now_us - HOUR, now_us + HOUR)).values()
    assert (hour["received_bytes"], hour["offered"]) == (2, 0)
