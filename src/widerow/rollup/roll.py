"""Rolling: the hours that are marked, from raw reports upwards to days.

Rule 1: an hour is rolled whole: its minutes from all its raw reports, the hour from these minutes, its day from all hours of
the day. Nothing is added to what is there, so rolling again is harmless, and rolling twice at once, too.
Rule 2: a rollup's version is the instant its inputs were read: who read earlier loses, however late he writes.
Rule 3: minutes and hours are durable before the day is read; everything is before the marks go.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from widerow.engine.port import Engine
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import DAY, HOUR, MS, Clock, TimeSpan, whole_ms
from widerow.rollup.aggregate import coarser_of, minutes_of
from widerow.rollup.marks import Marks, Unit
from widerow.rollup.store import Rollups, kept_us
from widerow.schema.rollups import DAYS, HOURS, MINUTES
from widerow.telemetry.store import Telemetry

_AT_ONCE = 64
"""Devices whose hour is in memory at a time."""


class Roller:
    """Rolls units. Safe to share between threads."""

    def __init__(self, engine: Engine, telemetry: Telemetry, rollups: Rollups, marks: Marks, clock: Clock) -> None:
        self._engine, self._telemetry, self._rollups = engine, telemetry, rollups
        self._marks, self._clock = marks, clock
        self._lock = threading.Lock()
        self._version_us = 0

    def roll(self, tenant: Tenant, unit: Unit) -> int:
        """Roll a unit; gives the number of its devices."""
        taken = self._marks.take(unit)
        for devices in _parts(taken.devices):
            self._roll_hour(tenant, devices, unit.hour_us)
            self._roll_day(tenant, devices, unit.hour_us - unit.hour_us % DAY)
        self._marks.finish(taken)
        return len(taken.devices)

    def _roll_hour(self, tenant: Tenant, devices: Sequence[str], hour_us: int) -> None:
        version_us = self._next_version()
        span = TimeSpan(hour_us, hour_us + HOUR)
        raw = self._telemetry.read_many(tenant, devices, span, beyond_us=GUARD_US)
        minutes = minutes_of(tenant.name, raw, keep_us=kept_us(tenant, MINUTES), version_us=version_us)
        hours = coarser_of(tenant.name, [minutes], HOURS, keep_us=kept_us(tenant, HOURS), version_us=version_us)
        self._engine.write([(self._rollups.table(tenant, MINUTES), minutes), (self._rollups.table(tenant, HOURS), hours)])

    def _roll_day(self, tenant: Tenant, devices: Sequence[str], day_us: int) -> None:
        version_us = self._next_version()
        hours = self._rollups.read(tenant, devices, HOURS, TimeSpan(day_us, day_us + DAY))
        days = coarser_of(tenant.name, hours, DAYS, keep_us=kept_us(tenant, DAYS), version_us=version_us)
        self._engine.write([(self._rollups.table(tenant, DAYS), days)])

    def _next_version(self) -> int:
        with self._lock:
            self._version_us = max(whole_ms(self._clock.now_us()), self._version_us + MS)
            return self._version_us


def _parts(devices: Sequence[str]) -> list[list[str]]:
    return [list(devices[i : i + _AT_ONCE]) for i in range(0, len(devices), _AT_ONCE)]
