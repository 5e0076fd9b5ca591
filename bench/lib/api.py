"""What benchmarks ask of the HTTP API, each question in one place, with the time it took on both sides."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from widerow.simulate.latency import Latencies
from widerow.simulate.wire import Connection, Response

_TIMING = re.compile(r"total;dur=([0-9.]+)")


@dataclass
class Timed:
    """Durations of one kind of question: seen from here, and as the server measured its own part."""

    client: Latencies = field(default_factory=Latencies)
    server: Latencies = field(default_factory=Latencies)

    def ask(self, connection: Connection, method: str, path: str, body: bytes = b"") -> Response:
        started_s = time.perf_counter()
        answer = connection.request(method, path, body, "Content-Type: application/json\r\n" if body else "")
        self.client.add(time.perf_counter() - started_s)
        match = _TIMING.search(answer.headers.get("server-timing", ""))
        if match:
            self.server.add(float(match[1]) / 1000)
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.body[:500]!r}")
        return answer


def series_path(device: str, metrics: list[str], start_us: int, stop_us: int) -> str:
    """All raw points of some metrics of a device; all metrics if none is named."""
    query = {"start": start_us // 1000, "end": -(-stop_us // 1000)}
    named = {"metrics": ",".join(metrics)} if metrics else {}
    return f"/v1/devices/{quote(device, safe='')}/series?{urlencode({**named, **query})}"


def latest_path(device: str) -> str:
    return f"/v1/devices/{quote(device, safe='')}/latest"


def latest_many(devices: list[str]) -> tuple[str, bytes]:
    """Path and body of the question for the latest values of many devices."""
    return "/v1/latest", json.dumps({"devices": devices}).encode()


def points_of(answer: Response) -> int:
    """How many points an answer of series has, all metrics together. It must be the whole answer."""
    content = json.loads(answer.body)
    if content["next"] is not None:
        raise RuntimeError("the answer has further pages: a benchmark must ask for less, or for a higher limit")
    return _count(content)


def stored_points(connection: Connection, path: str) -> int:
    """How many points there are on all pages of a path of series."""
    points, after = 0, ""
    while True:
        content = json.loads(Timed().ask(connection, "GET", path + after).body)
        points += _count(content)
        if content["next"] is None:
            return points
        after = "&" + urlencode({"after": content["next"]})


def _count(content: dict[str, Any]) -> int:
    return sum(len(series["points"]) for series in content["series"])


def counter(connection: Connection, name: str) -> float:
    """The sum over all labels of a counter of `/metrics`."""
    answer = Timed().ask(connection, "GET", "/metrics")
    lines = answer.body.decode().splitlines()
    found = [line for line in lines if re.match(rf"{re.escape(name)}[ {{]", line)]
    if not found:
        raise RuntimeError(f"/metrics has no {name}")
    return sum(float(line.rpartition(" ")[2]) for line in found)
