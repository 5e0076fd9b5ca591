"""A commit that gives way: what is planned and written in the middle of another relies on nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from widerow.catalog.series import Series
from widerow.config import Config, Store
from widerow.engine.rows import Rows
from widerow.model.batch import Report, batch_of
from widerow.model.errors import NotTheWriter, Refusal, StorageFull, WiderowError
from widerow.model.lane import Lane
from widerow.model.tenant import Limits, Tenant
from widerow.model.times import HOUR, MINUTE, MS, TimeSpan
from widerow.pipeline.job import Job, Outcome
from widerow.pipeline.store_sink import StoreSink
from widerow.rollup.unit import Unit
from widerow.schema.table import Table
from widerow.schema.tables import LAST_SEEN
from widerow.service import Service

NOTHING: Callable[[], None] = lambda: None  # noqa: E731


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service.open(Config(store=Store(url=f"rocksdb:{tmp_path}", reserve_mib=0))) as service:
        service.create_tenant(Tenant(name="acme"))
        yield service


def report(time_us: int) -> Report:
    return Report("d", time_us // MS * MS, {"x": 1.0}, {})


class Committing:
    """Commits reports of one device, and says what became of them."""

    def __init__(self, service: Service) -> None:
        sink = service.pipeline._sink
        assert isinstance(sink, StoreSink)
        self.service, self.sink = service, sink
        self.tenant = service.catalog.tenants.get("acme")

    def commit(self, *times_us: int, give_way: Callable[[], None] = NOTHING) -> WiderowError | None:
        told: list[WiderowError | None] = []
        batch = batch_of([report(at_us) for at_us in times_us])

        def settle(job: Job, refused: Sequence[Refusal], error: WiderowError | None) -> None:  # noqa: ARG001
            assert not refused
            told.append(error)

        job = Job(self.tenant, 100, lambda: pytest.fail("decoded"), _nobody, lane=Lane.BACKFILL, batch=batch)
        self.sink.commit([("acme", [job])], settle, give_way)
        (error,) = told
        return error

    def marked(self) -> set[Unit]:
        return set(self.service.pyramid.marks.units())

    def count(self) -> int:
        span = TimeSpan(0, self.service.clock.now_us() + 1)
        return sum(len(rows) for _, some in self.service.telemetry.read(self.tenant, "d", span) for rows in some)


def _nobody(_outcome: Outcome) -> None:
    pytest.fail("answered")


MOMENTS = [
    *("registered", "planned", "marked"),
    *("marks to be encoded", "reports to be encoded", "last seen to be encoded"),
    *("to be put", "to be synced", "to be answered"),
]
"""When a commit gives way."""


@pytest.mark.parametrize("step", range(1, len(MOMENTS) + 1), ids=MOMENTS)
def test_a_commit_within_a_commit(service: Service, step: int) -> None:
    site, now = Committing(service), service.clock.now_us()
    steps: list[int] = []

    def give_way() -> None:
        steps.append(len(steps) + 1)
        if steps[-1] == step:
            assert site.commit(now, now - 1_000_000) is None
            assert site.count() >= 2, "it is there at once"

    assert site.commit(now - MINUTE, now - 3 * HOUR, give_way=give_way) is None
    # Planned after the other one, a commit finds that the device was seen: then that is one table less.
    assert len(steps) == len(MOMENTS) - (step == 1)
    assert site.count() == 4
    assert {unit.start_us for unit in site.marked()} >= {(now - 3 * HOUR) // HOUR * HOUR, now // HOUR * HOUR}


def test_what_was_written_within_a_commit_that_fails_has_marks_and_is_found(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are of the same device, hour and bucket: what the one would have marked the other must not rely on."""
    site, now = Committing(service), service.clock.now_us() // HOUR * HOUR
    site.service.catalog.metrics.observe("acme", batch_of([report(now)]).cells, now)
    write = service.engine.write

    def give_way() -> None:
        if site.count() == 0:
            assert site.commit(now) is None

            def full(_changes: Sequence[tuple[Table, Rows]]) -> None:
                raise StorageFull("no room")

            monkeypatch.setattr(service.engine, "write", full)

    error = site.commit(now + 1000, give_way=give_way)
    monkeypatch.setattr(service.engine, "write", write)
    assert isinstance(error, StorageFull)
    assert site.count() == 1
    assert {unit.start_us for unit in site.marked()} == {now}
    assert sum(len(rows) for rows in service.engine.scan(LAST_SEEN, None)) == 1


def test_series_of_reports_that_were_written_within_a_commit_that_fails_are_known(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = service.catalog.tenants.update("acme", lambda tenant: replace(tenant, limits=Limits(series=9)))
    site, now = Committing(service), service.clock.now_us()
    write = service.engine.write

    def give_way() -> None:
        if site.count() == 0:
            assert site.commit(now, now - 1_000_000) is None

            def full(_changes: Sequence[tuple[Table, Rows]]) -> None:
                raise StorageFull("no room")

            monkeypatch.setattr(service.engine, "write", full)

    error = site.commit(now - MINUTE, give_way=give_way)
    monkeypatch.setattr(service.engine, "write", write)
    assert isinstance(error, StorageFull)
    assert service.catalog.series.count(limited) == 1
    assert Series(service.engine, service.clock).count(limited) == 1, "and after a restart"


def test_marks_are_relied_on_once_they_are_durable(service: Service) -> None:
    marks, now = service.pyramid.marks, service.clock.now_us() // HOUR * HOUR
    batch = batch_of([report(now), report(now + 1000)])
    first, second = marks.plan("acme", batch), marks.plan("acme", batch)
    assert [len(rows) for _, rows in first.changes] == [1]
    assert [len(rows) for _, rows in second.changes] == [1], "the first may fail"
    marks.settle(second, written=False)
    assert len(marks.plan("acme", batch).changes) == 1
    marks.settle(first, written=True)
    assert marks.plan("acme", batch).changes == []


def test_marks_that_are_settled_after_others_were_distrusted_are_not_relied_on(service: Service) -> None:
    marks, now = service.pyramid.marks, service.clock.now_us() // HOUR * HOUR
    batch = batch_of([report(now)])
    plan = marks.plan("acme", batch)
    marks.distrust()
    marks.settle(plan, written=True)
    assert len(marks.plan("acme", batch).changes) == 1


def test_a_device_that_was_erased_in_the_middle_of_a_commit_is_seen_again(service: Service) -> None:
    tenant, now = service.catalog.tenants.get("acme"), service.clock.now_us()
    batch = batch_of([report(now)])
    plan = service.telemetry.plan(tenant, batch)
    service.engine.write(plan.changes)
    service.telemetry._forget_last_seen("acme", "d")
    service.telemetry.written(plan)
    assert any(table is LAST_SEEN for table, _ in service.telemetry.plan(tenant, batch).changes)


def test_who_may_no_longer_write_after_giving_way_does_not(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    site, now = Committing(service), service.clock.now_us()

    def lost() -> None:
        raise NotTheWriter("the lease ran out")

    error = site.commit(now, give_way=lambda: monkeypatch.setattr(site.sink, "_may_write", lost))
    assert isinstance(error, NotTheWriter)
    assert site.count() == 0
    monkeypatch.setattr(site.sink, "_may_write", NOTHING)
    assert site.commit(now) is None
    assert site.marked()


def test_what_was_prepared_before_another_process_wrote_is_not_written(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have removed a mark that the reports need: they would never be rolled."""
    site, now = Committing(service), service.clock.now_us()
    monkeypatch.setattr(site.sink, "_may_write", lambda: 1)
    error = site.commit(now, give_way=lambda: monkeypatch.setattr(site.sink, "_may_write", lambda: 2))
    assert isinstance(error, NotTheWriter)
    assert site.count() == 0
    assert site.commit(now) is None
    assert site.count() == 1
    assert site.marked()


def test_a_job_that_cannot_be_answered_does_not_keep_others_from_it(service: Service) -> None:
    site, now = Committing(service), service.clock.now_us()
    batch = batch_of([report(now)])
    jobs = [Job(site.tenant, 100, lambda: pytest.fail("decoded"), _nobody, batch=batch) for _ in range(3)]
    told: list[Job] = []

    def settle(job: Job, refused: Sequence[Refusal], error: WiderowError | None) -> None:  # noqa: ARG001
        told.append(job)
        if len(told) == 1:
            raise ZeroDivisionError

    site.sink.commit([("acme", jobs)], settle, NOTHING)
    assert told == jobs


def test_what_was_not_planned_whole_is_not_written(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without their marks would never be rolled."""
    site, now = Committing(service), service.clock.now_us()

    def fails(*_: object) -> object:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(service.pyramid, "plan", fails)
        assert site.commit(now) is not None
    assert site.count() == 0
    assert site.commit(now) is None


def test_live_reports_that_never_pause_do_not_hold_backlog_up(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of backlog gives way to one commit of theirs, however many wait by then."""
    pipeline = service.pipeline
    commits: list[object] = []
    monkeypatch.setattr(pipeline._batches, "take_live", lambda: [("acme", [])] if len(commits) < 5 else [])
    monkeypatch.setattr(pipeline, "_commit", lambda work, _give_way: commits.append(work))
    pipeline._give_way()
    assert len(commits) == 1
