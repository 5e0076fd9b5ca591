"""Each of the seven built-in alerts fires under a fault, and is resolved when the fault is over: in a served process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from system.conftest import config_at
from widerow.alerts.builtin import UNITS
from widerow.config import Alerts, Hot
from widerow.model.errors import StoreUnavailable
from widerow.model.tenant import Limits, Tenant
from widerow.model.token import Role
from widerow.server.run import running
from widerow.service import Service

pytestmark = pytest.mark.rest

QUICK = Alerts(every_s=1, window_s=2, for_s=1, baseline_s=4, batch_size=10, batch_from_per_s=1)
HOT = Hot(interval_s=1, reports_per_s=5, least_per_s=1, share_percent=100, cool_intervals=1)
WITHIN_S = 60.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service.open(replace(config_at(tmp_path), alerts=QUICK, hot=HOT), rolls=True) as service:
        service.catalog.tenants.create(Tenant(name="acme"))
        service.catalog.tenants.create(Tenant(name="small", limits=Limits(writes_per_s=1)))
        yield service


class Fleet:
    """Sends without a pause: large batches of many devices, or, while it is `ill`, single reports of one, and too many."""

    def __init__(self, url: str, tokens: dict[str, str]) -> None:
        self.ill = threading.Event()
        self._stop, self._url, self._tokens = threading.Event(), url, tokens
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=30) as client:
            for number in count():
                if self._stop.is_set():
                    return
                if self.ill.is_set():
                    self._send(client, "acme", ["mad"] * 4)
                    self._send(client, "small", ["one", "two", "three"])
                else:
                    self._send(client, "acme", [f"press-{(number * 50 + i) % 5000}" for i in range(50)])

    def _send(self, client: httpx.Client, tenant: str, devices: list[str]) -> None:
        now_ms = time.time_ns() // 1_000_000
        reports = [{"device": device, "time": now_ms - i, "values": {"a": 1.0}} for i, device in enumerate(devices)]
        client.post("/v1/write", json=reports, headers={"Authorization": f"Bearer {self._tokens[tenant]}"})


class Fault:
    """While it is on, writes are slow, every fifth fails, and compactions pile up."""

    def __init__(self, service: Service, fleet: Fleet, patch: pytest.MonkeyPatch) -> None:
        self._fleet, self._write, self._pending, self._calls = fleet, service.engine.write, count(5), count()
        patch.setattr(service.engine, "write", self._slow)
        patch.setattr(service.engine, "pending_compactions", lambda: next(self._pending) if fleet.ill.is_set() else 0)

    def _slow(self, changes: Any) -> None:
        if self._fleet.ill.is_set() and threading.current_thread().name.startswith("commit"):
            time.sleep(0.08)
            if next(self._calls) % 5 == 0:
                raise StoreUnavailable("the fault")
        self._write(changes)


def test_each_of_the_seven_fires_under_a_fault_and_is_resolved_after_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {tenant: service.catalog.tokens.create(Role.WRITE, tenant=tenant)[0] for tenant in ("acme", "small")}
    operator = {"Authorization": f"Bearer {service.catalog.tokens.create(Role.OPERATOR)[0]}"}
    with running(service) as url, Fleet(url, tokens) as fleet, httpx.Client(base_url=url, headers=operator) as client:
        Fault(service, fleet, monkeypatch)

        def names(state: str) -> set[str]:
            return {alert["name"] for alert in client.get("/v1/alerts", params={"state": state}).json()["alerts"]}

        time.sleep(QUICK.baseline_s + QUICK.window_s)
        fleet.ill.set()
        until(lambda: names("firing") >= set(UNITS), lambda: f"{names('firing')} fire")
        fleet.ill.clear()
        until(lambda: names("resolved") >= set(UNITS), lambda: f"{names('resolved')} are resolved")
        events = client.get("/v1/alerts/history", params={"limit": 1000}).json()["events"]
        for name in UNITS:
            states = [event["state"] for event in reversed(events) if event["name"] == name]
            assert states[:2] == ["firing", "resolved"], name


def until(holds: Callable[[], Any], said: Callable[[], str]) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline_s, said()
        time.sleep(0.2)
