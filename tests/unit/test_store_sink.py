"""The store as the end of the pipeline: what a commit writes, and what it refuses to write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from widerow.config import Config, Store
from widerow.model.batch import Batch, Report, batch_of
from widerow.model.errors import NotTheWriter, Refusal, WiderowError
from widerow.model.lane import Lane
from widerow.model.tenant import Tenant
from widerow.model.times import HOUR, MS, TimeSpan
from widerow.pipeline.job import Job, Outcome
from widerow.pipeline.store_sink import StoreSink
from widerow.rollup.unit import Unit
from widerow.schema.tables import LAST_SEEN
from widerow.service import Service
from widerow.telemetry.store import Plan


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

    def commit(self, *times_us: int) -> WiderowError | None:
        told: list[WiderowError | None] = []
        batch = batch_of([report(at_us) for at_us in times_us])

        def settle(job: Job, refused: Sequence[Refusal], error: WiderowError | None) -> None:  # noqa: ARG001
            assert not refused
            told.append(error)

        job = Job(self.tenant, 100, lambda: pytest.fail("decoded"), _nobody, lane=Lane.BACKFILL, batch=batch)
        self.sink.commit([("acme", [job])], settle)
        (error,) = told
        return error

    def marked(self) -> set[Unit]:
        return set(self.service.pyramid.marks.units())

    def count(self) -> int:
        span = TimeSpan(0, self.service.clock.now_us() + 1)
        return sum(len(rows) for _, some in self.service.telemetry.read(self.tenant, "d", span) for rows in some)


def _nobody(_outcome: Outcome) -> None:
    pytest.fail("answered")


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
    service.telemetry.erase(tenant, device="d")
    service.telemetry._forget_last_seen("acme", "d")
    service.telemetry.written(plan)
    later = replace(batch, version_us=batch.version_us + service.clock.version_us())
    assert any(table is LAST_SEEN for table, _ in service.telemetry.plan(tenant, later).changes)


def while_planning(site: Committing, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Between the moment a commit looks whether it may write, and its write."""
    plan = site.service.telemetry.plan

    def planned(tenant: Tenant, batch: Batch) -> Plan:
        act()
        return plan(tenant, batch)

    monkeypatch.setattr(site.service.telemetry, "plan", planned)


def test_a_process_that_lost_the_lease_while_preparing_does_not_write(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, now = Committing(service), service.clock.now_us()

    def lost() -> None:
        raise NotTheWriter("the lease ran out")

    while_planning(site, monkeypatch, lambda: monkeypatch.setattr(site.sink, "_may_write", lost))
    error = site.commit(now)
    assert isinstance(error, NotTheWriter)
    assert site.count() == 0
    monkeypatch.undo()
    assert site.commit(now) is None
    assert site.marked()


def test_what_was_prepared_before_another_process_wrote_is_not_written(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have removed a mark that the reports need: they would never be rolled."""
    site, now = Committing(service), service.clock.now_us()
    terms = iter([1, 2])
    monkeypatch.setattr(site.sink, "_may_write", lambda: next(terms))
    error = site.commit(now)
    assert isinstance(error, NotTheWriter)
    assert site.count() == 0
    monkeypatch.undo()
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

    site.sink.commit([("acme", jobs)], settle)
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
