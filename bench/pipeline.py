"""How many reports a second go through Kafka into a store, and which stage takes how much of the machine.

    python -m bench.pipeline [--quick] [--stores rocksdb,cassandra] [--seconds 30]

A front (here: the part of a gateway behind its decoders) makes messages of batches and has Kafka confirm them; one worker
takes them and writes them. The front never runs ahead of the worker by more than `--ahead` reports, so the rate is one that
all stages keep up. Servers are started here, on the same cores.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.engines import BENCH, METRICS, Load
from bench.lib.figures import Figures
from bench.lib.servers import Cassandra, Kafka

from widerow.config import Backfill, Config, Store
from widerow.config import Kafka as KafkaConfig
from widerow.ingest.kafka.connect import ensure_topics
from widerow.ingest.kafka.produce import KafkaSink
from widerow.model.errors import Refusal, WiderowError
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, SystemClock
from widerow.model.token import Role
from widerow.ops.counters import Counters
from widerow.pipeline.job import Job
from widerow.service import Service

_TICK = os.sysconf("SC_CLK_TCK")
_START_S, _LOOK_S = 90.0, 0.2
_READY = re.compile(r" at (http://\S+)$", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.pipeline", description="Reports a second through Kafka into a store.")
    parser.add_argument("--stores", default="rocksdb,cassandra")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run")
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--ahead", type=int, default=60_000, help="reports that the front may be ahead of the worker")
    parser.add_argument("--quick", action="store_true", help="5 s a run: to see that it works")
    options = parser.parse_args()
    if options.quick:
        options.seconds = 5.0
    figures = Figures("pipeline", vars(options))
    for store in options.stores.split(","):
        measure(figures, store, options)
    print(f"written to {figures.save()}")


@dataclass(frozen=True, slots=True)
class Site:
    """What takes part, and the ids of its processes."""

    config: Config
    tenant: Tenant
    worker_url: str
    token: str
    processes: dict[str, int]

    def stored(self) -> int:
        """Reports that the worker has made durable."""
        request = urllib.request.Request(f"{self.worker_url}/metrics", headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
        return int(sum(map(float, re.findall(r"^widerow_reports_accepted_total\{[^}]*\} (\S+)$", text, re.MULTILINE))))

    def cpu_s(self) -> dict[str, float]:
        """User and system time of each process so far."""
        found = {}
        for name, pid in self.processes.items():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[name] = (int(fields[11]) + int(fields[12])) / _TICK
        return found


def measure(figures: Figures, store: str, options: argparse.Namespace) -> None:
    with opened(store, options) as site:
        clock = SystemClock()
        sink = KafkaSink(site.config, clock, Counters())
        # Event times run faster than the clock; they end before now.
        load = Load(options.devices, 1, clock.now_us() - clock.now_us() % DAY - 20 * DAY)
        produced, n = 0, 0
        for _ in range(3):  # cold caches, new devices, a consumer that joins its group
            produced += produce(sink, site.tenant, load, n)
            n += 1
        wait_for(site, produced)
        before, began_s, first = site.cpu_s(), time.perf_counter(), produced
        look_s, stored = 0.0, produced
        while time.perf_counter() - began_s < options.seconds:
            if produced - stored > options.ahead or time.perf_counter() > look_s:
                stored, look_s = site.stored(), time.perf_counter() + _LOOK_S
            if produced - stored > options.ahead:
                time.sleep(0.01)
                continue
            produced += produce(sink, site.tenant, load, n)
            n += 1
        wait_for(site, produced)
        took_s = time.perf_counter() - began_s
        spent = {name: now_s - before[name] for name, now_s in site.cpu_s().items()}
    reports = produced - first
    figures.add(f"pipeline_{store}_reports_per_s", reports / took_s, "reports/s")
    figures.add(f"pipeline_{store}_metrics_per_s", reports * len(METRICS) / took_s, "metrics/s")
    for name, seconds in spent.items():
        figures.add(f"pipeline_{store}_{name}_core_share", seconds / sum(spent.values()), "of the time of all stages")
        figures.add(f"pipeline_{store}_{name}_core_us_per_report", 1e6 * seconds / reports, "us")


def produce(sink: KafkaSink, tenant: Tenant, load: Load, n: int) -> int:
    """One batch, confirmed by Kafka; how many reports it had."""
    batch = load.batch(n)
    job = Job(tenant, 1, lambda: None, lambda _: None, batch=batch)  # type: ignore[arg-type, return-value]
    failed: list[WiderowError] = []

    def settle(job: Job, refused: Sequence[Refusal], error: WiderowError | None) -> None:  # noqa: ARG001
        if error or refused:
            failed.append(error or WiderowError(str(refused[0])))

    sink.commit([(tenant.name, [job])], settle)
    if failed:
        raise failed[0]
    return len(batch)


def wait_for(site: Site, produced: int, within_s: float = 300.0) -> None:
    until_s = time.monotonic() + within_s
    while (stored := site.stored()) < produced:
        if time.monotonic() > until_s:
            raise TimeoutError(f"{stored} of {produced} reports are stored after {within_s:g} s")
        time.sleep(0.05)


@contextmanager
def opened(store: str, options: argparse.Namespace) -> Iterator[Site]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="widerow-bench-")))
        log = stack.enter_context(Kafka(heap_mib=1024, java_options=()))
        processes = {"front": os.getpid(), "kafka": log.pid}
        url = f"rocksdb:{folder / 'store'}"
        if store == "cassandra":
            server = stack.enter_context(Cassandra())
            processes["cassandra"], url = server.pid, server.store_url("bench")
        kafka = KafkaConfig(brokers=log.address, partitions=options.partitions)
        config = replace(Config(), store=Store(url=url), kafka=kafka, backfill=Backfill(after_s=40 * DAY // 1_000_000))
        ensure_topics(kafka, create=True)
        with Service.open(config, writes=False) as service:
            tenant = service.create_tenant(BENCH)
            token, _ = service.catalog.tokens.create(Role.OPERATOR)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WIDEROW_")},
            "WIDEROW_KAFKA_BROKERS": log.address,
            "WIDEROW_BACKFILL_AFTER_S": str(config.backfill.after_s),
        }
        said = folder / "worker.log"
        with said.open("wb") as out:
            command = [sys.executable, "-m", "widerow.cli.main", "worker", "--store", url, "--port", "0"]
            worker = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        stack.callback(_end, worker)
        until_s = time.monotonic() + _START_S
        while not (found := _READY.search(said.read_text())):
            if worker.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"the worker does not start:\n{said.read_text()[-3000:]}")
            time.sleep(0.05)
        yield Site(config, tenant, found[1], token, processes | {"worker": worker.pid})


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
