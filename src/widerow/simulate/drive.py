"""Sends a simulated fleet's reports to a server and says honestly how that went.

Rule 1: with a rate set, a request's latency counts from the moment it was due, not from when a connection got round to it:
a server that stalls is charged for everything that had to wait (no coordinated omission).
Rule 2: what was not acknowledged is accounted for: refused by the server, or failed after bounded retries. Nothing vanishes.
Rule 3: a request in doubt is sent again unchanged; a report is identified by device and time, so that is harmless.
Rule 4: with chaos, each connection has devices of its own. What is sent last is what counts where versions cannot be told,
and only what one connection sends has an order.
"""

from __future__ import annotations

import gzip
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import zstandard

from widerow.model.batch import Batch, CellKind
from widerow.model.names import Coded
from widerow.simulate.answer import RETRY_STATUSES, kept_reports, retry_after_s
from widerow.simulate.chaos import ChaosSettings, chaos
from widerow.simulate.encode import FORMATS, Format
from widerow.simulate.fleet import Fleet
from widerow.simulate.latency import Latencies
from widerow.simulate.part import Part
from widerow.simulate.wire import Connection, Response, Target, TransportError

MAX_TRIES = 6
"""How often one request is sent before it counts as failed."""
MAX_WAIT_S = 10.0
"""The longest a driver waits before a retry, whatever `Retry-After` says."""
MAX_FAILURES_IN_A_ROW = 20
"""After so many transport failures without one answer a connection gives up: the server is gone."""
_BLOCK_DEVICES = 5000
"""Reports are made for at least so many devices at once: a small slice costs as much as this."""
_CHAPTER_REPORTS = 50_000
"""With chaos, so many reports of a connection are made at a time: none comes so late that the next ones overtake it."""


@dataclass(slots=True)
class DriveReport:
    """What became of the load. Reports are either acknowledged, refused or failed."""

    acknowledged: int = 0
    metrics: int = 0
    """Values in acknowledged reports. Where a server kept part of a request, the request's mean per report is assumed."""
    refused: int = 0
    """The server said no to these, and why; sending them again would not help."""
    failed: int = 0
    """Given up on after MAX_TRIES, or in doubt when the driver was stopped."""
    requests: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    """Answers by HTTP status, those that led to a retry included."""
    retries: int = 0
    transport_failures: int = 0
    sent_bytes: int = 0
    wall_s: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)
    """Of acknowledged requests, retries included; from the due time when a rate was set."""

    @property
    def reports_per_s(self) -> float:
        return self.acknowledged / self.wall_s if self.wall_s else 0.0

    @property
    def metrics_per_s(self) -> float:
        return self.metrics / self.wall_s if self.wall_s else 0.0

    def latency_s(self, q: float) -> float:
        return self.latencies.quantile(q)

    def __str__(self) -> str:
        quantiles = " ".join(f"p{100 * q:g} {1e3 * self.latency_s(q):.1f}" for q in (0.5, 0.95, 0.99))
        return (
            f"{self.acknowledged} reports acknowledged ({self.reports_per_s:.0f}/s, {self.metrics_per_s:.0f} metrics/s), "
            f"{self.refused} refused, {self.failed} failed; {self.requests} requests, {self.retries} retries, "
            f"{self.transport_failures} transport failures; latency ms {quantiles} max {1e3 * self.latencies.max_s:.1f}"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """How to send: what `drive` was asked for."""

    format: Format
    lines: int
    rate: float | None
    reports: int | None
    first_tick: int
    compress: str | None
    trouble: ChaosSettings | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """One request: its reports, and when it is due, in seconds from the start."""

    batch: Batch
    types: list[str]
    due_s: float


def drive(
    target: str,
    fleet: Fleet | Part,
    *,
    token: str = "",
    rate: float | None = None,
    format: str = "line",  # noqa: A002 - the word users know
    lines: int = 1000,
    connections: int = 2,
    seconds: float | None = None,
    reports: int | None = None,
    first_tick: int = 0,
    compress: str | None = None,
    trouble: ChaosSettings | None = None,
    progress: Callable[[DriveReport], None] | None = None,
    stop: threading.Event | None = None,
) -> DriveReport:
    """Send until `seconds` have passed, about `reports` reports were sent, or `stop` is set, whichever is first.

    `target` is a base URL or the path of a Unix socket; `rate` is reports per second, None as fast as possible. `progress`
    is called about once a second in the caller's thread. With `trouble` the reports come as `chaos` would have it, all those
    of a connection from one writer; what comes twice, or wrong at first, is counted as often as it is sent.
    """
    if format not in FORMATS:
        raise ValueError(f"format {format!r}: choose from {', '.join(FORMATS)}")
    if compress not in (None, "gzip", "zstd"):
        raise ValueError(f"compress {compress!r}: choose gzip or zstd")
    if lines < 1 or connections < 1 or (rate is not None and rate <= 0):
        raise ValueError("lines, connections and rate must be positive")
    plan = Plan(FORMATS[format], lines, rate, reports, first_tick, compress, trouble)
    where = Target.of(target)
    lanes = lanes_of(fleet, plan, connections)
    run = _Run(plan, stop or threading.Event(), seconds)
    threads = [
        threading.Thread(target=run.send_all, args=(where, token, lanes[i % len(lanes)]), daemon=True)
        for i in range(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(timeout=1.0)
            if progress is not None and thread.is_alive():
                progress(run.so_far())
    if run.broken is not None:
        raise run.broken
    return run.so_far()


class Lane:
    """Requests in their order; whoever asks gets the next. Connections share one, or have one each."""

    def __init__(self, work: Iterator[Work]) -> None:
        self._work, self._lock = work, threading.Lock()

    def next(self) -> Work | None:
        with self._lock:
            return next(self._work, None)


def lanes_of(fleet: Fleet | Part, plan: Plan, connections: int) -> list[Lane]:
    """What the connections work through."""
    if plan.trouble is None:
        return [Lane(work_of(fleet, plan))]
    lanes = min(connections, fleet.devices)
    return [Lane(troubled_work(fleet, plan, slice(lane, None, lanes))) for lane in range(lanes)]


def troubled_work(fleet: Fleet | Part, plan: Plan, devices: slice) -> Iterator[Work]:
    """The requests of some devices, with trouble. The rate is theirs as a share of the fleet's."""
    trouble = replace(plan.trouble or ChaosSettings(), writers=1, versions_travel=False, batch_reports=plan.lines)
    names = fleet.names.to_list()[devices]
    type_of = dict(zip(names, fleet.types(devices), strict=True))
    rate = plan.rate * len(names) / fleet.devices if plan.rate else None
    end = None if plan.reports is None else plan.first_tick + -(-plan.reports // fleet.devices)
    ticks = max(1, _CHAPTER_REPORTS // len(names))
    sent, tick = 0, plan.first_tick
    while end is None or tick < end:
        chapter = range(tick, tick + ticks if end is None else min(tick + ticks, end))
        for delivery in chaos(fleet.made(chapter, devices), fleet.seed, trouble):
            batch = delivery.batch
            sent += len(batch)
            yield Work(batch, [type_of[name] for name in batch.device.names], sent / rate if rate else 0.0)
        tick = chapter.stop


def work_of(fleet: Fleet | Part, plan: Plan) -> Iterator[Work]:
    """The requests of a plan, in order. Made in big blocks, cut to `lines` devices each.

    Due times follow the nominal count of reports, lost ones included, so that a rate of devices / interval keeps event time
    and real time together.
    """
    block = plan.lines * max(1, _BLOCK_DEVICES // plan.lines)
    sent, tick = 0, plan.first_tick
    while True:
        for start in range(0, fleet.devices, block):
            devices = slice(start, min(start + block, fleet.devices))
            batch, types = fleet.batch(tick, devices), fleet.types(devices)
            for cut in range(0, devices.stop - start, plan.lines):
                n = min(plan.lines, devices.stop - start - cut)
                part = _part(batch, cut, n)
                sent += n
                yield Work(part, types[cut : cut + n], sent / plan.rate if plan.rate else 0.0)
                if plan.reports is not None and sent >= plan.reports:
                    return
        tick += 1


def _part(batch: Batch, first: int, n: int) -> Batch:
    """The reports of n devices of a block, with a dictionary of just these. Late and doubled ones stay with their device."""
    codes = batch.device.codes
    rows = np.flatnonzero((codes >= first) & (codes < first + n))
    names = batch.device.names.take(np.arange(first, first + n))
    return Batch(
        Coded(names, codes[rows] - np.int32(first)),
        batch.time_us[rows],
        batch.version_us[rows],
        np.arange(len(rows), dtype=np.int32),
        batch.cells.take(rows),
    )


class _Run:
    """The state that the connections of one drive share. Counts change under the lock, once a request."""

    def __init__(self, plan: Plan, stop: threading.Event, seconds: float | None) -> None:
        self.broken: Exception | None = None
        self._plan, self._stop, self._seconds = plan, stop, seconds
        self._lock = threading.Lock()
        self._report = DriveReport()
        self._started_s = time.perf_counter()

    def so_far(self) -> DriveReport:
        """A copy that later requests do not change."""
        with self._lock:
            r = self._report
            copy = replace(
                r, statuses=Counter(r.statuses), latencies=Latencies(r.latencies.counts.copy(), r.latencies.max_s)
            )
        copy.wall_s = self._elapsed_s()
        return copy

    def send_all(self, target: Target, token: str, lane: Lane) -> None:
        """What one connection does, in its own thread."""
        headers = {"Content-Type": self._plan.format.content_type}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if self._plan.compress:
            headers["Content-Encoding"] = self._plan.compress
        try:
            with Connection(target, headers) as connection:
                self._send_work(connection, lane)
        except Exception as error:  # noqa: BLE001 - carried to the caller's thread, which raises it
            self.broken = error
            self._stop.set()

    def _send_work(self, connection: Connection, lane: Lane) -> None:
        failures_in_a_row = 0
        while failures_in_a_row < MAX_FAILURES_IN_A_ROW and (work := self._next(lane)) is not None:
            body = _compressed(self._plan.format.encode(work.batch, work.types), self._plan.compress)
            if not self._wait_until(work.due_s):
                return
            from_s = work.due_s if self._plan.rate else self._elapsed_s()
            answer, failures = self._send(connection, body)
            failures_in_a_row = 0 if answer is not None else failures_in_a_row + failures
            self._count(work.batch, len(body), answer, self._elapsed_s() - from_s)

    def _next(self, lane: Lane) -> Work | None:
        while not self._over():
            work = lane.next()
            if work is None or len(work.batch):
                return work
        return None

    def _send(self, connection: Connection, body: bytes) -> tuple[Response | None, int]:
        """The last answer, None if the last try had none, and how many tries had none."""
        answer: Response | None = None
        failures = 0
        for attempt in range(MAX_TRIES):
            if attempt:
                with self._lock:
                    self._report.retries += 1
            try:
                answer = connection.request("POST", self._plan.format.path, body)
            except TransportError:
                answer, failures = None, failures + 1
                wait_s = min(0.05 * 2**attempt, MAX_WAIT_S)
            else:
                if answer.status not in RETRY_STATUSES:
                    break
                wait_s = retry_after_s(answer, MAX_WAIT_S)
            with self._lock:
                self._report.transport_failures += answer is None
                if answer is not None and attempt < MAX_TRIES - 1:
                    self._report.statuses[answer.status] += 1
            if attempt < MAX_TRIES - 1 and self._stop.wait(wait_s):
                break
        return answer, failures

    def _count(self, batch: Batch, body_bytes: int, answer: Response | None, took_s: float) -> None:
        n = len(batch)
        kept = kept_reports(answer, n) if answer is not None else 0
        values = int((batch.cells.kind != CellKind.TAG).sum())
        with self._lock:
            r = self._report
            r.requests += 1
            r.sent_bytes += body_bytes
            r.acknowledged += kept
            r.metrics += values * kept // n
            if answer is None or answer.status in RETRY_STATUSES or answer.status >= 500:
                r.failed += n
            else:
                r.refused += n - kept
            if answer is not None:
                r.statuses[answer.status] += 1
            if kept:
                r.latencies.add(took_s)

    def _wait_until(self, due_s: float) -> bool:
        """Whether the moment came before the end did."""
        if self._seconds is not None and due_s > self._seconds:
            self._stop.wait(max(0.0, self._seconds - self._elapsed_s()))
            return False
        ahead_s = due_s - self._elapsed_s()
        return not (self._stop.wait(ahead_s) if ahead_s > 0 else self._over())

    def _over(self) -> bool:
        return self._stop.is_set() or (self._seconds is not None and self._elapsed_s() >= self._seconds)

    def _elapsed_s(self) -> float:
        return time.perf_counter() - self._started_s


def _compressed(body: bytes, how: str | None) -> bytes:
    """At the fastest levels: the driver shares its cores with the server."""
    if how == "gzip":
        return gzip.compress(body, 1, mtime=0)
    if how == "zstd":
        return zstandard.ZstdCompressor(level=1).compress(body)
    return body
