"""Widerow beside other stores: one run, one machine, the same lines, each store with its defaults.

    python -m bench.peers [--quick] [--metrics 30] [--peers questdb,victoria-metrics,influxdb]

10,000 devices report 10 metrics every 10 s; a request has 5,000 lines. Event times run faster than the clock, from less than
an hour ago until now. So Widerow takes the reports for live ones and rolls them up, as `widerow serve` does by itself.
One store runs at a time. QuestDB is fetched from Maven Central; VictoriaMetrics and InfluxDB take part if installed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import time
from collections.abc import Callable

from bench.lib.api import Timed
from bench.lib.bodies import INTERVAL_US, METRICS, Load
from bench.lib.figures import Figures
from bench.lib.linefeed import Feed
from bench.lib.peers import MEASUREMENT, PEERS, Contender, Question, Widerow
from bench.lib.server import cpu_s, disk_bytes, settle

from widerow.model.times import MINUTE
from widerow.simulate.wire import Connection

WINDOW_US = 20 * MINUTE
VISIBLE_S, SETTLE_S = 120.0, 180.0
AT_REST_S = 10.0
"""VictoriaMetrics writes after some seconds what it holds in memory."""


def main() -> None:
    print(f"written to {run(parse(None)).save()}")


def run(options: argparse.Namespace) -> Figures:
    """Every figure of this benchmark, printed as it is found."""
    figures = Figures("peers", vars(options))
    measure(figures, "widerow", Widerow(), options)
    for peer in PEERS:
        if peer.name not in options.peers.split(","):
            continue
        if peer.program and shutil.which(peer.program) is None:
            print(f"{peer.name} is left out: {peer.program} is not installed", flush=True)
            continue
        measure(figures, peer.name.partition("-")[0], peer(), options)
    return figures


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.peers", description="Widerow beside other stores.")
    parser.add_argument("--metrics", type=float, default=30, help="millions of values to store")
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--lines", type=int, default=5000, help="reports a request")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--asks", type=int, default=200, help="questions about a device; a tenth as many about the fleet")
    parser.add_argument("--peers", default=",".join(peer.name for peer in PEERS), help="which to compare with")
    parser.add_argument("--quick", action="store_true", help="a tenth of the devices and values: to see that it works")
    options = parser.parse_args(arguments)
    if options.quick:
        options.metrics, options.devices, options.asks = options.metrics / 10, options.devices // 10, 50
    if unknown := set(options.peers.split(",")) - {peer.name for peer in PEERS} - {""}:
        parser.error(f"--peers: {', '.join(sorted(unknown))}: choose from {', '.join(peer.name for peer in PEERS)}")
    return options


def measure(figures: Figures, name: str, contender: Contender, options: argparse.Namespace) -> None:
    """Store everything, then ask. Each figure's name begins with the store's."""
    print(f"{name} {contender.version}", flush=True)
    cycles = int(options.metrics * 1e6) // len(METRICS) // options.devices
    start_us = time.time_ns() // 1000 - (cycles + 1) * INTERVAL_US
    start_us -= start_us % MINUTE  # questions by the minute are of whole minutes
    load = Load(options.devices, options.lines, start_us, measurement=MEASUREMENT)
    contender.devices = load.names()
    with contender:
        store(figures, name, contender, options, load, cycles)
        ask(figures, name, contender, options, start_us, start_us + cycles * INTERVAL_US // MINUTE * MINUTE)


def store(figures: Figures, name: str, contender: Contender, options: argparse.Namespace, load: Load, cycles: int) -> None:
    contender.prepare()
    before_s = cpu_s(contender.pid)
    feed = Feed(contender.url, contender.write_token, load, path=contender.write_path)
    # The first requests meet cold caches and new devices, which are registered once in a fleet's life.
    first = 2 * load.devices // load.lines
    warm = feed.run(connections=options.connections, requests=first)
    report = feed.run(connections=options.connections, requests=cycles * load.devices // load.lines - first)
    reports = warm.reports + report.reports
    figures.add(f"{name}_metrics_per_s", report.metrics_per_s, "metrics/s")
    figures.add(f"{name}_bytes_per_metric", disk_bytes(contender.data) / (reports * len(METRICS)), "B")
    began_s = time.monotonic()
    while (found := contender.rows_stored()) != reports:
        if time.monotonic() - began_s > VISIBLE_S:
            raise RuntimeError(f"{name}: {reports} reports were acknowledged, {found} can be asked for")
        time.sleep(0.1)
    figures.add(f"{name}_all_readable_after_s", time.monotonic() - began_s, "s")
    time.sleep(AT_REST_S)
    settle(contender.pid, SETTLE_S)
    figures.add(f"{name}_bytes_per_metric_settled", disk_bytes(contender.data) / (reports * len(METRICS)), "B")
    figures.add(f"{name}_core_us_per_metric", 1e6 * (cpu_s(contender.pid) - before_s) / (reports * len(METRICS)), "us")


def ask(figures: Figures, name: str, contender: Contender, options: argparse.Namespace, start_us: int, stop_us: int) -> None:
    choose, names = random.Random(9), contender.devices

    def window() -> Question:
        from_us = start_us + choose.randrange(1 + (stop_us - start_us - WINDOW_US) // MINUTE) * MINUTE
        return contender.window(choose.choice(names), from_us, from_us + WINDOW_US)

    def means() -> Question:
        return contender.means(start_us, stop_us)

    few = max(5, options.asks // 10)
    with contender.connection() as connection:
        for question, make, asks, values in (
            ("device_20_minutes", window, options.asks, WINDOW_US // INTERVAL_US * len(METRICS)),
            ("latest_of_all", contender.latest, few, len(names) * len(METRICS)),
            ("mean_by_minute", means, few, (stop_us - start_us) // MINUTE),
        ):
            figures.add(f"{name}_{question}_p50_ms", 1e3 * p50_s(contender, connection, make, asks, values), "ms")


def p50_s(contender: Contender, connection: Connection, make: Callable[[], Question], asks: int, values: int) -> float:
    """The median time from a question to its whole answer. An answer with more or fewer values than stored is an error."""
    timed = Timed()
    for number in range(-3, asks):
        method, path, body = make()
        answer = (timed if number >= 0 else Timed()).ask(connection, method, path, body)
        found = contender.values(answer.body)
        if found != values:
            raise RuntimeError(f"{method} {path}: {found} values, not {values}: {answer.body[:500]!r}")
    return timed.client.quantile(0.5)


if __name__ == "__main__":
    main()
