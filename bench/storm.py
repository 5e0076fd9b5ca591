"""What a reconnect storm does to live traffic.

    python -m bench.storm [--devices 5000] [--rate 10000] [--pairs 5] [--quick]

Live reports come at a fixed rate. Then so many devices come back at once, each with a day of backlog in JSON arrays, sent by
a process of its own; live reports go on. Compared is the 99th percentile of live acknowledgements, with and without the
storm, in pairs on one server each. In the end all backlog must be there: the count of all reports, and of some devices every
report, and rollups that are what their reports say (`widerow verify`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from bench.ingest import RATE_LINES, feed_of, warm_up_requests
from bench.lib.api import counter, series_path, stored_points
from bench.lib.elsewhere import started_elsewhere
from bench.lib.figures import Figures
from bench.lib.linefeed import Feed
from bench.lib.pace import Taken
from bench.lib.server import Server

from widerow.model.times import HOUR, MINUTE, SECOND
from widerow.simulate.latency import Latencies
from widerow.simulate.storm import Backlog
from widerow.simulate.wire import Connection

_SLICE_S = 2.0
_LONGEST_S = 900.0
_CHECKED = 50
"""Devices that are looked at one by one."""


def main() -> None:
    print(f"written to {run(parse(None)).save()}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.storm", description="What a reconnect storm does to live traffic.")
    parser.add_argument("--devices", type=int, default=5000, help="that come back")
    parser.add_argument("--interval", type=int, default=300, help="seconds between the reports they kept")
    parser.add_argument("--at-once", type=int, default=1000, help="connections of theirs")
    parser.add_argument("--within", type=float, default=10.0, help="seconds in which they come back")
    parser.add_argument("--rate", type=float, default=10_000, help="live reports a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of live traffic without the storm")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--connections", type=int, default=4, help="of live traffic")
    parser.add_argument("--folder", help="where stores are made; the system's temporary folder otherwise")
    parser.add_argument("--layout", default="", help="rows or packed; the server's default otherwise")
    parser.add_argument("--quick", action="store_true", help="one short pair: to see that it works")
    options = parser.parse_args(arguments)
    if options.quick:
        options.devices, options.seconds, options.pairs = 500, 5.0, 1
    return options


@dataclass(frozen=True, slots=True)
class _Pair:
    without: Latencies
    with_storm: Latencies
    storm_s: float
    refusals: int
    rss_mib: float


def run(options: argparse.Namespace) -> Figures:
    figures = Figures("storm", vars(options))
    pairs = []
    for number in range(options.pairs):
        pair = one_pair(options)
        pairs.append(pair)
        p99 = [1e3 * latencies.quantile(0.99) for latencies in (pair.without, pair.with_storm)]
        print(
            f"pair {number + 1}: live p99 {p99[0]:.2f} ms without, {p99[1]:.2f} ms with the storm of {pair.storm_s:.0f} s, "
            f"{pair.refusals} refusals",
            flush=True,
        )
    for q, name in ((0.5, "p50"), (0.99, "p99"), (1.0, "max")):
        figures.add(f"storm_live_{name}_without_ms", median(1e3 * pair.without.quantile(q) for pair in pairs), "ms")
        figures.add(f"storm_live_{name}_with_ms", median(1e3 * pair.with_storm.quantile(q) for pair in pairs), "ms")
        ratio = median(pair.with_storm.quantile(q) / pair.without.quantile(q) for pair in pairs)
        figures.add(f"storm_live_{name}_ratio", ratio, "of the time without")
    reports = options.devices * backlog_of(options, 0).reports
    figures.add("storm_backlog_reports_per_s", median(reports / pair.storm_s for pair in pairs), "reports/s")
    figures.add("storm_refusals", median(pair.refusals for pair in pairs), "requests")
    figures.add("storm_rss_peak_mib", median(pair.rss_mib for pair in pairs), "MiB")
    return figures


def backlog_of(options: argparse.Namespace, stop_us: int) -> Backlog:
    return Backlog(devices=options.devices, stop_us=stop_us, interval_us=options.interval * SECOND)


def one_pair(options: argparse.Namespace) -> _Pair:
    with Server(options.layout, options.folder, {"WIDEROW_BACKFILL_AFTER_S": str(HOUR // SECOND)}) as server:
        # Event time stays within the last minutes: it goes on at the pace of the clock, or live reports would be none.
        live = argparse.Namespace(devices=int(10 * options.rate), seconds=_LONGEST_S)
        feed = feed_of(server, live, "line", RATE_LINES, options.rate)
        warm = feed.run(connections=options.connections, requests=warm_up_requests(feed.load) // 2)
        _register(server, options)
        calm_until_s = time.monotonic() + options.seconds
        without, before = _live(feed, options, lambda: time.monotonic() < calm_until_s)
        stop_us = time.time_ns() // 1000 - HOUR - MINUTE
        storm = _start_storm(server, options, stop_us)
        deadline_s = time.monotonic() + _LONGEST_S
        with_storm, during = _live(feed, options, lambda: storm.poll() is None and time.monotonic() < deadline_s)
        if storm.poll() is None:
            storm.kill()
            raise RuntimeError(f"the backlog is not in after {_LONGEST_S:g} s")
        out, _ = storm.communicate()
        told = json.loads(out)
        if storm.returncode:
            raise RuntimeError(f"the storm met with something else than acknowledgement or refusal: {told}")
        backlog = backlog_of(options, stop_us)
        check(server, backlog, warm.reports + before + during)
        return _Pair(without, with_storm, told["wall_s"], told["refusals"], server.rss_peak_mib())


def _live(feed: Feed, options: argparse.Namespace, goes_on: Callable[[], bool]) -> tuple[Latencies, int]:
    """Live traffic in short runs: how long it took, and the reports. With and without the storm it is sent alike.

    Runs in which the machine was taken away are left out of how long it took, if there were others.
    """
    calm, taken_away, reports = Latencies(), Latencies(), 0
    while goes_on():
        taken = Taken()
        part = feed.run(connections=options.connections, seconds=_SLICE_S, rate=options.rate)
        (taken_away if taken.is_much() else calm).merge(part.latencies)
        reports += part.reports
    return calm if len(calm) else taken_away, reports


def _register(server: Server, options: argparse.Namespace) -> None:
    """Who comes back was there before."""
    backlog, now_ms = backlog_of(options, 0), time.time_ns() // 1_000_000
    reports = [{"device": backlog.name(i), "time": now_ms, "values": {"n": -1}} for i in range(options.devices)]
    with server.connection(server.write_token) as connection:
        answer = connection.request("POST", "/v1/write", json.dumps(reports).encode(), "Content-Type: application/json\r\n")
    if answer.status != 204:
        raise RuntimeError(f"registering: {answer.status} {answer.body[:500]!r}")


def _start_storm(server: Server, options: argparse.Namespace, stop_us: int) -> subprocess.Popen[str]:
    arguments = ["--devices", options.devices, "--interval", options.interval, "--at-once", options.at_once]
    arguments += ["--within", options.within]
    command = [sys.executable, "-m", "widerow.simulate.storm", server.url, "--stop-us", str(stop_us)]
    return started_elsewhere([*command, *map(str, arguments)], {"WIDEROW_TOKEN": server.write_token})


def check(server: Server, backlog: Backlog, live_reports: int) -> None:
    """Whether everything that was acknowledged is there, and rollups are what they should be."""
    with server.connection(server.operator_token) as connection:
        accepted = counter(connection, "widerow_reports_accepted_total")
        wanted = live_reports + backlog.devices * backlog.reports
        if accepted < wanted:
            raise RuntimeError(f"{wanted} reports were acknowledged, the server counts {accepted:.0f}")
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
