"""The figures that operators watch, and the last hour of them."""

from __future__ import annotations

from math import inf

import pytest

from widerow.model.times import MINUTE
from widerow.ops.counters import Counters
from widerow.ops.figures import WRITE_ROUTES, Sample, figures, quantile, sampled, tenant_figures
from widerow.ops.hour import LastHour
from widerow.ops.rates import Rates
from widerow.ops.rings import MINUTES, Rings
from widerow.server.routes import ROUTES
from widerow.server.write import WriteKind


def test_figures_are_differences_of_what_was_counted() -> None:
    counters = Counters()
    before = sampled(counters, 100.0)
    counters.reports.labels("acme").inc(900)
    counters.reports.labels("bolt").inc(50)
    counters.values.labels("acme").inc(9_000)
    counters.refused.labels("acme", "writes-limit").inc(40)
    counters.refused.labels("bolt", "time-future").inc(10)
    for _ in range(99):
        counters.request_seconds.labels("POST /v1/write").observe(0.004)
    counters.request_seconds.labels("POST /write").observe(0.2)
    counters.request_seconds.labels("GET /v1/status").observe(9.0)
    counters.commit_reports.observe(900)
    counters.commit_reports.observe(50)
    counters.pressure_events.labels("degraded").inc()
    counters.pressure_events.labels("recovered").inc()
    counters.hot_partitions.set(1)
    counters.compactions.set(7)
    found = figures(before, sampled(counters, 110.0))
    assert (found.ingestion_rate, found.metrics_rate, found.refused_rate) == (95.0, 900.0, 5.0)
    assert found.quota_rejections == 40 / 1000
    assert found.ingestion_latency_p99 == pytest.approx(0.005)
    assert found.batch_size_avg == 475.0
    assert (found.backpressure_events, found.hot_partitions, found.pending_compactions) == (1.0, 1.0, 7.0)


def test_a_tenant_is_told_its_own_figures_and_nothing_of_the_process() -> None:
    counters = Counters()
    before = sampled(counters, 0.0)
    counters.reports.labels("acme").inc(90)
    counters.reports.labels("bolt").inc(1_000)
    counters.refused.labels("acme", "device-limit").inc(10)
    counters.hot_devices.labels("bolt", "hot").set(3)
    counters.request_seconds.labels("POST /v1/write").observe(0.2)
    found = tenant_figures(before, sampled(counters, 10.0), "acme")
    assert (found.ingestion_rate, found.refused_rate, found.quota_rejections) == (9.0, 1.0, 0.1)
    assert (found.hot_partitions, found.ingestion_latency_p99, found.pending_compactions) == (0.0, None, None)


def test_what_was_not_measured_is_none_and_not_zero() -> None:
    found = figures(Sample(at_s=0.0), Sample(at_s=1.0))
    assert (found.ingestion_rate, found.refused_rate) == (0.0, 0.0)
    assert (found.ingestion_latency_p99, found.batch_size_avg, found.quota_rejections) == (None, None, None)


def test_quantiles_are_those_of_prometheus() -> None:
    def check(part: float, buckets: list[tuple[float, float]], want: float | None) -> None:
        assert quantile(part, buckets) == want

    check(0.5, [], None)
    check(0.5, [(1.0, 0.0), (inf, 0.0)], None)
    check(0.5, [(1.0, 10.0), (2.0, 10.0), (inf, 10.0)], 0.5)
    check(0.75, [(1.0, 10.0), (2.0, 20.0), (inf, 20.0)], 1.5)
    check(0.99, [(1.0, 1.0), (2.0, 2.0), (inf, 100.0)], 2.0)


def test_write_routes_are_those_that_take_reports() -> None:
    assert set(WRITE_ROUTES) == {route.id for route in ROUTES if isinstance(route.handler, WriteKind)}


def test_a_ring_keeps_sixty_minutes_and_leaves_gaps_empty() -> None:
    rings = Rings[str](2)
    rings.put(1_000, {"a": 1.0})
    rings.put(1_002, {"a": 3.0, "b": None})
    assert rings.of("a") == [*[None] * (MINUTES - 3), 1.0, None, 3.0]
    assert rings.of("b") == rings.of("unknown") == [None] * MINUTES
    rings.put(1_001, {"a": 2.0})  # too late
    assert rings.of("a")[-2:] == [None, 3.0]
    rings.put(1_002 + MINUTES - 1, {})
    assert rings.of("a") == [3.0, *[None] * (MINUTES - 1)]


def test_rings_are_bounded_and_idle_ones_make_room() -> None:
    rings = Rings[str](2)
    rings.put(1, {"idle": 0.0, "busy": 5.0})
    rings.put(2, {"new": 7.0, "busy": 5.0})
    assert (len(rings), rings.of("idle")[-1], rings.of("busy")[-2:], rings.of("new")[-1]) == (2, None, [5.0, 5.0], 7.0)
    rings.put(3, {"one too many": 1.0})
    assert rings.of("one too many")[-1] is None
    assert rings.sums() == {"busy": 10.0, "new": 7.0}


def test_the_hour_shows_each_minute_of_the_process_and_of_tenants() -> None:
    now_s = [0.0]
    counters = Counters()
    rates = Rates(counters, lambda: now_s[0])
    start_us = 1_000 * MINUTE
    hour = LastHour(rates.latest()[1], start_us)
    for minute in range(3):
        for _ in range(60):
            now_s[0] += 1
            counters.reports.labels("acme").inc(10 * (minute + 1))
            counters.reports.labels("bolt").inc(1)
            counters.refused.labels("acme", "writes-limit").inc(2)
            hour.fold(rates.sample(), start_us + int(now_s[0] * 1e6), {"": 5, "acme": 4})
    assert hour.minutes_us()[-1] == start_us + 2 * MINUTE
    assert [round(rate or 0) for rate in hour.of("ingestion_rate")[-3:]] == [11, 21, 31]
    assert [round(rate or 0) for rate in hour.of("ingestion_rate", "acme")[-3:]] == [10, 20, 30]
    assert hour.of("ingestion_latency_p99", "acme") == hour.of("devices_online", "bolt") == [None] * MINUTES
    assert (hour.of("devices_online")[-1], hour.of("devices_online", "acme")[-1]) == (5.0, 4.0)
    (refused,) = hour.refusals()
    assert refused.code == "writes-limit"
    assert refused.count == pytest.approx(360, abs=12)
    assert hour.refusals("bolt") == []
