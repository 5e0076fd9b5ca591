"""One limit, several processes: what they give out in all is the limit, and who dies leaves its part to the others."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widerow.admit.admission import Admission
from widerow.admit.controls import Controls
from widerow.admit.shares import GONE_S, Shares
from widerow.engine.memory import MemoryEngine
from widerow.model.batch import Report, batch_of
from widerow.model.errors import Refusal
from widerow.model.lane import Lane
from widerow.model.tenant import Limits, Tenant
from widerow.model.times import SECOND, ManualClock
from widerow.ops.counters import Counters
from widerow.schema.tables import DEVICE_CONTROLS, LIMIT_SHARES

LIMIT = 1_000
ACME = Tenant(name="acme", limits=Limits(writes_per_s=LIMIT, writes_burst=LIMIT))
TENTH_US = SECOND // 10


@dataclass
class Front:
    """A process, by hand."""

    admission: Admission
    shares: Shares
    accepted: list[int] = field(default_factory=list)

    def offer(self, count: int, lane: Lane = Lane.LIVE) -> list[Refusal]:
        batch = batch_of([Report("d", i, {"x": 1.0}, {}) for i in range(count)])
        kept, refusals = self.admission.admit(ACME, batch, lane)
        self.accepted.append(len(kept))
        return refusals

    def exchange(self) -> None:
        self.shares.exchange({("acme", lane): self.admission.offered_per_s("acme", lane) for lane in Lane})


class Site:
    """Several processes on one store, and their time."""

    def __init__(self, fronts: int) -> None:
        self.clock = ManualClock(1_000 * SECOND)
        self.engine = MemoryEngine(self.clock)
        self.engine.apply([DEVICE_CONTROLS, LIMIT_SHARES])
        self.fronts = [self._front() for _ in range(fronts)]

    def _front(self) -> Front:
        shares = Shares(self.engine, self.clock, clock_s=lambda: self.clock.time_us / SECOND)
        controls = Controls(self.engine, self.clock, refresh_us=SECOND)
        return Front(Admission(controls, self.clock, Counters(), shares), shares)

    def run(self, seconds: int, demand: list[int], dead: frozenset[int] = frozenset()) -> float:
        """Reports a second that passed in all."""
        for front in self.fronts:
            front.accepted.clear()
        for tick in range(10 * seconds):
            self.clock.time_us += TENTH_US
            for n, front in enumerate(self.fronts):
                if n not in dead:
                    front.offer(demand[n] // 10)
                    if tick % 10 == n % 10:  # each at a moment of its own
                        front.exchange()
        return sum(sum(front.accepted) for front in self.fronts) / seconds


@pytest.mark.parametrize("demand", [[3000, 100], [2000, 2000], [900, 900], [5000, 10, 10, 10]])
def test_in_all_a_tenant_gets_its_limit_however_uneven_demand_is(demand: list[int]) -> None:
    site = Site(len(demand))
    site.run(10, demand)
    assert site.run(20, demand) == pytest.approx(LIMIT, rel=0.1)


def test_demand_below_the_limit_is_not_refused() -> None:
    site = Site(3)
    demand = [600, 200, 50]
    site.run(10, demand)
    assert site.run(20, demand) == sum(demand)


def test_demand_that_moves_is_followed() -> None:
    site = Site(2)
    site.run(15, [3000, 0])
    site.run(10, [0, 3000])
    assert site.run(10, [0, 3000]) == pytest.approx(LIMIT, rel=0.1)


def test_when_one_dies_the_others_have_its_part_within_ten_seconds() -> None:
    site = Site(2)
    site.run(15, [2000, 2000])
    site.run(9, [2000, 2000], dead=frozenset({0}))
    assert site.run(5, [2000, 2000], dead=frozenset({0})) == pytest.approx(LIMIT, rel=0.1)
    assert GONE_S < 9


def test_backlog_has_parts_of_its_own_and_who_has_none_is_told_to_ask_again_soon() -> None:
    """Live reports come to one, above their limit, and backlog to another: it has the whole limit there."""
    site, accepted = Site(2), 0
    for tick in range(300):
        site.clock.time_us += TENTH_US
        site.fronts[1].offer(200)
        refusals = site.fronts[0].offer(50, Lane.BACKFILL)
        accepted += site.fronts[0].accepted[-1] if tick >= 150 else 0
        assert all(refusal.spent and refusal.spent.retry_after_s for refusal in refusals)
        if tick % 10 < 2:
            site.fronts[tick % 10].exchange()
    assert accepted == 50 * 150, "500 a second, and 1,000 may be"


def test_who_leaves_in_order_is_not_waited_for() -> None:
    site = Site(2)
    site.run(15, [2000, 2000])
    site.fronts[0].shares.leave(["acme"])
    site.fronts[1].exchange()
    assert site.fronts[1].shares.part("acme", LIMIT) == LIMIT


def test_a_process_that_knows_nothing_yet_gives_out_little() -> None:
    site = Site(1)
    assert site.fronts[0].shares.part("acme", LIMIT) == LIMIT / 10


@settings(max_examples=50)
@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=6), st.integers(1, 3_000))
def test_the_parts_are_the_limit(offered: list[int], limit: int) -> None:
    site = Site(len(offered))
    for _ in range(2):
        order = list(zip(site.fronts, offered, strict=True))
        random.Random(1).shuffle(order)
        for front, rate in order:
            front.shares.exchange({("acme", Lane.LIVE): rate})
    parts = [front.shares.part("acme", limit) for front in site.fronts]
    assert sum(parts) == pytest.approx(limit)
    if sum(offered) <= limit:
        assert all(part >= rate for part, rate in zip(parts, offered, strict=True))
