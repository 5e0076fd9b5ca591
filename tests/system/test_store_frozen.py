"""A store that stands still: what is in flight and the memory stay bounded, the process says so, and nothing is lost.

`WIDEROW_FROZEN_S=30` makes it stand still for as long as that (`make frozen`); a few seconds otherwise.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from servers.cassandra import Cassandra
from system.frozen import Sample, judge, watch
from system.victim import Victim
from widerow.config import Config, Store
from widerow.model.tenant import Tenant
from widerow.model.times import MINUTE, TimeSpan
from widerow.model.token import Role
from widerow.service import Service
from widerow.simulate.wire import Connection, Target, TransportError

FROZEN_S = float(os.environ.get("WIDEROW_FROZEN_S", "8"))
SENDERS = 32
PER_REQUEST = 20
NOTE = "n" * 2000
"""So that a request is large, and little work."""
REQUEST_BYTES = PER_REQUEST * (len(NOTE) + 100)
"""Rather too many."""
MAX_MIB = 1
"""Of the pipeline: less than all senders together can have under way."""
MOST_GROWTH_KIB = 64 << 10
JSON = "Content-Type: application/json\r\n"
SETTINGS = {
    "WIDEROW_CASSANDRA_TIMEOUT_S": "2",
    "WIDEROW_STORE_LEASE_S": "60",
    "WIDEROW_PIPELINE_MAX_IN_FLIGHT_MIB": str(MAX_MIB),
    "WIDEROW_PRESSURE_STALL_S": "4",
    "WIDEROW_PRESSURE_RECOVER_S": "2",
}


class Server(Victim):
    """`widerow serve` on Cassandra."""

    def __init__(self, folder: Path, url: str, token: str, operator: str) -> None:
        super().__init__(folder / "frozen", settings=SETTINGS)
        self.store_url, self.tokens = url, {"acme": token, "": operator}

    def command(self, *arguments: str) -> list[str]:
        return [*self.program, *arguments, "--store", self.store_url]

    def resident_kib(self) -> int:
        assert self._process is not None
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])

    def ready(self) -> tuple[int, str, list[str]]:
        """What it says of itself, and why."""
        with Connection(Target.of(self.url), {}) as connection:
            answer = connection.request("GET", "/health/ready")
        said = json.loads(answer.body)
        return answer.status, said["status"], said.get("reasons", [])

    def look(self) -> Sample:
        status, says, reasons = self.ready()
        assert (status == 200) == (says == "ready"), f"{status} {says}"
        return Sample(says, reasons, self.metric("widerow_pressure_pending_bytes"), self.resident_kib())

    def metric(self, name: str) -> float:
        with self.connection("") as connection:
            answer = connection.request("GET", "/metrics")
        found = [line for line in answer.body.decode().splitlines() if line.startswith(name)]
        assert found, f"{answer.status}: there is no {name}"
        return sum(float(line.rpartition(" ")[2]) for line in found)


class Sender(threading.Thread):
    """Sends one array after the other, each until it is acknowledged, and knows which were."""

    def __init__(self, server: Server, number: int, enough: threading.Event) -> None:
        super().__init__()
        self._server, self._device, self._enough = server, f"d{number}", enough
        self.acknowledged: list[int] = []
        self.statuses: set[int] = set()

    @property
    def device(self) -> str:
        return self._device

    def run(self) -> None:
        first_ms = time.time_ns() // 1_000_000 - 60_000
        k = 0
        while not self._enough.is_set():
            each = [(first_ms + n, {"x": n, "note": NOTE}) for n in range(k, k + PER_REQUEST)]
            reports = [{"device": self._device, "time": at, "values": values} for at, values in each]
            status = self._send(json.dumps(reports).encode())
            self.statuses.add(status)
            if status == 204:
                self.acknowledged += range(k, k + PER_REQUEST)
                k += PER_REQUEST
            self._enough.wait(1.0)

    def _send(self, body: bytes) -> int:
        try:
            with self._server.connection("acme") as connection:
                return connection.request("POST", "/v1/write", body, JSON).status
        except TransportError:
            return 0


def eventually(true: Callable[[], bool], within_s: float, what: str) -> None:
    deadline_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.1)


@pytest.mark.rest
def test_a_frozen_store_bounds_what_is_held_and_loses_nothing(cassandra_server: Cassandra, tmp_path: Path) -> None:
    url = cassandra_server.store_url(f"frozen_{uuid4().hex[:12]}")
    config = replace(Config(), store=Store(url=url))
    with Service.open(config, writes=False) as service:
        tenant = service.catalog.tenants.create(Tenant(name="acme"))
        token, _ = service.catalog.tokens.create(Role.ADMIN, tenant="acme")
        operator, _ = service.catalog.tokens.create(Role.OPERATOR)
    enough = threading.Event()
    with Server(tmp_path, url, token, operator) as server:
        server.start()
        senders = [Sender(server, number, enough) for number in range(SENDERS)]
        for sender in senders:
            sender.start()
        try:
            eventually(lambda: all(sender.acknowledged for sender in senders), 60, "not all are heard")
            eventually(lambda: server.ready() == (200, "ready", []), 30, "it is not ready in the first place")
            before_kib = server.look().resident_kib  # it knows whose the operator's token is, from now on
            cassandra_server.pause()
            try:
                samples = watch(server.look, FROZEN_S)
            finally:
                cassandra_server.resume()
            judge(samples, most=MAX_MIB << 20, one=REQUEST_BYTES)
            assert max(sample.held for sample in samples) > (MAX_MIB << 20) * 0.8, "so much was in flight"
            assert max(sample.resident_kib for sample in samples) - before_kib < MOST_GROWTH_KIB
            eventually(lambda: server.ready() == (200, "ready", []), 90, "it does not come back")
            counts = [len(sender.acknowledged) for sender in senders]
            eventually(
                lambda: all(len(s.acknowledged) > count for s, count in zip(senders, counts, strict=True)),
                60,
                "no more is taken",
            )
        finally:
            enough.set()
            for sender in senders:
                sender.join()
        assert server.metric('widerow_pressure_events_total{event="degraded"}') >= 1
        assert server.metric('widerow_pressure_events_total{event="recovered"}') >= 1
        assert set.union(*(sender.statuses for sender in senders)) <= {204, 429, 503}
        assert "Traceback" not in server.log()
    with Service.open(config, writes=False) as service:
        now_us = service.clock.now_us()
        span = TimeSpan(now_us - 60 * MINUTE, now_us + MINUTE)
        for sender in senders:
            points = service.queries.series(tenant, sender.device, metrics=["x"], span=span, limit=1_000_000).points
            lost = set(sender.acknowledged) - {int(x) for x in points.number.tolist()}
            assert not lost, f"{sender.device}: {len(lost)} acknowledged reports are gone"
