"""The law of placement: whatever epochs were decided, by whom and when, every accepted report is read by its span.

`check_placement` plays a history on any engine, with two processes that write the same devices, decide on their own what
they call for, declare profiles, take late reports and start anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from widerow.catalog.devices import Devices
from widerow.engine.port import Engine
from widerow.model.batch import Report, batch_of
from widerow.model.device import Device, Profile
from widerow.model.tenant import Tenant
from widerow.model.times import HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.ops.counters import Counters
from widerow.pipeline.adapting import Adapting
from widerow.query.points import newest, points_of
from widerow.schema.tables import TABLES
from widerow.telemetry.observed import ObservedSettings
from widerow.telemetry.placement import OBSERVED, Epoch, declared_epoch
from widerow.telemetry.store import Telemetry, TelemetrySettings

ACME = Tenant(name="acme")
INTERVAL_US = 20 * SECOND
HOLD_US = 3 * MINUTE
SETTINGS = TelemetrySettings(
    max_future_us=SECOND,
    refresh_us=SECOND,
    observed=ObservedSettings(interval_us=INTERVAL_US, fast_intervals=2, slow_us=12 * INTERVAL_US, hold_us=HOLD_US),
)
Step = tuple[Any, ...]


class Process:
    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.telemetry = Telemetry(engine, clock, SETTINGS)
        self.devices = Devices(engine, clock)
        self.adapting = Adapting(self.telemetry.places, self.devices, clock, Counters(), every_s=60)

    def declare(self, device: str, profile: Profile) -> None:
        places = self.telemetry.places

        def choose(epochs: Sequence[Epoch]) -> Epoch | None:
            return declared_epoch(epochs, profile, places.earliest_epoch_us() + SECOND)

        self.devices.apply(ACME, [Device(name=device, profile=profile)])
        places.decide(ACME.name, device, choose)


def check_placement(engine: Engine, clock: ManualClock, history: Sequence[Step]) -> list[Epoch]:
    """Play a history of ("send", process, device, reports a minute, intervals), ("late", process, device, minutes),
    ("look", both), ("declare", process, device, reports/s) and ("restart", process); gives the epochs it led to.
    """
    engine.apply(TABLES)
    clock.time_us -= clock.time_us % HOUR
    start_us = clock.now_us() - 12 * HOUR
    processes = [Process(engine, clock), Process(engine, clock)]
    processes[0].devices.apply(ACME, [Device(name="a"), Device(name="b")])
    sent: dict[str, dict[int, float]] = {"a": {}, "b": {}}
    for what, *step in history:
        if what == "send":
            who, device, a_minute, intervals = step
            for _ in range(intervals):
                n, begin_us = max(1, a_minute * INTERVAL_US // MINUTE), clock.now_us()
                clock.time_us += INTERVAL_US
                _write(processes[who], sent, device, [begin_us + i * INTERVAL_US // n for i in range(n)])
        elif what == "late":
            who, device, minutes = step
            late_us = clock.now_us() - minutes * MINUTE
            _write(processes[who], sent, device, [late_us + 7, late_us + minutes * 45 * SECOND])
        elif what == "look":
            for process in processes if step[0] else processes[:1]:
                process.adapting.look()
        elif what == "declare":
            who, device, reports_per_s = step
            processes[who].declare(device, Profile(reports_per_s=reports_per_s))
        else:
            processes[step[0]] = Process(engine, clock)
    clock.time_us += 2 * SECOND
    decided = []
    for process in (*processes, Process(engine, clock)):
        for device, reports in sent.items():
            _check_read(process.telemetry, device, reports, TimeSpan(start_us, clock.now_us() + HOUR))
            for time_us in sorted(reports)[:: max(1, len(reports) // 5)]:
                span = TimeSpan(time_us, time_us + MINUTE)
                _check_read(process.telemetry, device, reports, span)
        if sent["a"]:
            latest = points_of(process.telemetry.latest(ACME, ["a"], metrics=["x"]))
            assert newest(latest).time_us.tolist() == [max(sent["a"])]
    for device in sent:
        epochs = processes[-1].telemetry.places.epochs(ACME.name, device)
        _check_epochs(epochs)
        decided += epochs
    return decided


def _write(process: Process, sent: dict[str, dict[int, float]], device: str, times: Sequence[int]) -> None:
    reports = [Report(device, t, {"x": float(t % HOUR), "y": 1.0}, {"site": "s"}, MS) for t in times]
    kept = process.telemetry.write(ACME, batch_of(reports)).kept
    assert kept == len(reports)
    sent[device] |= {t: float(t % HOUR) for t in times}


def _check_read(telemetry: Telemetry, device: str, reports: dict[int, float], span: TimeSpan) -> None:
    points = points_of([rows for _, part in telemetry.read(ACME, device, span, metrics=["x"]) for rows in part])
    got = dict(zip(points.time_us.tolist(), points.number.tolist(), strict=True))
    assert got == {t: x for t, x in reports.items() if span.start_us <= t < span.stop_us}
    assert len(points) == len(got), "nothing is there twice"


def _check_epochs(epochs: Sequence[Epoch]) -> None:
    """Each changes something, and those for what was observed are not too close together."""
    for one, following in pairwise(epochs):
        assert (one.width_us, one.sub_buckets) != (following.width_us, following.sub_buckets)
    seen = [e for e in epochs if e.reason.startswith(OBSERVED)]
    assert all(b.from_us - a.from_us >= HOLD_US for a, b in pairwise(seen))
