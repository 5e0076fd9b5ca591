"""What a reconnect storm does to live traffic.

    python -m bench.storm [--devices 5000] [--rate 10000] [--pairs 5] [--quick]

Live reports come at a fixed rate. Then so many devices come back at once, each with a day of backlog in JSON arrays, sent by
a process of its own; live reports go on. Compared is the 99th percentile of live acknowledgements, with and without the
storm, in pairs on one server: each storm is of other devices, and compared with the time before and the time after it, since
a storm takes minutes and a shared machine changes its pace in minutes. In the end all backlog must be there: the count of
all reports, and of some devices every report, and rollups that are what their reports say (`widerow verify`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.ingest import RATE_LINES, feed_of, warm_up_requests
from bench.lib.api import counter, series_path, stored_points
from bench.lib.elsewhere import started_elsewhere
from bench.lib.figures import Figures
from bench.lib.pace import Taken
from bench.lib.server import Server

from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND
from widerow.simulate.latency import Latencies
from widerow.simulate.storm import Backlog
from widerow.simulate.wire import Connection

_SLICE_S = 2.0
_TIMELINE_S = 10.0
_LONGEST_S = 900.0
_SETTLE_S = 600.0
"""Before each part: what a storm left to be rolled up is not held against what comes after it."""
_ROLLED_S = 40.0
"""So long after it came, what was late is being rolled up at the latest. A storm that is shorter does not meet that."""
_CLOSING_S = 90.0
"""So long after live reports began, their first minutes are closed, one after the other from then on: no part is without."""
_CHECKED = 50
"""Devices of each storm that are looked at one by one."""


def main() -> None:
    print(f"written to {run(parse(None)).save()}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.storm", description="What a reconnect storm does to live traffic.")
    parser.add_argument("--devices", type=int, default=5000, help="that come back")
    parser.add_argument("--interval", type=int, default=300, help="seconds between the reports they kept")
    parser.add_argument("--at-once", type=int, default=1000, help="connections of theirs")
    parser.add_argument("--within", type=float, default=10.0, help="seconds in which they come back")
    parser.add_argument("--rate", type=float, default=10_000, help="live reports a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="of live traffic before and after each storm")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument(
        "--patience", type=float, default=0.0, help="seconds, in all, to wait for a machine that is not taken away"
    )
    parser.add_argument("--timeline", action="store_true", help="print the percentiles of every ten seconds as well")
    parser.add_argument("--connections", type=int, default=4, help="of live traffic")
    parser.add_argument("--folder", help="where stores are made; the system's temporary folder otherwise")
    parser.add_argument("--layout", default="", help="rows or packed; the server's default otherwise")
    parser.add_argument("--quick", action="store_true", help="one short pair: to see that it works")
    options = parser.parse_args(arguments)
    if options.quick:
        options.devices, options.seconds, options.pairs = 500, 5.0, 1
    return options


@dataclass(slots=True)
class _Part:
    """How long acknowledgements took, in short runs that were calm; `left_out`: when the machine was taken away."""

    calm: Latencies = field(default_factory=Latencies)
    taken_away: Latencies = field(default_factory=Latencies)
    left_out: int = 0

    @property
    def is_calm(self) -> bool:
        return len(self.calm) > len(self.taken_away)

    def joined(self, other: _Part) -> _Part:
        """Both as one."""
        whole = _Part(left_out=self.left_out + other.left_out)
        for part in (self, other):
            whole.calm.merge(part.calm)
            whole.taken_away.merge(part.taken_away)
        return whole

    def ms(self, q: float) -> float:
        """Where no run was calm, of all: that is better than nothing, and is said."""
        return 1e3 * (self.calm if len(self.calm) else self.taken_away).quantile(q)


@dataclass(frozen=True, slots=True)
class _Pair:
    without: _Part
    with_storm: _Part
    storm_s: float
    refusals: int

    @property
    def is_calm(self) -> bool:
        return self.without.is_calm and self.with_storm.is_calm


def run(options: argparse.Namespace) -> Figures:
    figures = Figures("storm", vars(options))
    pairs: list[_Pair] = []
    with Server(options.layout, options.folder, {"WIDEROW_BACKFILL_AFTER_S": str(HOUR // SECOND)}) as server:
        bench = Bench(server, options)
        patience_until_s = time.monotonic() + options.patience
        while len(pairs) < options.pairs:
            pair = bench.pair(patience_until_s)
            counts = pair.is_calm or time.monotonic() >= patience_until_s
            if counts:
                pairs.append(pair)
            print(f"{f'pair {len(pairs)}' if counts else 'once more'}: {_said(pair)}", flush=True)
        bench.check()
        rss_mib = server.rss_peak_mib()
    for q, name in ((0.5, "p50"), (0.99, "p99"), (1.0, "max")):
        figures.add(f"storm_live_{name}_without_ms", median(pair.without.ms(q) for pair in pairs), "ms")
        figures.add(f"storm_live_{name}_with_ms", median(pair.with_storm.ms(q) for pair in pairs), "ms")
        ratio = median(pair.with_storm.ms(q) / pair.without.ms(q) for pair in pairs)
        figures.add(f"storm_live_{name}_ratio", ratio, "of the time without")
    reports = options.devices * bench.backlogs[0].reports
    figures.add("storm_backlog_reports_per_s", median(reports / pair.storm_s for pair in pairs), "reports/s")
    figures.add("storm_refusals", median(pair.refusals for pair in pairs), "requests")
    figures.add("storm_rss_peak_mib", rss_mib, "MiB")
    parts = [part for pair in pairs for part in (pair.without, pair.with_storm)]
    figures.add("storm_runs_left_out", sum(part.left_out for part in parts), "in which the machine was taken away")
    figures.add("storm_parts_without_calm", sum(not len(part.calm) for part in parts), f"of {len(parts)} parts")
    return figures


def _said(pair: _Pair) -> str:
    return (
        f"live p99 {pair.without.ms(0.99):.2f} ms without, {pair.with_storm.ms(0.99):.2f} ms with the storm of "
        f"{pair.storm_s:.0f} s, {pair.refusals} refusals; left out {pair.without.left_out}, {pair.with_storm.left_out} runs"
    )


class Bench:
    """One server with live traffic, and storms of others that come one after the other."""

    def __init__(self, server: Server, options: argparse.Namespace) -> None:
        self._server, self._options = server, options
        # Event time stays within the last minutes: it goes on at the pace of the clock, or live reports would be none.
        live = argparse.Namespace(devices=int(10 * options.rate), seconds=_LONGEST_S)
        self._feed = feed_of(server, live, "line", RATE_LINES, options.rate)
        warm = self._feed.run(connections=options.connections, requests=warm_up_requests(self._feed.load) // 2)
        self._written = warm.reports
        self._stop_us = time.time_ns() // 1000 - HOUR - MINUTE
        # A server that others come back to was there while they were away: it has tables for that day and its rollups.
        # To make one takes the GIL for about 30 ms, and a dozen of them would be all that a storm is measured by.
        day = range(self._stop_us - DAY, self._stop_us + HOUR, HOUR // 4)
        self._written += _write(server, [{"device": "there", "time": us // MS, "values": {"n": -1}} for us in day])
        self._rolled_s = time.monotonic() + _ROLLED_S
        self.backlogs: list[Backlog] = []
        self._before: _Part | None = None
        closing_s = time.monotonic() + (0 if options.quick else _CLOSING_S)
        self._live(lambda: time.monotonic() < closing_s)

    def pair(self, patience_until_s: float) -> _Pair:
        """A storm between two parts without it, of which the first is the last one of the pair before."""
        before = self._before or self._calm(patience_until_s)
        with_storm, told = self._storm(self._next_backlog(), patience_until_s)
        self._before = self._calm(patience_until_s)
        return _Pair(before.joined(self._before), with_storm, told["wall_s"], told["refusals"])

    def check(self) -> None:
        """Whether everything that was acknowledged is there, and rollups are what they should be."""
        with self._server.connection(self._server.operator_token) as connection:
            accepted = counter(connection, "widerow_reports_accepted_total")
        wanted = self._written + sum(backlog.devices * backlog.reports for backlog in self.backlogs)
        if accepted < wanted:
            raise RuntimeError(f"{wanted} reports were acknowledged, the server counts {accepted:.0f}")
        for backlog in self.backlogs:
            _check(self._server, backlog)

    def _next_backlog(self) -> Backlog:
        options = self._options
        backlog = Backlog(
            devices=options.devices,
            first=len(self.backlogs) * options.devices,
            stop_us=self._stop_us,
            interval_us=options.interval * SECOND,
        )
        self._written += _register(self._server, backlog)
        self.backlogs.append(backlog)
        return backlog

    def _await_calm(self, until_s: float) -> None:
        """Until the server has caught up, with rollups of the storm before, too; and the machine is there, if soon."""
        time.sleep(max(0.0, self._rolled_s - time.monotonic()))
        self._server.settle(_SETTLE_S)
        while time.monotonic() < until_s:
            taken = Taken()
            time.sleep(_SLICE_S)
            if not taken.is_much():
                return

    def _calm(self, patience_until_s: float) -> _Part:
        self._await_calm(patience_until_s)
        until_s = time.monotonic() + self._options.seconds
        return self._live(lambda: time.monotonic() < until_s)

    def _storm(self, backlog: Backlog, patience_until_s: float) -> tuple[_Part, dict[str, Any]]:
        self._await_calm(patience_until_s)
        storm = _start_storm(self._server, self._options, backlog)
        try:
            deadline_s = time.monotonic() + _LONGEST_S
            part = self._live(lambda: storm.poll() is None and time.monotonic() < deadline_s)
            if storm.poll() is None:
                raise RuntimeError(f"the backlog is not in after {_LONGEST_S:g} s")
            out, _ = storm.communicate()
        finally:
            storm.kill()
            storm.wait()
        self._rolled_s = time.monotonic() + _ROLLED_S
        told: dict[str, Any] = json.loads(out)
        if storm.returncode:
            raise RuntimeError(f"the storm met with something else than acknowledgement or refusal: {told}")
        return part, told

    def _live(self, goes_on: Callable[[], bool]) -> _Part:
        """Live traffic in short runs. With and without the storm it is sent alike."""
        part, lately, since_s = _Part(), Latencies(), time.monotonic()
        while goes_on():
            taken = Taken()
            sent = self._feed.run(connections=self._options.connections, seconds=_SLICE_S, rate=self._options.rate)
            if time.time_ns() // 1000 - sent.last_us > HOUR:
                raise RuntimeError("live reports have become backlog, after so long a time without any: use less patience")
            if taken.is_much():
                part.taken_away.merge(sent.latencies)
                part.left_out += 1
            else:
                part.calm.merge(sent.latencies)
            self._written += sent.reports
            lately.merge(sent.latencies)
            if self._options.timeline and time.monotonic() - since_s >= _TIMELINE_S:
                quantiles = ", ".join(f"p{100 * q:g} {1e3 * lately.quantile(q):.1f} ms" for q in (0.5, 0.9, 0.99))
                print(f"{time.strftime('%H:%M:%S')} {quantiles}", flush=True)
                lately, since_s = Latencies(), time.monotonic()
        return part


def _register(server: Server, backlog: Backlog) -> int:
    """Who comes back was there before."""
    now_ms = time.time_ns() // 1_000_000
    reports = [{"device": backlog.name(i), "time": now_ms, "values": {"n": -1}} for i in range(backlog.devices)]
    return _write(server, reports)


def _write(server: Server, reports: list[dict[str, Any]]) -> int:
    """How many were kept: all."""
    with server.connection(server.write_token) as connection:
        answer = connection.request("POST", "/v1/write", json.dumps(reports).encode(), "Content-Type: application/json\r\n")
    if answer.status != 204:
        raise RuntimeError(f"writing: {answer.status} {answer.body[:500]!r}")
    return len(reports)


def _start_storm(server: Server, options: argparse.Namespace, backlog: Backlog) -> subprocess.Popen[str]:
    arguments = ["--devices", backlog.devices, "--first", backlog.first, "--stop-us", backlog.stop_us]
    arguments += ["--interval", options.interval, "--at-once", options.at_once, "--within", options.within]
    command = [sys.executable, "-m", "widerow.simulate.storm", server.url]
    return started_elsewhere([*command, *map(str, arguments)], {"WIDEROW_TOKEN": server.write_token})


def _check(server: Server, backlog: Backlog) -> None:
    """Of some devices every report, and their rollups."""
    with server.connection() as connection:
        for device in range(0, backlog.devices, max(1, backlog.devices // _CHECKED)):
            path = series_path(backlog.name(device), ["n"], backlog.time_us(0), backlog.stop_us)
            points = stored_points(connection, path)
            if points != backlog.reports:
                raise RuntimeError(f"{backlog.name(device)}: {backlog.reports} were acknowledged, {points} can be read")
            _verify(connection, backlog.name(device))


def _verify(connection: Connection, device: str) -> None:
    """As `widerow verify` does it."""
    form: dict[str, object] = {"start": "-2d", "end": "now", "device": device}
    while True:
        body = json.dumps(form).encode()
        answer = connection.request("POST", "/v1/admin/verify", body, "Content-Type: application/json\r\n")
        if answer.status != 200:
            raise RuntimeError(f"verify: {answer.status} {answer.body[:500]!r}")
        part = json.loads(answer.body)
        if part["wrong"]:
            raise RuntimeError(f"rollups are wrong: {part['findings'][:5]}")
        if part["next"] is None:
            return
        form["after"] = part["next"]


if __name__ == "__main__":
    main()
