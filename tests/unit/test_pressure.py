"""How much a process holds, and when it says that it does not keep up."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from widerow.admit.pressure import Pressure, PressureSettings
from widerow.model.errors import Overloaded, TenantBusy
from widerow.model.lane import Lane
from widerow.ops.counters import Counters


@dataclass
class Site:
    now_s: float = 100.0
    counters: Counters = field(default_factory=Counters)
    pressure: Pressure = field(init=False)

    def __post_init__(self) -> None:
        settings = PressureSettings(max_bytes=100, max_backfill_bytes=50, max_items=10)
        self.pressure = Pressure(settings, self.counters, lambda: self.now_s, lambda: 0.5)

    def events(self, event: str) -> float:
        return self.counters.registry.get_sample_value("widerow_pressure_events_total", {"event": event}) or 0.0

    def passes(self, seconds: float) -> bool:
        """Whether it is healthy when so much time has passed."""
        self.now_s += seconds
        return self.pressure.healthy


def test_a_full_lane_refuses_until_something_is_released() -> None:
    site = Site()
    first = site.pressure.admit(60)
    with pytest.raises(Overloaded, match=r"pipeline\.max_in_flight_mib"):
        site.pressure.admit(41)
    site.pressure.admit(40)
    site.pressure.release(first)
    site.pressure.admit(60)
    assert site.pressure.bytes() == 100
    assert site.events("refused-live") == 1


def test_an_empty_lane_takes_any_item() -> None:
    site = Site()
    site.pressure.admit(1000)
    site.pressure.admit(1000, Lane.BACKFILL)


def test_there_are_so_many_items_and_no_more() -> None:
    site = Site()
    for _ in range(10):
        site.pressure.admit(0)
    with pytest.raises(Overloaded, match=r"pressure\.max_items"):
        site.pressure.admit(0)


def test_backlog_neither_takes_the_room_of_live_reports_nor_degrades_the_process() -> None:
    site = Site()
    site.pressure.admit(50, Lane.BACKFILL)
    with pytest.raises(Overloaded, match=r"backfill\.max_in_flight_mib"):
        site.pressure.admit(1, Lane.BACKFILL)
    site.pressure.admit(79)
    assert site.passes(4)
    assert site.events("refused-backfill") == 1


def test_what_turns_out_to_be_backlog_changes_lanes_or_is_refused() -> None:
    site = Site()
    mine, other = site.pressure.admit(60), site.pressure.admit(1)
    site.pressure.move(mine, Lane.BACKFILL)
    assert [(s.items, s.bytes) for s in site.pressure.look().lanes.values()] == [(1, 1), (1, 60)]
    with pytest.raises(Overloaded):
        site.pressure.move(other, Lane.BACKFILL)
    assert other.lane is Lane.LIVE
    site.pressure.release(mine)
    site.pressure.release(other)
    assert site.pressure.bytes() == 0


def test_it_is_degraded_above_the_high_mark_and_healthy_a_while_after_the_low_one() -> None:
    site = Site()
    rest, more = site.pressure.admit(45), site.pressure.admit(36)
    assert not site.passes(0)
    assert any("full" in reason for reason in site.pressure.look().reasons)
    site.pressure.release(rest)
    site.pressure.admit(20)
    assert not site.passes(2), "below the high mark is not below the low one"
    site.pressure.release(more)
    assert not site.passes(4.9)
    assert site.pressure.look().reasons, "who asks is told why"
    assert not site.passes(0.2), "the oldest has waited for too long by now"
    assert (site.events("degraded"), site.events("recovered")) == (1, 0)


def test_it_is_healthy_again_after_a_calm_while_and_not_before() -> None:
    site = Site()
    permit = site.pressure.admit(90)
    assert not site.passes(0)
    site.pressure.release(permit)
    assert not site.passes(4.9)
    assert site.passes(0.2)
    assert site.pressure.look().reasons == []
    assert (site.events("degraded"), site.events("recovered")) == (1, 1)


def test_a_request_that_waits_for_long_degrades_it() -> None:
    site = Site()
    permit = site.pressure.admit(1)
    assert site.passes(5)
    assert not site.passes(0.1)
    site.pressure.release(permit)
    site.pressure.admit(1)
    assert not site.passes(4.9)
    assert site.passes(0.1)


def test_writes_that_fail_degrade_it_and_one_accident_does_not() -> None:
    site = Site()
    site.pressure.failed()
    site.pressure.worked()
    site.pressure.failed()
    assert site.passes(0)
    site.pressure.failed()
    assert not site.passes(0)
    assert site.pressure.look().reasons == ["writes to the store fail"]
    site.pressure.worked()
    assert not site.passes(4.9)
    (reason,) = site.pressure.look().reasons
    assert "within the last 5s" in reason
    assert "writes to the store fail" in reason
    assert site.passes(0.2)


def test_without_traffic_it_is_tried_again_after_a_while() -> None:
    site = Site()
    site.pressure.failed()
    site.pressure.failed()
    assert not site.passes(4.9)
    assert not site.passes(0.2)
    assert site.passes(5.1)


def test_refused_backlog_is_told_to_come_when_there_is_room() -> None:
    site = Site()
    for _ in range(5):  # 10 bytes a second leave
        permit = site.pressure.admit(20, Lane.BACKFILL)
        site.now_s += 2
        site.pressure.release(permit)
    site.pressure.admit(50, Lane.BACKFILL)
    with pytest.raises(Overloaded) as refused:
        site.pressure.admit(20, Lane.BACKFILL)
    assert 4 < refused.value.retry_after_s < 7


def test_the_gauges_say_what_is_held() -> None:
    site = Site()
    site.pressure.admit(7)
    site.pressure.admit(9, Lane.BACKFILL)
    site.now_s += 2
    site.pressure.refresh_gauges()

    def gauge(name: str, lane: str) -> float | None:
        return site.counters.registry.get_sample_value(f"widerow_pressure_{name}", {"lane": lane})

    assert [gauge("pending_bytes", lane) for lane in ("live", "backfill")] == [7, 9]
    assert [gauge("pending", lane) for lane in ("live", "backfill")] == [1, 1]
    assert gauge("oldest_seconds", "live") == 2
    assert site.counters.registry.get_sample_value("widerow_pressure_healthy") == 1


def test_a_tenant_has_half_of_the_room_for_backlog_however_it_was_found_out() -> None:
    site, half = Site(), 25
    site.pressure.admit(half - 5, Lane.BACKFILL, "acme")
    unknown = site.pressure.admit(6, tenant="acme")
    with pytest.raises(TenantBusy):
        site.pressure.move(unknown, Lane.BACKFILL)
    assert unknown.lane is Lane.LIVE
    site.pressure.release(unknown)
    with pytest.raises(TenantBusy):
        site.pressure.admit(6, Lane.BACKFILL, "acme")
    others = site.pressure.admit(half, Lane.BACKFILL, "umbra")
    fits = site.pressure.admit(5, Lane.BACKFILL, "acme")
    for permit in (others, fits):
        site.pressure.release(permit)
    assert site.pressure.bytes() == half - 5
