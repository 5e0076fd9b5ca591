"""The same reports into every engine, and on Cassandra against the writer that everybody writes first.

    python -m bench.engines [--quick] [--engines memory,rocksdb,cassandra,bigtable] [--seconds 20]

Servers are started here, on the same cores, and stopped. A write holds `--minutes` of `--devices`, like a flush of a fleet.
The naive writer sends one asynchronous INSERT for each metric of the same reports, prepared and token-aware, with as
many under way as ours has.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench.lib.figures import Figures
from bench.lib.servers import Bigtable, Cassandra

from widerow.config import Config, Store
from widerow.engine.open import open_engine
from widerow.engine.port import Engine
from widerow.model.batch import Batch, Cells
from widerow.model.names import Coded, Names
from widerow.model.tenant import Tenant
from widerow.model.times import MINUTE, SECOND, SystemClock, whole_ms
from widerow.query.points import points_of
from widerow.schema.tables import TABLES
from widerow.telemetry.store import Telemetry, TelemetrySettings

BENCH = Tenant(name="bench")
METRICS = Names.of([f"metric_{n}" for n in range(10)])
INTERVAL_US = 10 * SECOND
NAIVE_IN_FLIGHT = 128


@dataclass(frozen=True, slots=True)
class Load:
    """What one write holds: some minutes of some devices, at a report each 10 s."""

    devices: int
    minutes: int
    start_us: int

    def batch(self, n: int) -> Batch:
        """The n-th write; it goes on where the one before ended."""
        per_device = self.minutes * MINUTE // INTERVAL_US
        reports = self.devices * per_device
        device = np.repeat(np.arange(self.devices, dtype=np.int32), per_device)
        time_us = self.start_us + (n * per_device + np.tile(np.arange(per_device), self.devices)) * INTERVAL_US
        rng = np.random.default_rng(n)
        k = len(METRICS)
        cells = Cells.numbers(
            np.arange(0, reports * k + 1, k),
            METRICS,
            np.tile(np.arange(k, dtype=np.int32), reports),
            np.round(rng.normal(20, 5, reports * k), 2),
        )
        names = Names.of([f"device-{d:06d}" for d in range(self.devices)])
        version = np.full(reports, whole_ms(SystemClock().now_us()))
        return Batch(Coded(names, device), time_us, version, np.arange(reports, dtype=np.int32), cells)


def main() -> None:
    options = parse()
    figures = Figures("engines", vars(options))
    for name in options.engines.split(","):
        with opened(name) as (engine, server):
            ours = measure(figures, name, engine, options)
            if server is not None:
                naive = measure_naive(server, options)
                figures.add("engines_cassandra_naive_metrics_per_s", naive, "metrics/s")
                figures.add("engines_cassandra_ours_to_naive", ours / naive, "times")
    print(f"written to {figures.save()}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.engines", description="The same reports into every engine.")
    parser.add_argument("--engines", default="memory,rocksdb,cassandra,bigtable")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run")
    parser.add_argument("--devices", type=int, default=200)
    parser.add_argument("--minutes", type=int, default=1, help="of each device in one write")
    parser.add_argument("--writers", type=int, default=2, help="threads that write")
    parser.add_argument("--quick", action="store_true", help="3 s a run: to see that it works")
    options = parser.parse_args()
    if options.quick:
        options.seconds = 3.0
    return options


@contextmanager
def opened(name: str) -> Iterator[tuple[Engine, Cassandra | None]]:
    """An engine on an empty store, and the server it is on."""
    with ExitStack() as stack:
        server = None
        if name == "cassandra":
            server = stack.enter_context(Cassandra(java_options=(), heap_mib=2048))
            url = server.store_url("bench")
        elif name == "bigtable":
            emulator = stack.enter_context(Bigtable())
            os.environ["BIGTABLE_EMULATOR_HOST"] = emulator.address
            url = emulator.store_url("bench")
        elif name == "rocksdb":
            url = f"rocksdb:{Path(stack.enter_context(tempfile.TemporaryDirectory(prefix='widerow-bench-'))) / 'store'}"
        else:
            url = f"{name}:"
        engine = open_engine(Config(store=Store(url=url)), SystemClock())
        stack.callback(engine.close)
        engine.apply(TABLES)
        yield engine, server


def measure(figures: Figures, name: str, engine: Engine, options: argparse.Namespace) -> float:
    """Metrics written each second, and what a device's minutes and its latest values take to read."""
    telemetry = Telemetry(engine, SystemClock(), TelemetrySettings(max_future_us=MINUTE, refresh_us=10 * SECOND))
    load = Load(options.devices, options.minutes, SystemClock().now_us() - 20 * 24 * 60 * MINUTE)
    telemetry.write(BENCH, load.batch(0))
    rate = _rate(lambda n: _written(telemetry, load.batch(n)), options)
    figures.add(f"engines_{name}_metrics_per_s", rate, "metrics/s")
    began_s = time.perf_counter()
    asks = 50
    for n in range(asks):
        points_of(telemetry.latest(BENCH, [f"device-{n % options.devices:06d}"]))
    figures.add(f"engines_{name}_latest_ms", 1e3 * (time.perf_counter() - began_s) / asks, "ms")
    return rate


def _written(telemetry: Telemetry, batch: Batch) -> int:
    telemetry.write(BENCH, batch)
    return len(batch.cells)


def _rate(write: Any, options: argparse.Namespace) -> float:
    """Metrics per second, by several threads that take turns at the next write."""
    lock, numbers, done = threading.Lock(), iter(range(1, 1 << 30)), [0] * options.writers
    deadline = time.perf_counter() + options.seconds
    failures: list[BaseException] = []

    def work(me: int) -> None:
        try:
            while time.perf_counter() < deadline:
                with lock:
                    n = next(numbers)
                done[me] += write(n)
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(options.writers)]
    began_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum(done) / (time.perf_counter() - began_s)


def measure_naive(server: Cassandra, options: argparse.Namespace) -> float:
    """One INSERT a metric, asynchronous, as many under way as ours."""
    from cassandra.cluster import Cluster  # noqa: PLC0415 - only where it is measured

    cluster = Cluster([server.host], port=server.port, protocol_version=4)
    session = cluster.connect()
    session.execute(
        "CREATE KEYSPACE IF NOT EXISTS naive WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}"
    )
    session.execute(
        "CREATE TABLE IF NOT EXISTS naive.telemetry (tenant_id text, device_id text, bucket bigint, event_time timestamp, "
        "metric_name text, metric_value double, PRIMARY KEY ((tenant_id, device_id, bucket), event_time, metric_name)) "
        "WITH CLUSTERING ORDER BY (event_time DESC, metric_name ASC)"
    )
    insert = session.prepare(
        "INSERT INTO naive.telemetry (tenant_id, device_id, bucket, event_time, metric_name, metric_value) "
        "VALUES (?, ?, ?, ?, ?, ?) USING TTL 2592000"
    )
    load = Load(options.devices, options.minutes, SystemClock().now_us() - 20 * 24 * 60 * MINUTE)
    slots = threading.BoundedSemaphore(NAIVE_IN_FLIGHT)

    def write(n: int) -> int:
        batch = load.batch(n)
        devices, metrics = batch.device.to_list(), METRICS.to_list()
        values = batch.cells.number.reshape(len(batch), len(METRICS)).tolist()
        for device, time_us, row in zip(devices, batch.time_us.tolist(), values, strict=True):
            bucket = time_us - time_us % (60 * MINUTE)
            for metric, value in zip(metrics, row, strict=True):
                slots.acquire()
                future = session.execute_async(insert, ("bench", device, bucket, time_us // 1000, metric, value))
                future.add_callbacks(lambda _: slots.release(), lambda _: slots.release())
        return len(batch.cells)

    try:
        return _rate(write, options)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
