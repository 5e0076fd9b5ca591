"""Sends rendered bodies as fast as a server takes them, or at a rate, and measures what was acknowledged.

Rule 1: event times stay within the last 29 days and never run into the future: a run that would is an error.
Rule 2: at a rate, latency counts from when a request was due (no coordinated omission).
Rule 3: anything but a full acknowledgement ends the run with an error: a benchmark of refusals measures nothing.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from bench.lib.bodies import INTERVAL_US, METRICS, Body, Load, render, times_us

from widerow.model.times import DAY, SECOND, format_time
from widerow.simulate.latency import Latencies
from widerow.simulate.wire import Connection, Target

PATHS = {
    "line": ("/write", "text/plain; charset=utf-8"),
    "json": ("/v1/write?precision=us", "application/x-ndjson"),
    "arrow": ("/v1/write", "application/vnd.apache.arrow.stream"),
}
KEPT_STATUSES = (200, 204)
OLDEST_US = 29 * DAY
FASTEST_REPORTS_PER_S = 1_000_000
"""Faster than anything measured so far on a machine this is run on; decides how far back a run starts."""


@dataclass
class FeedReport:
    """What a run achieved."""

    reports: int = 0
    requests: int = 0
    first_device: int = 0
    """Acknowledged reports of the first device, to check by reading them back."""
    last_us: int = 0
    wall_s: float = 0.0
    client_cpu_s: float = 0.0
    sent_bytes: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    @property
    def metrics(self) -> int:
        return self.reports * len(METRICS)

    @property
    def metrics_per_s(self) -> float:
        return self.metrics / self.wall_s


def start_us(now_us: int, devices: int, seconds: float, reports_per_s: float = FASTEST_REPORTS_PER_S) -> int:
    """When event time must start for a run of that length to end before now."""
    # A warm-up and the cycle that has begun come on top.
    cycles = seconds * reports_per_s / devices + 5
    back_us = int(cycles * INTERVAL_US * 1.1)
    if back_us > OLDEST_US:
        raise ValueError(
            f"{devices} devices for {seconds:g} s would need {back_us / DAY:.0f} days of event time: use more devices"
        )
    first_us = now_us - back_us
    return first_us - first_us % SECOND


class Feed:
    """A rendered load, and the server it goes to. Each run continues where the one before ended.

    `path` is where the server takes the form, if not where Widerow does.
    """

    def __init__(self, url: str, token: str, load: Load, form: str = "line", path: str = "") -> None:
        self.load, self.form = load, form
        self._path = path or PATHS[form][0]
        self._target, self._token = Target.of(url), token
        self._bodies = render(load, form)
        # Two connections may not write times into one body at once; there are many more bodies than connections.
        self._locks = [threading.Lock() for _ in self._bodies]
        self._next = 0
        self._bodies[0].stamp(times_us(load, 0))  # compiles

    def run(
        self,
        *,
        connections: int,
        seconds: float | None = None,
        requests: int | None = None,
        rate: float | None = None,
        over: threading.Event | None = None,
    ) -> FeedReport:
        """Send until the time is over, so many requests are sent, or it is told to end. `rate` is reports per second."""
        if seconds is None and requests is None and over is None:
            raise ValueError("give seconds, requests or an event that ends it")
        run = _Run(self, self._next, seconds, requests, rate, over)
        threads = [threading.Thread(target=run.send_all, daemon=True) for _ in range(connections)]
        cpu_s = time.process_time()
        run.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        report = run.report
        report.wall_s, report.client_cpu_s = run.elapsed_s(), time.process_time() - cpu_s
        self._next += run.claimed
        if run.broken:
            raise run.broken[0]
        return report

    def open(self) -> Connection:
        headers = {"Content-Type": PATHS[self.form][1], "Authorization": f"Bearer {self._token}"}
        return Connection(self._target, headers)

    def send(self, connection: Connection, request: int) -> int:
        """Send one request and wait until it is acknowledged; how many bytes it had."""
        load = self.load
        if load.last_us(request) > time.time_ns() // 1000:
            raise RuntimeError(
                f"event time has caught up with the clock at {format_time(load.last_us(request))}: start earlier"
            )
        slot = request % len(self._bodies)
        body: Body = self._bodies[slot]
        with self._locks[slot]:
            body.stamp(times_us(load, request))
            answer = connection.request("POST", self._path, body.data.data)
        if answer.status not in KEPT_STATUSES:
            raise RuntimeError(f"request {request}: {answer.status} {answer.body[:500]!r}")
        return len(body.data)


class _Run:
    """What the connections of one run share."""

    def __init__(
        self,
        feed: Feed,
        first: int,
        seconds: float | None,
        requests: int | None,
        rate: float | None,
        over: threading.Event | None,
    ) -> None:
        self.report = FeedReport()
        self.broken: list[Exception] = []
        self.claimed = 0
        self._feed, self._first, self._seconds, self._requests, self._rate = feed, first, seconds, requests, rate
        self._over = over or threading.Event()
        self._lock = threading.Lock()
        self._started_s = 0.0

    def start(self) -> None:
        self._started_s = time.perf_counter()

    def elapsed_s(self) -> float:
        return time.perf_counter() - self._started_s

    def send_all(self) -> None:
        try:
            with self._feed.open() as connection:
                while not self.broken and (number := self._claim()) is not None:
                    self._send(connection, number)
        except Exception as error:  # noqa: BLE001 - carried to the caller's thread, which raises it
            self.broken.append(error)

    def _claim(self) -> int | None:
        """The number of the next request within this run, in order; None when the run is over."""
        with self._lock:
            number = self.claimed
            over = self._seconds is not None and max(self.elapsed_s(), self._due_s(number)) >= self._seconds
            if over or self._over.is_set() or (self._requests is not None and number >= self._requests):
                return None
            self.claimed += 1
            return number

    def _due_s(self, number: int) -> float:
        return (number + 1) * self._feed.load.lines / self._rate if self._rate else 0.0

    def _send(self, connection: Connection, number: int) -> None:
        due_s = self._due_s(number)
        if due_s:
            time.sleep(max(0.0, due_s - self.elapsed_s()))
        from_s = due_s or self.elapsed_s()
        sent = self._feed.send(connection, self._first + number)
        took_s = self.elapsed_s() - from_s
        load = self._feed.load
        with self._lock:
            self.report.requests += 1
            self.report.reports += load.lines
            self.report.first_device += load.of_first_device(self._first + number)
            self.report.last_us = max(self.report.last_us, load.last_us(self._first + number))
            self.report.sent_bytes += sent
            self.report.latencies.add(took_s)
