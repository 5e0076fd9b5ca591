"""What erasing means for rollups: nothing of what was erased may go on in a summary.

A whole device: its rollups go, and the fleet's hours that it was part of are computed again.
A metric over a span: hours whose reports are still there are marked, and rolled again without what is gone. Where the
reports have expired nothing can be computed again: records of windows that touch the span go whole.
Until that is done readers are shown no record that is older than the erase mark (`Rollups.read`).
Everything here may be repeated, and interrupted, at will.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from widerow.engine.port import Engine, Span
from widerow.engine.rows import Key
from widerow.model.arrays import Ints
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import DAY, HOUR, Clock, TimeSpan
from widerow.rollup.marks import Marks
from widerow.rollup.roll import Roller
from widerow.rollup.store import Rollups
from widerow.schema.rollups import DAYS, HOURS, LEVELS, MINUTES, Level
from widerow.telemetry.erasure import Mark

_AHEAD_US = 366 * DAY


class Eraser:
    """Works off erase marks."""

    def __init__(self, engine: Engine, rollups: Rollups, marks: Marks, roller: Roller, clock: Clock) -> None:
        self._engine, self._rollups, self._marks, self._roller, self._clock = engine, rollups, marks, roller, clock

    def purge(self, tenant: Tenant | None, mark: Mark, devices: Sequence[str], name: str) -> None:
        """`tenant` is None if it is gone itself: then there is nobody to roll for."""
        for device in devices:
            if mark.whole:
                if tenant is not None:
                    hours, days = (self._starts(tenant, device, mark, level) for level in (HOURS, DAYS))
                    for level, starts in ((HOURS, hours), (DAYS, days)):
                        self._roller.counts.forget_device(tenant, device, level, starts, mark)
                    self._mark_fleet(tenant, device, np.union1d(hours, days))  # what days come to is summed up with hours
                self._remove(name, device, mark, LEVELS)
                self._rollups.newest.forget(name, device, mark.version_us)
            elif tenant is not None:
                self._roll_again(tenant, device, mark)

    def _starts(self, tenant: Tenant, device: str, mark: Mark, level: Level) -> Ints:
        """The hours or days of a device that have a record of what was erased. What the mark hides from readers, too."""
        start_us = max(0, mark.span.start_us - level.width_us + 1)
        span = TimeSpan(start_us, min(mark.span.stop_us, self._ahead_us(mark)))
        metrics = [mark.metric] if mark.metric else None
        found = [
            np.asarray(rows.keys["start_us"])
            for table, part, keys in self._rollups.places(tenant, [device], level, span, beyond_us=GUARD_US)
            for rows in self._engine.scan(table, keys, Span(part.start_us, part.stop_us), columns=metrics)
        ]
        return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)

    def _ahead_us(self, mark: Mark) -> int:
        """Beyond this nothing can have been rolled: event times are not far ahead of the versions of their reports."""
        return max(self._clock.now_us(), mark.version_us) + _AHEAD_US

    def _roll_again(self, tenant: Tenant, device: str, mark: Mark) -> None:
        hours, days = (self._starts(tenant, device, mark, level) for level in (HOURS, DAYS))
        has_raw = np.array([self._roller.has_raw(tenant, hour_us) for hour_us in hours.tolist()], np.bool_)
        if has_raw.any():
            self._marks.again(tenant.name, device, hours[has_raw])
        frozen = hours[~has_raw]
        if len(frozen):
            self._mark_fleet(tenant, device, frozen)
            self._roller.days.again(tenant.name, device, np.unique(frozen - frozen % DAY), self._clock.version_us())
        lost = np.array([day_us for day_us in days.tolist() if not self._roller.has_hours(tenant, day_us)], np.int64)
        stops = np.concatenate([frozen + HOUR, lost + DAY])
        if len(stops):
            within = TimeSpan(mark.span.start_us, min(mark.span.stop_us, int(stops.max())))
            # Hours last: whoever goes on after an interruption finds by them what is left to do.
            self._remove(tenant.name, device, replace(mark, span=within), (DAYS, MINUTES, HOURS))

    def _mark_fleet(self, tenant: Tenant, device: str, hours: Ints) -> None:
        if len(hours):
            self._roller.fleet.again(tenant.name, device, hours, self._clock.version_us())

    def _remove(self, tenant: str, device: str, mark: Mark, levels: Iterable[Level]) -> None:
        """Records up to the mark's version, of windows that touch its span."""
        ahead_us = self._ahead_us(mark)
        for level in levels:
            span = TimeSpan(max(0, mark.span.start_us - level.width_us + 1), min(mark.span.stop_us, ahead_us))
            for keep_us in mark.rollup_classes(level.name):
                oldest = max(0, self._clock.now_us() - keep_us - GUARD_US - level.width_us) if keep_us else 0
                start_us = max(span.start_us, oldest)
                if start_us >= span.stop_us:
                    continue
                periods = range(start_us - start_us % level.period_us, span.stop_us, level.period_us)
                keys: list[Key] = [(tenant, device, period) for period in periods]
                self._engine.delete(
                    self._rollups.table(level, keep_us),
                    keys,
                    Span(span.start_us, span.stop_us),
                    version_us=mark.version_us,
                    columns=[mark.metric] if mark.metric else None,
                )
