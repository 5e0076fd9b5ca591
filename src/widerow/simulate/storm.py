"""A reconnect storm: many devices come back at once, each with what it kept while it was away, in JSON arrays.

    python -m widerow.simulate.storm http://127.0.0.1:8080 --devices 5000     (the token in WIDEROW_TOKEN)

Rule 1: a device sends its arrays one after the other, from the oldest on, and each until it is acknowledged: it waits for as
long as a refusal says (`Retry-After`), and comes again after a failed connection.
Rule 2: all begin within a few seconds (`within_s`), each with a connection of its own; at most `at_once` are open at a time.
What is sent is the same in each run, so that anybody can say what must be there in the end: report k of a device has
`n` = k.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import time
from dataclasses import asdict, dataclass, field

from widerow.model.times import DAY, HOUR, MS, SECOND
from widerow.simulate.wire import Target

_NAME = b"@DEVICE@"
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_RETRY = re.compile(rb"\r\nretry-after: *(\d+)", re.IGNORECASE)
_REFUSED = (429, 503)
_RECONNECT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What each device kept: `span_us` up to `stop_us`, a report each `interval_us`, `per_array` of them a request."""

    devices: int
    stop_us: int
    first: int = 0
    """The number of the first device: who comes back later is somebody else."""
    span_us: int = DAY
    interval_us: int = 300 * SECOND
    per_array: int = 500

    @property
    def reports(self) -> int:
        """Of one device."""
        return self.span_us // self.interval_us

    def name(self, device: int) -> str:
        return f"away-{self.first + device:06d}"

    def time_us(self, k: int) -> int:
        return (self.stop_us - self.span_us + k * self.interval_us) // MS * MS

    def arrays(self) -> list[bytes]:
        """The bodies of a device, its name left open."""
        reports = [
            f'{{"device":"{_NAME.decode()}","time":{self.time_us(k) // MS},'
            f'"values":{{"n":{k},"temp":{20 + k % 50 / 10},"volt":{3.3 + k % 7 / 100:.2f},"rssi":{-60 - k % 30}}}}}'
            for k in range(self.reports)
        ]
        step = self.per_array
        return [("[" + ",".join(reports[i : i + step]) + "]").encode() for i in range(0, len(reports), step)]


@dataclass
class StormReport:
    devices: int = 0
    """That were told that all of theirs is kept."""
    reports: int = 0
    refusals: int = 0
    failures: int = 0
    """Connections."""
    wall_s: float = 0.0
    unexpected: list[str] = field(default_factory=list)


def send(url: str, token: str, backlog: Backlog, *, at_once: int = 1000, within_s: float = 0.0) -> StormReport:
    """Send all of it; returns when the last array is acknowledged."""
    return asyncio.run(_send(Target.of(url), token, backlog, at_once, within_s))


async def _send(target: Target, token: str, backlog: Backlog, at_once: int, within_s: float) -> StormReport:
    report, arrays, began_s = StormReport(), backlog.arrays(), time.monotonic()
    gate = asyncio.Semaphore(at_once)

    async def device(number: int) -> None:
        name = backlog.name(number).encode()
        await asyncio.sleep(number / backlog.devices * within_s)
        for array in arrays:
            body = array.replace(_NAME, name)
            request = _request(target, token, body)
            while wait_s := await _try(gate, target, request, report):  # noqa: ASYNC110 - as long as the server said
                await asyncio.sleep(wait_s)
            if report.unexpected:
                return
        report.devices += 1
        report.reports += backlog.reports

    await asyncio.gather(*(device(number) for number in range(backlog.devices)))
    report.wall_s = time.monotonic() - began_s
    return report


async def _try(gate: asyncio.Semaphore, target: Target, request: bytes, report: StormReport) -> float:
    """Send once; for how long to wait before the next time, 0 if it is kept."""
    async with gate:
        if report.unexpected:
            return 0.0
        try:
            status, head = await _ask(target, request)
        except (OSError, asyncio.IncompleteReadError):
            report.failures += 1
            return _RECONNECT_S
    if status == 204:
        return 0.0
    if status in _REFUSED:
        report.refusals += 1
        found = _RETRY.search(head)
        return float(found[1]) if found else _RECONNECT_S
    report.unexpected.append(head.decode("latin-1"))
    return 0.0


async def _ask(target: Target, request: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection(target.host, target.port)
    try:
        writer.write(request)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        found = _STATUS.match(head)
        return (int(found[1]) if found else 0), head
    finally:
        writer.close()


def _request(target: Target, token: str, body: bytes) -> bytes:
    lines = [
        f"POST {target.path}/v1/write HTTP/1.1",
        f"Host: {target.host}:{target.port}",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def main() -> int:
    parser = argparse.ArgumentParser(prog="widerow.simulate.storm", description="Devices that all come back at once.")
    parser.add_argument("url")
    parser.add_argument("--devices", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first device")
    parser.add_argument("--interval", type=int, default=300, help="seconds between reports")
    parser.add_argument("--hours", type=float, default=24.0, help="of backlog each")
    parser.add_argument("--stop-us", type=int, help="where the backlog ends; an hour ago otherwise")
    parser.add_argument("--at-once", type=int, default=1000, help="open connections")
    parser.add_argument("--within", type=float, default=10.0, help="seconds in which all come back")
    options = parser.parse_args()
    stop_us = options.stop_us or time.time_ns() // 1000 - HOUR
    backlog = Backlog(
        devices=options.devices,
        first=options.first,
        stop_us=stop_us,
        span_us=int(options.hours * HOUR),
        interval_us=options.interval * SECOND,
    )
    report = send(options.url, os.environ["WIDEROW_TOKEN"], backlog, at_once=options.at_once, within_s=options.within)
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 1 if report.unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
