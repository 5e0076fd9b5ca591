"""Kills gateways and workers of a pipeline again and again, restarts its brokers, and looks for lost or invented reports.

    python -m tests.system.pipeline_kills --kills N [--reports R] [--store cassandra|bigtable] [--seed S]

Devices send to a real mosquitto all the while, and keep a ledger of what it acknowledged; from there a gateway takes it to a
real Kafka, and two workers to a real store. In the end all that was acknowledged must be there, once, and every rollup must
be what a computation from raw reports says. Exit code 1: something was wrong.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from system.works import Sent, Works

DEVICES = 50
PER_MESSAGE = 25
_BETWEEN_S = (0.3, 2.0)


@dataclass
class Run:
    """One run: devices send `reports` while processes are mistreated."""

    works: Works
    sent: Sent
    folder: Path
    reports: int
    random: random.Random
    tell: Callable[[str], None] = lambda _: None
    done: list[str] = field(default_factory=list)
    failed: list[BaseException] = field(default_factory=list)

    def go(self, kills: int, *, restarts: bool = True, rebalance: bool = False) -> None:
        """Everything, and the judgement."""
        from system.works import past  # noqa: PLC0415 - where tests are found is known by now

        span = past(5)
        sending = threading.Thread(target=self._guarded, args=(span.start_us, span.stop_us))
        sending.start()
        events: list[Callable[[], None]] = [self._kill] * kills
        if restarts:
            events += [self._restart_broker, self._restart_log]
        self.random.shuffle(events)
        if rebalance:  # one joins, and later one leaves
            middle = len(events) // 2
            events = [self._join, *events[:middle], self._leave, *events[middle:]]
        for event in events:
            time.sleep(self.random.uniform(*_BETWEEN_S))
            event()
        sending.join()
        if self.failed:
            raise self.failed[0]
        self.tell(
            f"{len(self.sent.acknowledged):,} of {len(self.sent.values):,} reports acknowledged; {len(self.done)} blows"
        )
        self.works.wait_for(self.sent, span)
        self.works.wait_until_rolled(span.stop_us)
        checked = self.works.verify(span)
        self.tell(f"all of them are in the store; {checked:,} rollups are right")

    # -- devices

    def _guarded(self, start_us: int, stop_us: int) -> None:
        try:
            self._send(start_us, stop_us)
        except BaseException as error:  # noqa: BLE001 - it is raised where the run is
            self.failed.append(error)

    def _send(self, start_us: int, stop_us: int) -> None:
        from system.works import Devices  # noqa: PLC0415

        devices = Devices(self.works.broker, self.sent)
        each = self.reports // DEVICES // PER_MESSAGE
        pace_us = (stop_us - start_us) // (each * PER_MESSAGE) // 1000 * 1000
        try:
            for n in range(each):
                for d in range(DEVICES):
                    first = start_us + n * PER_MESSAGE * pace_us
                    times = [first + k * pace_us + d * 1000 for k in range(PER_MESSAGE)]
                    reports = [
                        {"time": at // 1000, "values": {"temp": float(n * PER_MESSAGE + k), "flow": d / 8}}
                        for k, at in enumerate(times)
                    ]
                    devices.send(f"d{d}", reports, times)
            devices.wait(120.0)
        finally:
            devices.close()

    # -- what is done to it

    def _kill(self) -> None:
        works = self.works
        victim = self.random.choice([works.gateway, *[worker for worker in works.workers if worker.runs()]])
        victim.kill()
        self.done.append(f"kill {victim.name}")
        self.tell(self.done[-1])
        time.sleep(self.random.uniform(0.0, 1.0))
        victim.start(wait=False)

    def _restart_broker(self) -> None:
        self.done.append("restart of the MQTT broker")
        self.tell(self.done[-1])
        self.works.broker.stop()
        self.works.broker.start()

    def _restart_log(self) -> None:
        self.done.append("restart of Kafka")
        self.tell(self.done[-1])
        self.works.log.stop()
        self.works.log.start()

    def _join(self) -> None:
        worker = self.works.another_worker(self.folder)
        self.done.append(f"{worker.name} joins")
        self.tell(self.done[-1])

    def _leave(self) -> None:
        worker = next(worker for worker in self.works.workers if worker.runs())
        worker.stop()
        self.done.append(f"{worker.name} leaves")
        self.tell(self.done[-1])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests.system.pipeline_kills", description="Kill the pipeline, and see what it lost."
    )
    parser.add_argument("--kills", type=int, default=100, help="how often a gateway or worker is killed")
    parser.add_argument("--reports", type=int, default=500_000, help="how many are sent meanwhile")
    parser.add_argument("--store", choices=("cassandra", "bigtable"), default="cassandra")
    parser.add_argument("--seed", type=int, help="choices of an earlier run; the moments still depend on the machine")
    options = parser.parse_args()
    tests = str(Path(__file__).resolve().parents[1])
    if tests not in sys.path:
        sys.path.insert(0, tests)
    works = importlib.import_module("system.works")
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="widerow-pipeline-"))
    began_s = time.monotonic()
    kafka, mosquitto = importlib.import_module("servers.kafka"), importlib.import_module("servers.mosquitto")
    store = importlib.import_module(f"servers.{options.store}")
    with kafka.Kafka() as log, mosquitto.Mosquitto() as broker, getattr(store, options.store.capitalize())() as server:
        if options.store == "bigtable":
            os.environ["BIGTABLE_EMULATOR_HOST"] = server.address
        with works.Works("kills", folder, server.store_url("kills"), broker, log) as site:
            run = Run(site, works.Sent(), folder, options.reports, random.Random(seed), lambda text: print(text, flush=True))
            try:
                run.go(options.kills)
            except works.Unexpected as error:
                print(f"WRONG: {error}\nthe logs are in {folder}")
                return 1
    print(f"nothing acknowledged was lost, nothing was counted twice: {time.monotonic() - began_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
