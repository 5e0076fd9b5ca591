"""A store whose machine's clock jumps ahead and back, and a ledger of what was acknowledged and erased meanwhile.

In the end, when the clock is right again, the store must answer as one that only ever got what the ledger has: raw reports,
rollups of every level, and the fleet's hours.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.rollup_suite import Records, cells_of
from unit.one_path import send
from widerow.config import Config, Store
from widerow.model.batch import RECEIVED_TAG, Report, batch_of
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.rollup.compare import records_of
from widerow.rollup.fleet_summary import ALL_TYPES
from widerow.rollup.rolling import Rolling, RollingSettings
from widerow.schema.rollups import LEVELS
from widerow.schema.rollups import fleet as fleet_table
from widerow.schema.usage import COUNTED_LEVELS
from widerow.service import Service
from widerow.telemetry.erasure import EVER

START_US = 1_800_000_000_000_000 // DAY * DAY + 10 * HOUR + 10 * MINUTE
TENANT = "acme"
OWN, STAMPED = ("a", "b", "c", "d"), ("r", "s")
"""Devices that send times of their own, and those whose reports are dated on receipt."""
JUMPS = {"90s": 90 * SECOND, "1d": DAY, "40d": 40 * DAY, "10y": 3650 * DAY}

Cell = tuple[str, int, str]
"""Device, time, metric."""


@dataclass(frozen=True)
class Plot:
    """What happens to the clock, and to the process at each of its turns."""

    jump: str
    ahead: str
    """`running`, `stopped` or `killed`: what the process is when the clock jumps ahead, ..."""
    back: str
    """... and when it jumps back."""


class Story:
    """One store, from its first report to the comparison."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lives = folder, 0
        self.wall = ManualClock(START_US)
        self.cells: dict[Cell, float] = {}
        self._value = 0
        self._open(self._path())
        self.service.create_tenant(Tenant(name=TENANT))

    @property
    def tenant(self) -> Tenant:
        return self.service.catalog.tenants.get(TENANT)

    def _path(self) -> Path:
        return self._folder / str(self._lives)

    def _open(self, path: Path) -> None:
        self.service = opened(f"rocksdb:{path}", self.wall)
        self._rolling = rolling_of(self.service)

    def turn(self, jump_us: int, process: str) -> None:
        """The clock jumps. A killed process leaves the files as they are."""
        before = self._path()
        if process == "killed":
            self._lives += 1
            shutil.copytree(before, self._path())
        if process != "running":
            self.service.close()
        self.wall.time_us += jump_us
        if process != "running":
            self._open(self._path())

    # -- what devices and people do

    def report(self, devices: Sequence[str], *times_us: int, metrics: Sequence[str] = ("temp", "flow")) -> None:
        """Each a new value. What is acknowledged is in the ledger."""
        sent: list[list[Cell]] = []
        lines = []
        for device in devices:
            for time_us in times_us or (0,):
                at_us = time_us // MS * MS
                values = []
                for metric in metrics:
                    self._value += 1
                    values.append((metric, float(self._value)))
                stamp = f" {at_us}" if times_us else ""
                lines.append(f"m,device={device} {','.join(f'{m}={v}' for m, v in values)}{stamp}")
                sent.append([(device, at_us if times_us else self.wall.time_us, f"m_{metric}") for metric, _ in values])
        values_of = iter(range(self._value - len(lines) * len(metrics) + 1, self._value + 1))
        (outcome,) = send(self.service, self.tenant, "\n".join(lines))
        assert outcome.error is None, outcome.error
        refused = {position for refusal in outcome.refusals for position in refusal.positions}
        for position, cells in enumerate(sent):
            for cell in cells:
                value = float(next(values_of))
                if position not in refused:
                    self.cells[cell] = value

    def delete(self, device: str) -> None:
        self.service.delete_device(self.tenant, device)
        self.cells = {cell: value for cell, value in self.cells.items() if cell[0] != device}

    def erase(self, device: str, metric: str, span: TimeSpan = EVER) -> None:
        self.service.erase(self.tenant, device=device, metric=metric, span=span)

        def gone(cell: Cell) -> bool:
            return cell[0] == device and cell[2] == metric and span.start_us <= cell[1] < span.stop_us

        self.cells = {cell: value for cell, value in self.cells.items() if not gone(cell)}

    # -- time

    def work(self) -> None:
        """What the process does by itself."""
        self.service.house.keep()
        for _ in range(2):
            self._rolling.roll_due()

    def go_on(self, until_us: int, devices: Sequence[str] = OWN) -> None:
        """Time passes as usual: no step is a jump."""
        while self.wall.time_us < until_us:
            self.wall.time_us += 20 * MINUTE
            self.report(devices, self.wall.time_us - 7 * SECOND)
            self.work()

    # -- the comparison

    def check(self) -> None:
        assert self.service.clock_guard is not None
        assert self.service.clock_guard.look() == ""
        assert {unit.start_us for unit in self.service.pyramid.marks.pending() if unit.start_us < self.hour_us} == set()
        differing(raw_of(self.service, self.tenant, self.spans()), self.cells)
        with opened("memory:", self.wall) as alone:
            tenant = alone.create_tenant(Tenant(name=TENANT))
            for device in {device for device, _, _ in self.cells}:
                times: dict[int, dict[str, float | str]] = {}
                for (name, at_us, metric), value in self.cells.items():
                    if name == device:
                        times.setdefault(at_us, {})[metric] = value
                tags = dict([RECEIVED_TAG]) if device in STAMPED else {}
                write(alone, tenant, [Report(device, at_us, values, tags, MS) for at_us, values in times.items()])
            for _ in range(3):
                rolling_of(alone).roll_due()
            should = answers_of(alone, tenant, self.hour_us)
        assert should
        differing(answers_of(self.service, self.tenant, self.hour_us), should)
        pyramid, devices = self.service.pyramid, [*OWN, *STAMPED]
        for day_us in {at_us - at_us % DAY for _, at_us, _ in self.cells if at_us < self.hour_us}:
            assert pyramid.verifier.check(self.tenant, devices, day_us).findings == []
            assert pyramid.fleet_verifier.check(self.tenant, TimeSpan(day_us, day_us + DAY)).findings == []

    @property
    def hour_us(self) -> int:
        """The present hour, which is not rolled yet."""
        return self.wall.time_us // HOUR * HOUR

    def spans(self) -> list[TimeSpan]:
        ahead = [at_us for _, at_us, _ in self.cells if at_us > self.wall.time_us]
        far = [TimeSpan(min(ahead), max(ahead) + 1)] if ahead else []
        return [TimeSpan(START_US - 30 * DAY, self.wall.time_us + 1), *far]

    def close(self) -> None:
        self.service.close()


def differing(found: Mapping[Any, object], should: Mapping[Any, object]) -> None:
    wrong = {key: (found.get(key), should.get(key)) for key in {*found, *should} if found.get(key) != should.get(key)}
    shown = [f"{key}: found {was}, should be {right}" for key, (was, right) in sorted(wrong.items(), key=str)[:20]]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(should)} differ", *shown])


def opened(url: str, wall: ManualClock) -> Service:
    """Its threads that roll and keep house are stopped: the story says when these do what they do."""
    service = Service.open(Config(store=Store(url=url, reserve_mib=0)), wall, rolls=True)
    service.pyramid.stop()
    service.house.stop()
    return service


def rolling_of(service: Service) -> Rolling:
    pyramid, tenants = service.pyramid, service.catalog.tenants
    return Rolling(
        pyramid.marks,
        pyramid.roller,
        lambda name: tenants.current(name, service.clock.now_us()),
        service.clock,
        RollingSettings(settle_us=0),
        windows=pyramid.windows,
        fleet=pyramid.fleet,
    )


def write(service: Service, tenant: Tenant, reports: list[Report]) -> None:
    batch = batch_of(reports)
    service.catalog.devices.register(tenant, batch.device.names)
    plan, marks = service.telemetry.plan(tenant, batch), service.pyramid.plan(tenant.name, batch)
    service.engine.write([*marks.changes, *plan.changes])
    service.telemetry.written(plan)
    service.pyramid.settle(marks, plan, fresh=None, written=True)


def raw_of(service: Service, tenant: Tenant, spans: Iterable[TimeSpan]) -> dict[Cell, float]:
    found: dict[Cell, float] = {}
    for device in (*OWN, *STAMPED):
        for span in spans:
            after: str | None = None
            while True:
                page = service.queries.series(tenant, device, span=span, limit=10_000, after=after)
                points = page.points
                for at_us, metric, number in zip(
                    points.time_us.tolist(), points.metric.to_list(), points.number.tolist(), strict=True
                ):
                    found[device, at_us, metric] = number
                after = page.next
                if after is None:
                    break
    return found


def answers_of(service: Service, tenant: Tenant, before_us: int) -> dict[Any, object]:
    """Latest values, and everything that is rolled and counted of windows that have ended."""
    devices, span = [*OWN, *STAMPED], TimeSpan(START_US - 31 * DAY, before_us)
    found: dict[Any, object] = {}
    for level in LEVELS:
        within = TimeSpan(span.start_us, min(span.stop_us, before_us - before_us % level.width_us))
        stored = records_of(service.pyramid.rollups.read(tenant, devices, level, within), devices)
        for i in range(len(stored)):
            key = (level.name, devices[int(stored.device[i])], int(stored.start_us[i]), stored.metric[i])
            found[key] = stored.record.bytes_at(i)
    hours: Records = cells_of(
        fleet_table(tenant.retention.hour_us), service.pyramid.fleet.store.hours(tenant, [ALL_TYPES], span)
    )
    found |= {("fleet", *key): record for key, record in hours.items()}
    for level in COUNTED_LEVELS:
        for starts, rows in service.pyramid.counts.sums(tenant, level, span):
            for start_us, row in zip(starts.tolist(), rows.tolist(), strict=True):
                if start_us + level.width_us <= before_us and any(row):
                    known = found.get(("counted", level.name, start_us), (0,) * len(row))
                    assert isinstance(known, tuple)
                    found["counted", level.name, start_us] = tuple(a + b for a, b in zip(known, row, strict=True))
    latest = service.queries.latest(tenant, devices)
    columns = latest.device.to_list(), latest.metric.to_list(), latest.time_us.tolist(), latest.number.tolist()
    return found | {
        ("latest", device, metric): (at_us, value) for device, metric, at_us, value in zip(*columns, strict=True)
    }


def play(folder: Path, plot: Plot) -> None:
    jump_us = JUMPS[plot.jump]
    story = Story(folder)
    try:
        story.report(OWN, START_US - 28 * DAY, START_US - 20 * DAY)
        for minutes in range(180, 0, -20):
            story.report(OWN, START_US - minutes * MINUTE)
        story.report(STAMPED)
        story.go_on(START_US + 70 * MINUTE)
        early, true_us = START_US - 2 * HOUR, story.wall.time_us
        hour = TimeSpan(early // HOUR * HOUR, early // HOUR * HOUR + HOUR)

        story.turn(jump_us, plot.ahead)
        story.work()
        story.report(("a", "b"), true_us - SECOND)
        story.report(STAMPED)
        story.report(("b",), early)  # a correction, or a late report, ...
        story.report(("a",), early + 7 * MINUTE)  # ... and one of a time that was never seen
        story.erase("c", "m_flow", TimeSpan(hour.start_us, hour.start_us + 30 * MINUTE))
        story.delete("d")
        story.report(("d",), true_us - 2 * SECOND)
        story.work()
        story.wall.time_us += 14 * SECOND
        story.report(("b",), early)
        story.report(STAMPED)
        story.work()

        story.turn(-jump_us, plot.back)
        story.work()
        story.report(("a", "b"), early)
        story.report(("c",), early + 11 * MINUTE)
        story.delete("r")
        story.report(("r",))
        story.erase("a", "m_flow", TimeSpan(hour.start_us, hour.start_us + 20 * MINUTE))
        story.report(("a",), early + 13 * MINUTE)
        story.report(("b",), early + 7 * MINUTE)
        story.work()
        story.go_on(story.wall.time_us + 2 * HOUR)
        story.turn(0, "killed")
        story.go_on(story.wall.time_us + 40 * MINUTE)
        story.check()
    finally:
        story.close()
