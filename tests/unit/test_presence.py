"""When devices reported last, and how fast, as the process hears it and as the store remembers it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from widerow.alerts.rule import read
from widerow.config import Config, Store
from widerow.model.batch import Batch, Report, batch_of
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.model.times import HOUR, MINUTE, SECOND, ManualClock
from widerow.service import Service
from widerow.telemetry.presence import Presence
from widerow.telemetry.presence_loading import PresenceLoading

NOW = 1_700_000_000 * SECOND
ONLINE = 5 * MINUTE


def reports(device: str, times_us: Sequence[int]) -> Batch:
    return batch_of([Report(device, at_us, {"x": 1.0}, {}) for at_us in times_us])


def presence(now_us: int = NOW) -> tuple[Presence, ManualClock]:
    clock = ManualClock(now_us)
    return Presence(clock, ONLINE), clock


def test_a_device_is_online_while_its_last_report_is_young() -> None:
    heard, _ = presence()
    heard.heard("acme", reports("d1", [NOW - SECOND]))
    heard.heard("bolt", reports("d2", [NOW]))

    def check(tenant: str, now_us: int, want: int) -> None:
        assert heard.online(tenant, now_us) == want

    check("acme", NOW, 1)
    check("acme", NOW - SECOND + ONLINE - 1, 1)
    check("acme", NOW - SECOND + ONLINE, 0)
    check("unknown", NOW, 0)


def test_a_backlog_makes_no_device_online_and_a_clock_ahead_keeps_none_online() -> None:
    heard, _ = presence()
    heard.heard("acme", reports("late", [NOW - HOUR + i * SECOND for i in range(600)]))
    heard.heard("acme", reports("ahead", [NOW + 4 * MINUTE]))
    late, ahead, never = heard.of("acme", ["late", "ahead", "never"], NOW)
    assert late is not None
    assert ahead is not None
    assert (late.online, late.last_us) == (False, NOW - HOUR + 599 * SECOND)
    assert (ahead.online, ahead.last_us) == (True, NOW)
    assert never is None


def test_a_rate_is_counted_in_event_time_and_falls_in_silence() -> None:
    heard, _ = presence()
    heard.heard("acme", reports("slow", [NOW - 20 * MINUTE, NOW - 10 * MINUTE, NOW]))
    heard.heard("acme", reports("fast", [NOW - MINUTE + i * SECOND // 10 for i in range(600)]))

    def check(device: str, now_us: int, want: float) -> None:
        (found,) = heard.of("acme", [device], now_us)
        assert found is not None
        assert found.reports_per_s == pytest.approx(want, rel=0.01)

    check("slow", NOW, 1 / 600)
    check("slow", NOW + 20 * MINUTE, 1 / 1200)
    check("fast", NOW, 10.0)
    check("fast", NOW + HOUR, 1 / 3600)


def test_reports_that_come_twice_or_out_of_order_do_not_make_a_device_faster() -> None:
    heard, clock = presence()
    times = [NOW + i * SECOND for i in range(61)]
    clock.time_us = NOW + 61 * SECOND
    for _ in range(3):
        heard.heard("acme", reports("d1", times))
    (found,) = heard.of("acme", ["d1"], NOW + 61 * SECOND)
    assert found is not None
    assert found.reports_per_s == pytest.approx(1.0)


def test_names_whose_reports_were_refused_are_not_kept() -> None:
    heard, _ = presence()
    both = batch_of([Report("d1", NOW, {"x": 1.0}, {}), Report("d2", NOW, {"x": 1.0}, {})])
    heard.heard("acme", both.take(np.array([False, True])))
    names, last_us = heard.last_seen("acme")
    assert (names.to_list(), last_us.tolist()) == (["d2"], [NOW])
    assert heard.of("acme", ["d1"], NOW) == [None]


def test_deleted_devices_go_and_their_memory_follows() -> None:
    heard, _ = presence()
    devices = [f"d{i}" for i in range(3_000)]
    heard.heard("acme", batch_of([Report(name, NOW, {"x": 1.0}, {}) for name in devices]))
    before = heard.held()["acme"]
    for name in devices[:2_990]:
        heard.forget("acme", name)
    names, _ = heard.last_seen("acme")
    assert names.to_list() == devices[2_990:]
    assert heard.online("acme", NOW) == 10
    assert heard.held()["acme"] < before / 2
    heard.forget_all("acme")
    assert heard.last_seen("acme")[0].to_list() == []


def test_a_device_is_silent_when_it_missed_three_of_its_reports() -> None:
    heard, _ = presence()
    heard.heard("acme", reports("seldom", [NOW - 30 * MINUTE, NOW - 15 * MINUTE, NOW]))
    heard.heard("acme", reports("often", [NOW - MINUTE + i * SECOND for i in range(61)]))
    heard.heard("acme", reports("once", [NOW]))

    def check(after_us: int, want: tuple[int, str]) -> None:
        assert heard.silent("acme", NOW + after_us, HOUR)[:2] == want

    check(4 * MINUTE, (0, ""))
    check(5 * MINUTE, (1, "often"))
    check(46 * MINUTE, (2, "seldom"))
    check(66 * MINUTE, (1, "seldom"))


def test_what_was_heard_counts_where_it_is_later_than_what_the_store_knows() -> None:
    heard, _ = presence()
    heard.heard("acme", reports("d1", [NOW]))
    heard.load("acme", Names.of(("d1", "d2")), np.array([NOW - HOUR, NOW - HOUR]))
    assert [one.last_us if one else None for one in heard.of("acme", ["d1", "d2"], NOW)] == [NOW, NOW - HOUR]


@pytest.fixture
def service() -> Iterator[Service]:
    with Service.open(replace(Config(), store=replace(Store(), url="memory:")), ManualClock(NOW)) as opened:
        yield opened


def loaded(service: Service, *, exactly: int, monkeypatch: pytest.MonkeyPatch, always: tuple[str, ...] = ()) -> Presence:
    """What a process that begins now finds in the store."""
    monkeypatch.setattr("widerow.telemetry.presence_loading.MOST_EXACT", exactly)
    new = Presence(service.clock, ONLINE)
    catalog = service.catalog
    names = [tenant.name for tenant in catalog.tenants.list()]
    loading = PresenceLoading(service.engine, new, service.clock, lambda: names, catalog.devices.registered, again=False)
    loading.exactly = lambda _tenant: always
    loading.load()
    return new


def test_a_process_that_begins_knows_when_devices_reported(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = service.create_tenant(Tenant(name="acme"))
    for device, age_us in (("now", 0), ("stale", 3 * HOUR), ("deleted", 0)):
        batch = reports(device, [NOW - age_us - MINUTE, NOW - age_us])
        service.catalog.devices.register(tenant, batch.device.names)
        service.telemetry.write(tenant, batch)
    service.delete_device(tenant, "deleted")

    def check(exactly: int, want: dict[str, int], always: tuple[str, ...] = ()) -> None:
        names, last_us = loaded(service, exactly=exactly, monkeypatch=monkeypatch, always=always).last_seen("acme")
        assert dict(zip(names.to_list(), last_us.tolist(), strict=True)) == want

    check(1_000, {"now": NOW, "stale": NOW - 3 * HOUR})
    bucket_end = (NOW - 3 * HOUR) // HOUR * HOUR + HOUR
    check(0, {"now": NOW, "stale": bucket_end})
    check(0, {"now": NOW, "stale": NOW - 3 * HOUR}, always=("stale", "now", "deleted", "unknown"))


def test_a_device_with_an_alert_is_read_exactly_by_the_next_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("widerow.telemetry.presence_loading.MOST_EXACT", 0)
    config = replace(Config(), store=replace(Store(), url=f"rocksdb:{tmp_path}", cache_mib=16, reserve_mib=0))
    clock = ManualClock(NOW)
    with Service.open(config, clock) as service:
        tenant = service.create_tenant(Tenant(name="acme"))
        batch = reports("silent", [NOW - 12 * MINUTE])  # in the bucket that is not over
        service.catalog.devices.register(tenant, batch.device.names)
        service.telemetry.write(tenant, batch)
        service.presence.heard("acme", batch)
        service.alerts.book.set_rule("acme", read({"name": "gone", "kind": "offline", "after": "10m", "fleet": True}))
        service.alerts.rules_changed()
        service.alerts.look()
        assert [alert.state for alert in service.alerts.current("acme")] == ["firing"]
    clock.time_us = NOW + MINUTE
    with Service.open(config, clock) as service:
        service.presence_loading.load()
        service.alerts.look()
        assert [alert.state for alert in service.alerts.current("acme")] == ["firing"]


def test_a_pass_that_read_all_says_when_it_began(service: Service) -> None:
    def loading(*, again: bool) -> PresenceLoading:
        registered = service.catalog.devices.registered
        presence = Presence(service.clock, MINUTE)
        return PresenceLoading(service.engine, presence, service.clock, lambda: ["acme"], registered, again=again)

    follows, hears = loading(again=True), loading(again=False)
    follows.load(lambda: True)
    assert (follows.complete_us, hears.complete_us) == (0, None)
    began_us = service.clock.now_us()
    follows.load()
    hears.load()
    assert follows.complete_us is not None
    assert follows.complete_us >= began_us
    assert hears.complete_us is None


def test_a_pass_forgets_tenants_and_devices_that_another_process_deleted(service: Service) -> None:
    tenant = service.create_tenant(Tenant(name="acme"))
    service.catalog.devices.register(tenant, Names.of(("here",)))
    for name in ("acme", "bolt"):
        for device in ("here", "deleted"):
            service.presence.heard(name, reports(device, [NOW]))
    catalog, presence = service.catalog, service.presence

    def names() -> list[str]:
        return [tenant.name for tenant in catalog.tenants.list()]

    PresenceLoading(
        service.engine, presence, service.clock, names, catalog.devices.registered, again=False, shared=True
    ).load()
    assert presence.tenants() == ["acme"]
    assert presence.last_seen("acme")[0].to_list() == ["here"]
    assert presence.online("acme", NOW) == 1
