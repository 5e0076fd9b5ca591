"""Chaos: whatever happens on the way, every true report comes, and the true values win."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.model.batch import Batch, Report, Value, batch_of, reports_of
from widerow.model.errors import Rejected
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND
from widerow.simulate.chaos import CALM, ChaosSettings, Delivery, chaos
from widerow.simulate.fleet import Fleet
from widerow.simulate.kinds import FLEETS
from widerow.simulate.settled import settled

START_US = 1_760_000_000 * SECOND
MUCH = ChaosSettings(skewed=0.5, reordered=0.5, late=0.3, offline=0.8, duplicates=0.4, corrections=0.4, batch_reports=40)

shares = st.sampled_from([0.0, 0.1, 0.6, 1.0])
spans = st.sampled_from([MS, SECOND, MINUTE, HOUR, 3 * DAY])
settings = st.builds(
    ChaosSettings,
    latency_us=spans | st.just(0),
    skewed=shares,
    skew_us=spans | st.just(0),
    reordered=shares,
    reorder_us=spans | st.just(0),
    late=shares,
    late_us=spans | st.just(0),
    offline=shares,
    offline_us=spans,
    backlogs=st.integers(1, 5),
    duplicates=shares,
    duplicate_us=spans | st.just(0),
    corrections=shares,
    correction_us=spans,
    writers=st.integers(1, 3),
    batch_reports=st.sampled_from([1, 2, 7, 1000]),
    hold_us=spans,
    versions_travel=st.booleans(),
)
fleets = st.builds(
    lambda seed, devices, which, interval_us: Fleet(
        seed, devices, start_us=START_US, kinds=FLEETS[which], interval_us=interval_us, gaps=0.02
    ),
    st.integers(0, 99),
    st.integers(1, 12),
    st.sampled_from(sorted(FLEETS)),
    st.sampled_from([SECOND, 10 * SECOND, HOUR]),
)
seeds = st.integers(0, 1 << 40)


def fleet_of(devices: int = 20, which: str = "factory") -> Fleet:
    return Fleet(5, devices, start_us=START_US, kinds=FLEETS[which], interval_us=MINUTE, gaps=0)


def by_hand(deliveries: list[Delivery], *, versions: bool = True) -> dict[tuple[str, int, str], Value]:
    """As a store does it: one delivery after another; what is there gives way to what is at least as new."""
    held: dict[tuple[str, int, str], tuple[int, Value]] = {}
    for n, delivery in enumerate(deliveries):
        for report in reports_of(delivery.batch):
            for metric, value in report.values.items():
                key, version = (report.device, report.time_us, metric), report.version_us if versions else n
                if key not in held or held[key][0] <= version:
                    held[key] = version, value
    return {key: value for key, (_, value) in held.items()}


def true_values(batch: Batch) -> dict[tuple[str, int, str], Value]:
    return {(r.device, r.time_us, metric): v for r in reports_of(batch) for metric, v in r.values.items()}


def shown(deliveries: list[Delivery]) -> list[tuple[int, int, list[Report]]]:
    return [(d.at_us, d.writer, reports_of(d.batch)) for d in deliveries]


@given(fleets, seeds, settings, st.randoms(use_true_random=False))
def test_what_settles_is_the_truth_in_any_order(fleet: Fleet, seed: int, trouble: ChaosSettings, random: Random) -> None:
    truth = fleet.made(range(8))
    deliveries = chaos(truth, seed, trouble)
    assert settled([d.batch for d in deliveries]).values() == by_hand(deliveries) == true_values(truth)
    random.shuffle(deliveries)
    assert by_hand(deliveries) == true_values(truth)


@given(fleets, seeds, settings)
def test_without_versions_what_comes_last_is_the_truth(fleet: Fleet, seed: int, trouble: ChaosSettings) -> None:
    truth = fleet.made(range(8))
    deliveries = chaos(truth, seed, replace(trouble, versions_travel=False))
    assert by_hand(deliveries, versions=False) == true_values(truth)


@given(fleets, seeds, settings)
def test_every_true_report_is_delivered_and_none_too_often(fleet: Fleet, seed: int, trouble: ChaosSettings) -> None:
    truth = [replace(r, version_us=0) for r in reports_of(fleet.made(range(8)))]
    times: Counter[tuple[str, int]] = Counter()
    seen = set()
    for delivery in chaos(batch_of(truth), seed, trouble):
        times.update((r.device, r.time_us) for r in reports_of(delivery.batch))
        seen |= {repr(replace(r, version_us=0)) for r in reports_of(delivery.batch)}
    assert set(map(repr, truth)) <= seen
    assert set(times) == {(r.device, r.time_us) for r in truth}
    assert max(times.values(), default=0) <= 1 + bool(trouble.duplicates) + bool(trouble.corrections)


@given(fleets, seeds, settings)
def test_times_are_possible(fleet: Fleet, seed: int, trouble: ChaosSettings) -> None:
    deliveries = chaos(fleet.made(range(8)), seed, trouble)
    arrivals = [d.at_us for d in deliveries]
    assert arrivals == sorted(arrivals)
    for delivery in deliveries:
        batch = delivery.batch
        assert 1 <= len(batch) <= trouble.batch_reports
        assert 0 <= delivery.writer < trouble.writers
        assert len(set(zip(batch.device.to_list(), batch.time_us.tolist(), strict=True))) == len(batch)
        under_way_us = delivery.at_us - batch.time_us
        assert -trouble.skew_us <= under_way_us.min() <= under_way_us.max() <= trouble.longest_us()
        assert (batch.version_us <= delivery.at_us).all()
        assert (batch.version_us % MS == 0).all()


@given(fleets, seeds, settings)
def test_the_same_seed_makes_the_same_plan_however_the_reports_are_given(
    fleet: Fleet, seed: int, trouble: ChaosSettings
) -> None:
    whole = shown(chaos(fleet.made(range(8)), seed, trouble))
    assert whole == shown(chaos(fleet.made(range(8)), seed, trouble))
    mixed = [fleet.made(range(4, 8)), fleet.made(range(4), slice(None, None, -1))]
    assert as_sets(whole) == as_sets(shown(chaos(mixed, seed, trouble)))


def as_sets(plan: list[tuple[int, int, list[Report]]]) -> list[tuple[int, int, list[str]]]:
    return [(at_us, writer, sorted(map(repr, reports))) for at_us, writer, reports in plan]


def test_another_seed_makes_another_plan() -> None:
    truth = fleet_of().made(range(30))
    assert shown(chaos(truth, 1, MUCH)) != shown(chaos(truth, 2, MUCH))


def test_nothing_of_nothing() -> None:
    assert chaos([], 1, MUCH) == chaos(batch_of([]), 1, MUCH) == []
    assert settled([]).values() == {}


@pytest.mark.parametrize("which", sorted(FLEETS))
def test_all_kinds_of_trouble_come_unless_told_otherwise(which: str) -> None:
    truth = fleet_of(40, which).made(range(720))
    deliveries = chaos(truth, 3, ChaosSettings())
    batches = [d.batch for d in deliveries]
    count, n = sum(map(len, batches)), len(truth)
    assert 1.05 * n < count < 1.11 * n
    assert {d.writer for d in deliveries} == {0, 1}
    under_way_us = np.concatenate([d.at_us - d.batch.time_us for d in deliveries])
    assert under_way_us.min() < 0
    assert (under_way_us > 12 * HOUR).any()
    assert 0.02 < (under_way_us > HOUR).mean() < 0.3
    assert (under_way_us < MINUTE).mean() > 0.5
    versions_us, times_us = (np.concatenate([getattr(b, c) for b in batches]) for c in ("version_us", "time_us"))
    assert (np.diff(times_us) < 0).mean() > 0.05
    assert (np.diff(versions_us) < 0).mean() > 0.05
    sizes = Counter(map(len, batches))
    assert sizes[1] > 10
    assert max(sizes) > 20
    wrong = by_hand(deliveries, versions=False) != true_values(truth)
    assert wrong, "by order of arrival alone the truth would have lost"


def test_a_device_that_was_offline_sends_its_backlog_at_once() -> None:
    trouble = replace(CALM, offline=1.0, offline_us=6 * HOUR, backlogs=3, batch_reports=10_000, writers=1)
    deliveries = chaos(fleet_of(1).made(range(1440)), 3, trouble)
    backlog = max(deliveries, key=lambda d: len(d.batch)).batch
    assert len(backlog) > 20
    assert np.ptp(backlog.time_us) > 20 * MINUTE


def test_without_trouble_everything_comes_once_and_at_once() -> None:
    truth = fleet_of().made(range(60))
    deliveries = chaos(truth, 3, CALM)
    assert sum(len(d.batch) for d in deliveries) == len(truth)
    assert max(int((d.at_us - d.batch.time_us).max()) for d in deliveries) <= CALM.latency_us + CALM.hold_us
    assert settled([d.batch for d in deliveries]).values() == true_values(truth)


def test_the_oracle_keeps_tags_and_metrics_apart() -> None:
    one = batch_of([Report("d", 1, {"a": 1.0, "b": "x"}, {"a": "tag"}, 5 * MS), Report("d", 1, {"b": "y"}, {}, 4 * MS)])
    held = settled([one])
    assert held.values() == {("d", 1, "a"): 1.0, ("d", 1, "b"): "x"}
    assert len(held) == 3
    assert held.version_us.tolist() == [5 * MS] * 3


def test_what_makes_no_sense_is_refused() -> None:
    def check(match: str, **options: float) -> None:
        with pytest.raises(Rejected, match=match):
            ChaosSettings(**options)  # type: ignore[arg-type]

    check("late is 2", late=2)
    check("writers is 0", writers=0)
    check("latency_us is -1", latency_us=-1)
