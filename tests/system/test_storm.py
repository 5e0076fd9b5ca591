"""Devices that all come back at once: their backlog is complete in the end, and live reports go on meanwhile.

How little the live ones notice is measured by `make storm`; here only that they are not held up for seconds.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from system.conftest import now_ms
from widerow.config import Backfill, Config, Rollup, Store
from widerow.model.tenant import Tenant
from widerow.model.times import HOUR, MINUTE, SECOND, TimeSpan
from widerow.model.token import Role
from widerow.server.run import running
from widerow.service import Service
from widerow.simulate.storm import Backlog, send
from widerow.simulate.wire import Connection, Target

JSON = "Content-Type: application/json\r\n"
DEVICES = 50


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    config = Config(
        store=Store(url=f"rocksdb:{tmp_path}", reserve_mib=0),
        backfill=Backfill(max_in_flight_mib=1),  # so small that most are sent away at first
        rollup=Rollup(settle_s=1),
    )
    with Service.open(config, rolls=True) as service:
        yield service


@pytest.mark.rest
def test_a_reconnect_storm_is_taken_in_whole_while_live_reports_go_on(service: Service) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    token, _ = service.catalog.tokens.create(Role.ADMIN, tenant="acme")
    stop_us = service.clock.now_us() - HOUR - MINUTE
    backlog = Backlog(devices=DEVICES, stop_us=stop_us, interval_us=300 * SECOND, per_array=150)
    enough = threading.Event()
    took_s: list[float] = []
    with running(service) as url:
        live = threading.Thread(target=_send_live, args=(url, token, enough, took_s))
        live.start()
        try:
            report = send(url, token, backlog, at_once=100)
        finally:
            enough.set()
            live.join()
        assert report.unexpected == []
        assert report.refusals, "the lane was never full: this tests nothing"
        assert (report.devices, report.reports) == (DEVICES, DEVICES * backlog.reports)
        assert len(took_s) >= 5
        assert max(took_s) < 10, "live reports wait for their own kind, and for one piece of backlog"
        _await_rolled(service)
        with Connection(Target.of(url), {"Authorization": f"Bearer {token}"}) as connection:
            found = _verified(connection)
    assert found["wrong"] == 0
    assert found["checked"] > DEVICES * 24
    for device in range(DEVICES):
        span = TimeSpan(backlog.time_us(0), stop_us + 1)
        points = service.queries.series(tenant, backlog.name(device), metrics=["n"], span=span, limit=10_000).points
        assert sorted(points.number.tolist()) == list(range(backlog.reports))
    standing = service.pipeline.pressure.look()
    assert (standing.bytes, standing.healthy) == (0, True)


def _send_live(url: str, token: str, enough: threading.Event, took_s: list[float]) -> None:
    with Connection(Target.of(url), {"Authorization": f"Bearer {token}"}) as connection:
        while not enough.is_set():
            body = json.dumps([{"device": f"live-{i}", "time": now_ms(), "values": {"x": i}} for i in range(50)]).encode()
            began_s = time.monotonic()
            assert connection.request("POST", "/v1/write", body, JSON).status == 204
            took_s.append(time.monotonic() - began_s)
            enough.wait(0.02)


def _await_rolled(service: Service) -> None:
    """Until the hours of the backlog are rolled; those of today's live reports are not over."""
    deadline_s = time.monotonic() + 60
    while any(lag.behind_us for lag in service.pyramid.guard.look() if lag.level == "hour"):
        assert time.monotonic() < deadline_s, service.pyramid.guard.look()
        time.sleep(0.2)


def _verified(connection: Connection) -> dict[str, int]:
    form: dict[str, object] = {"start": "-2d", "end": "now"}
    sums = {"wrong": 0, "checked": 0}
    while True:
        answer = connection.request("POST", "/v1/admin/verify", json.dumps(form).encode(), JSON)
        assert answer.status == 200, answer.body
        part = json.loads(answer.body)
        sums["wrong"] += part["wrong"]
        sums["checked"] += sum(part["checked"].values())
        if part["next"] is None:
            return sums
        form["after"] = part["next"]
