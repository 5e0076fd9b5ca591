"""Token buckets: over any span no more than rate x span + burst, and nothing refused while a token is there."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from widerow.admit.bucket import Bucket, DeviceBuckets
from widerow.model.times import SECOND

RATES = st.one_of(st.integers(1, 1_000_000).map(float), st.integers(1, 5_000).map(lambda n: n / 1000))
STEPS = st.lists(st.tuples(st.integers(0, 30 * SECOND), st.integers(0, 5_000)), min_size=1, max_size=40)
"""How long after the one before a batch comes, and how many reports it has."""


@dataclass
class Plain:
    """The same in rational numbers."""

    per_s: Fraction
    burst: Fraction
    level: Fraction
    at_us: int = 0

    def take(self, wanted: int, now_us: int) -> int:
        self.level = min(self.burst, self.level + self.per_s * (now_us - self.at_us) / SECOND)
        self.at_us = now_us
        granted = min(wanted, int(self.level))
        self.level -= granted
        return granted


def _plain(per_s: float, burst: int) -> Plain:
    return Plain(Fraction(round(per_s * 1000), 1000), Fraction(burst), Fraction(burst))


@given(RATES, st.integers(1, 10_000), STEPS)
def test_a_bucket_gives_what_is_free_and_no_more(per_s: float, burst: int, steps: list[tuple[int, int]]) -> None:
    bucket, plain, now_us = Bucket(per_s, burst, 0), _plain(per_s, burst), 0
    for later_us, wanted in steps:
        now_us += later_us
        assert bucket.take(wanted, now_us) == plain.take(wanted, now_us)


@given(RATES, st.integers(1, 10_000), STEPS)
def test_over_any_span_no_more_passes_than_rate_and_burst_allow(
    per_s: float, burst: int, steps: list[tuple[int, int]]
) -> None:
    bucket, now_us = Bucket(per_s, burst, 0), 0
    passed = []
    for later_us, wanted in steps:
        now_us += later_us
        passed.append((now_us, bucket.take(wanted, now_us)))
    rate = Fraction(round(per_s * 1000), 1000)
    for first, (start_us, _) in enumerate(passed):
        total = 0
        for at_us, granted in passed[first:]:
            total += granted
            assert total <= rate * (at_us - start_us) / SECOND + burst


@given(RATES, st.integers(1, 100), STEPS)
def test_all_or_nothing_passes_whole_and_is_paid_for(per_s: float, burst: int, steps: list[tuple[int, int]]) -> None:
    bucket, now_us, total, largest = Bucket(per_s, burst, 0), 0, 0, 0
    for later_us, wanted in steps:
        now_us += later_us
        granted = bucket.take(wanted, now_us, whole=True)
        assert granted in (0, wanted)
        if not granted and wanted:
            wait_us = round(bucket.retry_after_s(wanted) * SECOND) + 1
            assert wait_us > 0
            now_us += wait_us
            granted = bucket.take(wanted, now_us, whole=True)
            assert granted == wanted, "what was said to pass then passes"
        total, largest = total + granted, max(largest, granted)
        assert total <= Fraction(round(per_s * 1000), 1000) * now_us / SECOND + max(burst, largest)


@given(
    st.dictionaries(st.integers(0, 20), st.tuples(RATES, st.integers(1, 50)), max_size=10),
    st.lists(st.tuples(st.integers(0, 20 * SECOND), st.lists(st.integers(0, 20), max_size=60)), max_size=15),
)
def test_devices_have_buckets_of_their_own(
    limits: dict[int, tuple[float, int]], batches: list[tuple[int, list[int]]]
) -> None:
    buckets, now_us = DeviceBuckets(), 0
    plain = {device: _plain(per_s, burst) for device, (per_s, burst) in limits.items()}
    for device, (per_s, burst) in limits.items():
        buckets.set(device, per_s, burst, 0)
    for later_us, devices in batches:
        now_us += later_us
        refused = np.zeros(len(devices), np.bool_)
        count, wait_s = buckets.take(np.array(devices, np.int32), now_us, refused)
        expected = [device in plain and not plain[device].take(1, now_us) for device in devices]
        assert refused.tolist() == expected
        assert count == sum(expected)
        assert (wait_s > 0) == any(expected)


def test_a_clock_that_went_back_adds_nothing_and_takes_nothing() -> None:
    bucket = Bucket(10, 10, 100 * SECOND)
    assert bucket.take(10, 100 * SECOND) == 10
    assert bucket.take(1, 50 * SECOND) == 0
    assert bucket.take(20, 101 * SECOND) == 10


def test_another_rate_keeps_what_was_saved() -> None:
    bucket = Bucket(10, 100, 0)
    bucket.take(100, 0)
    bucket.change(1000, 100, 1 * SECOND)
    assert bucket.take(100, 1 * SECOND) == 10
    bucket.change(1000, 5, 10 * SECOND)
    assert bucket.take(100, 10 * SECOND) == 5
