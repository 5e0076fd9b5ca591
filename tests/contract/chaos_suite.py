"""Rollups of a fleet whose reports come with every kind of trouble are those of the reports themselves."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from contract.rollup_suite import DEVICES, NOW, Site, check_stored
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.model.batch import reports_of
from widerow.model.names import Coded, Names
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MINUTE, ManualClock, whole_ms
from widerow.simulate.chaos import ChaosSettings, chaos
from widerow.simulate.fleet import Fleet

TROUBLE = ChaosSettings(
    reordered=0.3, late=0.1, offline=0.5, duplicates=0.2, corrections=0.2, batch_reports=100, hold_us=10 * MINUTE
)


def check_chaos(engine: Engine, clock: ManualClock, seed: int, tenant: Tenant) -> None:
    """Deliveries come, and now and then hours are rolled, minutes closed, or the process starts again."""
    fleet = Fleet(seed, len(DEVICES), start_us=NOW - 2 * DAY, kinds=("truck", "press", "climate"), interval_us=7 * MINUTE)
    truth = fleet.made(range(8 * HOUR // fleet.interval_us))
    truth = replace(truth, device=Coded(Names.of(DEVICES), truth.device.codes))
    random = Random(seed)
    clock.time_us = fleet.start_us
    site = Site(engine, clock, tenant)
    for delivery in chaos(truth, seed, TROUBLE):
        clock.time_us = max(clock.time_us, delivery.at_us)
        site.write(delivery.batch)
        what = random.random()
        if what < 0.1:
            site.roll(most=2)
        elif what < 0.2:
            site.roller.close(tenant)
        elif what < 0.25:
            site.restart()
    site.roll()
    assert not [unit for unit in site.marks.units() if unit.tenant == tenant.name], "everything that was marked is rolled"
    alone_clock = ManualClock(clock.time_us)
    alone = Site(MemoryEngine(alone_clock), alone_clock, tenant)
    alone.write(replace(truth, version_us=np.full(len(truth), whole_ms(clock.time_us))))
    alone.roll()
    want = alone.records()
    assert len(want) > 1000
    assert site.records() == want
    check_stored(site, alone, reports_of(truth))


class ChaosSuite:
    """A subclass gives the `engine` and `clock` fixtures and nothing else."""

    def test_chaos_on_the_way_leaves_no_trace_in_rollups(self, engine: Engine, clock: ManualClock) -> None:
        check_chaos(engine, clock, 1, Tenant(name="chaos"))
