"""What becomes of a device that sends far too much: step by step, and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from widerow.admit.admission import Admission
from widerow.admit.controls import Controls, What
from widerow.admit.escalation import HotSettings, calm_needed, judged, spread_for
from widerow.admit.heat import CATCH_UP_INTERVALS, HeatSettings
from widerow.admit.hot import HotDevices
from widerow.catalog.catalog import Catalog
from widerow.engine.memory import MemoryEngine
from widerow.model.batch import Report, batch_of
from widerow.model.device import Device, Profile
from widerow.model.errors import Refusal, Rejected, Unavailable
from widerow.model.hot import Step, StepMode
from widerow.model.lane import Lane
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, ManualClock
from widerow.ops.counters import Counters
from widerow.schema.tables import TABLES
from widerow.telemetry.observed import Rate, observed_epoch
from widerow.telemetry.placement import DECLARED, HOT, OBSERVED, Epoch, cooled_epoch, declared_epoch
from widerow.telemetry.places import Places

NOW_US = 1_800_000_000 * SECOND
SETTINGS = HotSettings(cool_intervals=2)
ACME = Tenant(name="acme", hot_steps={Step.SAMPLE: StepMode.AUTO})


class Process:
    """One of those that take reports of a store."""

    def __init__(self, engine: MemoryEngine, clock: ManualClock, *, alone: bool = True) -> None:
        self.clock, self.counters = clock, Counters()
        self.controls = Controls(engine, clock, refresh_us=SECOND)
        self.catalog = Catalog(engine, clock)
        self.places = Places(engine, clock, refresh_us=SECOND, max_future_us=SECOND)
        heat = HeatSettings(interval_us=SECOND, tracked=16, backlog_us=HOUR)
        self.hot = HotDevices(self.controls, self.places, self.catalog, clock, self.counters, SETTINGS, heat, alone=alone)
        self.admission = Admission(self.controls, clock, self.counters, heat=self.hot.heat)
        self.kept: list[int] = []

    def second(self, count: int, device: str = "mad", *, age_us: int = 0) -> list[Refusal]:
        """So many reports within a second, at the end of which devices are judged."""
        self.controls.follow("acme")  # as a thread does
        step_us = SECOND // max(count, 1)
        tenant = self.catalog.tenants.get("acme")
        reports = [Report(device, self.clock.time_us - age_us + i * step_us, {"x": 1.0}, {}) for i in range(count)]
        batch, refusals = self.admission.admit(tenant, batch_of([*reports, *healthy(self.clock.time_us)]), Lane.LIVE)
        self.kept = [t for t, name in zip(batch.time_us.tolist(), batch.device.to_list(), strict=True) if name == device]
        assert len(batch) - len(self.kept) == 20, "its neighbours do not notice"
        self.clock.time_us += SECOND
        self.hot.look()
        return refusals

    def steps(self) -> dict[Step, float]:
        return self.hot.steps("acme", "mad")

    def turns(self) -> list[tuple[What, float]]:
        return [(fact.what, round(fact.value, 3)) for fact in self.hot.story("acme", "mad")]


def healthy(time_us: int) -> list[Report]:
    return [Report(f"good-{i}", time_us + i, {"x": 1.0}, {}) for i in range(20)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_US)


@pytest.fixture
def engine(clock: ManualClock) -> MemoryEngine:
    engine = MemoryEngine(clock)
    engine.apply(TABLES)
    return engine


@pytest.fixture
def process(engine: MemoryEngine, clock: ManualClock) -> Process:
    process = Process(engine, clock)
    process.catalog.tenants.create(ACME)
    process.catalog.devices.create(ACME, Device(name="mad", profile=Profile(reports_per_s=0.1)))
    return process


def codes(refusals: list[Refusal]) -> list[str]:
    return [refusal.code for refusal in refusals]


def test_it_is_limited_then_spread_then_sampled_and_all_is_taken_back(process: Process) -> None:
    assert process.second(1000) == []
    assert process.turns() == [(What.HOT, 1000)], "said after one interval, and nothing done yet"
    process.second(1000)
    assert process.steps() == {Step.LIMIT: 1}
    (refusal,) = process.second(1000)
    assert (refusal.code, len(refusal)) == ("hot-rate", 990)
    assert refusal.spent is not None
    assert (refusal.spent.allowed, refusal.spent.seen) == (1, 1000)
    assert process.steps() == {Step.LIMIT: 1, Step.SPREAD: 16}
    (epoch,) = process.places.epochs("acme", "mad")
    assert (epoch.sub_buckets, epoch.reason[:11]) == (16, "hot: 1,000 ")
    process.second(1000)
    assert process.steps() == {Step.LIMIT: 200, Step.SPREAD: 16, Step.SAMPLE: 0.1}
    assert codes(process.second(1000)) == ["sampled"], "the sample decides, not the limit"
    assert 60 < len(process.kept) < 140
    began = process.turns()
    process.second(0)
    assert process.turns() == began, "one calm interval is not enough"
    process.second(0)
    assert process.steps() == {Step.LIMIT: 1, Step.SPREAD: 16}
    process.second(0)
    process.second(0)
    assert process.steps() == {Step.SPREAD: 16}
    process.second(0)
    process.second(0)
    assert process.steps() == {}
    assert [epoch.sub_buckets for epoch in process.places.epochs("acme", "mad")] == [16, 1]
    process.second(0)
    process.second(0)
    assert process.turns()[len(began) :] == [
        (What.SAMPLE, 0),
        (What.HOT_RATE, 1),
        (What.HOT_RATE, 0),
        (What.SPREAD, 0),
        (What.HOT, 0),
    ]
    assert process.second(9) == []
    assert len(process.kept) == 9
    turns = process.counters.registry.get_sample_value("widerow_hot_turns_total", {"tenant": "acme", "turn": "cooled"})
    assert turns == 1
    assert process.counters.registry.get_sample_value("widerow_hot_devices", {"tenant": "acme", "step": "hot"}) == 0


def test_the_end_of_a_spread_is_an_epoch_of_its_own_that_is_told_with_its_time(process: Process, clock: ManualClock) -> None:
    spread_and_cooled(process)
    spread, gathered = process.places.epochs("acme", "mad")
    assert gathered.width_us == spread.width_us
    assert gathered.from_us > max(spread.from_us, clock.time_us - 10 * SECOND)
    assert gathered.reason == "cooled: it sent 0 reports/s, and was calm for 2 intervals"
    told = [fact for fact in process.hot.story("acme", "mad") if fact.what is What.SPREAD]
    assert [(fact.value, fact.from_us) for fact in told] == [(16, spread.from_us), (0, gathered.from_us)]
    sample = process.counters.registry.get_sample_value
    assert sample("widerow_hot_turns_total", {"tenant": "acme", "turn": "gathered"}) == 1
    assert sample("widerow_hot_devices", {"tenant": "acme", "step": "spread"}) == 0


def test_a_device_that_was_hot_is_spread_again_as_its_profile_calls_for(process: Process) -> None:
    profile = Profile(reports_per_s=10, metrics_per_report=50)
    process.catalog.devices.update("acme", "mad", lambda device: replace(device, profile=profile))
    spread_and_cooled(process)
    assert [epoch.sub_buckets for epoch in process.places.epochs("acme", "mad")] == [16, profile.sub_buckets()]
    assert profile.sub_buckets() == 8


def test_what_is_observed_or_declared_after_a_device_has_cooled_does_not_spread_it_as_when_it_was_hot() -> None:
    declared, hot = Epoch(HOUR, HOUR, 2, f"{DECLARED}rate"), Epoch(2 * HOUR, HOUR, 16, f"{HOT}1,000 reports/s")
    observed = Epoch(3 * HOUR, 15 * MINUTE, 16, f"{OBSERVED}rate")  # it took over the spread
    known = [declared, hot, observed]
    cooled = cooled_epoch(known, Profile(), 4 * HOUR, "calm")
    assert cooled == Epoch(4 * HOUR, 15 * MINUTE, 2, "cooled: calm")
    known.append(cooled)
    assert cooled_epoch(known, Profile(), 5 * HOUR, "calm") is None, "repeating adds nothing"
    assert declared_epoch(known, Profile(), 5 * HOUR) is None
    slow = observed_epoch(known, Profile(), Rate(0.1, 1), 9 * HOUR)
    assert slow is not None
    assert (slow.width_us, slow.sub_buckets) == (HOUR, 1)
    again = [*known, Epoch(5 * HOUR, 15 * MINUTE, 4, f"{HOT}again"), Epoch(6 * HOUR, 15 * MINUTE, 8, f"{OBSERVED}rate")]
    more = cooled_epoch(again, Profile(), 7 * HOUR, "calm")
    assert more is not None
    assert more.sub_buckets == 8, "others called for more than it got"
    assert cooled_epoch([declared, observed], Profile(), 4 * HOUR, "calm") is None


def spread_and_cooled(process: Process) -> None:
    for _ in range(5):
        process.second(1000)
    assert process.steps()[Step.SPREAD] == 16
    for _ in range(10):
        process.second(0)
    assert process.turns()[-1] == (What.HOT, 0)


def test_a_device_that_comes_and_goes_must_be_calm_for_longer_each_time_until_a_day_has_passed(
    process: Process, clock: ManualClock
) -> None:
    def calm_intervals() -> list[int]:
        """How many intervals each turn back takes."""
        for _ in range(5):
            process.second(1000)
        waited, turns = [0], process.turns()
        while process.controls.hot_since("acme", "mad"):
            process.second(0)
            waited[-1] += 1
            if process.turns() != turns:
                waited.append(0)
                turns = process.turns()
        return waited[:-1]

    assert [calm_intervals() for _ in range(3)] == [[2] * 4, [4] * 4, [8] * 4]
    assert process.hot.story("acme", "mad")[-1].reason == "it sent 0 reports/s, and was calm for 8 intervals"
    clock.time_us += DAY - MINUTE
    assert calm_intervals() == [16] * 4
    clock.time_us += DAY
    assert calm_intervals() == [2] * 4


def test_a_step_that_is_taken_again_before_the_device_has_cooled_counts_as_well(process: Process) -> None:
    for _ in range(5):
        process.second(1000)
    for rest in (2, 4, 8):
        for _ in range(rest - 1):
            process.second(0)
        assert Step.SAMPLE in process.steps()
        process.second(0)
        assert Step.SAMPLE not in process.steps()
        process.second(1000)
        assert Step.SAMPLE in process.steps()


def test_how_long_a_device_must_be_calm() -> None:
    def check(relapses: int, interval_us: int, want: int) -> None:
        assert calm_needed(relapses, interval_us, HotSettings(cool_intervals=6)) == want

    check(0, 10 * SECOND, 6)
    check(1, 10 * SECOND, 12)
    check(5, 10 * SECOND, 192)
    check(6, 10 * SECOND, 360)  # an hour
    check(10_000, 10 * SECOND, 360)
    check(3, HOUR, 6)


def test_between_hot_and_calm_nothing_changes(process: Process) -> None:
    for _ in range(2):
        process.second(1000)
    story = process.turns()
    for _ in range(10):
        process.second(8)  # more than half of 10, which is the least that is hot
    assert process.turns() == story


def test_what_is_sampled_follows_from_the_event_time_alone(process: Process, clock: ManualClock) -> None:
    for _ in range(4):
        process.second(1000)
    start_us = clock.time_us
    process.second(500)
    kept = process.kept
    for _ in range(8):
        process.second(0)
    assert Step.SAMPLE not in process.steps()
    clock.time_us = start_us + 10 * SECOND
    process.second(500, age_us=clock.time_us - start_us)
    assert process.kept == kept, "sent again after it ended"
    (span,) = process.controls.sampled("acme")["mad"]
    assert span.start_us <= start_us
    assert span.stop_us is not None
    process.second(500, age_us=clock.time_us - span.stop_us)
    assert len(process.kept) == 500, "from the end of the span on all is kept"


def test_a_tenant_that_does_not_allow_it_is_not_sampled(process: Process) -> None:
    process.catalog.tenants.update("acme", lambda tenant: replace(tenant, hot_steps={}))
    for _ in range(10):
        process.second(1000)
    assert process.steps() == {Step.LIMIT: 1, Step.SPREAD: 16}


def test_what_a_tenant_forbids_is_taken_back_and_what_it_pins_stays(process: Process, clock: ManualClock) -> None:
    for _ in range(4):
        process.second(1000)
    forbidden = {Step.SAMPLE: StepMode.FORBID, Step.LIMIT: StepMode.PIN}
    process.catalog.tenants.update("acme", lambda tenant: replace(tenant, hot_steps=forbidden))
    clock.time_us += MINUTE
    process.second(1000)
    assert Step.SAMPLE not in process.steps()
    assert process.hot.story("acme", "mad")[-1].reason == "its tenant forbids it"
    for _ in range(20):
        process.second(0)
    assert process.hot.hot(ACME)[0].since_us == 0
    assert process.steps()[Step.LIMIT] > 0


@pytest.mark.parametrize("mode", [StepMode.AUTO, StepMode.FORBID])
def test_what_a_tenant_pinned_ends_for_devices_that_cooled_long_ago_when_it_no_longer_does(
    process: Process, clock: ManualClock, mode: StepMode
) -> None:
    process.catalog.tenants.update("acme", lambda tenant: replace(tenant, hot_steps=dict.fromkeys(Step, StepMode.PIN)))
    for _ in range(5):
        process.second(1000)
    for _ in range(20):
        process.second(0)
    assert process.turns()[-1] == (What.HOT, 0)
    assert set(process.steps()) == set(Step)
    story = process.turns()
    process.catalog.tenants.update("acme", lambda tenant: replace(tenant, hot_steps=dict.fromkeys(Step, mode)))
    clock.time_us += MINUTE
    for _ in range(10):
        process.second(0)
    assert process.steps() == {}
    ended = [turn for turn in process.turns()[len(story) :] if not turn[1]]
    assert ended == [(What.SAMPLE, 0), (What.HOT_RATE, 0), (What.SPREAD, 0)]
    why = {StepMode.AUTO: "it sent 0 reports/s, and was calm for 2 intervals", StepMode.FORBID: "its tenant forbids it"}
    assert process.hot.story("acme", "mad")[-1].reason == why[mode]


def test_what_is_pinned_holds_at_once_and_what_is_forbidden_never(process: Process) -> None:
    changes = {Step.LIMIT: (StepMode.PIN, 5.0), Step.SPREAD: (StepMode.FORBID, 0.0), Step.SAMPLE: (StepMode.FORBID, 0.0)}
    process.hot.control(ACME, "mad", changes)
    (refusal,) = process.second(100)
    assert len(refusal) == 50
    for _ in range(10):
        process.second(1000)
    assert process.steps() == {Step.LIMIT: 5}
    for _ in range(10):
        process.second(0)
    assert process.steps() == {Step.LIMIT: 5}
    process.hot.control(ACME, "mad", dict.fromkeys(Step, (StepMode.AUTO, 0.0)))
    assert process.steps() == {}
    assert process.hot.hot(ACME) == []
    assert process.second(9) == []


def test_a_spread_that_is_pinned_holds_until_it_is_cleared_or_forbidden(process: Process) -> None:
    def spread() -> list[int]:
        return [epoch.sub_buckets for epoch in process.places.epochs("acme", "mad")]

    process.hot.control(ACME, "mad", {Step.SPREAD: (StepMode.PIN, 4.0)})
    assert process.hot.hot(ACME)[0].steps == {Step.SPREAD: 4}
    for _ in range(5):
        process.second(1000)
    for _ in range(20):
        process.second(0)
    assert (process.steps(), spread()) == ({Step.SPREAD: 4}, [4]), "hot or not"
    process.hot.control(ACME, "mad", {Step.SPREAD: (StepMode.AUTO, 0.0)})
    assert (process.steps(), spread()) == ({}, [4, 1])
    assert process.hot.hot(ACME) == []
    process.hot.control(ACME, "mad", {Step.SPREAD: (StepMode.PIN, 16.0)})
    process.hot.control(ACME, "mad", {Step.SPREAD: (StepMode.FORBID, 0.0)})
    assert (process.steps(), spread()) == ({}, [4, 1, 16, 1])
    assert process.turns()[-4:] == [(What.SPREAD_MODE, 1), (What.SPREAD, 16), (What.SPREAD_MODE, -1), (What.SPREAD, 0)]


def test_a_pin_of_the_spread_that_a_device_has_already_keeps_it_there(process: Process) -> None:
    places = process.places
    places.add_epoch("acme", "mad", Epoch(places.earliest_epoch_us() + SECOND, HOUR, 16, f"{OBSERVED}rate"))
    for _ in range(2):
        process.hot.control(ACME, "mad", {Step.SPREAD: (StepMode.PIN, 16.0)})
    epochs = places.epochs("acme", "mad")
    assert [epoch.reason for epoch in epochs] == ["observed rate", "hot: pinned by hand"]
    slow = Rate(0.1, 1)
    assert observed_epoch(epochs, Profile(), slow, NOW_US + DAY) is None
    process.hot.control(ACME, "mad", {Step.SPREAD: (StepMode.AUTO, 0.0)})
    found = observed_epoch(places.epochs("acme", "mad"), Profile(), slow, NOW_US + DAY)
    assert found is not None
    assert found.sub_buckets == 1


def test_a_spread_that_is_forbidden_while_the_device_is_hot_ends_at_once_and_it_is_said_why(process: Process) -> None:
    for _ in range(5):
        process.second(1000)
    process.hot.control(ACME, "mad", {Step.SPREAD: (StepMode.FORBID, 0.0)})
    process.second(1000)
    assert process.steps() == {Step.LIMIT: 200, Step.SAMPLE: 0.1}
    (_, end) = process.places.epochs("acme", "mad")
    assert (end.sub_buckets, end.reason) == (1, "cooled: forbidden by hand")


def test_nothing_that_was_said_of_a_deleted_device_holds_for_another_of_its_name(process: Process) -> None:
    process.controls.set("acme", "mad", What.PROFILE_RATE, 1.0, "test")
    for _ in range(4):
        process.second(1000)
    process.hot.control(ACME, "mad", {Step.LIMIT: (StepMode.PIN, 5.0)})
    process.hot.forget("acme", "mad")
    assert process.places.epochs("acme", "mad")[-1].sub_buckets == 1
    assert process.second(9) == []
    assert process.hot.hot(ACME) == []


def test_what_cannot_be_pinned_is_refused_and_changes_nothing(process: Process) -> None:
    for step, value in ((Step.LIMIT, 0.0), (Step.SAMPLE, 1.0), (Step.SPREAD, 1.5), (Step.SPREAD, 257.0)):
        with pytest.raises(Rejected, match=step.value):
            process.hot.control(ACME, "mad", {Step.LIMIT: (StepMode.PIN, 5.0), step: (StepMode.PIN, value)})
    assert process.turns() == []


def test_backlog_does_not_make_a_device_hot(process: Process) -> None:
    for _ in range(3):
        assert process.second(1000, age_us=2 * HOUR) == []
    assert process.turns() == []


def test_a_device_that_catches_up_is_not_hot(process: Process, clock: ManualClock) -> None:
    """It was away for a while, and sends what it has: many reports, about a long time."""
    tenant = process.catalog.tenants.get("acme")
    for away_s in (30, 60, 600, 3000):
        times = range(clock.time_us - away_s * SECOND, clock.time_us, SECOND // 2)
        process.admission.admit(tenant, batch_of([Report("busy", t, {"x": 1.0}, {}) for t in times]), Lane.LIVE)
        clock.time_us += SECOND
        process.hot.look()
    assert process.hot.story("acme") == []
    now = [Report("busy", clock.time_us + i, {"x": 1.0}, {}) for i in range(101)]
    process.admission.admit(tenant, batch_of(now), Lane.LIVE)
    clock.time_us += SECOND
    process.hot.look()
    assert [fact.value for fact in process.hot.story("acme")] == [101]


def test_a_device_whose_clock_jitters_is_hot_all_the_same_a_little_later(process: Process, clock: ManualClock) -> None:
    """Its times lie anywhere in the last 36 minutes. For a while it may be one that catches up."""
    tenant, rng = process.catalog.tenants.get("acme"), np.random.default_rng(7)
    for n in range(2 * CATCH_UP_INTERVALS):
        times = clock.time_us - rng.integers(0, 36 * MINUTE, 1000)
        process.admission.admit(tenant, batch_of([Report("busy", int(t), {"x": 1.0}, {}) for t in times]), Lane.LIVE)
        clock.time_us += SECOND
        process.hot.look()
        story = [(fact.what, fact.value) for fact in process.hot.story("acme", "busy")]
        assert story[:1] == ([(What.HOT, 1000)] if n >= CATCH_UP_INTERVALS else [])
    process.second(0)
    away = range(clock.time_us - 600 * SECOND, clock.time_us, SECOND // 2)
    process.admission.admit(tenant, batch_of([Report("busy", t, {"x": 1.0}, {}) for t in away]), Lane.LIVE)
    clock.time_us += SECOND
    (rate,) = process.hot.heat.turn(clock.time_us).heavy["acme"].values()
    assert 2 <= rate < 5, "when it was calm, it may catch up again"


def test_another_process_obeys_and_takes_nothing_back_while_it_is_hot(engine: MemoryEngine, clock: ManualClock) -> None:
    one, other = (Process(engine, clock, alone=False) for _ in range(2))
    one.catalog.tenants.create(ACME)
    for _ in range(5):
        one.second(1000)
    steps = one.steps()
    for _ in range(10):
        other.second(0)
        one.second(1000)
    assert one.steps() == other.steps() == steps
    assert codes(other.second(100)) == ["sampled"]
    for _ in range(20):  # the one that saw it is gone: for a while the other does not know whether it is still hot
        other.second(0)
    assert other.steps() == steps
    clock.time_us += 11 * MINUTE
    for _ in range(8):
        other.second(0)
    assert other.turns()[-1] == (What.HOT, 0)


def test_a_process_that_was_restarted_takes_back_what_it_did(
    process: Process, engine: MemoryEngine, clock: ManualClock
) -> None:
    for _ in range(4):
        process.second(1000)
    again = Process(engine, clock)
    again.second(20, "other")
    for _ in range(8):
        again.second(0)
    assert again.turns()[-1] == (What.HOT, 0)


def test_who_is_hot() -> None:
    def check(rate: float, profile: Profile, all_per_s: float, want: float) -> None:
        """`want`: what it is limited to; 0: it is not hot."""
        verdict = judged(rate, profile, all_per_s, SETTINGS)
        assert (verdict.allowed_per_s if verdict.is_hot else 0) == want, verdict

    unknown = Profile()
    check(101, unknown, 101, 100)
    check(100, unknown, 100, 0)
    check(11, Profile(reports_per_s=0.1), 11, 1)
    check(9, Profile(reports_per_s=0.1), 9, 0)  # less than is ever hot
    check(900, Profile(reports_per_s=100), 900, 0)
    check(1001, Profile(reports_per_s=100), 900, 1000)
    check(400, Profile(max_reports_per_s=500), 400, 0)
    check(501, Profile(max_reports_per_s=500), 501, 500)
    check(90, unknown, 300, 0)  # a great share of little
    check(90, unknown, 3000, 0)
    check(2000, Profile(reports_per_s=1000), 4000, 1000)  # half of all, and more than it declared
    check(1000, Profile(reports_per_s=1000), 2000, 0)  # as it declared


def test_a_spread_is_a_power_of_two_and_never_less_than_before() -> None:
    def check(rate: float, now: int, want: int) -> None:
        assert spread_for(rate, now, SETTINGS) == want

    check(10, 1, 2)
    check(1000, 1, 16)
    check(1000, 32, 32)
    check(1e9, 1, 64)


def test_what_devices_declared_is_not_forgotten_when_the_store_does_not_answer(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.catalog.devices.update("acme", "mad", lambda device: replace(device, profile=Profile(reports_per_s=500)))
    some = process.catalog.devices.some

    def fails(*_: object) -> object:
        raise Unavailable("the store is away")

    monkeypatch.setattr(process.catalog.devices, "some", fails)
    process.second(300)
    monkeypatch.setattr(process.catalog.devices, "some", some)
    for _ in range(4):
        process.second(300)
    assert process.turns() == [], "it declared as much"


def test_nothing_holds_for_the_devices_of_another_tenant_of_the_same_name(process: Process, clock: ManualClock) -> None:
    for _ in range(4):
        process.second(1000)
    assert process.steps()
    process.hot.forget_all("acme")
    assert set(process.steps()) <= {Step.SPREAD}, "where its reports lie stays true"
    assert process.hot.story("acme", since_us=clock.time_us + 1) == []
