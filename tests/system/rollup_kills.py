"""Kills a process that writes and rolls at named points, again and again, and has its rollups computed again each time.

    python -m tests.system.rollup_kills --cycles N [--seed S]

Between any two writes and deletes of a roll there is a point. A write of several tables may also end between two of them, as
the port allows: on an engine that does not write all at once, a mark may be there without its reports.
After each kill `verify` looks at everything: a window is right, or marked. In the end all that was ever sent is sent again,
all is rolled, and nothing is marked; and what is counted as stored is what was sent, each report once.
Exit code 1: something was wrong; the store is kept and named.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from widerow import service as services
from widerow.codec.decoded import Decoded
from widerow.config import Config, Store
from widerow.engine.open import open_engine
from widerow.engine.rows import Rows
from widerow.model.batch import Report, batch_of
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, SECOND, TimeSpan, whole_ms
from widerow.pipeline.job import Job, Outcome
from widerow.query.points import points_of
from widerow.rollup.counts import TOTAL_NAMES
from widerow.rollup.pyramid import PyramidSettings
from widerow.rollup.rolling import RollingSettings
from widerow.rollup.verify import Verifier
from widerow.rollup.windows import WindowSettings
from widerow.schema.rollups import HOURS
from widerow.schema.shards import SHARDS
from widerow.schema.table import Table
from widerow.service import Service

TENANT = "acme"
DEVICES = tuple(f"d{n}" for n in range(6))
_BATCH = 40
_MOST = 400
_LONGEST_S, _LONGEST_ONCE_S = 4.0, 30.0


@dataclass(frozen=True, slots=True)
class Point:
    """Where to die: at an operation on a table whose name begins so; a write, between its parts, or a delete."""

    name: str
    operation: str
    table: str
    when: str
    """`before`, `after`, or (of a write) `within`: when that part is stored, and the next is not."""


POINTS = (
    Point("before marks and reports", "write", "telemetry_30d", "before"),
    Point("marks are there, reports are not", "write", "dirty", "within"),
    Point("reports are there, nobody knows", "write", "telemetry_30d", "after"),
    Point("before minutes", "write", "telemetry_1min", "before"),
    Point("after minutes", "write", "telemetry_1min", "after"),
    Point("the day is marked, its hour is not there", "write", "dirty_days", "within"),
    Point("hours are there, and not counted", "write", "telemetry_hourly", "within"),
    Point("hours are there, their marks are as well", "write", "telemetry_hourly", "after"),
    Point("before the marks of an hour go", "delete", "dirty", "before"),
    Point("the marks of an hour are gone", "delete", "dirty", "after"),
    Point("before a day", "write", "telemetry_daily", "before"),
    Point("a day is there, its marks are as well", "write", "telemetry_daily", "after"),
    Point("a day is summed up, its marks are there", "write", "stored_daily", "after"),
    Point("the marks of a day are gone", "delete", "dirty_days", "after"),
    Point("a shard of the fleet is there, its hour is not", "write", "fleet_partials", "within"),
    Point("an hour is summed up, the fleet's is not there", "write", "stored_hourly", "after"),
    Point("the fleet's hour is there, its marks are as well", "write", "fleet_telemetry", "after"),
    Point("the marks of the fleet's hour are gone", "delete", "dirty_fleet", "after"),
)


class Deadly:
    """An engine that kills its process the nth time a point is reached."""

    def __init__(self, engine: Any, point: Point, nth: int) -> None:
        self._engine, self._point, self._left = engine, point, nth

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def write(self, changes: Sequence[tuple[Table, Rows]]) -> None:
        if not any(self._means("write", table) for table, _ in changes):
            self._engine.write(changes)
            return
        self._reached("before")
        if self._point.when == "within":
            for change in changes:
                self._engine.write([change])
                if self._means("write", change[0]):
                    self._reached("within")
            return
        self._engine.write(changes)
        self._reached("after")

    def delete(self, table: Table, *given: Any, **named: Any) -> None:
        if self._means("delete", table):
            self._reached("before")
        self._engine.delete(table, *given, **named)
        if self._means("delete", table):
            self._reached("after")

    def _means(self, operation: str, table: Table) -> bool:
        wanted = self._point.table
        # `dirty` is a name of its own, the others are those of retention classes.
        same = table.name == wanted if wanted.startswith("dirty") else table.name.startswith(wanted)
        return self._point.operation == operation and same

    def _reached(self, when: str) -> None:
        if when == self._point.when:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


def restless(_: Config, *, rolls: bool, **_several: bool) -> PyramidSettings:  # there is one process
    """Everything is due at once."""
    return PyramidSettings(
        max_future_us=5 * 60 * SECOND,
        rolls=rolls,
        rolling=RollingSettings(lateness_us=0, settle_us=0, longest_us=0, every_s=0.01),
        windows=WindowSettings(lateness_us=0, rest_us=0, late_us=0),
    )


@dataclass(slots=True)
class Trial:
    folder: Path
    began_us: int

    def __post_init__(self) -> None:
        setattr(services, "pyramid_settings", restless)  # noqa: B010 - mypy knows the name as that of a function

    @property
    def config(self) -> Config:
        return replace(
            Config(), store=Store(url=f"rocksdb:{self.folder / 'store'}", cache_mib=16, write_buffer_mib=16, reserve_mib=0)
        )

    @property
    def ledger(self) -> Path:
        return self.folder / "acknowledged"

    @property
    def offered(self) -> Path:
        """What was sent, noted before it left."""
        return self.folder / "offered"

    def create(self) -> None:
        with Service.open(self.config) as service:
            service.catalog.tenants.create(Tenant(name=TENANT))

    def suffer(self, cycle: int, point: Point, rng: random.Random, nth: int) -> None:
        """Write and roll until the point is reached so many times, or for a few seconds."""
        setattr(services, "open_engine", lambda config, clock: Deadly(open_engine(config, clock), point, nth))  # noqa: B010
        ledger, offered = (os.open(at, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for at in (self.ledger, self.offered))
        service = Service.open(self.config, rolls=True)
        tenant = service.catalog.tenants.get(TENANT)
        sent: list[Report] = []
        began_s = time.monotonic()
        n = 0
        while time.monotonic() - began_s < (_LONGEST_S if nth > 1 else _LONGEST_ONCE_S):
            if n >= _MOST:  # days are rolled when their hours are
                time.sleep(0.02)
                continue
            some = []
            for _ in range(_BATCH):
                n += 1
                # The microseconds tell reports of all cycles apart; most are of the last hours, some of days ago.
                age_us = rng.randrange(3 * 3600 if rng.random() < 0.7 else 3 * 86_400) * SECOND
                at = self.began_us - age_us + (cycle * 4096 + n) % SECOND
                some.append(Report(rng.choice(DEVICES), at, {"temp": n / 8, "flow": rng.random()}, {}, 0))
            again = rng.sample(sent, min(len(sent), 5))
            lines = b"".join(json.dumps([r.device, r.time_us, r.values]).encode() + b"\n" for r in some)
            os.write(offered, lines)
            self._send(service, tenant, some + again)
            sent += some
            os.write(ledger, lines)
        os._exit(0)

    @staticmethod
    def _send(service: Service, tenant: Tenant, reports: list[Report]) -> None:
        done = threading.Event()
        outcomes: list[Outcome] = []

        def answered(outcome: Outcome) -> None:
            outcomes.append(outcome)
            done.set()

        version_us = whole_ms(service.clock.now_us())
        batch = batch_of([replace(report, version_us=version_us) for report in reports])
        service.pipeline.submit(Job(tenant, 1000, lambda: Decoded(batch), answered))
        if not done.wait(30) or outcomes[0].error or outcomes[0].refused:
            raise RuntimeError(f"not accepted: {outcomes}")

    def examine(self, *, at_the_end: bool) -> str:
        """What is wrong; empty if nothing is."""
        with Service.open(self.config) as service:
            tenant = service.catalog.tenants.get(TENANT)
            if at_the_end:
                self._send_again(service, tenant)
                _roll_all(service, tenant)
            verifier = Verifier(service.engine, service.telemetry, service.pyramid.rollups, service.clock)
            day = self.began_us - self.began_us % DAY
            checks = [verifier.check(tenant, DEVICES, day - n * DAY) for n in range(5)]
            fleet = service.pyramid.fleet_verifier.check(tenant, TimeSpan(day - 4 * DAY, day + DAY))
            findings: list[object] = [finding for check in checks for finding in check.findings]
            findings += fleet.findings
            behind = sum(check.behind for check in checks) + fleet.behind
            if findings:
                return f"{len(findings)} findings, the first: {findings[0]}"
            if at_the_end and behind:
                return f"{behind} windows are behind though all was rolled"
            if at_the_end and not all(sum(check.checked[level] for check in checks) for level in ("minute", "hour", "day")):
                return "nothing was checked"
            return self._missing(service, tenant) or (self._miscounted(service, tenant) if at_the_end else "")

    def _send_again(self, service: Service, tenant: Tenant) -> None:
        """Everything, as a log would that nobody noted the place in."""
        reports = [Report(device, at, values, {}, 0) for device, at, values in _lines(self.offered)]
        for start in range(0, len(reports), 500):
            self._send(service, tenant, reports[start : start + 500])

    def _miscounted(self, service: Service, tenant: Tenant) -> str:
        """Whether what is counted as stored is what was sent."""
        sent = {(device, at) for device, at, _ in _lines(self.offered)}
        want = Counter((device, at - at % HOUR) for device, at in sent)
        counts, found, summed = service.pyramid.counts, Counter[tuple[str, int]](), Counter[int]()
        for hour_us in {hour_us for _, hour_us in want}:
            for shard in range(SHARDS):
                for part in counts.of_shard(tenant, HOURS, hour_us, shard):
                    for device, reports in zip(part.device.to_list(), part.reports.tolist(), strict=True):
                        found[device, hour_us] += reports
        if found != want:
            differ = (found - want) + (want - found)
            return f"{found.total()} reports are counted, and {len(sent)} were sent: {differ}"
        for starts, rows in counts.sums(tenant, HOURS, TimeSpan(0, self.began_us + DAY)):
            for start_us, reports in zip(starts.tolist(), rows[:, TOTAL_NAMES.index("reports")].tolist(), strict=True):
                summed[start_us] += reports
        return "" if summed.total() == len(sent) else f"the sums are {summed.total()}, and {len(sent)} were sent"

    def _missing(self, service: Service, tenant: Tenant) -> str:
        points = points_of(
            service.telemetry.read_many(tenant, DEVICES, TimeSpan(self.began_us - 5 * DAY, self.began_us + HOUR))
        )
        stored = set(
            zip(
                points.device.to_list(),
                points.time_us.tolist(),
                points.metric.to_list(),
                points.number.tolist(),
                strict=True,
            )
        )
        for device, at, values in _lines(self.ledger):
            for metric, value in values.items():
                if (device, at, metric, value) not in stored:
                    return f"acknowledged, and lost: {device} {at} {metric} {value}"
        return ""


def _lines(file: Path) -> Iterator[tuple[str, int, dict[str, float | str]]]:
    """Without one that a process died writing down."""
    for line in file.read_bytes().splitlines(keepends=True) if file.exists() else ():
        if line.endswith(b"\n"):
            device, at, values = json.loads(line)
            yield device, at, values


def _roll_all(service: Service, tenant: Tenant) -> None:
    roller, marks = service.pyramid.roller, service.pyramid.marks
    roller.recover()
    for unit in sorted(marks.pending()):
        roller.roll(tenant, unit)
    for unit in sorted(roller.days.pending()):
        roller.roll_day(tenant, unit)
    for unit in sorted(roller.fleet.pending()):
        service.pyramid.fleet.roll(tenant, unit)


def _alone(work: Callable[[], str | None]) -> tuple[int, str]:
    """Do it in a process of its own, which has everything imported; its end, as `waitpid` tells it, and what it said."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _end(writing, work)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    return os.waitpid(child, 0)[1], text


def _end(writing: int, work: Callable[[], str | None]) -> NoReturn:
    try:
        os.write(writing, (work() or "").encode())
    except BaseException as error:  # noqa: BLE001
        os.write(writing, f"{type(error).__name__}: {error}".encode())
        os._exit(3)
    os._exit(0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.system.rollup_kills", description="Kill what rolls, and verify.")
    parser.add_argument("--cycles", type=int, default=50, help="how often it is killed")
    parser.add_argument("--seed", type=int, help="choices of an earlier run")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    rng = random.Random(seed)
    print(f"seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="widerow-rollup-kills-"))
    trial = Trial(folder, whole_ms(time.time_ns() // 1000))
    wrong = _alone(trial.create)[1]
    killed: dict[str, int] = {}
    for cycle in range(options.cycles):
        if wrong:
            break
        point = POINTS[cycle % len(POINTS)]
        # A point that is not reached so often in time is reached once.
        for again, nth in enumerate((rng.randint(1, 6), 1)):
            status, said = _alone(lambda: trial.suffer(2 * cycle + again, point, rng, nth))  # noqa: B023
            if said or os.WIFSIGNALED(status):
                break
            rng.random()  # the child's choices are its own: those of the next differ
        if os.WIFSIGNALED(status):
            killed[point.name] = killed.get(point.name, 0) + 1
        wrong = said or _alone(lambda: trial.examine(at_the_end=False))[1]
        print(f"{cycle + 1}/{options.cycles} {point.name}: {wrong or 'nothing wrong'}", flush=True)
    wrong = wrong or _alone(lambda: trial.examine(at_the_end=True))[1]
    print(f"killed {sum(killed.values())} times at {len(killed)} of {len(POINTS)} points")
    if wrong:
        print(f"WRONG: {wrong}; the store is kept in {folder}")
        return 1
    shutil.rmtree(folder)
    print("all windows are what raw reports say, nothing acknowledged was lost, and each report is counted once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
