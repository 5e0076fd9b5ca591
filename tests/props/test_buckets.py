"""Token buckets: over any span no more than rate x span + burst, and nothing refused while a token is there.

Where a rate changes, a span allows what each rate that held in it adds in its time, and the burst that held when it began: a
change itself adds nothing, and takes what there is no room for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from widerow.admit.bucket import TOKEN, Bucket, DeviceBuckets, filled, full_level
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


@dataclass
class Spans:
    """The law itself: what is left of each span that began at some event, by what is allowed in it and what has passed."""

    per_s: Fraction
    burst: Fraction
    at_us: int = 0
    left: list[Fraction] = field(default_factory=list)

    @classmethod
    def of(cls, per_s: float, burst: float) -> Spans:
        made = cls(*_exact(per_s, burst))
        made.left.append(made.burst)
        return made

    def until(self, now_us: int) -> None:
        """A clock that went back by a second at most says nothing; one that was set back further counts from there."""
        passed_us = max(0, now_us - self.at_us)
        self.left = [left + self.per_s * passed_us / SECOND for left in self.left] + [self.burst]
        if passed_us or now_us < self.at_us - SECOND:
            self.at_us = now_us

    def change(self, per_s: float, burst: float, now_us: int) -> None:
        self.until(now_us)
        self.per_s, self.burst = _exact(per_s, burst)
        self.left.append(self.burst)

    def passed(self, count: int) -> None:
        self.left = [left - count for left in self.left]


def _exact(per_s: float, burst: float) -> tuple[Fraction, Fraction]:
    """As they are counted: thousandths of a report a second, and billionths of a report."""
    return Fraction(filled(per_s), 1000), Fraction(full_level(burst), TOKEN)


LIMITS = st.tuples(st.one_of(st.just(0.0), RATES), st.one_of(st.integers(1, 200), st.floats(0, 200)))
"""A part of a limit is no round number, and may be nothing."""
LATER = st.one_of(st.integers(0, 30 * SECOND), st.integers(-5 * SECOND, 1000))
BATCHES = st.tuples(st.integers(0, 500), st.booleans(), st.booleans())
EVENTS = st.lists(st.tuples(LATER, st.one_of(LIMITS, BATCHES)), min_size=1, max_size=40)
"""How long after the one before: another limit; or a batch, whether it is all or nothing, and whether it is given back."""


@given(LIMITS, EVENTS)
def test_batches_of_any_size_pass_as_far_as_every_span_allows_whatever_the_rate_was(
    limits: tuple[float, float],
    events: list[tuple[int, tuple[float, float] | tuple[int, bool, bool]]],
) -> None:
    bucket, spans, now_us = Bucket(*limits, 0), Spans.of(*limits), 0
    for later_us, event in events:
        now_us += later_us
        if len(event) == 2:
            bucket.change(*event, now_us)
            spans.change(*event, now_us)
            continue
        wanted, whole, returned = event
        spans.until(now_us)
        granted = bucket.take(wanted, now_us, whole=whole)
        assert granted in (0, wanted) if whole else 0 <= granted <= wanted
        least = min(Fraction(wanted), spans.burst) if whole else Fraction(granted + 1)
        assert granted == wanted or min(spans.left) < least, "it is refused what some span has not left"
        if returned:
            bucket.give_back(granted)
            continue
        spans.passed(granted)
        debt = max(Fraction(0), granted - spans.burst) if whole else Fraction(0)
        assert not granted or min(spans.left) >= -debt, "but for one that is larger than the burst, and is paid off"


@given(LIMITS, EVENTS, st.integers(1, 500))
def test_what_was_told_to_pass_later_then_does(
    limits: tuple[float, float],
    events: list[tuple[int, tuple[float, float] | tuple[int, bool, bool]]],
    wanted: int,
) -> None:
    bucket, now_us, per_s = Bucket(*limits, 0), 0, limits[0]
    for later_us, event in events:
        now_us += max(0, later_us)
        if len(event) == 2:
            bucket.change(*event, now_us)
            per_s = event[0]
        else:
            bucket.take(event[0], now_us, whole=event[1])
    if not bucket.take(wanted, now_us, whole=True) and per_s:
        wait_us = round(bucket.retry_after_s(wanted) * SECOND)
        assert bucket.take(wanted, now_us + wait_us - 2, whole=True) == 0, "no sooner"
        assert bucket.take(wanted, now_us + wait_us + 1, whole=True) == wanted


@given(
    st.dictionaries(st.integers(0, 5), LIMITS, max_size=6),
    st.lists(
        st.tuples(
            LATER, st.one_of(st.tuples(st.integers(0, 5), LIMITS), st.tuples(st.lists(st.integers(0, 5)), st.booleans()))
        ),
        max_size=25,
    ),
)
def test_devices_pass_as_far_as_every_span_of_theirs_allows_whatever_their_rates_were(
    limits: dict[int, tuple[float, float]],
    events: list[tuple[int, tuple[int, tuple[float, float]] | tuple[list[int], bool]]],
) -> None:
    buckets, now_us = DeviceBuckets(), 0
    spans: dict[int, Spans] = {}

    def change(device: int, per_s: float, burst: float) -> None:
        buckets.set(device, per_s, burst, now_us)
        if not per_s:  # it may send any number, and begins with its burst when it may not any more
            spans.pop(device, None)
        elif device in spans:
            spans[device].change(per_s, burst, now_us)
        else:
            spans[device] = Spans.of(per_s, burst)
            spans[device].at_us = now_us

    for device, limit in limits.items():
        change(device, *limit)
    for later_us, event in events:
        now_us += later_us
        if isinstance(event[0], int):
            change(event[0], *event[1])
            continue
        devices, returned = np.array(event[0], np.int32), event[1]
        before = {device: (list(of.left), of.at_us) for device, of in spans.items()}
        refused = np.zeros(len(devices), np.bool_)
        buckets.take(devices, now_us, refused)
        expected = []
        for device in devices.tolist():
            of = spans.get(device)
            if of is not None:
                of.until(now_us)
            free = of is None or min(of.left) >= 1
            expected.append(not free)
            if of is not None and free:
                of.passed(1)
        assert refused.tolist() == expected
        if returned:
            buckets.give_back(devices[~refused])
            for device in set(devices.tolist()) & spans.keys():
                spans[device].left, spans[device].at_us = before[device]


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
