"""What a question about a fleet takes in memory is known, and refused, before it is taken."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.rollup_suite import NOW, TENANT, Site
from widerow.catalog.match import Match
from widerow.engine.rocksdb import RocksEngine
from widerow.model.batch import Report, Value
from widerow.model.errors import QueryLimit
from widerow.model.series import Reply
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, SECOND, ManualClock, TimeSpan
from widerow.query.budget import POINT_BYTES, Budget, QuerySettings
from widerow.query.fleet import FleetSources, ask, fleet_question
from widerow.query.stepped import Sources
from widerow.rollup.fleet import Stale

START = NOW // DAY * DAY - 3 * DAY
HOURS, METRICS = 8, 1000


@pytest.fixture(params=["rolled", "not rolled"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FleetSources]:
    """A device with so many metrics that memory is what counts; what is not Python's is the engine's, and bounded."""
    clock = ManualClock(NOW)
    engine = RocksEngine(tmp_path, clock=clock)
    site = Site(engine, clock)
    values: dict[str, Value] = {f"metric-{k}": k + 0.37 for k in range(METRICS)}
    site.write([Report("d", START + hour * HOUR, values, {}, NOW) for hour in range(HOURS)])
    clock.time_us += SECOND
    if request.param == "rolled":
        site.roll()
    sources = Sources(site.telemetry, site.rollups, site.roller.dirt, clock)

    def stale(tenant: Tenant) -> Stale:
        return site.fleet.stale(tenant, lambda: site.marks.of(tenant.name))

    yield FleetSources(sources, site.fleet.store, site.catalog.devices, stale)
    engine.close()


def asked(fleet: FleetSources, settings: QuerySettings, metrics: list[str] | None = None) -> tuple[Reply | str, int]:
    """The answer, or the limit that refused it; and the most memory that was taken on the way."""
    question = fleet_question(Match(), TimeSpan(START, START + HOURS * HOUR), step="1h", metrics=metrics)
    tracemalloc.start()
    try:
        answer: Reply | str = ask(fleet, TENANT, question, Budget(settings, TENANT))
    except QueryLimit as error:
        answer = error.limit
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return answer, peak


def test_a_question_is_refused_before_it_has_taken_its_memory(fleet: FleetSources) -> None:
    asked(fleet, QuerySettings())  # what is compiled and looked up once is there
    whole, takes = asked(fleet, QuerySettings())
    assert isinstance(whole, Reply)
    assert len(whole.series) == HOURS * METRICS
    refused, took = asked(fleet, QuerySettings(max_work_bytes=1 << 20))
    assert refused == "query.max_answer_mib"
    assert took < takes / 2, f"{took:,} of {takes:,} bytes"
    few, _ = asked(fleet, QuerySettings(max_work_bytes=1 << 20), ["metric-7"])
    assert isinstance(few, Reply)
    assert len(few.series) == HOURS


@pytest.mark.parametrize("fleet", ["rolled"], indirect=True)
def test_an_answer_that_would_be_too_large_is_not_built(fleet: FleetSources) -> None:
    exact = HOURS * METRICS * POINT_BYTES
    whole, takes = asked(fleet, QuerySettings(max_answer_bytes=exact))
    assert isinstance(whole, Reply)
    refused, took = asked(fleet, QuerySettings(max_answer_bytes=exact - 1))
    assert refused == "query.max_answer_mib"
    assert took < takes / 2, f"{took:,} of {takes:,} bytes"
