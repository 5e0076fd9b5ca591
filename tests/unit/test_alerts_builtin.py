"""The seven built-in alerts: what samples say of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from widerow.alerts.builtin import UNITS, Baseline, BuiltinSettings, Verdict, judged
from widerow.ops.figures import Sample

SETTINGS = BuiltinSettings(batch_from_per_s=10)
CALM = Sample(
    at_s=60,
    reports={"acme": 6000.0},
    batches=(6000.0, 60.0),
    latency=((0.025, 100.0), (0.05, 100.0), (0.1, 100.0), (float("inf"), 100.0)),
    compactions=1,
)


def verdict(name: str, **changes: Any) -> Verdict:
    """Of a minute in which all was well, but for what is changed at its end."""
    window = [Sample(at_s=0, compactions=0), replace(CALM, **changes)]
    return next(one for one in judged(window, 100.0, SETTINGS, {}) if one.name == name)


def test_a_calm_minute_raises_none_of_the_seven() -> None:
    found = judged([Sample(at_s=0, compactions=0), CALM], 100.0, SETTINGS, {})
    assert [one.name for one in found] == list(UNITS)
    assert [one.name for one in found if one.bad or not one.clear] == []


def test_each_fault_makes_its_alert_bad() -> None:
    def check(name: str, value: float, **changes: Any) -> None:
        found = verdict(name, **changes)
        assert (found.bad, found.clear) == (True, False)
        assert found.value == pytest.approx(value)

    check("ingestion_rate", 49.0, reports={"acme": 2940.0})
    check("ingestion_latency_p99", 0.075, latency=((0.05, 98.0), (0.1, 100.0), (float("inf"), 100.0)))
    check("batch_size_avg", 10.0, batches=(6000.0, 600.0))
    check("hot_partitions", 1.0, hot=1.0)
    check("quota_rejections", 0.2, refused={"acme": 1500.0}, over_limits={"acme": 1500.0})
    check("backpressure_events", 1.0, backpressure=1.0)
    check("pending_compactions", 5.0, compactions=5)


def test_refusals_for_other_reasons_are_no_quota_rejections() -> None:
    assert verdict("quota_rejections", refused={"acme": 1500.0}, refusals={("acme", "future"): 1500.0}).clear


def test_compactions_that_do_not_grow_are_well() -> None:
    window = [replace(CALM, at_s=at_s, compactions=9) for at_s in range(4)]
    assert next(one for one in judged(window, 100.0, SETTINGS, {}) if one.name == "pending_compactions").clear


def test_small_batches_are_well_where_few_reports_come() -> None:
    assert verdict("batch_size_avg", reports={"acme": 60.0}, batches=(60.0, 60.0)).clear


def test_a_rate_keeps_the_threshold_with_which_its_alert_began() -> None:
    window = [Sample(at_s=0), replace(CALM, reports={"acme": 3000.0})]
    fallen = 50.0  # the fault has lasted so long that it is the baseline
    assert not judged(window, fallen, SETTINGS, {})[0].bad
    held = judged(window, fallen, SETTINGS, {"ingestion_rate": 60.0})[0]
    assert (held.threshold, held.bad) == (60.0, True)


def test_a_rate_is_not_judged_before_its_baseline_is_known_or_where_it_is_tiny() -> None:
    for baseline in (None, 0.5):
        found = judged([Sample(at_s=0), Sample(at_s=60)], baseline, SETTINGS, {})[0]
        assert (found.threshold, found.bad, found.clear) == (None, False, True)


def test_a_baseline_is_the_mean_before_the_window() -> None:
    baseline = Baseline(10, 60)
    for at_s in range(0, 30, 5):
        assert baseline.per_s() is None or at_s > 20
        baseline.add(Sample(at_s=at_s, reports={"acme": 7.0 * at_s}))
    assert baseline.per_s() == 7.0
    for at_s in range(30, 41, 5):  # within the window nothing comes
        baseline.add(Sample(at_s=at_s, reports={"acme": 7.0 * 30}))
    assert baseline.per_s() == 7.0


def test_a_baseline_forgets_what_is_older_than_its_time() -> None:
    baseline = Baseline(10, 60)
    for at_s in range(0, 500, 5):
        baseline.add(Sample(at_s=at_s, reports={"acme": 0.0 if at_s < 300 else 4.0 * (at_s - 300)}))
    assert baseline.per_s() == 4.0
