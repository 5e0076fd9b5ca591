"""Nothing is thrown away by a clock that cannot be trusted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from widerow.catalog.clock import ClockGuard
from widerow.engine.memory import MemoryEngine
from widerow.model.batch import RECEIVED_TAG, Report, batch_of
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, ManualClock
from widerow.schema.tables import TABLES

NOW_US = 1_800_000_000_000_000


class Site:
    def __init__(self) -> None:
        self.machine = ManualClock(NOW_US)
        self.engine = MemoryEngine(self.machine)
        self.engine.apply(TABLES)
        self.start()

    def start(self) -> None:
        self.guard = ClockGuard(self.engine, self.engine.clock)

    def jump(self, by_us: int) -> None:
        self.machine.time_us += by_us
        self.guard.look()

    def send(self, devices: Sequence[str], *, late_us: int = 0, tenant: str = "acme", own: bool = True) -> None:
        tags = {} if own else dict([RECEIVED_TAG])
        at_us = self.machine.time_us - late_us
        self.guard.heard(tenant, batch_of([Report(name, at_us, {"x": 1.0}, tags) for name in devices]))


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_clock_that_goes_on_is_trusted(site: Site) -> None:
    assert site.guard.trusts()
    for step_us in (SECOND, 5 * MINUTE, HOUR, -MINUTE, MINUTE):
        site.machine.time_us += step_us
        assert site.guard.trusts(), step_us
    site.start()
    assert site.guard.trusts()


@pytest.mark.parametrize("jump_us", [HOUR + SECOND, DAY, 40 * DAY, 3650 * DAY])
def test_a_jump_ahead_is_not_trusted_also_after_a_restart(site: Site, jump_us: int) -> None:
    site.guard.look()
    site.machine.time_us += jump_us
    site.start()
    assert "later than when it was last looked at" in site.guard.look()
    site.jump(MINUTE)
    site.start()
    assert not site.guard.trusts()
    site.jump(-jump_us)
    assert site.guard.trusts(), "nothing was written meanwhile, so no harm is left"


@pytest.mark.parametrize("back_us", [90 * SECOND, DAY, 40 * DAY, 3650 * DAY])
def test_a_clock_behind_its_own_versions_is_not_trusted(site: Site, back_us: int) -> None:
    site.engine.clock.version_us()
    site.jump(-4 * SECOND)
    assert site.guard.trusts(), "a few seconds are how clocks are set right"
    site.jump(-back_us)
    assert "before what was written last" in site.guard.look()
    site.start()
    assert not site.guard.trusts()
    site.jump(back_us)
    site.guard.confirm()
    assert site.guard.trusts()


def test_three_devices_whose_own_times_agree_settle_it(site: Site) -> None:
    site.guard.look()
    site.jump(2 * DAY)
    site.send(["a", "b"])
    site.send(["a", "b"])
    assert not site.guard.trusts()
    site.send(["c"])
    assert site.guard.trusts()
    site.start()
    assert site.guard.trusts()


def test_devices_of_one_name_and_several_tenants_are_several(site: Site) -> None:
    site.guard.look()
    site.jump(2 * DAY)
    for tenant in ("a", "b", "c"):
        assert not site.guard.trusts()
        site.send(["device"], tenant=tenant)
    assert site.guard.trusts()


def test_stamps_of_receipt_and_times_that_are_off_settle_nothing(site: Site) -> None:
    site.guard.look()
    site.jump(2 * HOUR)
    site.send(["a", "b", "c", "d"], own=False)
    site.send(["a", "b", "c", "d"], late_us=2 * HOUR)
    site.send(["a", "b", "c", "d"], late_us=11 * MINUTE)
    site.send(["a", "b", "c", "d"], late_us=-2 * HOUR)
    assert not site.guard.trusts()


def test_what_agreed_before_another_jump_does_not_count(site: Site) -> None:
    site.guard.look()
    site.jump(2 * DAY)
    site.send(["a", "b"])
    site.jump(2 * DAY)
    site.send(["c"])
    assert not site.guard.trusts()


def test_an_operator_settles_it_for_good(site: Site) -> None:
    site.guard.look()
    site.engine.clock.cover(site.machine.time_us + 40 * DAY)
    assert not site.guard.trusts()
    site.guard.confirm()
    for _ in range(3):
        site.start()
        assert site.guard.trusts(), "versions may be ahead for long"
    site.jump(2 * DAY)
    assert not site.guard.trusts()


def test_a_jump_in_the_middle_of_a_run_is_noticed_by_whoever_asks(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    assert site.guard.trusts()
    site.machine.time_us += 40 * DAY
    assert not site.guard.trusts()
    assert not site.guard.trusts()
    assert [record.message for record in caplog.records].count(site.guard.look()) == 1, "it is said once"
    site.machine.time_us -= 40 * DAY
    assert site.guard.trusts()
    assert "set right" in caplog.text
