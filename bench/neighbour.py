"""What a tenant that is far over its limits does to another.

    python -m bench.neighbour [--rate 1000] [--seconds 30] [--rounds 5] [--parts within,beyond] [--quick]

Tenant B writes and asks at a fixed, moderate rate. A may send as much as its devices do when each reports every ten seconds,
and has a process of its own. A round has four parts, on one server, which take turns in who is first: B *alone*; A stays
*within* what it may send and ask; it does, and its excess passes the server by (*beside*: it goes to `bench.lib.nobody`);
A goes *beyond*: each device reports ten times as often, and A asks for all its raw reports over and over. Compared are B's
acknowledgements and answers, and the server's memory. Reports of both are about the time when they are sent.
Beyond against beside is what a server lets a tenant's excess do to another, where both have the same machine to share with
who sends it; beside against within is what sending does to that machine; within against alone is what A has a right to.
A heavy question of A is answered every few seconds, and B's slow moments are mostly then: a part of 20 s holds a handful of
them, and its percentile is as uncertain as that. `--parts within,beyond --seconds 60` has more of them. A shared machine is
faster in one minute than in the next, by more than what is looked for; so the parts of a round are measured in blocks, which
alternate.
Anything but a full acknowledgement or answer for B ends the benchmark with an error.
At the end it says of each figure whether it is as wanted: acknowledgements and answers within 15% of what they are without
the excess, memory within 5%.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.ingest import warm_up_requests
from bench.lib.api import Timed, latest_many, latest_path
from bench.lib.bodies import INTERVAL_US, Load
from bench.lib.elsewhere import started_elsewhere
from bench.lib.figures import Figures
from bench.lib.linefeed import Feed, start_us
from bench.lib.pace import Taken
from bench.lib.server import Server

from widerow.model.times import HOUR, SECOND
from widerow.simulate.latency import Latencies

NOISY = "noisy"
_LINES = 20
"""Reports a request of B: many small ones, so that a percentile means something."""
_ASKERS = 2
_LONGEST_S = 1800.0
_SAMPLE_S = 0.2
_SLICE_S = 2.5
_BURST_S = 5.0
"""When questions are refused, those of a burst that were not are still being answered, for about so long."""
_MOST_TIMES = 3
"""A part takes so many times what was asked for at most, on a machine that is taken away."""
ALONE, WITHIN, BESIDE, BEYOND = PARTS = ("alone", "within", "beside", "beyond")
_COMPARED = ((BEYOND, BESIDE), (BESIDE, WITHIN), (BEYOND, WITHIN), (WITHIN, ALONE), (BEYOND, ALONE))
_JUDGED = {
    (BEYOND, BESIDE): "what A sends beyond its quota, against the same load on the machine by somebody unrelated",
    (BEYOND, WITHIN): "what A sends beyond its quota, and who sends it, against A that stays within it",
}
_MOST_SLOWER, _MOST_MEMORY = 0.15, 0.05
_NEARLY = 0.98
"""What A sends and asks for of what it may, when it stays within that. Beyond it gets all of it, so here it should be nearly
that: what A has a right to would be taken for what its excess does otherwise.
"""


def main() -> None:
    print(f"written to {run(parse(None)).save()}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.neighbour", description="What a noisy tenant does to another.")
    parser.add_argument("--rate", type=float, default=1000, help="reports a second of B")
    parser.add_argument("--questions", type=float, default=20, help="questions a second of B")
    parser.add_argument("--limit", type=int, default=500, help="reports a second that A may send")
    parser.add_argument("--times", type=float, default=10, help="what A sends of that")
    parser.add_argument("--cost-limit", type=int, default=50_000, help="rows a second that A's questions may read; 0: any")
    parser.add_argument("--noisy-questions", type=float, default=5, help="heavy questions a second of A; 0: none")
    parser.add_argument("--noisy-hours", type=float, default=0.1, help="of reports each 10 s that A has and asks for")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each part of a round")
    parser.add_argument("--blocks", type=int, default=1, help="of which a part consists, and which alternate")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", type=_parts, default=PARTS, help="of a round, with commas between; beyond is one of them")
    parser.add_argument(
        "--rest", type=float, default=0.0, help="seconds before each part: a machine that is shared may give less after use"
    )
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--folder", help="where the store is made; the system's temporary folder otherwise")
    parser.add_argument("--layout", default="", help="rows or packed; the server's default otherwise")
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it works")
    options = parser.parse_args(arguments)
    options.noisy_devices = options.limit * INTERVAL_US // SECOND
    if options.quick:
        options.seconds, options.rounds, options.noisy_hours, options.cost_limit = 5.0, 1, 0.01, 5_000
    return options


def _parts(text: str) -> tuple[str, ...]:
    """In their usual order, whatever the order they are named in."""
    named = set(text.split(","))
    if BEYOND not in named or len(named) < 2 or not named <= set(PARTS):
        raise argparse.ArgumentTypeError(f"{BEYOND} and at least one more of {', '.join(PARTS)}, with commas between")
    return tuple(part for part in PARTS if part in named)


@dataclass
class _Part:
    """What B met with."""

    acks: Latencies = field(default_factory=Latencies)
    answers: Latencies = field(default_factory=Latencies)
    rss_mib: float = 0.0
    noisy: dict[str, Any] = field(default_factory=dict)
    left_out: int = 0
    """Slices in which the machine was taken away."""
    is_calm: bool = True
    """Whether there were others."""

    def merge(self, other: _Part) -> None:
        """More of the same."""
        self.acks.merge(other.acks)
        self.answers.merge(other.answers)
        self.rss_mib = max(self.rss_mib, other.rss_mib)
        self.noisy = added(self.noisy, other.noisy)
        self.left_out += other.left_out
        self.is_calm = self.is_calm and other.is_calm


def run(options: argparse.Namespace) -> Figures:
    figures = Figures("neighbour", vars(options))
    rounds: list[dict[str, _Part]] = []
    with Server(options.layout, options.folder) as server:
        bench = Bench(server, options)
        bench.part(BEYOND, min(5.0, options.seconds))  # all meet caches that are warm, and what A keeps in memory
        for number in range(options.rounds):
            rounds.append(bench.round(number))
            print(f"round {number + 1}: {_said(rounds[-1])}", flush=True)
    for what, name in (("acks", "ack"), ("answers", "query")):
        for q, label in ((0.5, "p50"), (0.99, "p99")):
            met = [{part: 1e3 * getattr(each[part], what).quantile(q) for part in options.parts} for each in rounds]
            for part in options.parts:
                figures.add(f"neighbour_{name}_{label}_{part}_ms", median(each[part] for each in met), "ms")
            for part, base in _compared(options.parts):
                ratio = median(each[part] / each[base] for each in met)
                figures.add(f"neighbour_{name}_{label}_{part}_to_{base}", ratio, f"of the time {base}")
    parts = [part for each in rounds for part in each.values()]
    figures.add("neighbour_slices_left_out", sum(part.left_out for part in parts), "in which the machine was taken away")
    figures.add("neighbour_parts_without_calm", sum(not part.is_calm for part in parts), f"of {len(parts)} parts")
    figures.add("neighbour_errors", 0, "of B")  # otherwise this is not reached
    for base in (part for part in reversed(options.parts) if part != BEYOND):
        ratio = median(each[BEYOND].rss_mib / each[base].rss_mib for each in rounds)
        figures.add(f"neighbour_rss_{BEYOND}_to_{base}", ratio, f"of the memory {base}")
    figures.add("neighbour_rss_mib", median(each[BEYOND].rss_mib for each in rounds), "MiB")
    for part in (part for part in options.parts if part != ALONE):
        for name, value, unit in _of_noisy([each[part].noisy for each in rounds]):
            figures.add(f"neighbour_noisy_{part}_{name}", value, unit)
    for line in judged({name: value for name, (value, _) in figures.found.items()}):
        print(line, flush=True)
    return figures


def order_of(parts: tuple[str, ...], number: int) -> tuple[str, ...]:
    """Of a round's blocks: they take turns in who is first, and every other time is the one before, backwards. A server's
    memory grows for as long as its caches fill, so each part has to be before another about as often as after it.
    """
    first = number // 2 % len(parts)
    order = parts[first:] + parts[:first]
    return order[::-1] if number % 2 else order


def added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What A met with in both, as `bench.lib.noisy` tells it."""
    if not one or not other:
        return dict(one or other)
    counts = {what: dict(Counter(one[what]) + Counter(other[what])) for what in ("writes", "questions")}
    return {"wall_s": one["wall_s"] + other["wall_s"], "lines": one["lines"], **counts}


def judged(found: Mapping[str, float]) -> Iterator[str]:
    """Of each pair that was compared what it means, and of each of its figures whether it is as wanted. Less is, too."""
    latencies = {f"{what}_{label}": _MOST_SLOWER for what in ("ack", "query") for label in ("p50", "p99")}
    for (part, base), meaning in _JUDGED.items():
        names = {f"neighbour_{what}_{part}_to_{base}": most for what, most in (latencies | {"rss": _MOST_MEMORY}).items()}
        if not names.keys() <= found.keys():
            continue
        yield f"{part} vs {base}: {meaning}"
        for name, most in names.items():
            yield f"  {name} {found[name]:.3f}, within {most:.0%}: {'yes' if found[name] <= 1 + most else 'no'}"


def _compared(parts: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(part, base) for part, base in _COMPARED if part in parts and base in parts]


def _said(parts: dict[str, _Part]) -> str:
    names = [name for name in PARTS if name in parts]

    def p99(what: str) -> str:
        return ", ".join(f"{1e3 * getattr(parts[name], what).quantile(0.99):.1f}" for name in names)

    memory = ", ".join(f"{parts[name].rss_mib:.0f}" for name in names)
    return (
        f"{', '.join(names)}: ack p99 {p99('acks')} ms; query p99 {p99('answers')} ms; memory {memory} MiB; "
        f"left out {', '.join(str(parts[name].left_out) for name in names)} slices; "
        f"the other: {json.dumps(parts[BEYOND].noisy)}"
    )


def _of_noisy(told: list[dict[str, Any]]) -> Iterator[tuple[str, float, str]]:
    """What became of what A sent and asked."""

    def per_s(one: dict[str, Any], what: str, *statuses: str) -> float:
        met: dict[str, int] = one[what]
        return sum(met.get(status, 0) for status in statuses or met) / float(one["wall_s"])

    yield "offered_per_s", median(per_s(one, "writes") * one["lines"] for one in told), "reports/s"
    yield "accepted_per_s", median(per_s(one, "writes", "204") * one["lines"] for one in told), "reports/s"
    yield "asked_per_s", median(per_s(one, "questions") for one in told), "questions/s"
    yield "answered_per_s", median(per_s(one, "questions", "200") for one in told), "questions/s"


class Bench:
    """One server with two tenants, of which one has all it will ask for already."""

    def __init__(self, server: Server, options: argparse.Namespace) -> None:
        self._server, self._options = server, options
        self._noisy_tokens = self._make_noisy()
        # Event time stays within the last minutes, and goes on at the pace of the clock.
        devices = int(options.rate * INTERVAL_US / 1e6)
        first_us = start_us(time.time_ns() // 1000, devices, _LONGEST_S, options.rate)
        self._load = Load(devices, _LINES, first_us)
        self._feed = Feed(server.url, server.write_token, self._load)
        self._feed.run(connections=options.connections, requests=warm_up_requests(self._load))
        self._fill_noisy()
        self._admin("PATCH", f"/v1/admin/tenants/{NOISY}", {"limits": self._limits()})
        time.sleep(1)
        server.settle()

    def _limits(self) -> dict[str, int]:
        return {"writes_per_s": self._options.limit, "query_cost_per_s": self._options.cost_limit}

    def _make_noisy(self) -> tuple[str, str]:
        self._admin("POST", "/v1/admin/tenants", {"name": NOISY})
        forms = ({"role": role, "tenant": NOISY} for role in ("write", "read"))
        write, read = (str(self._admin("POST", "/v1/admin/tokens", form)["token"]) for form in forms)
        return write, read

    def _fill_noisy(self) -> None:
        """What A has before it is limited."""
        cycles = max(1, round(self._options.noisy_hours * HOUR / INTERVAL_US))
        first_us = time.time_ns() // 1000 - 2 * HOUR - cycles * INTERVAL_US
        first_us -= first_us % HOUR
        load = Load(self._options.noisy_devices, 1000, first_us)
        feed = Feed(self._server.url, self._noisy_tokens[0], load)
        feed.run(connections=self._options.connections, requests=cycles * self._options.noisy_devices // load.lines)
        self._span_us = (first_us, first_us + cycles * INTERVAL_US)

    def _admin(self, method: str, path: str, form: dict[str, Any]) -> dict[str, Any]:
        with self._server.connection(self._server.operator_token) as connection:
            answer = connection.request(method, path, json.dumps(form).encode(), "Content-Type: application/json\r\n")
        if answer.status not in (200, 201):
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.body[:500]!r}")
        content: dict[str, Any] = json.loads(answer.body)
        return content

    def round(self, number: int) -> dict[str, _Part]:
        blocks = self._options.blocks
        parts = {name: _Part() for name in self._options.parts}
        for block in range(number * blocks, (number + 1) * blocks):
            for name in order_of(self._options.parts, block):
                parts[name].merge(self.part(name, self._options.seconds / blocks))
        return parts

    # -- one part of a round

    def part(self, name: str, seconds: float) -> _Part:
        self._server.settle()
        time.sleep(self._options.rest)
        part = _Part()
        with nullcontext() if name == ALONE else self._noise(part, name):
            self._measure(part, seconds)
        return part

    def _measure(self, part: _Part, seconds: float) -> None:
        """In slices. Those in which the machine was taken away are left out, and made up for as far as there is time."""
        calm: list[_Part] = []
        taken_away: list[_Part] = []
        wanted, until_s = max(1, round(seconds / _SLICE_S)), time.monotonic() + _MOST_TIMES * seconds
        while len(calm) < wanted and time.monotonic() < until_s:
            taken, one = Taken(), _Part()
            self._measure_slice(one, seconds / wanted)
            (taken_away if taken.is_much() else calm).append(one)
        for one in calm or taken_away:
            part.merge(one)
        part.left_out, part.is_calm = len(taken_away), bool(calm)

    def _measure_slice(self, part: _Part, seconds: float) -> None:
        over, broken = threading.Event(), list[Exception]()
        askers = [
            threading.Thread(target=self._ask, args=(number, seconds, part.answers, broken), daemon=True)
            for number in range(_ASKERS)
        ]
        sampler = threading.Thread(target=self._sample, args=(over, part), daemon=True)
        for thread in (*askers, sampler):
            thread.start()
        report = self._feed.run(connections=self._options.connections, seconds=seconds, rate=self._options.rate)
        for thread in askers:
            thread.join()
        over.set()
        sampler.join()
        if broken:
            raise broken[0]
        part.acks.merge(report.latencies)

    def _ask(self, number: int, seconds: float, answers: Latencies, broken: list[Exception]) -> None:
        """B's questions: the latest of a device, of a hundred, and a device's last hour by minutes. From when it was due."""
        own, chance = Latencies(), random.Random(number)
        names = self._load.names()
        began_s, every_s = time.perf_counter(), _ASKERS / self._options.questions
        due_s = number * every_s / _ASKERS
        try:
            with self._server.connection() as connection:
                while due_s < seconds:
                    time.sleep(max(0.0, began_s + due_s - time.perf_counter()))
                    method, path, body = self._question(chance, names)
                    Timed().ask(connection, method, path, body)
                    own.add(time.perf_counter() - began_s - due_s)
                    due_s += every_s
        except Exception as error:  # noqa: BLE001 - raised by who waits for it
            broken.append(error)
        answers.merge(own)

    def _question(self, chance: random.Random, names: list[str]) -> tuple[str, str, bytes]:
        kind = chance.random()
        if kind < 0.1:
            return "POST", *latest_many(chance.sample(names, 100))
        device = chance.choice(names)
        if kind < 0.55:
            return "GET", latest_path(device), b""
        return "GET", f"/v1/devices/{device}/series?start=-1h&step=1m&agg=avg,max", b""

    def _sample(self, over: threading.Event, part: _Part) -> None:
        while not over.wait(_SAMPLE_S):
            part.rss_mib = max(part.rss_mib, self._server.rss_mib())

    @contextmanager
    def _noise(self, part: _Part, name: str) -> Iterator[None]:
        """While A's process is at work."""
        with self._nobody() as nobody:
            process = self._noisy(name, nobody)
            try:
                for counter in self._signs(name):
                    self._await_noise(process, counter)
                time.sleep(_BURST_S)
                yield
                process.send_signal(signal.SIGTERM)
                out, _ = process.communicate(timeout=60)
            finally:
                _end(process)
        if process.returncode:
            raise RuntimeError(f"the noisy tenant ended with {process.returncode}")
        part.noisy = json.loads(out)

    def _noisy(self, name: str, nobody: str) -> subprocess.Popen[str]:
        options = self._options
        most = (options.limit * options.times, options.noisy_questions)
        allowed = (options.limit * _NEARLY, self._allowed_questions())
        rate, questions = most if name == BEYOND else allowed
        arguments = ["--rate", rate, "--question-rate", questions, "--devices", self._options.noisy_devices]
        arguments += ["--span-us", *self._span_us]
        if name == BESIDE:
            arguments += ["--nobody", nobody, "--nobody-rate", most[0] - rate, "--nobody-question-rate", most[1] - questions]
        command = [sys.executable, "-m", "bench.lib.noisy", self._server.url]
        environment = dict(zip(("WIDEROW_TOKEN", "WIDEROW_READ_TOKEN"), self._noisy_tokens, strict=True))
        return started_elsewhere([*command, *map(str, arguments)], environment)

    @contextmanager
    def _nobody(self) -> Iterator[str]:
        """The address of a server that refuses everything."""
        process = started_elsewhere([sys.executable, "-m", "bench.lib.nobody"])
        try:
            assert process.stdout
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            _end(process, timeout_s=10)

    def _allowed_questions(self) -> float:
        """A second: each reads all reports A had at first."""
        rows = self._options.noisy_devices * (self._span_us[1] - self._span_us[0]) // INTERVAL_US
        allowed = self._options.cost_limit / rows if self._options.cost_limit else self._options.noisy_questions
        return float(min(_NEARLY * allowed, self._options.noisy_questions))

    def _signs(self, name: str) -> list[str]:
        """The counters of A that go on once a part has begun. What it may send and ask in a burst is no excess."""
        if name != BEYOND:
            return [_ACCEPTED]
        asks_too_much = self._options.noisy_questions and self._options.cost_limit
        return [_REFUSED, _REFUSED_QUESTIONS] if asks_too_much else [_REFUSED]

    def _await_noise(self, process: subprocess.Popen[str], counter: str) -> None:
        """Until a counter of A goes on; for a minute at most."""
        deadline_s = time.monotonic() + 60
        with self._server.connection(self._server.operator_token) as connection:
            before = _of_other(Timed().ask(connection, "GET", "/metrics").body, counter)
            while _of_other(Timed().ask(connection, "GET", "/metrics").body, counter) == before:
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError(f"the noisy tenant makes no difference to {counter}...}}")
                time.sleep(0.25)


_REFUSED = "widerow_reports_refused_total{"
_REFUSED_QUESTIONS = "widerow_query_refused_total{"
_ACCEPTED = "widerow_reports_accepted_total{"


def _end(process: subprocess.Popen[str], timeout_s: float = 0.0) -> None:
    """Kill it, if it has not ended by itself within some time."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _of_other(exposition: bytes, counter: str) -> float:
    """A counter of the noisy tenant, whatever its other labels."""
    lines = exposition.decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(counter) and f'tenant="{NOISY}"' in line)


if __name__ == "__main__":
    main()
