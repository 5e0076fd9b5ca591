"""What a rollup is computed from is there until the first of it goes, whichever retention that has."""

from __future__ import annotations

from dataclasses import replace

from contract.rollup_suite import NOW, TENANT
from widerow.model.tenant import GUARD_US, RollupEpoch
from widerow.model.times import DAY, HOUR, MINUTE
from widerow.rollup.inputs import EXPIRING_US, hours_are_there

DAY_US = NOW // DAY * DAY


def test_the_hours_of_a_day_are_there_until_the_first_of_them_goes() -> None:
    def check(until_us: int, *epochs: tuple[int, int]) -> None:
        kept = tuple(RollupEpoch(from_us, hour_us, hour_us, 0) for from_us, hour_us in epochs)
        tenant, gone_us = replace(TENANT, rollup_epochs=kept), until_us + GUARD_US - EXPIRING_US
        assert hours_are_there(tenant, DAY_US, gone_us - 1)
        assert not hours_are_there(tenant, DAY_US, gone_us)

    check(DAY_US + 20 * DAY, (0, 20 * DAY))
    check(DAY_US + 20 * DAY, (0, 20 * DAY), (DAY_US + 12 * HOUR, 50 * DAY))
    check(DAY_US + 12 * HOUR + 5 * DAY, (0, 20 * DAY), (DAY_US + 12 * HOUR, 5 * DAY))
    check(DAY_US + 12 * HOUR + 5 * DAY, (0, 0), (DAY_US + 12 * HOUR, 5 * DAY), (DAY_US + 13 * HOUR, 0))
    check(DAY_US + 20 * DAY, (0, 20 * DAY), (DAY_US + 23 * HOUR + MINUTE, 5 * DAY))  # no hour begins after that
    check(DAY_US + 20 * DAY, (0, 5 * DAY), (DAY_US, 20 * DAY))
    assert hours_are_there(replace(TENANT, rollup_epochs=(RollupEpoch(0, 0, 0, 0),)), DAY_US, NOW + 9999 * DAY)
