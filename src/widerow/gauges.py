"""Figures that are read, not counted: brought up to date when somebody asks for metrics.

Metrics are wanted most when something stands still. So what the store must be asked for is read by a thread of its own, and
if that takes long the figures are those of the last time. It reads it now and then anyway, for the figures of the last hour.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence

from widerow.admit.question_slots import QuestionSlots
from widerow.engine.port import Engine, EngineStats
from widerow.model.times import SECOND
from widerow.ops.counters import Counters
from widerow.ops.recurring import Recurring
from widerow.pipeline.pipeline import Pipeline
from widerow.rollup.guard import Lag
from widerow.rollup.pyramid import Pyramid

PATIENCE_S = 1.0
"""How long the store may take before figures are given out that are older."""
_EVERY_S = 15.0


class Gauges:
    """Of one process. Safe to share between threads."""

    def __init__(
        self,
        engine: Engine,
        pipeline: Pipeline,
        pyramid: Pyramid,
        slots: QuestionSlots,
        counters: Counters,
        *,
        memory: Callable[[], Mapping[str, Mapping[str, int]]],
        trouble: Callable[[], str],
    ) -> None:
        self._engine, self._pipeline, self._pyramid, self._slots = engine, pipeline, pyramid, slots
        self._counters, self._memory, self._trouble = counters, memory, trouble
        self._read = threading.Condition()
        self._reads = self._begun = 0
        self.stats: EngineStats | None = None
        """Of the engine, when the thread looked last, ..."""
        self.lags: Sequence[Lag] = ()
        """... and how rollups stood."""
        self._reader = Recurring("gauges", self._look, _EVERY_S, at_once=True, failing="how rollups stand could not be read")

    def start(self) -> None:
        self._reader.start()

    def stop(self) -> None:
        self._reader.stop()

    def refresh(self, patience_s: float = PATIENCE_S) -> None:
        """Bring them up to date; those of rollups only if the store answers in time."""
        counters, stats = self._counters, self._engine.stats()
        counters.writer.set(not self._trouble())
        counters.in_flight.set(self._pipeline.in_flight())
        self._pipeline.pressure.refresh_gauges()
        self._slots.refresh_gauges()
        counters.tenant_memory.clear()
        for tenant, held in self._memory().items():
            for what, size in held.items():
                counters.tenant_memory.labels(tenant, what).set(size)
        counters.disk.set(_known(stats.disk_bytes))
        counters.memory.set(_known(stats.memory_bytes))
        counters.windows.set(stats.windows)
        counters.syncs.set(stats.syncs)
        counters.rollup_cache.set(self._pyramid.windows.bytes if self._pyramid.windows else 0)
        with self._read:
            enough = self._begun + 1  # what was begun before this was asked may be of before
            self._reader.wake()
            self._read.wait_for(lambda: self._reads >= enough, patience_s)

    def _look(self) -> None:
        with self._read:
            self._begun += 1
            this = self._begun
        try:
            self.stats = self._engine.stats()
            self._counters.compactions.set(_known(self._engine.pending_compactions()))
            self.lags = self._pyramid.guard.look()
            self._show(self.lags)
        finally:
            with self._read:
                self._reads = this
                self._read.notify_all()

    def _show(self, lags: Sequence[Lag]) -> None:
        for lag in lags:
            self._counters.rollup_pending.labels(lag.level).set(lag.pending)
            self._counters.rollup_behind.labels(lag.level).set(lag.behind_us / SECOND)
        self._counters.rollup_margin.set(min(lag.margin_us for lag in lags) / SECOND)


def _known(size: int | None) -> float:
    """0 would be taken for a size."""
    return math.nan if size is None else size
