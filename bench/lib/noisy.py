"""A tenant that is over its limits, in a process of its own: writes at a rate and asks heavy questions, whatever it is told.

    WIDEROW_TOKEN=... WIDEROW_READ_TOKEN=... python -m bench.lib.noisy URL --rate 20000 --span-us ...

Its reports are about the time when they are sent: the more it sends, the more often each device reports.
It ends on SIGTERM, and prints what it met with as JSON. Refusals are what it is there for: none of them slows it down.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections import Counter

from bench.lib.bodies import Load, times_us
from bench.lib.linefeed import PATHS, Feed

from widerow.model.times import SECOND
from widerow.simulate.wire import Connection, Target, TransportError

QUESTION = "/v1/fleet/series?step=10s&agg=avg,max&metrics=telemetry_temp"


class Rude(Feed):
    """Sends on, whatever the answer is, and counts it."""

    def __init__(self, url: str, token: str, load: Load) -> None:
        super().__init__(url, token, load)
        self.met: Counter[int] = Counter()

    def send(self, connection: Connection, request: int) -> int:
        slot = request % len(self._bodies)
        body = self._bodies[slot]
        with self._locks[slot]:
            body.stamp(times_us(self.load, request))
            answer = connection.request("POST", PATHS[self.form][0], body.data.data)
        self.met[answer.status] += 1
        return len(body.data)


def main() -> int:
    options = parse()
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    to_server = Stream(options, options.url, options.rate, options.question_rate)
    streams = [to_server]
    if options.nobody:
        streams.append(Stream(options, options.nobody, options.nobody_rate, options.nobody_question_rate))
    began_s = time.perf_counter()
    threads = [thread for stream in streams for thread in stream.threads(over)]
    for thread in threads:
        thread.start()
    over.wait()
    wall_s = time.perf_counter() - began_s
    for thread in threads:
        thread.join(30)
    for stream in streams:
        if stream.broken:
            raise stream.broken
    met = {"writes": dict(to_server.feed.met), "questions": dict(to_server.asked)}
    print(json.dumps({"wall_s": wall_s, "lines": options.lines, **met}))
    return 0


class Stream:
    """What goes to one server: reports and questions, each at a rate."""

    def __init__(self, options: argparse.Namespace, url: str, rate: float, question_rate: float) -> None:
        self._options, self._url, self._rate, self._question_rate = options, url, rate, question_rate
        load = Load(
            options.devices, options.lines, time.time_ns() // 1000, interval_us=round(options.devices / rate * SECOND)
        )
        self.feed = Rude(url, os.environ["WIDEROW_TOKEN"], load)
        self.asked: Counter[int] = Counter()
        self.broken: Exception | None = None

    def threads(self, over: threading.Event) -> list[threading.Thread]:
        count = self._options.askers if self._question_rate else 0
        askers = [threading.Thread(target=self._ask, args=(n, over), daemon=True) for n in range(count)]
        return [threading.Thread(target=self._write, args=(over,), daemon=True), *askers]

    def _write(self, over: threading.Event) -> None:
        """Over the same connections from the first to the last, as agents do."""
        try:
            self.feed.run(connections=self._options.connections, rate=self._rate, over=over)
        except Exception as error:  # noqa: BLE001 - raised by who waits for it
            self.broken = error
            over.set()

    def _ask(self, number: int, over: threading.Event) -> None:
        """Each asker in its turn, at a steady rate; one whose answer is not there yet is late with the next."""
        headers = {"Authorization": f"Bearer {os.environ['WIDEROW_READ_TOKEN']}"}
        start_us, stop_us = self._options.span_us
        path = f"{QUESTION}&start={start_us // 1000}&end={stop_us // 1000}"
        due_s = time.perf_counter() + number / self._question_rate
        with Connection(Target.of(self._url), headers) as connection:
            while not over.wait(max(0.0, due_s - time.perf_counter())):
                try:
                    self.asked[connection.request("GET", path).status] += 1
                except TransportError:
                    self.asked[0] += 1
                due_s = max(due_s + self._options.askers / self._question_rate, time.perf_counter())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.lib.noisy", description="A tenant that is over its limits.")
    parser.add_argument("url")
    parser.add_argument("--rate", type=float, required=True, help="reports a second")
    parser.add_argument("--devices", type=int, default=20_000)
    parser.add_argument("--lines", type=int, default=100, help="reports a request")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--question-rate", type=float, default=5.0, help="heavy questions a second, of all askers; 0: none")
    parser.add_argument("--askers", type=int, default=4)
    parser.add_argument("--nobody", help="where more goes that is to cost what sending it costs: see `bench.lib.nobody`")
    parser.add_argument("--nobody-rate", type=float, default=0.0, help="reports a second that go there")
    parser.add_argument("--nobody-question-rate", type=float, default=0.0, help="questions a second that go there")
    parser.add_argument("--span-us", type=int, nargs=2, required=True, help="event times they ask about")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
