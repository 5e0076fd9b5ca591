"""What a limit would have done is what it then does."""

from __future__ import annotations

import random

import numpy as np
import pytest

from widerow.admit.admission import Admission
from widerow.admit.controls import Controls, What
from widerow.engine.memory import MemoryEngine
from widerow.model.batch import Report, batch_of
from widerow.model.lane import Lane
from widerow.model.tenant import Limits, Tenant
from widerow.model.times import HOUR, MS, SECOND, ManualClock, TimeSpan
from widerow.ops.counters import Counters
from widerow.schema.tables import DEVICE_CONTROLS
from widerow.schema.usage import USAGE
from widerow.usage.record import Recorder
from widerow.usage.recorded import OfferedSeconds, Recorded
from widerow.usage.whatif import ReadOver, reads_over, replay

START_US = 1_000_000 * HOUR
Arrival = tuple[int, int, Lane]
"""When, how many, and in which lane."""


def bursts(seed: int, seconds: int = 1_800) -> list[Arrival]:
    """A fleet with rush hours, a lull, and a device that comes back."""
    chance = random.Random(seed)
    arrivals: list[Arrival] = []
    for second in range(seconds):
        busy = 30 if second % 600 < 200 else 5
        for _ in range(chance.randrange(1, 4)):
            at_us = START_US + second * SECOND + chance.randrange(1000) * MS
            arrivals.append((at_us, chance.randrange(busy), Lane.LIVE))
        if second % 300 == 7:
            arrivals.append((START_US + second * SECOND, 400, Lane.BACKFILL))
    return sorted(arrivals, key=lambda arrival: arrival[0])


def recorded(arrivals: list[Arrival]) -> list[OfferedSeconds]:
    """The traffic as it is recorded and read again."""
    clock = ManualClock(START_US)
    engine = MemoryEngine(clock)
    engine.apply([USAGE])
    recorder = Recorder(engine, clock, "one")
    for at_us, count, lane in arrivals:
        clock.time_us = at_us
        recorder.offered("acme", lane, count, count, count, 0, {})
    recorder.flush()
    return list(Recorded(engine, clock).seconds("acme", TimeSpan(START_US, START_US + HOUR)))


def enforced(arrivals: list[Arrival], limits: Limits) -> int:
    """How many the limits then refuse of the same traffic."""
    clock = ManualClock(START_US)
    engine = MemoryEngine(clock)
    engine.apply([DEVICE_CONTROLS])
    admission = Admission(Controls(engine, clock, refresh_us=SECOND), clock, Counters())
    tenant = Tenant(name="acme", limits=limits)
    refused = 0
    for at_us, count, lane in arrivals:
        clock.time_us = at_us
        kept, _ = admission.admit(tenant, batch_of([Report("d", i, {"x": 1.0}, {}) for i in range(count)]), lane)
        refused += count - len(kept)
    return refused


@pytest.mark.parametrize(
    "limits", [Limits(writes_per_s=10), Limits(writes_per_s=15, writes_burst=300), Limits(writes_per_s=20, writes_burst=40)]
)
def test_what_is_predicted_is_what_enforcing_then_does(limits: Limits) -> None:
    arrivals = bursts(seed=7)
    predicted = replay(recorded(arrivals), limits)
    assert predicted.offered == sum(count for _, count, _ in arrivals)
    refused = enforced(arrivals, limits)
    assert refused > 1_000, "the limits bite"
    assert predicted.refused == pytest.approx(refused, rel=0.02)


def beside_a_mad_one(limits: Limits, *, seconds: int = 120) -> tuple[list[OfferedSeconds], int, int]:
    """A hundred healthy reports a second, and a thousand of a device that may send one: as recorded, how many its tenant's
    limit was asked about, and how many of them that refused.
    """
    clock, chance = ManualClock(START_US), random.Random(3)
    engine = MemoryEngine(clock)
    engine.apply([USAGE, DEVICE_CONTROLS])
    recorder, controls = Recorder(engine, clock, "one"), Controls(engine, clock, refresh_us=SECOND)
    admission = Admission(controls, clock, Counters(), weigh=recorder.weigh)
    controls.set("acme", "mad", What.PROFILE_RATE, 1.0, "test")
    tenant, offered, refused = Tenant(name="acme", limits=limits), 0, 0
    for second in range(seconds):
        for part in range(4):
            clock.time_us = START_US + second * SECOND + part * 250 * MS
            devices = ["mad"] * 250 + ["well"] * chance.randrange(51)
            reports = batch_of([Report(device, i, {"x": 1.0}, {}) for i, device in enumerate(devices)])
            kept, refusals = admission.admit(tenant, reports, Lane.LIVE)
            over = sum(len(refusal) for refusal in refusals if refusal.code == "writes-limit")
            offered, refused = offered + len(kept) + over, refused + over
    recorder.flush()
    return list(Recorded(engine, clock).seconds("acme", TimeSpan(START_US, START_US + HOUR))), offered, refused


@pytest.mark.parametrize("per_s", [200, 60])
def test_what_a_limited_device_sends_beyond_its_own_limit_is_not_predicted_to_be_refused_by_its_tenants(per_s: int) -> None:
    limits = Limits(writes_per_s=per_s)
    before, offered, _ = beside_a_mad_one(Limits())
    predicted = replay(before, limits)
    assert predicted.offered == offered < 120 * 110
    _, _, refused = beside_a_mad_one(limits)
    assert (refused > 1_000) == (per_s == 60)
    assert predicted.refused == pytest.approx(refused, rel=0.02)


def test_a_limit_that_is_wide_enough_refuses_nothing() -> None:
    arrivals = bursts(seed=7)
    assert replay(recorded(arrivals), Limits(writes_per_s=1_000)).hours == ()
    assert replay(recorded(arrivals), Limits()).refused == 0


def test_it_says_when_and_how_much() -> None:
    counts = np.zeros(3600, np.int64)
    counts[100:110] = 50
    calm = OfferedSeconds(START_US, np.zeros(3600, np.int64), np.zeros(3600, np.int64))
    busy = OfferedSeconds(START_US + HOUR, counts, np.zeros(3600, np.int64))
    found = replay([calm, busy], Limits(writes_per_s=10, writes_burst=100))
    (over,) = found.hours
    assert (over.hour_us, over.offered, over.worst_per_s) == (START_US + HOUR, 500, 50)
    assert (over.refused, over.seconds) == (500 - 100 - 9 * 10, 8)


def test_hours_in_which_questions_read_too_much_are_told() -> None:
    limits = Limits(query_cost_per_s=10, query_cost_burst=500)
    read = {START_US + HOUR: 36_501, START_US: 36_500, START_US + 2 * HOUR: 100_000}
    assert reads_over(read, limits) == [
        ReadOver(START_US + HOUR, 36_501, 1),
        ReadOver(START_US + 2 * HOUR, 100_000, 63_500),
    ]
    assert reads_over(read, Limits()) == []


def test_hours_without_a_record_fill_the_bucket() -> None:
    counts = np.zeros(3600, np.int64)
    counts[-1], first = 100, np.zeros(3600, np.int64)
    first[0] = 100
    nothing = np.zeros(3600, np.int64)
    limits = Limits(writes_per_s=1, writes_burst=100)
    following = [OfferedSeconds(START_US, counts, nothing), OfferedSeconds(START_US + HOUR, first, nothing)]
    assert replay(following, limits).refused == 99
    later = [following[0], OfferedSeconds(START_US + 2 * HOUR, first, nothing)]
    assert replay(later, limits).refused == 0
