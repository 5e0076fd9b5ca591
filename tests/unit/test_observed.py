"""What devices were seen to send, and what follows from it for their buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.engine.memory import MemoryEngine
from widerow.model.batch import Report, batch_of
from widerow.model.device import MAX_METRICS_PER_REPORT, Profile
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, ManualClock
from widerow.schema.tables import TABLES
from widerow.telemetry.observed import ObservedSettings, Rate, fitting, observed_epoch, spread_over, width_for
from widerow.telemetry.placement import Epoch, declared_epoch
from widerow.telemetry.places import DeviceStates, Places

NOW = 1_800_000_000 * SECOND
INTERVAL = 5 * MINUTE
rates = st.floats(-6, 5).map(lambda x: 10**x)


class Seen:
    """A device that sends reports of two values and a tag."""

    def __init__(self, width_us: int = HOUR, subs: int = 1, settings: ObservedSettings | None = None) -> None:
        self.state = DeviceStates(settings or ObservedSettings())
        if (width_us, subs) != (HOUR, 1):
            self.state.add_epoch("d", Epoch(1000, width_us, subs))
        self.device = self.state.id_of("d")
        self.at_us = NOW - NOW % INTERVAL

    def sends(self, reports_per_s: float, intervals: int, *, at_us: int | None = None, backwards: bool = False) -> None:
        """At an even pace."""
        start_us = self.at_us if at_us is None else at_us
        span_us = intervals * INTERVAL
        times = [start_us + int(i * SECOND / reports_per_s) for i in range(int(span_us / SECOND * reports_per_s))]
        self.takes(times[::-1] if backwards else times)
        if at_us is None:
            self.at_us += span_us

    def takes(self, times: Sequence[int]) -> None:
        batch = batch_of([Report("d", t, {"x": 1.0, "y": 2.0}, {"site": "a"}, 0) for t in times])
        device = np.full(len(times), self.device, np.int32)
        self.state.observed.observe(device, batch, self.state.newest, self.state.width_us, self.state.subs)

    def verdict(self) -> str:
        fast, slow = self.state.observed.candidates()
        return "fast" if fast else "slow" if slow else ""


def test_two_intervals_in_a_row_make_a_device_too_fast_for_its_buckets() -> None:
    seen = Seen()
    seen.sends(1.5, 2)
    assert seen.verdict() == "", "the second is not over: reports of it may come late"
    seen.sends(1.5, 2)
    assert seen.verdict() == "fast"
    assert seen.state.observed.peak(seen.device) == Rate(1.5, 3.0)
    seen.state.observed.begin_anew(seen.device)
    assert seen.verdict() == ""


def test_what_is_about_right_stays() -> None:
    for width_us, reports_per_s in ((HOUR, 1.15), (15 * MINUTE, 0.85), (HOUR, 0.85 / 60), (6 * HOUR, 1.15 / 60)):
        seen = Seen(width_us, settings=ObservedSettings(slow_us=HOUR))
        seen.sends(reports_per_s, 36)
        assert seen.verdict() == "", (width_us, reports_per_s)


def test_one_fast_interval_now_and_then_is_none() -> None:
    seen = Seen()
    for _ in range(10):
        seen.sends(3, 1)
        seen.sends(0.5, 1)
    assert seen.verdict() == ""


def test_a_device_is_slow_after_a_day_without_a_busy_interval() -> None:
    seen = Seen(15 * MINUTE)
    for _ in range(3):
        seen.sends(0.05, 23 * 12)
        seen.sends(2, 1)
    assert seen.verdict() == "", "it is busy once a day"
    seen.sends(0.05, 24 * 12 - 1)
    assert seen.verdict() == ""
    seen.sends(0.05, 3)
    assert seen.verdict() == "slow"
    assert seen.state.observed.peak(seen.device).reports_per_s == pytest.approx(0.05)


def test_a_device_that_was_away_is_not_slow_and_one_that_reports_once_an_hour_is() -> None:
    away = Seen()
    for _ in range(20):
        away.sends(0.5, 3)
        away.at_us += 2 * DAY
    assert away.verdict() == ""
    hourly = Seen()
    hourly.takes([hourly.at_us + i * HOUR for i in range(28)])
    assert hourly.verdict() == "slow"
    assert hourly.state.observed.peak(hourly.device).reports_per_s == pytest.approx(1 / 3600)


def test_backlog_is_measured_by_its_own_times() -> None:
    seen = Seen()
    seen.sends(0.1, 6)
    seen.sends(0.1, 5 * 12, at_us=seen.at_us - 6 * HOUR)  # five hours at once
    seen.sends(0.1, 6)
    assert seen.verdict() == ""
    assert seen.state.rate("d", seen.at_us) == Rate(0.1, 0.2)


def test_reports_out_of_order_within_two_intervals_all_count() -> None:
    seen = Seen()
    for _ in range(4):
        seen.sends(2, 2, backwards=True)
    assert seen.verdict() == "fast"
    assert seen.state.observed.peak(seen.device) == Rate(2, 4)


def test_the_rate_of_a_device_that_fell_silent_goes_down() -> None:
    seen = Seen()
    assert seen.state.rate("d", NOW) is None
    assert seen.state.rate("nobody", NOW) is None
    seen.sends(0.1, 2)
    assert seen.state.rate("d", seen.at_us - 1) == Rate(0.1, 0.2)
    assert seen.state.rate("d", seen.at_us + 9 * INTERVAL) == Rate(0.01, 0.02)


@given(rates, st.integers(1, MAX_METRICS_PER_REPORT))
def test_kernels_and_profiles_agree(reports_per_s: float, values: int) -> None:
    profile = Profile(reports_per_s=reports_per_s, metrics_per_report=values)
    width_us = width_for(reports_per_s)
    assert width_us == profile.bucket_width_us()
    assert spread_over(reports_per_s * values, width_us) == profile.sub_buckets()


@given(rates, rates, st.sampled_from([15 * MINUTE, HOUR, 6 * HOUR]), st.sampled_from([1 << n for n in range(9)]))
def test_what_fits_stays_as_it_is(reports_per_s: float, values: float, width_us: int, subs: int) -> None:
    fitted = fitting(reports_per_s, reports_per_s * values, width_us, subs)
    assert fitting(reports_per_s, reports_per_s * values, *fitted) == fitted


@given(rates, rates, st.sampled_from([15 * MINUTE, HOUR, 6 * HOUR]), st.sampled_from([1 << n for n in range(9)]), rates)
def test_what_is_observed_and_what_is_declared_never_answer_each_other(
    seen_rate: float, values: float, width_us: int, subs: int, declared_rate: float
) -> None:
    """Saving a device and observing it in turns comes to rest at once: no epoch after epoch for nothing."""
    seen, profile = Rate(seen_rate, seen_rate * values), Profile(reports_per_s=declared_rate)
    epochs = [Epoch(HOUR, width_us, subs, "observed rate: before")]
    for n in range(4):
        epochs += filter(None, [observed_epoch(epochs, profile, seen, (2 * n + 2) * HOUR)])
        epochs += filter(None, [declared_epoch(epochs, profile, (2 * n + 3) * HOUR)])
    assert len(epochs) <= 3
    assert epochs[-1].width_us <= profile.bucket_width_us()


def test_what_follows_from_an_observation() -> None:
    def check(known: list[Epoch], profile: Profile, seen: Rate, want: tuple[int, int] | None) -> None:
        got = observed_epoch(known, profile, seen, 9 * HOUR, hold_us=3 * HOUR)
        assert (None if got is None else (got.width_us, got.sub_buckets)) == want

    unknown, slow, fast = Profile(), Profile(reports_per_s=0.001), Profile(reports_per_s=100)
    check([], unknown, Rate(3.2, 32), (15 * MINUTE, 1))
    check([], unknown, Rate(100, 5000), (15 * MINUTE, 128))
    check([], unknown, Rate(0.001, 0.01), (6 * HOUR, 1))
    check([], unknown, Rate(0.5, 5), None)
    check([], slow, Rate(3.2, 32), (15 * MINUTE, 1))
    declared = Epoch(HOUR, 15 * MINUTE, 16, "declared rate: 100 reports/s")
    check([declared], fast, Rate(0.001, 0.01), None)
    check([declared], unknown, Rate(0.001, 0.01), (6 * HOUR, 1))
    hot = Epoch(HOUR, HOUR, 64, "hot")
    check([hot], unknown, Rate(3.2, 32), (15 * MINUTE, 64))
    check([hot, replace(hot, from_us=2 * HOUR, sub_buckets=1, reason="cooled")], unknown, Rate(3.2, 32), (15 * MINUTE, 1))
    young = Epoch(7 * HOUR, HOUR, 1, "observed rate: 0.5 reports/s of 10 values")
    check([young], unknown, Rate(3.2, 32), None)
    check([replace(young, from_us=6 * HOUR)], unknown, Rate(3.2, 32), (15 * MINUTE, 1))


def test_an_epoch_says_what_was_observed() -> None:
    epoch = observed_epoch([], Profile(), Rate(3.2, 32), HOUR)
    assert epoch == Epoch(HOUR, 15 * MINUTE, 1, "observed rate: 3.2 reports/s of 10 values")


def test_of_two_that_decide_at_once_one_adds_an_epoch() -> None:
    clock = ManualClock(NOW)
    engine = MemoryEngine(clock)
    engine.apply(TABLES)
    one, other = (Places(engine, clock, refresh_us=SECOND, max_future_us=SECOND) for _ in range(2))
    asked: list[int] = []

    def choose(epochs: Sequence[Epoch]) -> Epoch | None:
        return observed_epoch(epochs, Profile(), Rate(3, 30), other.earliest_epoch_us() + SECOND, hold_us=HOUR)

    def choose_late(epochs: Sequence[Epoch]) -> Epoch | None:
        asked.append(len(epochs))
        chosen = choose(epochs)
        if len(asked) == 1:  # between its looking and its inserting
            assert other.decide("acme", "d", choose) is not None
        return chosen

    assert one.decide("acme", "d", choose_late) is None
    assert asked == [0, 1]
    assert len(one.epochs("acme", "d")) == 1
