"""How fast a server takes reports, and what that costs it.

    python -m bench.ingest [--quick] [--devices 10000] [--lines 5000] [--seconds 60] [--formats line,json,arrow]

Every run has a server and a store of its own. After each, the server is asked for what it acknowledged: the count of all
reports, and every report of one device. Client and server share the machine, so rates compare within one machine only.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from statistics import median

from bench.lib.api import counter, series_path, stored_points
from bench.lib.bodies import Load
from bench.lib.figures import Figures
from bench.lib.linefeed import FASTEST_REPORTS_PER_S, Feed, FeedReport, start_us
from bench.lib.server import Server

SMALL_LINES = 50
SMALL_CONNECTIONS = 16
"""Small requests come from many senders. With four connections, each awaiting its answer, the rate is a third lower."""
RATE_LINES = 100
METRIC_NAMES = {"line": "telemetry_temp", "json": "temp", "arrow": "temp"}
"""What the first metric is called once stored: line protocol puts the measurement before the field."""


def main() -> None:
    print(f"written to {run(parse(None)).save()}")


def run(options: argparse.Namespace) -> Figures:
    """Every figure of this benchmark, printed as it is found."""
    figures = Figures("ingest", vars(options))
    formats = options.formats.split(",")
    if "line" in formats:
        whole_run(figures, f"ingest_line_{options.lines}", options, "line", options.lines)
        whole_run(figures, f"ingest_line_{SMALL_LINES}", options, "line", SMALL_LINES, SMALL_CONNECTIONS)
        paced_run(figures, options)
    for form in ("json", "arrow"):
        if form in formats:
            whole_run(figures, f"ingest_{form}", options, form, options.lines)
    if options.pairs:
        rollup_pairs(figures, options)
    return figures


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.ingest", description="How fast a server takes reports.")
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--lines", type=int, default=5000, help="reports a request")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--formats", default="line,json,arrow")
    parser.add_argument("--rate", type=float, default=10_000, help="reports a second of the run that measures latency")
    parser.add_argument("--layout", default="", help="rows or packed; the server's default otherwise")
    parser.add_argument("--folder", help="where stores are made; the system's temporary folder otherwise")
    parser.add_argument("--pairs", type=int, default=3, help="runs without and with rollups, taking turns")
    parser.add_argument("--quick", action="store_true", help="5 s a run: to see that it works")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seconds = 5.0
    unknown = set(options.formats.split(",")) - set(METRIC_NAMES)
    if unknown:
        parser.error(f"--formats: {', '.join(sorted(unknown))}: choose from {', '.join(METRIC_NAMES)}")
    return options


def whole_run(
    figures: Figures, name: str, options: argparse.Namespace, form: str, lines: int, connections: int | None = None
) -> None:
    """As fast as the server takes it; everything it costs, what it puts off included."""
    connections = connections or options.connections
    with Server(options.layout, options.folder) as server:
        feed = feed_of(server, options, form, lines, FASTEST_REPORTS_PER_S)
        # The first requests meet cold caches and new devices, which are registered once in a fleet's life.
        warm = feed.run(connections=connections, requests=warm_up_requests(feed.load))
        cpu_s = server.cpu_s()
        report = feed.run(connections=connections, seconds=options.seconds)
        server.settle()
        cpu_s = server.cpu_s() - cpu_s
        check(server, feed, [warm, report])
        rss_mib = server.rss_peak_mib()
        server.stop()
        disk_bytes = server.disk_bytes()
    figures.add(f"{name}_metrics_per_s", report.metrics_per_s, "metrics/s")
    figures.add(f"{name}_core_us_per_metric", 1e6 * cpu_s / report.metrics, "us")
    figures.add(f"{name}_client_core_us_per_metric", 1e6 * report.client_cpu_s / report.metrics, "us")
    figures.add(f"{name}_ack_p50_ms", 1e3 * report.latencies.quantile(0.5), "ms")
    figures.add(f"{name}_ack_p99_ms", 1e3 * report.latencies.quantile(0.99), "ms")
    figures.add(f"{name}_rss_peak_mib", rss_mib, "MiB")
    figures.add(f"{name}_bytes_per_metric", disk_bytes / (report.metrics + warm.metrics), "B")


def rollup_pairs(figures: Figures, options: argparse.Namespace) -> None:
    """What rollups cost: the rate with them as a part of the rate without them, the median of pairs.

    Event times run faster than the clock, so hours become due all the time. The rate is that of reports as they are taken;
    `until_rolled` is over the time until the last hour is rolled as well, waiting for it to rest included.
    """
    pairs = [(_rolled_run(options, enabled=0), _rolled_run(options, enabled=1)) for _ in range(options.pairs)]
    without, with_rollups = zip(*pairs, strict=True)
    figures.add("ingest_rollups_off_metrics_per_s", median(run.rate for run in without), "metrics/s")
    figures.add("ingest_rollups_on_metrics_per_s", median(run.rate for run in with_rollups), "metrics/s")
    figures.add("ingest_rollups_rate_ratio", median(on.rate / off.rate for off, on in pairs), "of the rate without")
    until_rolled = median(on.until_rolled / off.rate for off, on in pairs)
    figures.add("ingest_rollups_until_rolled_ratio", until_rolled, "of the rate without")
    figures.add("ingest_rollups_cpu_ratio", median(on.cpu_us / off.cpu_us for off, on in pairs), "of the time without")
    figures.add("ingest_rollups_from_minutes", median(run.from_minutes for run in with_rollups), "of the hours")
    figures.add("ingest_rollups_catch_up_s", median(run.catch_up_s for run in with_rollups), "s")


@dataclass(frozen=True, slots=True)
class _RolledRun:
    rate: float
    """Metrics a second, as they are taken, ..."""
    until_rolled: float
    """... and until everything is rolled."""
    cpu_us: float
    """Of the server, for a metric."""
    from_minutes: float
    """Which part of the hours was rolled without reading raw reports."""
    catch_up_s: float


def _rolled_run(options: argparse.Namespace, *, enabled: int) -> _RolledRun:
    settings = {"WIDEROW_ROLLUP_ENABLED": str(enabled), "WIDEROW_ROLLUP_SETTLE_S": "1"}
    with Server(options.layout, options.folder, settings) as server:
        feed = feed_of(server, options, "line", options.lines, FASTEST_REPORTS_PER_S)
        warm = feed.run(connections=options.connections, requests=warm_up_requests(feed.load))
        cpu_s = server.cpu_s()
        report = feed.run(connections=options.connections, seconds=options.seconds)
        began_s = time.monotonic()
        from_minutes = _await_rolled(server) if enabled else 0.0
        catch_up_s = time.monotonic() - began_s if enabled else 0.0
        cpu_s = server.cpu_s() - cpu_s
        check(server, feed, [warm, report])
    until_rolled = report.metrics / (report.wall_s + catch_up_s)
    return _RolledRun(report.metrics_per_s, until_rolled, 1e6 * cpu_s / report.metrics, from_minutes, catch_up_s)


def _await_rolled(server: Server) -> float:
    """Until no hour is left that is marked; gives the part of hours that were rolled from their minutes."""
    deadline = time.monotonic() + 300
    with server.connection(server.operator_token) as connection:
        while counter(connection, 'widerow_rollup_pending_windows{level="hour"}'):
            if time.monotonic() > deadline:
                raise RuntimeError("hours are still to be rolled after five minutes")
            time.sleep(0.25)
        minutes, raw = (
            counter(connection, f'widerow_rollup_windows_total{{level="hour",source="{source}"}}')
            for source in ("minutes", "raw")
        )
    return minutes / (minutes + raw)


def paced_run(figures: Figures, options: argparse.Namespace) -> None:
    """At a fixed rate: how long an acknowledgement takes when the server is not flat out."""
    with Server(options.layout, options.folder) as server:
        feed = feed_of(server, options, "line", RATE_LINES, options.rate)
        warm = feed.run(connections=options.connections, requests=warm_up_requests(feed.load))
        report = feed.run(connections=options.connections, seconds=options.seconds, rate=options.rate)
        check(server, feed, [warm, report])
    name = f"ingest_paced_{options.rate:.0f}"
    figures.add(f"{name}_reports_per_s", report.reports / report.wall_s, "reports/s")
    for q, label in ((0.5, "p50"), (0.99, "p99"), (1.0, "max")):
        figures.add(f"{name}_ack_{label}_ms", 1e3 * report.latencies.quantile(q), "ms")


def warm_up_requests(load: Load) -> int:
    """Each device twice."""
    return -(-2 * load.devices // load.lines)


def feed_of(server: Server, options: argparse.Namespace, form: str, lines: int, reports_per_s: float) -> Feed:
    # The warm-up takes a few cycles as well: a second more is plenty.
    first_us = start_us(time.time_ns() // 1000, options.devices, options.seconds + 1, reports_per_s)
    return Feed(server.url, server.write_token, Load(options.devices, lines, first_us), form)


def check(server: Server, feed: Feed, reports: list[FeedReport]) -> None:
    """Whether the server has what it acknowledged. A benchmark that lost data has no result."""
    # What the server counts is its operator's business; what a device reported is its tenant's.
    with server.connection(server.operator_token) as connection:
        accepted = counter(connection, "widerow_reports_accepted_total")
    sent = sum(r.reports for r in reports)
    if accepted != sent:
        raise RuntimeError(f"{sent} reports were acknowledged, the server counts {accepted:.0f}")
    with server.connection() as connection:
        path = series_path(
            feed.load.names()[0], [METRIC_NAMES[feed.form]], feed.load.start_us, max(r.last_us for r in reports)
        )
        points = stored_points(connection, path)
        want = sum(r.first_device for r in reports)
        if points != want:
            raise RuntimeError(f"{feed.load.names()[0]}: {want} reports were acknowledged, {points} can be read")


if __name__ == "__main__":
    main()
