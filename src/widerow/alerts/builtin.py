"""The seven built-in alerts of a process: is what it does as it should be? Pure: samples in, verdicts out.

Rule 1: a verdict is over a window: its oldest sample and its newest. Bad and clear are a tenth of the threshold apart.
Rule 2: a figure that nothing was measured for is clear: without requests there is no latency that is too long.
Rule 3: an alert that is pending or firing keeps the threshold it began with, so that a fault that lasts does not become what
is usual. After a day it does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from widerow.model.figures import figure
from widerow.ops.figures import Figures, Sample, figures

_MARGIN = 0.1
_LEAST_BASELINE = 6
"""A baseline is known when it is of a sixth of its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinSettings:
    window_s: float = 300.0
    baseline_s: float = 3600.0
    rate_part: float = 0.5
    rate_from_per_s: float = 1.0
    latency_s: float = 0.05
    batch_size: float = 20.0
    batch_from_per_s: float = 1000.0
    quota_part: float = 0.01
    compactions: float = 4.0


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    value: float | None
    threshold: float | None
    bad: bool
    clear: bool
    summary: str


UNITS = {
    "ingestion_rate": "reports/s",
    "ingestion_latency_p99": "s",
    "batch_size_avg": "reports",
    "hot_partitions": "partitions",
    "quota_rejections": "ratio",
    "backpressure_events": "events",
    "pending_compactions": "compactions",
}
"""The alerts, with the units of their figures."""

SEVERITIES = {"batch_size_avg": "info", "backpressure_events": "critical"}
"""Of the others it is a warning."""


class Baseline:
    """How many reports a second usually come: the mean over a long time before the window. Bounded by that time."""

    def __init__(self, window_s: float, baseline_s: float) -> None:
        self._window_s, self._baseline_s = window_s, baseline_s
        self._totals: deque[tuple[float, float]] = deque()

    def add(self, sample: Sample) -> None:
        self._totals.append((sample.at_s, sum(sample.reports.values())))
        while sample.at_s - self._totals[0][0] > self._window_s + self._baseline_s:
            self._totals.popleft()

    def per_s(self) -> float | None:
        """None: not known yet."""
        if not self._totals:
            return None
        newest_s = self._totals[-1][0]
        before = [one for one in self._totals if one[0] <= newest_s - self._window_s]
        if not before or before[-1][0] - before[0][0] < self._baseline_s / _LEAST_BASELINE:
            return None
        return (before[-1][1] - before[0][1]) / (before[-1][0] - before[0][0])


def judged(
    window: Sequence[Sample], baseline_per_s: float | None, settings: BuiltinSettings, held: Mapping[str, float | None]
) -> list[Verdict]:
    """What a window of samples says of each alert. `held`: the thresholds of those that are pending or firing."""
    now = figures(window[0], window[-1])
    return [
        _rate(now, baseline_per_s, settings, held.get("ingestion_rate")),
        _latency(now, settings),
        _batches(now, settings),
        _hot(now),
        _quota(now, settings),
        _backpressure(now, window),
        _compactions(now, window, settings),
    ]


def _rate(now: Figures, baseline_per_s: float | None, settings: BuiltinSettings, held: float | None) -> Verdict:
    known = baseline_per_s is not None and baseline_per_s >= settings.rate_from_per_s
    threshold = held or (settings.rate_part * (baseline_per_s or 0.0) if known else None)
    value, name = now.ingestion_rate, "ingestion_rate"
    if threshold is None:
        return Verdict(name, value, None, bad=False, clear=True, summary="")
    said = f"{figure(round(value, 1))} reports/s arrive; {figure(round(threshold, 1))} would be few already"
    return Verdict(name, value, threshold, value < threshold, value >= threshold * (1 + _MARGIN), said)


def _latency(now: Figures, settings: BuiltinSettings) -> Verdict:
    value, threshold = now.ingestion_latency_p99, settings.latency_s
    took_ms, most_ms = figure(round((value or 0.0) * 1000)), figure(round(threshold * 1000))
    said = f"one write in a hundred takes {took_ms} ms or longer; {most_ms} ms is the limit"
    return _above("ingestion_latency_p99", value, threshold, said)


def _batches(now: Figures, settings: BuiltinSettings) -> Verdict:
    value, threshold = now.batch_size_avg, settings.batch_size
    counts = value is not None and now.ingestion_rate >= settings.batch_from_per_s
    bad = counts and value is not None and value < threshold
    clear = not counts or value is None or value >= threshold * (1 + _MARGIN)
    said = f"a commit has {figure(round(value or 0.0, 1))} reports on average"
    return Verdict("batch_size_avg", value, threshold, bad, clear, said)


def _hot(now: Figures) -> Verdict:
    count = now.hot_partitions
    said = f"{figure(count)} devices send far too much" if count > 1 else "a device sends far too much"
    return _above("hot_partitions", count, 0.0, said)


def _quota(now: Figures, settings: BuiltinSettings) -> Verdict:
    value = now.quota_rejections
    said = f"{figure(round(100 * (value or 0.0), 1))}% of the reports are over a limit of their tenant"
    return _above("quota_rejections", value, settings.quota_part, said)


def _backpressure(now: Figures, window: Sequence[Sample]) -> Verdict:
    value = now.backpressure_events
    over_s = window[-1].at_s - window[0].at_s
    said = f"{figure(value or 0.0)} times in {over_s:.0f} s the process did not keep up, or its store failed"
    return _above("backpressure_events", value, 0.0, said)


def _compactions(now: Figures, window: Sequence[Sample], settings: BuiltinSettings) -> Verdict:
    """Growing: there are more in the second half of the window than in the first."""
    counts = [one.compactions for one in window if one.compactions is not None]
    value, half = now.pending_compactions, len(counts) // 2
    grows = half > 0 and sum(counts[half:]) / len(counts[half:]) > sum(counts[:half]) / half
    bad = value is not None and value > settings.compactions and grows
    clear = value is None or value <= settings.compactions or not grows
    said = f"{figure(value or 0.0)} compactions of the store run or wait, and their number grows"
    return Verdict("pending_compactions", value, settings.compactions, bad, clear, said)


def _above(name: str, value: float | None, threshold: float, said: str) -> Verdict:
    bad = value is not None and value > threshold
    return Verdict(name, value, threshold, bad, value is None or value <= threshold * (1 - _MARGIN), said)
