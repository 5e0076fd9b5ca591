"""Kills gateways and workers of a pipeline again and again, restarts its brokers, and looks for lost or invented reports.

    python -m tests.system.pipeline_kills --kills N [--reports R] [--store cassandra|bigtable] [--seed S]

Devices send to a real mosquitto all the while, and keep a ledger of what it acknowledged; from there a gateway takes it to a
real Kafka, and two workers to a real store. In the end all that was acknowledged must be there, once, with every value;
every rollup must be what a computation from raw reports says, and every count what was sent. Exit code 1: it was not.

Rule 1: each blow meets traffic. It has a share of the reports: some are sent at its very moment, the others until the next.
Rule 2: who is killed was up: connected to the broker, or with partitions. To kill what starts proves little.
Rule 3: that work was under way is looked at, not hoped for: the broker delivers again what a killed gateway had not
acknowledged, and Kafka has messages that a killed worker had not committed. Where most kills met nothing, the run is wrong.
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
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from system.processes import Part, Process
    from system.works import Sent, Works

T = TypeVar("T")

DEVICES = 50
PER_MESSAGE = 25
PER_BLOW = 5_000
"""Reports for each, four rounds of all devices, unless one says how many."""
_BETWEEN_S = (0.2, 1.0)
_ROUND_S = 0.4
"""Between two rounds of messages, where no blow hurries them."""
_MET_S = 2.0
_FEW = 5
"""Kills, among which perhaps none is of a gateway, or of a worker."""
_UP_S = 90.0


class Pace:
    """Shares rounds of messages out among blows. One thread sends, another strikes."""

    def __init__(self, rounds: int, blows: int) -> None:
        self._rounds, self._blows = rounds, blows
        self._changed = threading.Condition()
        self._struck = self._begun = 0
        self._hurry = False

    def turn(self, n: int) -> None:
        """Wait until it is time for round `n`: at the moment of a blow at once, else some time after the one before."""
        with self._changed:
            self._changed.wait_for(lambda: n * self._blows < self._rounds * self._struck)
            self._changed.wait_for(lambda: self._hurry, _ROUND_S)
            self._hurry = self._struck > self._blows
            self._begun = n + 1
            self._changed.notify_all()

    def blow(self) -> int:
        """One falls now: its share is sent from now on, and the first of it has begun on return. Gives what is left."""
        with self._changed:
            before = self._begun
            self._struck, self._hurry = self._struck + 1, True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._begun > before, _MET_S)
            return self._rounds - before

    def over(self) -> None:
        """There are no more blows: send what is left."""
        with self._changed:
            self._struck, self._hurry = self._blows + 1, True
            self._changed.notify_all()


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
    again: list[int] = field(default_factory=list)
    """For each life of a gateway after one that was killed: messages that the broker delivered again."""
    uncommitted: list[int] = field(default_factory=list)
    """For each kill of a worker: messages of its partitions that were not committed; 0 if it had taken none at all."""
    killed: Counter[str] = field(default_factory=Counter)
    joined: Process | None = None
    pace: Pace = field(init=False)
    _life_looked_at: bool = True

    def go(self, kills: int, *, restarts: bool = True, rebalance: bool = False) -> None:
        """Everything, and the judgement."""
        from system.works import past  # noqa: PLC0415 - where tests are found is known by now

        began_s = time.monotonic()
        tell = self.tell
        self.tell = lambda text: tell(f"{time.monotonic() - began_s:5.1f} s  {text}")
        events: list[Callable[[], None]] = [self._kill] * kills
        if restarts:
            events += [self._restart_broker, self._restart_log]
        self.random.shuffle(events)
        if rebalance:  # one joins, and later one leaves
            middle = len(events) // 2
            events = [self._join, *events[:middle], self._leave, *events[middle:]]
        span = past(5)
        self.pace = Pace(self.reports // DEVICES // PER_MESSAGE, len(events))
        sending = threading.Thread(target=self._guarded, args=(span.start_us, span.stop_us))
        sending.start()
        try:
            for event in events:
                time.sleep(self.random.uniform(*_BETWEEN_S))
                event()
        finally:
            self.pace.over()
            sending.join()
        if self.failed:
            raise self.failed[0]
        self.tell(
            f"{len(self.sent.acknowledged):,} of {len(self.sent.values):,} reports acknowledged; {len(self.done)} blows"
        )
        self.works.wait_for(self.sent, span)
        self.tell("all of them are in the store, and nothing else")
        self._judge_kills()
        self._judge_partitions()
        self.works.wait_until_rolled(span.stop_us)
        checked = self.works.verify(self.sent, span)
        counted = self.works.count(self.sent, span)
        self.tell(f"{checked:,} rollups are right, and {counted:,} reports are counted, each once")

    def _judge_kills(self) -> None:
        """Whether they met something."""
        self._look_at_gateway()
        for whom, met, what in (
            ("a gateway", self.again, "messages were delivered again"),
            ("a worker", self.uncommitted, "messages were not committed"),
        ):
            some = [number for number in met if number]
            told = f"{len(some)} of {len(met)} kills of {whom} met work: {sum(some)} {what}"
            self.tell(told)
            if len(some) * 2 < len(met) or (not some and self.killed.total() > _FEW):
                raise _unexpected(f"too little was under way: {told}")

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
                self.pace.turn(n)
                for d in range(DEVICES):
                    first = start_us + n * PER_MESSAGE * pace_us
                    times = [first + k * pace_us + d * 1000 for k in range(PER_MESSAGE)]
                    reports = [
                        {"time": at // 1000, "values": {"temp": float(n * PER_MESSAGE + k), "flow": d / 8 + k}}
                        for k, at in enumerate(times)
                    ]
                    devices.send(f"d{d}", reports, times)
            devices.wait(120.0)
        finally:
            devices.close()

    # -- what is done to it

    def _kill(self) -> None:
        victim = self._victim()
        met = self._kill_gateway() if victim is self.works.gateway else self._kill_worker(victim)
        self._note(f"kill {victim.name}: {met}")
        self.killed[victim.name] += 1
        time.sleep(self.random.uniform(0.0, 1.0))
        victim.start(wait=False)

    def _kill_gateway(self) -> str:
        """As soon as it has messages that it has not acknowledged."""
        gateway = self.works.gateway
        self._look_at_gateway()
        left = self.pace.blow()
        held = self._until(lambda: gateway.metric("widerow_mqtt_unacked_bytes"))
        gateway.kill()
        self._life_looked_at = False
        return f"{held:.0f} bytes not acknowledged, {left} rounds to be sent"

    def _kill_worker(self, worker: Process) -> str:
        """As soon as it has taken messages, and its partitions have some that are not committed."""
        left = self.pace.blow()
        taken = self._until(lambda: int(worker.metric("widerow_kafka_taken_messages_total")))
        self._until(lambda: self.works.uncommitted(worker.partitions()))
        parts = worker.partitions()
        worker.kill()
        uncommitted = self.works.uncommitted(parts)
        self.uncommitted.append(uncommitted if taken else 0)
        return f"{taken} messages taken, {uncommitted} of {len(parts)} partitions not committed, {left} rounds to be sent"

    def _restart_broker(self) -> None:
        self._look_at_gateway()  # a broker that comes back delivers again, too
        self._note(f"restart of the MQTT broker: {self.pace.blow()} rounds to be sent")
        self.works.broker.stop()
        self.works.broker.start()

    def _restart_log(self) -> None:
        self._note(f"restart of Kafka: {self.pace.blow()} rounds to be sent")
        self.works.log.stop()
        self.works.log.start()

    def _join(self) -> None:
        self.pace.blow()
        self.joined = self.works.another_worker(self.folder)
        self._note(f"{self.joined.name} joins")

    def _leave(self) -> None:
        """Who joined has had its share by now; who leaves hands over what it has. The others have all of it in the end."""
        joined = self.joined
        if joined is not None and not self._until(lambda: any(some for some, _ in joined.moves(ever=True)), _UP_S):
            raise _unexpected(f"{joined.name} joined, and was given nothing:\n{joined.whole_log()[-3000:]}")
        worker = self._victim(self.works.workers)
        self.pace.blow()
        parts = worker.partitions()
        worker.stop()
        handed = set().union(*(some for some, event in worker.moves() if event == "are handed over"))
        if worker.partitions() or not parts <= handed:
            raise _unexpected(f"{worker.name} left, and did not hand over {_shown(parts)}:\n{worker.log()[-3000:]}")
        self._note(f"{worker.name} leaves, and hands over {_shown(parts)}")

    def _note(self, text: str) -> None:
        self.done.append(text)
        self.tell(text)

    # -- who is up, and what is under way

    def _victim(self, among: Sequence[Process] | None = None) -> Process:
        """One that is up, of those the one that was killed least. Waits for one; for a gateway, as well, without which there
        is nothing to do, unless a worker has something left.
        """
        works = self.works

        def candidates() -> list[Process]:
            up = [process for process in among or (works.gateway, *works.workers) if process.is_up()]
            if works.gateway.is_up():
                return up
            return [worker for worker in up if works.uncommitted(worker.partitions())]

        up = self._until(candidates, _UP_S)
        if not up:
            raise _unexpected(f"nobody is up after {_UP_S:g} s")
        return min(up, key=lambda process: (self.killed[process.name], self.random.random()))

    def _judge_partitions(self) -> None:
        """Those that run have all of them, each one's."""
        workers = [worker for worker in self.works.workers if worker.runs()]

        def shared_out() -> bool:
            parts = [worker.partitions() for worker in workers]
            return sum(map(len, parts)) == len(self.works.parts) and set().union(*parts) == self.works.parts

        if not self._until(shared_out, _UP_S):
            had = {worker.name: _shown(worker.partitions()) for worker in workers}
            raise _unexpected(f"partitions are nobody's, or of two, after {_UP_S:g} s: {had}")

    def _look_at_gateway(self) -> None:
        """Once in a life that follows a kill: what the broker delivered again."""
        if self._life_looked_at:
            return
        gateway = self.works.gateway
        if not self._until(gateway.is_up, _UP_S):
            raise _unexpected(f"the gateway is not up after {_UP_S:g} s:\n{gateway.log()[-3000:]}")
        self.again.append(int(gateway.metric("widerow_mqtt_again_total")))
        self._life_looked_at = True

    def _until(self, look: Callable[[], T], within_s: float = _MET_S) -> T:
        """What it sees as soon as that is something, and the last it saw if it never is."""
        until_s = time.monotonic() + within_s
        while not (seen := look()) and time.monotonic() < until_s:
            time.sleep(0.005 if within_s == _MET_S else 0.1)
        return seen


def _shown(parts: set[Part]) -> str:
    return ", ".join(f"{topic}/{n}" for topic, n in sorted(parts)) or "nothing"


def _unexpected(text: str) -> AssertionError:
    from system.processes import Unexpected  # noqa: PLC0415 - where tests are found is known by now

    return Unexpected(text)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests.system.pipeline_kills", description="Kill the pipeline, and see what it lost."
    )
    parser.add_argument("--kills", type=int, default=100, help="how often a gateway or worker is killed")
    parser.add_argument("--reports", type=int, help=f"how many are sent meanwhile; {PER_BLOW:,} for each kill")
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
            reports = options.reports or max(1, options.kills) * PER_BLOW
            run = Run(site, works.Sent(), folder, reports, random.Random(seed), lambda text: print(text, flush=True))
            try:
                run.go(options.kills)
            except works.Unexpected as error:
                print(f"WRONG: {error}\nthe logs are in {folder}")
                return 1
    print(f"nothing acknowledged was lost, nothing was counted twice: {time.monotonic() - began_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
