"""What a device's profile calls for: partitions that stay small, and no more of them than that takes."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from widerow.model.device import (
    MAX_METRICS_PER_REPORT,
    MAX_SUB_BUCKETS,
    TARGET_PARTITION_BYTES,
    VALUE_BYTES,
    Profile,
)
from widerow.model.errors import Rejected
from widerow.model.times import HOUR, MINUTE, SECOND
from widerow.telemetry.observed import ObservedSettings
from widerow.telemetry.placement import Epoch
from widerow.telemetry.places import DeviceStates, place_batch

LIMIT_BYTES = 10 << 20
NAME_BYTES = 24
"""Of a metric in the names that each partition has; 21 were measured."""

rates = st.one_of(st.just(0.0), st.floats(0, 1_000_000), st.floats(-9, 6).map(lambda x: 10**x))
profiles = st.builds(Profile, reports_per_s=rates, metrics_per_report=st.integers(0, MAX_METRICS_PER_REPORT))


def test_width_and_spread_of_some_profiles() -> None:
    def check(reports_per_s: float, metrics: int, width_us: int, sub_buckets: int) -> None:
        profile = Profile(reports_per_s=reports_per_s, metrics_per_report=metrics)
        assert (profile.bucket_width_us(), profile.sub_buckets()) == (width_us, sub_buckets)

    check(0, 0, HOUR, 1)
    check(0, 50, HOUR, 4)
    check(0.001, 0, 6 * HOUR, 1)
    check(1 / 61, 1000, 6 * HOUR, 8)
    check(1 / 60, 10, HOUR, 1)
    check(1, 10, HOUR, 1)
    check(1, 1000, HOUR, 64)
    check(5, 0, 15 * MINUTE, 1)
    check(10, 10, 15 * MINUTE, 2)
    check(10, 50, 15 * MINUTE, 8)
    check(100, 10, 15 * MINUTE, 16)
    check(1704, 10, 15 * MINUTE, 256)


@given(profiles)
@example(Profile(reports_per_s=1 / 60, metrics_per_report=1000))
@example(Profile(reports_per_s=17, metrics_per_report=1000))
@example(Profile(reports_per_s=1_000_000))
def test_no_partition_of_a_profile_that_may_be_stored_comes_near_10_mib(profile: Profile) -> None:
    if profile.overload() is not None:
        return
    subs, metrics = profile.sub_buckets(), profile.metrics_per_report or 10
    assert profile.bucket_bytes() / subs <= TARGET_PARTITION_BYTES
    reports = (profile.reports_per_s or 1) * profile.bucket_width_us() / SECOND / subs
    # A hash deals the reports out: six deviations above the mean is what one partition in 500 million has.
    fullest = reports + (6 * sqrt(reports) if subs > 1 else 0)
    assert (fullest * VALUE_BYTES + NAME_BYTES) * metrics < LIMIT_BYTES


@given(profiles)
def test_a_bucket_is_spread_no_wider_than_it_must_be(profile: Profile) -> None:
    subs = profile.sub_buckets()
    assert subs in [1 << n for n in range(9)]
    assert subs == 1 or profile.bucket_bytes() / (subs // 2) > TARGET_PARTITION_BYTES


@given(profiles)
def test_only_a_profile_that_needs_more_sub_buckets_than_there_are_is_too_much(profile: Profile) -> None:
    too_much = profile.bucket_bytes() > MAX_SUB_BUCKETS * TARGET_PARTITION_BYTES
    assert (profile.overload() is not None) == too_much
    assert not too_much or profile.sub_buckets() == MAX_SUB_BUCKETS


def test_what_is_too_much_says_what_to_do() -> None:
    why = str(Profile(reports_per_s=1_000_000).overload())
    for part in ("1,000,000 reports/s of 10 values", "17,043 values/s", "split", "reports_per_s", "metrics_per_report"):
        assert part in why
    assert Profile(reports_per_s=1_000_000, metrics_per_report=1).overload()


def test_a_number_of_metrics_has_bounds() -> None:
    for metrics in (-1, MAX_METRICS_PER_REPORT + 1):
        with pytest.raises(Rejected, match=r"metrics_per_report is .*: give 0 \(unknown\) to 1000"):
            Profile(metrics_per_report=metrics)


@pytest.mark.parametrize(("reports_per_s", "sub_buckets"), [(2, 2), (10, 8), (60, 16), (100, 16), (1000, 256), (1704, 256)])
def test_reports_at_even_intervals_are_spread_evenly(reports_per_s: int, sub_buckets: int) -> None:
    n = reports_per_s * 900
    time_us = 1_700_000_100 * SECOND + np.arange(n) * SECOND // reports_per_s
    state = DeviceStates(ObservedSettings())
    state.add_epoch("d", Epoch(0, 15 * MINUTE, sub_buckets))
    sub = place_batch(state, np.zeros(n, np.int32), time_us).sub_bucket
    mean = n / sub_buckets
    assert np.bincount(sub, minlength=sub_buckets).max() < mean + 6 * sqrt(mean)
