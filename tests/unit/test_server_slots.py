"""Tenants that ask at the same time, over HTTP: one that asks much waits for itself, and is told why it is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

import httpx
import pytest

from widerow.config import Config, Query, Store
from widerow.model.tenant import Limits, Tenant
from widerow.rollup.pyramid import Pyramid
from widerow.rollup.roll import Rolled, Roller
from widerow.rollup.rolling import RollingSettings
from widerow.rollup.unit import Unit
from widerow.server.inside import InsideTransport
from widerow.service import Service
from widerow.telemetry.store import Telemetry

CONFIG = Config(store=Store(url="memory:"), query=Query(at_once=4, long_at_once=2, max_waiting=4))
DEVICES = 300
"""More than are read at once."""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service.open(CONFIG) as service:
        for tenant in ("noisy", "quiet"):
            service.create_tenant(Tenant(name=tenant))
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url="http://inside", transport=InsideTransport(service), timeout=30) as client:
        now_ms = time.time_ns() // 1_000_000
        for tenant in ("noisy", "quiet"):
            body = [
                {"device": f"d{d}", "time": now_ms - 1000 * t, "values": {"n": t}} for d in range(DEVICES) for t in range(2)
            ]
            assert client.post("/v1/write", params={"tenant": tenant}, json=body).status_code == 204
        yield client


class Gate:
    """Holds back what a tenant reads, as a slow store would, until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tenant: str) -> None:
        self.opened, self.reached = threading.Event(), threading.Semaphore(0)
        real = Telemetry.read_many

        def read_many(telemetry: Telemetry, of: Tenant, *args: Any, **options: Any) -> Any:
            if of.name == tenant and not self.opened.is_set():
                self.reached.release()
                self.opened.wait(20)
            return real(telemetry, of, *args, **options)

        monkeypatch.setattr(Telemetry, "read_many", read_many)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """However a test ends, nothing of it is left behind in the service that all of them share."""
        self.opened.set()


def heavy(client: httpx.Client, tenant: str = "noisy") -> httpx.Response:
    return client.get("/v1/fleet/series", params={"tenant": tenant, "start": "-10m", "step": "1m"})


def light(client: httpx.Client, tenant: str) -> httpx.Response:
    return client.get("/v1/devices/d1/latest", params={"tenant": tenant})


def test_a_tenant_that_fills_its_line_is_refused_alone(
    service: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, "noisy")
    with ThreadPoolExecutor(24) as pool, gate:
        asked = [pool.submit(heavy, client) for _ in range(24)]  # more than are begun, and wait
        refused = next(as_completed(asked, timeout=14)).result()
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "query-busy"
        assert "query.max_waiting" in refused.json()["error"]["message"]
        assert int(refused.headers["retry-after"]) >= 1
        gate.opened.set()
        answers = [future.result() for future in asked]
        assert light(client, "quiet").status_code == 200
    assert {answer.status_code for answer in answers} == {200, 429}
    assert len({answer.content for answer in answers if answer.status_code == 200}) == 1
    assert service.slots.standing() == {}


def test_a_short_question_is_answered_while_long_ones_have_all_their_places(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, "noisy")
    with ThreadPoolExecutor(16) as pool, gate:
        asked = [pool.submit(heavy, client) for _ in range(4)]
        assert gate.reached.acquire(timeout=10)
        assert light(client, "quiet").status_code == 200
        assert light(client, "noisy").status_code == 200
        assert heavy(client, "quiet").status_code == 200, "a tenant has half of the long places"
        gate.opened.set()
        assert all(future.result().status_code == 200 for future in asked)


def test_a_question_that_waits_too_long_is_refused(
    service: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.slots, "settings", replace(service.slots.settings, max_wait_s=0.1))
    gate = Gate(monkeypatch, "noisy")
    with ThreadPoolExecutor(2) as pool, gate:
        first = pool.submit(heavy, client)
        assert gate.reached.acquire(timeout=10)
        refused = heavy(client)
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "query-busy"
        assert "query.max_wait_s" in refused.json()["error"]["message"]
        assert int(refused.headers["retry-after"]) >= 1
        gate.opened.set()
        assert first.result().status_code == 200
    assert service.slots.standing() == {}


def test_questions_that_wait_go_before_windows_that_are_to_be_rolled(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as much rolled beside them as there was, 1 of 20 questions about a fleet was answered in time."""
    rolled, roll = threading.Event(), Roller.roll

    def seen(roller: Roller, tenant: Tenant, *units: Unit) -> Rolled:
        rolled.set()
        return roll(roller, tenant, *units)

    monkeypatch.setattr(Roller, "roll", seen)
    monkeypatch.setattr(Pyramid, "start", lambda _: None)
    with (
        Service.open(CONFIG, rolls=True) as service,
        httpx.Client(base_url="http://inside", transport=InsideTransport(service), timeout=30) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        service.create_tenant(Tenant(name="noisy"))
        rolling, hours_ago = service.pyramid._rolling, time.time_ns() // 1_000_000 - 5 * 3_600_000
        assert rolling is not None
        rolling._settings = RollingSettings(settle_us=0)
        old = [{"device": f"d{d}", "time": hours_ago, "values": {"n": 1}} for d in range(DEVICES)]
        assert client.post("/v1/write", params={"tenant": "noisy"}, json=old).status_code == 204
        with Gate(monkeypatch, "noisy") as gate:
            asked = [pool.submit(heavy, client) for _ in range(4)]
            assert gate.reached.acquire(timeout=10)
            due = pool.submit(rolling.roll_due)
            assert not rolled.wait(0.2), "questions wait"
            gate.opened.set()
            assert [future.result().status_code for future in asked] == [200] * 4
            assert due.result() >= 1
            assert rolled.is_set()


def test_what_is_worked_on_is_given_up_when_the_server_stops(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, "noisy")
    transport = InsideTransport(service)
    client = httpx.Client(base_url="http://inside", transport=transport, timeout=30)
    with ThreadPoolExecutor(1) as pool, gate:
        asked = pool.submit(heavy, client)
        assert gate.reached.acquire(timeout=10)
        began = time.monotonic()
        client.close()
        with suppress(httpx.ReadError):
            assert asked.result().status_code == 503
        assert time.monotonic() - began < 5
        gate.opened.set()
    deadline = time.monotonic() + 10
    while service.slots.standing() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert service.slots.standing() == {}


def test_what_questions_read_is_limited_for_each_tenant(
    service: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants = service.catalog.tenants
    tenants.update("noisy", lambda tenant: replace(tenant, limits=Limits(query_cost_per_s=10, query_cost_burst=50)))
    try:
        assert heavy(client).status_code == 200  # reads more than there is, and is answered
        refused = light(client, "noisy")
        assert refused.status_code == 429
        error = refused.json()["error"]
        assert (error["code"], error["limit"], error["allowed"]) == ("quota-exceeded", "query_cost_per_s", 10)
        assert error["seen"] > 10
        assert int(refused.headers["retry-after"]) == -(-error["retry_after_s"] // 1) > 10
        with monkeypatch.context() as patch:
            patch.setattr(service.slots, "ask", None)
            assert light(client, "noisy").status_code == 429, "to be told that, nobody waits for a place"
        assert heavy(client, "quiet").status_code == 200
        text = client.get("/metrics").text
        assert 'widerow_query_refused_total{code="quota-exceeded",tenant="noisy"} 2.0' in text
        assert 'widerow_query_running{tenant=""} 1.0' in text  # the operator's own question
    finally:
        tenants.update("noisy", lambda tenant: replace(tenant, limits=Limits()))
    assert light(client, "noisy").status_code == 200
