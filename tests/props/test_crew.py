"""Several processes write and roll one store, each at its own pace: in the end rollups say what one computation says.

A write has three steps between which anything may happen: it is planned, its marks arrive, its reports arrive; then it is
settled. A member that dies leaves writes behind at any of them; what it had not acknowledged comes to another one.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.rollup_suite import DEVICES, NOW, TENANT, Site, reports_of
from widerow.catalog.catalog import Catalog
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.model.batch import Batch, batch_of
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock
from widerow.rollup.crew import Crew, CrewSettings, shards_of_partitions
from widerow.rollup.fleet import Fleet, type_tags
from widerow.rollup.marks import MarkPlan, Marks
from widerow.rollup.roll import Roller
from widerow.rollup.store import Rollups
from widerow.rollup.versions import Versions
from widerow.schema.rollups import DIRTY, DIRTY_DAYS, DIRTY_FLEET
from widerow.schema.shards import SHARDS
from widerow.telemetry.store import Plan, Telemetry, TelemetrySettings

SETTINGS = CrewSettings(share_us=MINUTE)


@dataclass(slots=True)
class Write:
    """On its way into the store."""

    member: int
    batch: Batch
    plan: Plan
    marks: MarkPlan
    step: int = 0


class Member:
    """One process of the crew."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.telemetry = Telemetry(engine, clock, TelemetrySettings(max_future_us=HOUR, refresh_us=SECOND))
        self.marks = Marks(engine, clock, SETTINGS)
        self.rollups = Rollups(engine, clock, self.telemetry.erasure)
        self.catalog = Catalog(engine, clock)
        self.crew = Crew(engine, SETTINGS, lambda: [TENANT.name])
        versions = Versions(clock, lambda _: None)
        tagged = type_tags(self.catalog.attributes)
        self.roller = Roller(engine, self.telemetry, self.rollups, self.marks, clock, None, tagged, versions, SETTINGS)
        self.fleet = Fleet(engine, self.rollups, self.roller.fleet, self.catalog, clock, versions, SETTINGS)

    def roll(self, before_us: int) -> None:
        self.marks.learn(self.crew.waiting(DIRTY, before_us))
        for unit in sorted(self.marks.pending()):
            self.roller.roll(TENANT, unit)
        self.roller.days.learn(self.crew.waiting(DIRTY_DAYS, before_us))
        for unit in sorted(self.roller.days.pending()):
            self.roller.roll_day(TENANT, unit)
        if self.crew.leads():
            self.roller.fleet.learn(self.crew.waiting(DIRTY_FLEET, before_us, all_shards=True))
            for unit in sorted(self.roller.fleet.pending()):
                self.fleet.roll(TENANT, unit)


class Together:
    """A store and its crew."""

    def __init__(self, members: int = 2) -> None:
        self.clock = ManualClock(NOW)
        self.site = Site(MemoryEngine(self.clock), self.clock)
        self.engine = self.site.engine
        self.members = [Member(self.engine, self.clock) for _ in range(members)]
        self.under_way: list[Write] = []
        self.sent: list[Batch] = []
        self.share_out()

    def share_out(self) -> None:
        for n, member in enumerate(self.members):
            member.crew.take_over(shards_of_partitions([n], len(self.members)))

    def begin(self, member: int, batch: Batch) -> None:
        at = self.members[member]
        at.catalog.devices.register(TENANT, batch.device.names)
        self.under_way.append(Write(member, batch, at.telemetry.plan(TENANT, batch), at.marks.plan(TENANT.name, batch)))

    def go_on(self, number: int) -> None:
        """A write comes one step further."""
        if not self.under_way:
            return
        write = self.under_way[number % len(self.under_way)]
        # A member's commits are settled one after another.
        if any(other.member == write.member for other in self.under_way[: self.under_way.index(write)]):
            return
        if write.step == 0:
            self.engine.write(write.marks.changes)
        elif write.step == 1:
            self.engine.write(write.plan.changes)
        else:
            self.members[write.member].marks.settle(write.marks, written=True)
            self.under_way.remove(write)
        write.step += 1

    def die(self, number: int) -> None:
        """And come back, having forgotten everything. What it did not acknowledge comes to somebody."""
        lost = [write for write in self.under_way if write.member == number]
        self.under_way = [write for write in self.under_way if write.member != number]
        self.members[number] = Member(self.engine, self.clock)
        self.share_out()
        for write in lost:
            self.begin((number + 1) % len(self.members), write.batch)

    def finish(self) -> None:
        while self.under_way:
            for n in range(len(self.under_way)):
                self.go_on(n)
        for _ in range(3):  # hours, days, the fleet: each is ripe a while after what it follows from
            self.clock.time_us += SETTINGS.ripe_us + MS
            for member in self.members:
                member.roll(NOW + DAY)


def check(together: Together) -> None:
    together.finish()
    assert not list(together.site.marks.units())
    clock = ManualClock(together.clock.time_us)
    alone = Site(MemoryEngine(clock), clock)
    for batch in together.sent:
        alone.write(batch)
    alone.roll()
    assert together.site.records() == alone.records()
    assert together.site.fleet_records() == alone.fleet_records()


CELL = st.tuples(
    st.sampled_from(DEVICES),
    st.integers(0, 40).map(lambda n: NOW - 2 * HOUR + n * 7 * MINUTE),
    st.sampled_from(["temp", "flow"]),
    st.integers(-99, 99).map(float),
)
MEMBER = st.integers(0, 1)
ACTION = st.one_of(
    st.tuples(st.just("begin"), MEMBER, st.lists(CELL, min_size=1, max_size=4)),
    st.tuples(st.just("step"), st.integers(0, 3)),
    st.tuples(st.just("step"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.sampled_from([1, 20, 45, 70, 95, 130])),
    st.tuples(st.just("roll"), MEMBER),
    st.tuples(st.just("die"), MEMBER),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ACTION, min_size=5, max_size=40))
def test_whatever_the_crew_does_rollups_say_what_one_computation_says(history: list[tuple[object, ...]]) -> None:
    together = Together()
    for n, action in enumerate(history):
        together.clock.time_us += 11 * MS
        match action:
            case ("begin", int(member), list(cells)):
                batch = batch_of(reports_of(cells, NOW + n * MS))
                together.sent.append(batch)
                together.begin(member, batch)
            case ("step", int(number)):
                together.go_on(number)
            case ("wait", int(seconds)):
                together.clock.time_us += seconds * SECOND
            case ("roll", int(member)):
                together.members[member].roll(NOW + DAY)
            case ("die", int(member)):
                together.die(member)
            case _:
                pytest.fail(str(action))
    check(together)


def test_a_write_that_was_held_up_is_marked_again() -> None:
    together = Together()
    batch = batch_of(reports_of([("a", NOW - HOUR, "temp", 1.0)], NOW))
    together.sent.append(batch)
    together.begin(0, batch)
    together.go_on(0)
    together.clock.time_us += SETTINGS.ripe_us + SECOND
    for member in together.members:  # the marks are ripe, the reports are not there
        member.roll(NOW + DAY)
    assert not list(together.site.marks.units())
    together.go_on(0)
    together.go_on(0)
    assert list(together.site.marks.units()), "marked again"
    check(together)


def test_a_mark_is_relied_on_for_a_while_and_taken_when_nobody_relies_on_it() -> None:
    together = Together()
    (writer, roller) = together.members
    for at_s, marked in ((0, True), (30, False), (59, False), (61, True), (62, False)):
        together.clock.time_us = NOW + at_s * SECOND
        batch = batch_of(reports_of([("a", NOW - HOUR + at_s, "temp", 1.0)], NOW + at_s * MS))
        together.sent.append(batch)
        together.begin(0, batch)
        assert bool(together.under_way[-1].marks.changes) is marked
        for _ in range(3):
            together.go_on(0)
        for member in (writer, roller):
            member.roll(NOW + DAY)
        assert list(together.site.marks.units()), "nothing is taken before it is ripe"
    check(together)


@pytest.mark.parametrize("count", [1, 2, 3, 12, 16, 48])
def test_each_shard_goes_to_one_partition(count: int) -> None:
    owned = [shards_of_partitions([partition], count) for partition in range(count)]
    assert sorted(shard for shards in owned for shard in shards) == list(range(SHARDS))
    assert shards_of_partitions(range(count), count) == frozenset(range(SHARDS))
