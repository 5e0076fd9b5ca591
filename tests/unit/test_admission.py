"""What a tenant's limits let pass of a batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from widerow.admit.admission import Admission
from widerow.admit.controls import Controls, What
from widerow.engine.memory import MemoryEngine
from widerow.model.batch import Batch, Report, batch_of
from widerow.model.errors import QuotaExceeded
from widerow.model.lane import Lane
from widerow.model.tenant import LimitMode, Limits, Tenant
from widerow.model.times import SECOND, ManualClock
from widerow.ops.counters import Counters
from widerow.schema.tables import DEVICE_CONTROLS

ACME = Tenant(name="acme", limits=Limits(writes_per_s=10, writes_burst=20))
FREE = Tenant(name="acme")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000 * SECOND)


@pytest.fixture
def controls(clock: ManualClock) -> Controls:
    engine = MemoryEngine(clock)
    engine.apply([DEVICE_CONTROLS])
    return Controls(engine, clock, refresh_us=10 * SECOND)


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def admission(controls: Controls, clock: ManualClock, counters: Counters) -> Admission:
    return Admission(controls, clock, counters)


def batch(*devices: str) -> Batch:
    return batch_of([Report(device, 1, {"x": 1.0}, {}) for device in devices])


def test_what_fits_passes_and_the_rest_is_told_when_to_come_again(admission: Admission) -> None:
    kept, refusals = admission.admit(ACME, batch(*["d"] * 25), Lane.LIVE)
    assert kept.position.tolist() == list(range(20))
    (refusal,) = refusals
    assert (refusal.code, list(refusal.positions)) == ("writes-limit", [20, 21, 22, 23, 24])
    assert refusal.spent is not None
    assert (refusal.spent.limit, refusal.spent.allowed, refusal.spent.retry_after_s) == ("writes_per_s", 10, 0.5)
    assert "again in 500ms" in refusal.reason


def test_a_sender_of_whole_batches_is_refused_whole(admission: Admission, clock: ManualClock) -> None:
    admission.admit(ACME, batch(*["d"] * 15), Lane.LIVE, whole=True)
    with pytest.raises(QuotaExceeded) as caught:
        admission.admit(ACME, batch(*["d"] * 10), Lane.LIVE, whole=True)
    assert caught.value.retry_after_s == pytest.approx(0.5)
    clock.time_us += SECOND // 2
    kept, _ = admission.admit(ACME, batch(*["d"] * 10), Lane.LIVE, whole=True)
    assert len(kept) == 10


def test_backlog_and_live_reports_do_not_spend_each_others_budget(admission: Admission) -> None:
    assert len(admission.admit(ACME, batch(*["d"] * 20), Lane.BACKFILL)[0]) == 20
    assert len(admission.admit(ACME, batch(*["d"] * 20), Lane.LIVE)[0]) == 20
    assert len(admission.admit(ACME, batch("d"), Lane.BACKFILL)[0]) == 0


def test_a_limit_in_shadow_counts_and_one_that_is_off_does_not(admission: Admission, counters: Counters) -> None:
    for mode, counted in ((LimitMode.SHADOW, 5), (LimitMode.OFF, 5)):
        tenant = replace(ACME, limit_modes={"writes_per_s": mode})
        kept, refusals = admission.admit(tenant, batch(*["d"] * 25), Lane.LIVE)
        assert (len(kept), refusals) == (25, [])
        value = counters.registry.get_sample_value(
            "widerow_reports_shadowed_total", {"tenant": "acme", "limit": "writes_per_s"}
        )
        assert value == counted


def test_a_device_over_its_rate_does_not_spend_what_its_neighbours_may_send(
    admission: Admission, controls: Controls, clock: ManualClock
) -> None:
    controls.set("acme", "mad", What.PROFILE_RATE, 1.0, "test")
    mixed = batch(*["mad", "good"] * 15)
    kept, refusals = admission.admit(ACME, mixed, Lane.LIVE)
    assert [refusal.code for refusal in refusals] == ["device-rate", "writes-limit"]
    assert "'mad' may send 1 reports/s" in refusals[0].reason
    assert refusals[0].positions == [20, 22, 24, 26, 28]  # ten at once, and no more
    assert len(kept) == 20
    clock.time_us += SECOND
    assert len(admission.admit(FREE, batch("mad", "mad", "good"), Lane.LIVE)[0]) == 2


def test_a_device_whose_limit_was_taken_back_is_free_again(admission: Admission, controls: Controls) -> None:
    assert controls.set("acme", "d", What.PROFILE_RATE, 1.0, "test")
    assert not controls.set("acme", "d", What.PROFILE_RATE, 1.0, "test"), "said once"
    assert len(admission.admit(FREE, batch(*["d"] * 50), Lane.LIVE)[0]) == 10
    controls.set("acme", "d", What.PROFILE_RATE, 0.0, "test")
    assert len(admission.admit(FREE, batch(*["d"] * 50), Lane.LIVE)[0]) == 50
    assert [fact.value for fact in controls.story("acme", "d")] == [1.0, 0.0]


def test_a_limit_that_changes_holds_from_the_next_batch_on(admission: Admission, clock: ManualClock) -> None:
    admission.admit(ACME, batch(*["d"] * 20), Lane.LIVE)
    wider = replace(ACME, limits=Limits(writes_per_s=1000, writes_burst=2000))
    clock.time_us += SECOND
    assert len(admission.admit(wider, batch(*["d"] * 100), Lane.LIVE)[0]) == 10, "what was saved at the old rate"
    clock.time_us += SECOND
    assert len(admission.admit(wider, batch(*["d"] * 2000), Lane.LIVE)[0]) == 1000


def taken_by(admission: Admission, device: str) -> int:
    """How many of so many a device's own limits let pass."""
    return len(admission.admit(FREE, batch(*[device] * 50), Lane.LIVE)[0])


@pytest.mark.parametrize("what", [What.PROFILE_RATE, What.HOT_RATE])
def test_what_is_refused_whole_spends_nothing_of_what_its_devices_may_send(
    admission: Admission, controls: Controls, clock: ManualClock, what: What
) -> None:
    controls.set("acme", "slow", what, 0.5, "test")
    admission.admit(ACME, batch(*["other"] * 20), Lane.LIVE)
    for _ in range(5):
        with pytest.raises(QuotaExceeded):
            admission.admit(ACME, batch(*["slow"] * 5, "other"), Lane.LIVE, whole=True)
    clock.time_us += SECOND
    kept, refusals = admission.admit(ACME, batch(*["slow"] * 5, "other"), Lane.LIVE, whole=True)
    assert (len(kept), refusals) == (6, [])
    assert taken_by(admission, "slow") == 5, "ten at once, of which five were sent"


def test_what_is_refused_whole_gives_back_only_what_it_took(admission: Admission, controls: Controls) -> None:
    controls.set("acme", "slow", What.PROFILE_RATE, 0.5, "test")
    shadow = replace(ACME, limit_modes={"device_reports_per_s": LimitMode.SHADOW})
    admission.admit(shadow, batch(*["slow"] * 7, *["other"] * 13), Lane.LIVE)
    for tenant in (ACME, shadow, replace(ACME, limit_modes={"device_reports_per_s": LimitMode.OFF})):
        with pytest.raises(QuotaExceeded):
            admission.admit(tenant, batch(*["slow"] * 30, "other"), Lane.LIVE, whole=True)
    assert taken_by(admission, "slow") == 3


def lanes(live: int, old: int) -> Batch:
    """Live reports are those from 100 on."""
    times = [*range(100, 100 + live), *range(old)]
    return batch_of([Report("d", time_us, {"x": 1.0}, {}) for time_us in times])


def test_a_whole_batch_of_both_lanes_is_charged_to_both_or_to_none(admission: Admission, clock: ManualClock) -> None:
    def ask(live: int, old: int) -> int:
        kept, refusals = admission.admit(ACME, lanes(live, old), Lane.BACKFILL, whole=True, live_from_us=100)
        assert not refusals
        return len(kept)

    assert ask(15, 1) == 16
    with pytest.raises(QuotaExceeded) as caught:
        ask(15, 1)
    assert caught.value.retry_after_s == pytest.approx(1.0), "one old line does not open the other budget"
    clock.time_us += SECOND
    assert len(admission.admit(ACME, lanes(0, 10), Lane.BACKFILL)[0]) == 10
    with pytest.raises(QuotaExceeded):
        ask(15, 11)
    assert ask(15, 10) == 25, "what was refused has spent nothing"
    assert len(admission.admit(ACME, lanes(5, 0), Lane.LIVE)[0]) == 0
