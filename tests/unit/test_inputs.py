"""What a rollup is computed from is there until the first of it goes, whichever retention that has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from contract.rollup_suite import NOW, TENANT, Site
from widerow.engine.memory import MemoryEngine
from widerow.model.batch import Report
from widerow.model.tenant import GUARD_US, RetentionEpoch, RollupEpoch
from widerow.model.times import DAY, HOUR, MINUTE, ManualClock
from widerow.rollup.inputs import EXPIRING_US, hours_are_there, raw_is_there

DAY_US = NOW // DAY * DAY


def test_the_raw_reports_of_an_hour_are_there_until_the_first_of_them_goes() -> None:
    def check(until_us: int, *epochs: tuple[int, int]) -> None:
        tenant = replace(TENANT, raw_epochs=tuple(RetentionEpoch(*epoch) for epoch in epochs))
        gone_us = until_us + GUARD_US - EXPIRING_US
        assert raw_is_there(tenant, DAY_US, gone_us - 1)
        assert not raw_is_there(tenant, DAY_US, gone_us)

    check(DAY_US + 20 * DAY, (0, 20 * DAY))
    check(DAY_US + 20 * DAY, (0, 20 * DAY), (DAY_US + HOUR, 5 * DAY))
    check(DAY_US + MINUTE + 5 * DAY, (0, 20 * DAY), (DAY_US + MINUTE, 5 * DAY))
    check(DAY_US + MINUTE + 5 * DAY, (0, 0), (DAY_US + MINUTE, 5 * DAY), (DAY_US + 2 * MINUTE, 0))


def test_an_hour_part_of_which_was_kept_for_less_is_not_rolled_from_the_rest() -> None:
    clock = ManualClock(DAY_US + HOUR)
    epochs = RetentionEpoch(0, 20 * DAY), RetentionEpoch(DAY_US + 30 * MINUTE, 5 * DAY)
    site = Site(MemoryEngine(clock), clock, replace(TENANT, raw_epochs=epochs))
    site.write([Report("a", DAY_US + minute * MINUTE, {"temp": 1.0}, {}, NOW) for minute in (10, 50)])
    site.roll()
    before = site.records()
    clock.time_us = DAY_US + 5 * DAY + GUARD_US + HOUR
    site.restart()  # it is not known to be whole
    site.marks.again(TENANT.name, "a", np.array([DAY_US]))
    site.roll()
    assert site.records() == before
    assert site.marks.pending() == {}


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
