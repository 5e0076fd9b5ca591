"""Live reports and backlog on the one path: whose turn it is, what each may spend, and how much may wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import Queue

import pytest

from unit.one_path import send, values
from widerow.admit.controls import What
from widerow.config import Backfill, Config, Store
from widerow.engine.rows import Rows
from widerow.model.errors import Overloaded, QuotaExceeded, TenantBusy, Unavailable
from widerow.model.tenant import Limits, Tenant
from widerow.model.times import HOUR, MINUTE, SECOND, TimeSpan
from widerow.pipeline.job import Job, Lane, Outcome, Settle
from widerow.schema.table import Table
from widerow.service import Service


def repeat(act: Callable[[], None], times: int) -> None:
    for _ in range(times):
        act()


def lane_figures(service: Service) -> dict[str, tuple[int, int]]:
    return {lane.value: (held.items, held.bytes) for lane, held in service.pipeline.pressure.look().lanes.items()}


def test_backlog_of_any_size_is_stored_and_answered_once(service: Service) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    old = service.clock.now_us() - 90 * 60 * SECOND
    small = [f"m,device=a x={i} {old + i}" for i in range(20)]
    lines = [f"m,device=d{i % 7} x={i} {old + i}" for i in range(20_000)]
    outcomes = send(service, tenant, *small, "\n".join([*lines, "broken"]))
    assert [o.accepted for o in outcomes] == [1] * 20 + [len(lines)]
    assert [(r.code, list(r.positions)) for r in outcomes[-1].refusals] == [("device-missing", [len(lines)])]
    assert sorted(x for k in range(7) for x in values(service, tenant, f"d{k}")) == [float(i) for i in range(20_000)]
    assert lane_figures(service) == {"live": (0, 0), "backfill": (0, 0)}


def test_old_reports_take_the_lane_of_backlog_and_live_ones_beside_them_do_not(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    now = service.clock.now_us()
    seen: list[tuple[Lane, int]] = []
    real = service.pipeline._sink.commit

    def watched(work: Sequence[tuple[str, list[Job]]], settle: Settle) -> None:
        seen.extend((job.lane, len(job.batch)) for _, jobs in work for job in jobs if job.batch is not None)
        real(work, settle)

    monkeypatch.setattr(service.pipeline._sink, "commit", watched)
    old = [f"m,device=b x={i} {now - HOUR - 1 - i}" for i in range(3)]
    (mixed,) = send(service, tenant, "\n".join([old[0], f"m,device=a x=1 {now}", *old[1:], "broken"]))
    assert (mixed.accepted, [list(refusal.positions) for refusal in mixed.refusals]) == (4, [[4]])
    assert sorted(seen, key=str) == [(Lane.BACKFILL, 3), (Lane.LIVE, 1)]
    seen.clear()
    send(service, tenant, old[0])
    send(service, tenant, f"m,device=a x=1 {now}\nm,device=a x=1 {now - HOUR + MINUTE}")
    assert seen == [(Lane.BACKFILL, 1), (Lane.LIVE, 2)]


def test_live_reports_beside_old_ones_do_not_spend_what_backlog_may_send_nor_the_other_way_round(service: Service) -> None:
    limits = Limits(writes_per_s=1, writes_burst=4)
    tenant = service.catalog.tenants.create(Tenant(name="acme", limits=limits))
    now = service.clock.now_us()
    old = [f"m,device=b x={i} {now - 2 * HOUR - i}" for i in range(8)]
    live = [f"m,device=a x={i} {now - i}" for i in range(6)]
    (spent,) = send(service, tenant, "\n".join(old[:5]))
    assert spent.accepted == 4
    (mixed,) = send(service, tenant, "\n".join([live[0], *old[5:], *live[1:3]]))
    assert mixed.accepted == 3, "the live ones"
    assert [list(refusal.positions) for refusal in mixed.refusals] == [[1, 2, 3]]
    (rest,) = send(service, tenant, "\n".join([old[0], *live[3:]]))
    assert (rest.accepted, rest.refused) == (1, 3)
    assert values(service, tenant, "a") == [3.0, 2.0, 1.0, 0.0]


@pytest.mark.parametrize("lane", Lane)
def test_an_old_report_does_not_open_the_budget_of_backlog_to_live_ones_beside_it(service: Service, lane: Lane) -> None:
    limits = Limits(writes_per_s=1, writes_burst=4)
    tenant = service.catalog.tenants.create(Tenant(name="acme", limits=limits))
    now = service.clock.now_us()
    old = [f"m,device=b x={i} {now - 2 * HOUR - i}" for i in range(8)]
    live = [f"m,device=a x={i} {now - i}" for i in range(12)]
    (first,) = send(service, tenant, "\n".join([old[0], *live[:4]]), lane=lane, whole=True)
    assert (first.accepted, first.error) == (5, None)
    (refused,) = send(service, tenant, "\n".join([old[1], *live[4:8]]), lane=lane, whole=True)
    assert isinstance(refused.error, QuotaExceeded)
    (rest,) = send(service, tenant, "\n".join(old[1:4]), lane=lane, whole=True)
    assert (rest.accepted, rest.error) == (3, None), "nothing of backlog was spent by what was refused"
    (parts,) = send(service, tenant, "\n".join([old[4], *live[4:8]]), lane=lane)
    assert (parts.accepted, parts.refused) == (0, 5)
    assert values(service, tenant, "a") == [3.0, 2.0, 1.0, 0.0]


def test_what_is_recorded_for_proposed_limits_is_what_came_as_far_as_the_tenants_and_by_its_lane(service: Service) -> None:
    limits = Limits(writes_per_s=1, writes_burst=20)
    tenant = service.catalog.tenants.create(Tenant(name="acme", limits=limits))
    service.controls.set("acme", "mad", What.PROFILE_RATE, 0.001, "test")
    now = service.clock.now_us()
    mad = [f"m,device=mad x={i} {now - i}" for i in range(40)]
    well = [f"m,device=well x={i} {now - i}" for i in range(20)]
    old = [f"m,device=well x={i} {now - 2 * HOUR - i}" for i in range(7)]
    assert send(service, tenant, "\n".join([*mad, *well[:10]]), whole=True)[0].accepted == 20
    assert isinstance(send(service, tenant, "\n".join([*mad, *well, *old]), whole=True)[0].error, QuotaExceeded)
    assert send(service, tenant, "\n".join([*mad, *well[:5], *old, "broken"]))[0].accepted == 7
    service.usage.flush()
    recorded = list(service.recorded.seconds("acme", TimeSpan(now - HOUR, now + HOUR)))
    offered = sum(int(hour.live.sum()) for hour in recorded), sum(int(hour.backlog.sum()) for hour in recorded)
    assert offered == (10 + 10 + 20 + 5, 7 + 7)


def test_what_passed_its_limits_and_could_not_be_stored_is_not_asked_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme", limits=Limits(writes_per_s=1, writes_burst=2)))
    now = service.clock.now_us()
    answered: Queue[Outcome] = Queue()

    def job(*, admitted: bool) -> Job:
        body = "\n".join(f"m,device=a x={i} {now - i}" for i in range(3)).encode()
        decode = service.bodies.lines(body, encoding="", precision="us", max_bytes=1 << 30)
        return Job(tenant, len(body), decode, answered.put, admitted=admitted)

    def fails(_: object) -> None:
        raise Unavailable("no")

    with monkeypatch.context() as patch:
        patch.setattr(service.engine, "write", fails)
        first = job(admitted=False)
        service.pipeline.submit(first)
        assert isinstance(answered.get(timeout=20).error, Unavailable)
    assert (first.admitted, first.batch and first.batch.position.tolist()) == (True, [0, 1]), "it says what passed"
    service.pipeline.submit(job(admitted=True))
    again = answered.get(timeout=20)
    assert (again.accepted, again.refused) == (3, 0)


def test_backlog_beyond_its_bound_is_refused_and_live_reports_are_not(tmp_path: Path) -> None:
    config = Config(store=Store(url=f"rocksdb:{tmp_path}", reserve_mib=0), backfill=Backfill(max_in_flight_mib=1))
    with Service.open(config) as service:
        tenant = service.catalog.tenants.create(Tenant(name="acme"))
        now = service.clock.now_us()
        held, may_go_on = threading.Event(), threading.Event()
        real = service.engine.write

        def slow(changes: Sequence[tuple[Table, Rows]]) -> None:
            held.set()
            assert may_go_on.wait(30)
            real(changes)

        service.engine.write = slow  # type: ignore[method-assign]
        outcomes: list[Outcome] = []

        def submit(lines: list[str], lane: Lane) -> None:
            body = "\n".join(lines).encode()
            decode = service.bodies.lines(body, encoding="", precision="us", max_bytes=1 << 30)
            service.pipeline.submit(Job(tenant, len(body), decode, outcomes.append, lane=lane))

        submit([f"m,device=a x=1 {now}"], Lane.LIVE)
        assert held.wait(10)
        old = [f"m,device=b x={i} {now - 2 * HOUR + i}" for i in range(12_000)]
        submit(old, Lane.BACKFILL)
        submit([line.replace("=b", "=c") for line in old[:2000]], Lane.LIVE)  # nobody knows that it is backlog
        submit_more = partial(submit, [line.replace("=b", "=e") for line in old], Lane.BACKFILL)
        with pytest.raises((Overloaded, TenantBusy)) as refused:
            repeat(submit_more, 9)
        assert refused.value.retry_after_s >= 0.5
        submit([f"m,device=a x=2 {now + 1}"], Lane.LIVE)
        may_go_on.set()
        service.pipeline.close()
        assert not [o.error for o in outcomes if o.error is not None]
        assert sorted(o.accepted for o in outcomes)[:3] == [1, 1, 2000]
        assert lane_figures(service) == {"live": (0, 0), "backfill": (0, 0)}
