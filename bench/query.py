"""How long reads take with many devices stored.

    python -m bench.query [--quick] [--devices 100000] [--full 2000] [--minutes 3]

An hour of 100,000 devices at a report each 10 s would be 36 million reports. Instead `--full` devices have the whole hour,
which is what is asked for, and the others a few minutes, so that indexes, caches and key ranges are those of a big fleet.
One keep-alive connection asks one question after another, devices in random order.
"""

from __future__ import annotations

import argparse
import random
import time

from bench.lib.api import Timed, latest_many, latest_path, points_of, series_path
from bench.lib.bodies import INTERVAL_US, METRICS, Load
from bench.lib.figures import Figures
from bench.lib.linefeed import Feed
from bench.lib.server import Server

from widerow.model.times import HOUR, MINUTE, SECOND

MANY = 1000
WARM_UPS = 50
LOAD_LINES = 5000


def main() -> None:
    print(f"written to {run(parse(None)).save()}")


def run(options: argparse.Namespace) -> Figures:
    """Every figure of this benchmark, printed as it is found."""
    figures = Figures("query", vars(options))
    with Server(options.layout, options.folder) as server:
        began_s = time.perf_counter()
        full, rest = store(server, options)
        figures.add("query_store_s", time.perf_counter() - began_s, "s")
        server.settle()
        measure(figures, server, options, full, rest)
    return figures


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.query", description="How long reads take.")
    parser.add_argument("--devices", type=int, default=100_000)
    parser.add_argument("--full", type=int, default=2000, help="devices with a whole hour stored")
    parser.add_argument("--minutes", type=int, default=3, help="what the other devices have stored")
    parser.add_argument("--asks", type=int, default=2000, help="questions of each kind")
    parser.add_argument("--connections", type=int, default=4, help="for storing")
    parser.add_argument("--layout", default="", help="rows or packed; the server's default otherwise")
    parser.add_argument("--folder", help="where the store is made; the system's temporary folder otherwise")
    parser.add_argument("--quick", action="store_true", help="few devices and questions: to see that it works")
    options = parser.parse_args(arguments)
    if options.quick:
        options.devices, options.full, options.minutes, options.asks = 5000, 200, 1, 200
    options.full = min(options.full, options.devices)
    return options


def store(server: Server, options: argparse.Namespace) -> tuple[Load, Load]:
    """Send the hour of the full devices, then the minutes of the rest."""
    # Whole requests are sent, so the hour runs over by up to one; and nothing may lie in the future.
    over_us = (LOAD_LINES // options.full + 2) * INTERVAL_US
    first_us = time.time_ns() // 1000 - HOUR - over_us
    first_us -= first_us % SECOND
    full = Load(options.full, LOAD_LINES, first_us)
    rest = Load(options.devices - options.full, LOAD_LINES, first_us, first=options.full)
    for load, cycles in ((full, HOUR // INTERVAL_US), (rest, options.minutes * MINUTE // INTERVAL_US)):
        if load.devices:
            feed = Feed(server.url, server.write_token, load)
            feed.run(connections=options.connections, requests=-(-load.devices * cycles // LOAD_LINES))
    return full, rest


def measure(figures: Figures, server: Server, options: argparse.Namespace, full: Load, rest: Load) -> None:
    choose = random.Random(9)
    with_hour, everyone = full.names(), full.names() + rest.names()
    hour, latest, many = Timed(), Timed(), Timed()
    with server.connection() as connection:
        for ask in range(-WARM_UPS, options.asks):
            path = series_path(choose.choice(with_hour), [], full.start_us, full.start_us + HOUR)
            points = points_of((hour if ask >= 0 else Timed()).ask(connection, "GET", path))
            if points != HOUR // INTERVAL_US * len(METRICS):
                raise RuntimeError(f"a device-hour has {points} points: expected 360 of each of {len(METRICS)} metrics")
        for ask in range(-WARM_UPS, options.asks):
            (latest if ask >= 0 else Timed()).ask(connection, "GET", latest_path(choose.choice(everyone)))
        for ask in range(-5, max(20, options.asks // 20)):
            path, body = latest_many(choose.sample(everyone, min(MANY, len(everyone))))
            (many if ask >= 0 else Timed()).ask(connection, "POST", path, body)
    for name, timed in (("query_device_hour", hour), ("query_latest", latest), (f"query_latest_{MANY}_devices", many)):
        for side, latencies in (("", timed.client), ("_server", timed.server)):
            if len(latencies):
                figures.add(f"{name}{side}_p50_ms", 1e3 * latencies.quantile(0.5), "ms")
                figures.add(f"{name}{side}_p99_ms", 1e3 * latencies.quantile(0.99), "ms")


if __name__ == "__main__":
    main()
