"""A question that is too large is refused, with the limit's name, its value and what to do; never cut."""

from __future__ import annotations

import pytest

from contract.rollup_suite import NOW, TENANT, Site, reports_of
from widerow.catalog.match import Match
from widerow.engine.memory import MemoryEngine
from widerow.model.errors import QueryLimit
from widerow.model.tenant import Limits, Tenant
from widerow.model.times import DAY, HOUR, MINUTE, MS, ManualClock, TimeSpan
from widerow.query import run
from widerow.query.budget import POINT_BYTES, Budget, QuerySettings
from widerow.query.fleet import FleetSources, fleet_question
from widerow.query.fleet import ask as ask_fleet
from widerow.query.question import question_of
from widerow.query.stepped import Sources
from widerow.schema.shards import shard_of

START = NOW - NOW % HOUR - 2 * HOUR
SPAN = TimeSpan(START, START + 2 * HOUR)


@pytest.fixture(scope="module")
def sources() -> Sources:
    clock = ManualClock(NOW)
    site = Site(MemoryEngine(clock, chunk_rows=10), clock)
    site.write(reports_of([("a", START + i * MINUTE, "temp", float(i)) for i in range(120)], NOW))
    return Sources(site.telemetry, site.rollups, site.roller.dirt, clock)


def ask(sources: Sources, budget: Budget, span: TimeSpan = SPAN, step: str = "1m", fill: str = "none") -> int:
    question = question_of(span, step=step, aggregates=["avg"], fill=fill)
    return len(run.of_device(sources, TENANT, "a", question, budget).series)


def refused(limit: str, allowed: float, error: QueryLimit) -> None:
    assert (error.code, error.limit, error.allowed) == ("query-limit", limit, allowed)
    assert error.seen > allowed
    assert limit in str(error)
    assert "coarser step" in str(error)


def test_rows_are_counted_while_they_are_read(sources: Sources) -> None:
    assert ask(sources, Budget(QuerySettings(max_rows=120), TENANT)) == 120
    with pytest.raises(QueryLimit) as error:
        ask(sources, Budget(QuerySettings(max_rows=119), TENANT))
    refused("query.max_rows", 119, error.value)


def test_nobody_reads_on_beyond_the_limit(sources: Sources) -> None:
    budget = Budget(QuerySettings(max_rows=25), TENANT)
    with pytest.raises(QueryLimit):
        ask(sources, budget)
    assert budget.read == 30, "one piece too many, though all 120 are of one stretch"


def test_nobody_reads_on_beyond_the_limit_in_a_fleets_hours() -> None:
    clock = ManualClock(NOW)
    site = Site(MemoryEngine(clock, chunk_rows=10), clock)
    names = ["a", "b"]
    assert shard_of("a") != shard_of("b")
    hours = TimeSpan(START - 48 * HOUR, START)
    times = range(hours.start_us, hours.stop_us, HOUR)
    site.write(reports_of([(name, time_us, "temp", 1.0) for name in names for time_us in times], NOW))
    clock.time_us += HOUR
    site.roll()
    known = Sources(site.telemetry, site.rollups, site.roller.dirt, clock)
    stale_of = lambda tenant: site.fleet.stale(tenant, lambda: site.marks.of(tenant.name))  # noqa: E731
    fleet = FleetSources(known, site.fleet.store, site.catalog.devices, stale_of)

    def check(max_rows: int, read: int) -> None:
        budget = Budget(QuerySettings(max_rows=max_rows), TENANT)
        with pytest.raises(QueryLimit):
            ask_fleet(fleet, TENANT, fleet_question(Match(), hours, step="1h"), budget)
        assert budget.read == read

    check(25, 30)  # of 48 hours
    site.write(reports_of([("a", time_us, "temp", 2.0) for time_us in times], NOW + MS))
    check(48 + 25, 48 + 30)  # and of 48 of the shards that are not stale


def test_rows_of_rollups_are_estimated_before_anything_is_read(sources: Sources) -> None:
    budget = Budget(QuerySettings(max_rows=1000), TENANT)
    with pytest.raises(QueryLimit, match="may read") as error:
        ask(sources, budget, TimeSpan(START - 60 * DAY, START), "1h")
    refused("query.max_rows", 1000, error.value)
    assert budget.read == 0


def test_time_is_looked_at_between_reads(sources: Sources) -> None:
    now = iter([0.0, 1.0, *[31.0] * 10])
    with pytest.raises(QueryLimit) as error:
        ask(sources, Budget(QuerySettings(timeout_s=30), TENANT, lambda: next(now)))
    refused("query.timeout_s", 30, error.value)


def test_what_was_read_is_counted_also_if_there_is_no_answer(sources: Sources) -> None:
    now = iter([0.0, 1.0, 1.0, *[31.0] * 10])
    budget = Budget(QuerySettings(timeout_s=30), TENANT, lambda: next(now))
    with pytest.raises(QueryLimit):
        ask(sources, budget)
    assert budget.read == 20


def test_the_answer_has_a_size(sources: Sources) -> None:
    assert ask(sources, Budget(QuerySettings(max_answer_bytes=120 * POINT_BYTES), TENANT)) == 120
    with pytest.raises(QueryLimit):
        ask(sources, Budget(QuerySettings(max_answer_bytes=119 * POINT_BYTES), TENANT))
    small = QuerySettings(max_answer_bytes=200 * POINT_BYTES)
    with pytest.raises(QueryLimit, match=r"query\.max_answer_mib"):
        ask(sources, Budget(small, TENANT), TimeSpan(START - 2 * HOUR, START + 2 * HOUR), fill="null")


def test_a_tenant_may_have_limits_of_its_own(sources: Sources) -> None:
    tenant = Tenant(name="acme", limits=Limits(query_rows=100, query_seconds=2))
    with pytest.raises(QueryLimit) as error:
        ask(sources, Budget(QuerySettings(), tenant))
    refused("limits.query_rows", 100, error.value)
    now = iter([0.0, *[3.0] * 10])
    with pytest.raises(QueryLimit) as late:
        ask(sources, Budget(QuerySettings(), tenant, lambda: next(now)))
    refused("limits.query_seconds", 2, late.value)
