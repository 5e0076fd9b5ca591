"""The figures that operators watch, from two samples of what a process counts.

Rule 1: `figures` and `tenant_figures` are pure: two samples in, figures out. They use the formulas of deploy/prometheus.
Rule 2: a figure that nothing was measured for is None, which is not 0: without requests there is no latency.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.samples import Sample as Line

from widerow.ops.counters import Counters

WRITE_ROUTES = ("POST /v1/write", "POST /write", "POST /api/v2/write")
"""Where reports come by HTTP, as metrics name these routes."""
QUOTA_CODES = frozenset({"writes-limit", "storage-limit", "series-limit", "device-limit"})
"""Reports that are refused because a limit of their tenant is spent."""
BACKPRESSURE = frozenset({"degraded", "refused-live", "store-failed"})
"""Events that count as backpressure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a process has counted until `at_s`."""

    at_s: float
    reports: Mapping[str, float] = field(default_factory=dict)
    """By tenant, like the next two."""
    values: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, float] = field(default_factory=dict)
    refusals: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """The same by tenant and code."""
    over_limits: Mapping[str, float] = field(default_factory=dict)
    """By tenant: those of `QUOTA_CODES`."""
    commits: float = 0
    failures: float = 0
    """Commits that failed."""
    batches: tuple[float, float] = (0.0, 0.0)
    """Reports of commits that worked, and the number of these."""
    latency: Sequence[tuple[float, float]] = ()
    """Of requests that bring reports: how many took at most so many seconds."""
    commit_latency: Sequence[tuple[float, float]] = ()
    """The same of group commits."""
    backpressure: float = 0
    hot: float = 0
    hot_of: Mapping[str, float] = field(default_factory=dict)
    """Hot devices by tenant."""
    compactions: float | None = None
    behind_s: Mapping[str, float] = field(default_factory=dict)
    """By level of rollups: for how long the oldest window has been due."""
    kafka_lag: float | None = None
    """Messages that are not stored yet; None: this process takes none from Kafka."""
    mqtt_connected: float | None = None
    """The part of the connections to the broker that is there; None: this process needs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Between two samples. The names are those of the alerts."""

    ingestion_rate: float
    """Reports a second."""
    metrics_rate: float
    """Values a second."""
    ingestion_latency_p99: float | None = None
    """Seconds, over HTTP."""
    batch_size_avg: float | None = None
    """Reports a commit."""
    hot_partitions: float
    quota_rejections: float | None
    """The part of all reports that a limit of their tenant refused, 0 to 1."""
    refused_rate: float
    """Reports a second."""
    backpressure_events: float | None = None
    """How many there were between the samples."""
    pending_compactions: float | None = None


def sampled(counters: Counters, at_s: float) -> Sample:
    """What was counted until now."""
    refusals: dict[tuple[str, str], float] = {}
    refused: dict[str, float] = {}
    over_limits: dict[str, float] = {}
    for line in _lines(counters.refused, "_total"):
        tenant, code = line.labels["tenant"], line.labels["code"]
        refusals[tenant, code] = line.value
        refused[tenant] = refused.get(tenant, 0.0) + line.value
        if code in QUOTA_CODES:
            over_limits[tenant] = over_limits.get(tenant, 0.0) + line.value
    lag = [line.value for line in _lines(counters.kafka_lag)]
    connected = [line.value for line in _lines(counters.mqtt_connected)]
    batches = {line.name: line.value for line in _lines(counters.commit_reports, "_sum", "_count")}
    return Sample(
        at_s=at_s,
        reports=_by_label(counters.reports, "tenant", "_total"),
        values=_by_label(counters.values, "tenant", "_total"),
        refused=refused,
        refusals=refusals,
        over_limits=over_limits,
        commits=sum(line.value for line in _lines(counters.commits, "_total")),
        failures=sum(line.value for line in _lines(counters.commit_failures, "_total")),
        batches=(batches["widerow_commit_reports_sum"], batches["widerow_commit_reports_count"]),
        latency=_buckets([counters.request_seconds.labels(route) for route in WRITE_ROUTES]),
        commit_latency=_buckets([counters.commit_seconds]),
        backpressure=sum(
            line.value for line in _lines(counters.pressure_events, "_total") if line.labels["event"] in BACKPRESSURE
        ),
        hot=_value(counters.hot_partitions) or 0.0,
        hot_of={line.labels["tenant"]: line.value for line in _lines(counters.hot_devices) if line.labels["step"] == "hot"},
        compactions=_value(counters.compactions),
        behind_s=_by_label(counters.rollup_behind, "level"),
        kafka_lag=sum(lag) if lag else None,
        mqtt_connected=sum(connected) / len(connected) if connected else None,
    )


def figures(before: Sample, now: Sample) -> Figures:
    """Those of the process."""
    reports, commits = (b - a for a, b in zip(before.batches, now.batches, strict=True))
    return Figures(
        ingestion_rate=_rate(before, now, _sum(before.reports), _sum(now.reports)),
        metrics_rate=_rate(before, now, _sum(before.values), _sum(now.values)),
        ingestion_latency_p99=quantile(0.99, between(before.latency, now.latency)),
        batch_size_avg=reports / commits if commits > 0 else None,
        hot_partitions=now.hot,
        quota_rejections=_over_limits(before, now, None),
        refused_rate=_rate(before, now, _sum(before.refused), _sum(now.refused)),
        backpressure_events=now.backpressure - before.backpressure,
        pending_compactions=now.compactions,
    )


def tenant_figures(before: Sample, now: Sample, tenant: str) -> Figures:
    """Those that are a tenant's own. Of the others it is told nothing: they say what other tenants do."""

    def rate(old: Mapping[str, float], new: Mapping[str, float]) -> float:
        return _rate(before, now, old.get(tenant, 0.0), new.get(tenant, 0.0))

    return Figures(
        ingestion_rate=rate(before.reports, now.reports),
        metrics_rate=rate(before.values, now.values),
        hot_partitions=now.hot_of.get(tenant, 0.0),
        quota_rejections=_over_limits(before, now, tenant),
        refused_rate=rate(before.refused, now.refused),
    )


def writes_fail(before: Sample, now: Sample) -> bool:
    """Whether commits were tried and not one of them worked."""
    failures = now.failures - before.failures
    return failures > 0 and now.commits - before.commits <= failures


def quantile(part: float, buckets: Sequence[tuple[float, float]]) -> float | None:
    """Of a histogram with cumulative counts, by the rule of Prometheus: even within a bucket, and no more than the last
    finite bound. None: it is empty.
    """
    if not buckets or buckets[-1][1] <= 0:
        return None
    rank, below, lower = part * buckets[-1][1], 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            return lower if math.isinf(bound) else lower + (bound - lower) * (rank - below) / (count - below)
        below, lower = count, bound
    return lower


def _over_limits(before: Sample, now: Sample, tenant: str | None) -> float | None:
    def of(counts: Mapping[str, float]) -> float:
        return _sum(counts) if tenant is None else counts.get(tenant, 0.0)

    came = of(now.reports) - of(before.reports) + of(now.refused) - of(before.refused)
    return (of(now.over_limits) - of(before.over_limits)) / came if came > 0 else None


def _rate(before: Sample, now: Sample, old: float, new: float) -> float:
    return (new - old) / max(now.at_s - before.at_s, 1e-3)


def _sum(counts: Mapping[str, float]) -> float:
    return sum(counts.values())


def between(before: Sequence[tuple[float, float]], now: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """What was added to a histogram."""
    known = dict(before)
    return [(bound, count - known.get(bound, 0.0)) for bound, count in now]


def _buckets(histograms: Sequence[Histogram]) -> list[tuple[float, float]]:
    """Summed. Of a histogram by route only these children are read: reading all takes milliseconds."""
    counts: dict[float, float] = {}
    for histogram in histograms:
        for line in _lines(histogram, "_bucket"):
            bound = float(line.labels["le"])
            counts[bound] = counts.get(bound, 0.0) + line.value
    return sorted(counts.items())


def _by_label(metric: Counter | Gauge, label: str, suffix: str = "") -> dict[str, float]:
    return {line.labels[label]: line.value for line in _lines(metric, suffix)}


def _value(gauge: Gauge) -> float | None:
    """None where it is not known."""
    value = next(line.value for line in _lines(gauge))
    return None if math.isnan(value) else value


def _lines(metric: Counter | Gauge | Histogram, *suffixes: str) -> Iterable[Line]:
    return [line for family in metric.collect() for line in family.samples if line.name.endswith(suffixes or "")]
