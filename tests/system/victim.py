"""The server that is mistreated: `widerow serve` as a process of its own, started on the same store again and again.

Tenants and tokens are made once, through the store's own socket, and are themselves part of what must not be lost.
Rule: only the process that was started here is ever signalled, by its id.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pyarrow as pa

from awake import Running
from system.ledger import Cells
from widerow.server.call import NEXT_HEADER
from widerow.server.sockets import SOCKET, reachable
from widerow.simulate.wire import Connection, Response, Target

TENANTS: Mapping[str, Mapping[str, Any]] = {
    "acme": {"attribute_tags": ["site"]},
    "umbra": {"attribute_tags": ["site"], "retention": {"raw": "7d"}},
    "lund": {"attribute_tags": ["site"]},
}
"""One keeps its data for another time than the others, so that it lies in other tables."""
ARROW = "application/vnd.apache.arrow.stream"
_START_S = 90.0
_READY = re.compile(r"^widerow serves .* at (http://\S+)$", re.MULTILINE)
SETTINGS = {
    # Small, so that a short run flushes, compacts and changes its log; one answer, so that checking is quick.
    "WIDEROW_STORE_WRITE_BUFFER_MIB": "16",
    "WIDEROW_STORE_CACHE_MIB": "32",
    "WIDEROW_HTTP_MAX_POINTS": "10000000",
}


class Unexpected(AssertionError):
    """The server did what it should not."""


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    seconds: float


class Victim:
    """A store and the process on it, if one runs. A context manager: the process ends with it, the store stays."""

    def __init__(self, store: Path, *, settings: Mapping[str, str] | None = None, program: Sequence[str] = ()) -> None:
        self.store = store
        self.settings = SETTINGS | dict(settings or {})
        self.program = list(program) or [sys.executable, "-m", "widerow.cli.main"]
        self.url = ""
        self.tokens: dict[str, str] = {}
        self._log = store.parent / f"{store.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    def command(self, *arguments: str) -> list[str]:
        return [*self.program, *arguments, "--store", f"rocksdb:{self.store}"]

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Ours without anything that would point `widerow` elsewhere."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("WIDEROW_")}
        return own | self.settings | dict(extra or {})

    # -- its life

    def spawn(self, extra: Mapping[str, str] | None = None) -> None:
        """Start it, and do not wait."""
        if self._process is not None:
            raise RuntimeError("it runs already")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self.command("serve", "--port", "0"), stdout=log, stderr=log, env=self.environment(extra)
            )

    def start(self, extra: Mapping[str, str] | None = None) -> float:
        """Start it and wait until it answers; gives the seconds that took."""
        began_s = time.monotonic()
        self.spawn(extra)
        return self.until_ready(began_s)

    def until_ready(self, began_s: float) -> float:
        """Wait until what was started then answers; gives the seconds that took."""
        assert self._process is not None
        while time.monotonic() < began_s + _START_S:
            if found := _READY.search(self.log()):
                self.url = found[1]
                if not self.tokens:
                    self._make_tenants()
                return time.monotonic() - began_s
            if self._process.poll() is not None:
                code, self._process = self._process.returncode, None
                raise Unexpected(f"the server ended with {code} while it started:\n{self.log()[-3000:]}")
            time.sleep(0.02)
        raise Unexpected(f"the server does not answer after {_START_S:g} s:\n{self.log()[-3000:]}")

    def kill(self) -> None:
        """Without a chance to do anything. Harmless when it has ended."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self, number: signal.Signals, within_s: float) -> Ended:
        """Ask it to end."""
        assert self._process is not None
        running = Running()
        self._process.send_signal(number)
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise Unexpected(f"the server still runs {within_s:g} s after {number.name}:\n{self.log()[-3000:]}") from None
        self._process = None
        return Ended(code, running.seconds())

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What it printed since it was started last."""
        return self._log.read_text(errors="replace")

    # -- speaking to it

    def connection(self, tenant: str) -> Connection:
        return Connection(Target.of(self.url), {"Authorization": f"Bearer {self.tokens[tenant]}"})

    def health(self) -> tuple[int, list[str]]:
        """The status of `/health/ready`, and its reasons."""
        with Connection(Target.of(self.url), {}) as connection:
            answer = connection.request("GET", "/health/ready")
        return answer.status, json.loads(answer.body).get("reasons", [])

    def is_degraded_by(self, reason: str) -> bool:
        """Whether it says that it is not ready, and that this is why."""
        status, reasons = self.health()
        return status == 503 and any(reason in said for said in reasons)

    def read(self, connection: Connection, device: str, start_us: int, stop_us: int) -> dict[int, Cells]:
        """Everything a device holds in [start_us, stop_us)."""
        cells: dict[int, Cells] = {}
        path = f"/v1/devices/{quote(device, safe='')}/series?start={start_us / 1000:.3f}&end={stop_us / 1000:.3f}"
        after = ""
        while True:
            answer = connection.request("GET", path + after, headers=f"Accept: {ARROW}\r\n")
            if answer.status == 404:
                return cells  # a device whose first report was not answered
            _add_points(expect(answer, 200), cells)
            following = answer.headers.get(NEXT_HEADER.lower())
            if following is None:
                return cells
            after = f"&after={following}"

    def devices(self, connection: Connection) -> set[str]:
        return {
            device["name"]
            for device in json.loads(expect(connection.request("GET", "/v1/devices?limit=1000"), 200))["devices"]
        }

    def newest_us(self, connection: Connection, devices: list[str]) -> dict[str, int]:
        """The time of the newest of the latest values, by device."""
        body = json.dumps({"devices": devices}).encode()
        answer = connection.request("POST", "/v1/latest?epoch=us", body, "Content-Type: application/json\r\n")
        newest: dict[str, int] = {}
        for series in json.loads(expect(answer, 200))["series"]:
            newest[series["device"]] = max(newest.get(series["device"], 0), series["points"][0][0])
        return newest

    def _make_tenants(self) -> None:
        with reachable(self.store / SOCKET) as path, Connection(Target.of(path), {}) as operator:
            for name, wanted in TENANTS.items():
                _post(operator, "/v1/admin/tenants", {"name": name, **wanted})
                self.tokens[name] = _post(operator, "/v1/admin/tokens", {"tenant": name, "role": "admin"})["token"]


def expect(answer: Response, status: int) -> bytes:
    if answer.status != status:
        raise Unexpected(f"the answer was {answer.status}, not {status}: {answer.body[:500]!r}")
    return answer.body


def _post(connection: Connection, path: str, form: Mapping[str, Any]) -> Any:
    return json.loads(
        expect(connection.request("POST", path, json.dumps(form).encode(), "Content-Type: application/json\r\n"), 201)
    )


def _add_points(body: bytes, cells: dict[int, Cells]) -> None:
    table = pa.ipc.open_stream(body).read_all()
    times = table.column("time").cast(pa.int64()).to_pylist()
    metrics, numbers, texts = (table.column(name).to_pylist() for name in ("metric", "value", "text"))
    for time_us, metric, number, text in zip(times, metrics, numbers, texts, strict=True):
        row = cells.setdefault(time_us, {})
        if metric in row:
            raise Unexpected(f"{metric} at {time_us} is in the answer twice")
        row[metric] = text if number is None else number
