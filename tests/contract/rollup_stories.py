"""What users would see of rollups, on any engine: a device that was away, data that grows old."""

from __future__ import annotations

from random import Random
from uuid import uuid4

import pytest

from contract.rollup_suite import DEVICES, Site
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.model.batch import Report
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, ManualClock, TimeSpan
from widerow.query.budget import Budget, QuerySettings
from widerow.query.stepped import Sources, Stepped, stepped
from widerow.query.steps import steps_of
from widerow.rollup.aggregate import summary_of_raw

BEGAN = 1_800_000_000_000_000 // DAY * DAY
PACE = 5 * HOUR + 7 * MINUTE
AWAY = DEVICES[-1]


def reports(device: str, start_us: int, stop_us: int) -> list[Report]:
    """What a device has to say of a span, in order; two reports at a time, so that minutes sum something up."""
    grid = range(BEGAN, stop_us, PACE)
    times = [at + shift for at in grid for shift in (0, 9 * SECOND) if start_us <= at + shift < stop_us]
    return [Report(device, at, {"temp": at // SECOND % 977 / 8, "state": f"s{at // HOUR % 3}"}, {}, 0) for at in times]


def ask(site: Site, span: TimeSpan, step: str) -> Stepped:
    sources = Sources(site.telemetry, site.rollups, site.roller.dirt, site.clock)
    budget = Budget(QuerySettings(), site.tenant)
    return stepped(sources, site.tenant, DEVICES, span=span, steps=steps_of(step, span, ""), budget=budget)


def said(found: Stepped, aggregate: str) -> dict[tuple[str, str, int], float]:
    summary, values = found.summary, found.values(aggregate).tolist()
    return {(summary.device[i], summary.metric[i], int(summary.start_us[i])): values[i] for i in range(len(summary))}


def check_answers(site: Site, span: TimeSpan) -> None:
    """A question says what raw reports alone say."""
    for step in ("6h", "1d"):
        found = ask(site, span, step)
        raw = site.telemetry.read_many(site.tenant, DEVICES, span)
        want = Stepped(summary_of_raw(raw, found.steps), found.steps, span, {})
        for aggregate in ("count", "min", "max", "first", "last"):
            assert said(found, aggregate) == said(want, aggregate)
        for aggregate in ("sum", "avg"):
            assert said(found, aggregate) == pytest.approx(said(want, aggregate), rel=1e-12)


def rolled(site: Site, span: TimeSpan) -> None:
    """Roll what a server would have rolled by now: hours that are over, then their days and fleets."""
    site.clock.time_us = max(site.clock.time_us, span.stop_us + MINUTE)
    site.roll()


class RollupStories:
    """A subclass gives the `engine` and `clock` fixtures and nothing else."""

    def test_a_device_that_was_away_for_three_days_leaves_no_trace(self, engine: Engine, clock: ManualClock) -> None:
        clock.time_us = BEGAN
        tenant = Tenant(name=f"away-{uuid4().hex[:8]}")
        site, whole = Site(engine, clock, tenant), TimeSpan(BEGAN, BEGAN + 3 * DAY)
        for day in range(3):
            span = TimeSpan(BEGAN + day * DAY, BEGAN + (day + 1) * DAY)
            for device in DEVICES[:-1]:
                clock.time_us = span.stop_us
                site.write(_versioned(reports(device, span.start_us, span.stop_us), clock))
            rolled(site, span)
        check_answers(site, whole)
        backlog = reports(AWAY, whole.start_us, whole.stop_us)
        Random(1).shuffle(backlog)
        for part in (backlog[:9], backlog[9:17], backlog[15:]):  # some come twice
            clock.time_us += 5 * SECOND
            site.write(_versioned(part, clock))
            check_answers(site, whole)
            site.roll(most=2)
            check_answers(site, whole)
        site.roll()
        check_answers(site, whole)
        in_order = Site(MemoryEngine(ManualClock(clock.time_us)), ManualClock(clock.time_us), tenant)
        for device in DEVICES:
            in_order.write(reports(device, whole.start_us, whole.stop_us))
        in_order.roll()
        assert site.records() == in_order.records()
        assert site.fleet_records() == in_order.fleet_records()
        assert site.roller.dirt(tenant, DEVICES).hours == frozenset()

    def test_when_raw_reports_have_expired_hours_and_days_still_answer(self, engine: Engine, clock: ManualClock) -> None:
        clock.time_us = BEGAN + DAY
        site, span = Site(engine, clock, Tenant(name=f"old-{uuid4().hex[:8]}")), TimeSpan(BEGAN, BEGAN + DAY)
        for device in DEVICES:
            site.write(_versioned(reports(device, span.start_us, span.stop_us), clock))
        rolled(site, span)
        before = {step: said(ask(site, span, step), "sum") for step in ("1m", "1h", "1d")}
        for days, kept, gone in ((45, ("1m", "1h", "1d"), ()), (120, ("1h", "1d"), ("1m",)), (400, ("1d",), ("1m", "1h"))):
            clock.time_us = BEGAN + days * DAY
            engine.expire(clock.time_us)
            assert not site.telemetry.read_many(site.tenant, DEVICES, span), "raw reports are gone"
            for step in kept:
                assert said(ask(site, span, step), "sum") == before[step] != {}
            for step in gone:
                found = ask(site, span, step)
                assert said(found, "sum") == {}
                assert found.missing == [span], "and it says so"


def _versioned(some: list[Report], clock: ManualClock) -> list[Report]:
    return [Report(r.device, r.time_us, r.values, r.tags, clock.time_us) for r in some]
