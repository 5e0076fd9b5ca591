"""The stage: looks at what is watched now and then, and keeps what came of it.

One thread (`look`) judges the built-in alerts every `every_s`. Of processes that share a store each judges its own figures,
under its own name.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from widerow.alerts.alert import FIRING, OPERATOR, PENDING, Alert, alert_id
from widerow.alerts.board import Board
from widerow.alerts.builtin import SEVERITIES, UNITS, Baseline, BuiltinSettings, Verdict, judged
from widerow.alerts.state import State, step_one
from widerow.alerts.store import AlertStore
from widerow.engine.port import Engine
from widerow.model.errors import WiderowError
from widerow.model.times import DAY, MINUTE, SECOND, Clock
from widerow.ops.counters import Counters
from widerow.ops.figures import Sample, sampled
from widerow.ops.recurring import Recurring, tried

log = logging.getLogger(__name__)

_READ_AGAIN_US = 5 * SECOND
"""Where other processes may change alerts: how old may be what this process knows of them."""
_HELD_US = DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    every_s: float = 10.0
    for_us: int = MINUTE
    keep_us: int = 90 * DAY
    builtin: BuiltinSettings = field(default_factory=BuiltinSettings)
    webhooks: tuple[str, ...] = ()
    """Of the built-in alerts."""
    process: str = ""
    shared: bool = False
    """Whether other processes may change what is stored."""


class Alerts:
    """Safe to share between threads."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        counters: Counters,
        settings: AlertSettings,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._clock, self._counters, self._settings, self._clock_s = engine, clock, counters, settings, clock_s
        self.store = AlertStore(engine, clock, counters, keep_us=settings.keep_us)
        self.board = Board(self.store, clock, counters)
        builtin = settings.builtin
        self._window = deque[Sample]()
        self._baseline = Baseline(builtin.window_s, builtin.baseline_s)
        self._loading = threading.Lock()
        self._loaded_us: int | None = None
        self._looking = Recurring("alerts", self.look, settings.every_s, failing="alerts were not looked at", at_once=True)

    def start(self) -> None:
        self._looking.start()

    def stop(self) -> None:
        self._looking.stop()

    def look(self) -> None:
        """Judge the process's figures. What fails is tried again next time."""
        now_us = self._clock.now_us()
        self._load(now_us)
        self._take_sample()
        tried(lambda: self._judge(now_us), "the built-in alerts were not judged", log)
        tried(lambda: self.board.sweep(now_us), "old alerts were not cleared away", log)

    def current(self, tenant: str | None = None) -> list[Alert]:
        """The alerts of a tenant, or all: the newest first. From memory, as far as nobody else may have changed them."""
        self._load(self._clock.now_us())
        return self.store.known(tenant)

    def silenced(self, _alert: Alert) -> bool:
        """Whether people are spared notices of it now."""
        return False

    def _load(self, now_us: int) -> None:
        with self._loading:
            old = self._loaded_us is None or (self._settings.shared and now_us - self._loaded_us >= _READ_AGAIN_US)
            if old:
                self.store.load()
                self._loaded_us = now_us

    # -- the built-in ones

    def _take_sample(self) -> None:
        try:
            pending = self._engine.pending_compactions()
        except WiderowError:  # the other figures matter most then
            pending = None
        self._counters.compactions.set(math.nan if pending is None else pending)
        sample = sampled(self._counters, self._clock_s())
        self._window.append(sample)
        while len(self._window) > 2 and self._window[1].at_s <= sample.at_s - self._settings.builtin.window_s:
            self._window.popleft()
        self._baseline.add(sample)

    def _judge(self, now_us: int) -> None:
        if len(self._window) < 2:
            return
        held = {name: self._held(name, now_us) for name in UNITS}
        for verdict in judged(list(self._window), self._baseline.per_s(), self._settings.builtin, held):
            self._saw(verdict, now_us)

    def _held(self, name: str, now_us: int) -> float | None:
        known = self.store.get(OPERATOR, alert_id(name, process=self._settings.process))
        lasts = known is not None and known.state in (PENDING, FIRING) and now_us - known.since_us < _HELD_US
        return known.threshold if known is not None and lasts else None

    def _saw(self, verdict: Verdict, now_us: int) -> None:
        known = self.store.get(OPERATOR, alert_id(verdict.name, process=self._settings.process))
        state = {PENDING: State.PENDING, FIRING: State.FIRING}.get(known.state if known else "", State.OK)
        after, _ = step_one(
            state,
            known.since_us if known else 0,
            bad=verdict.bad,
            clear=verdict.clear,
            now_us=now_us,
            for_us=self._settings.for_us,
        )
        if after is State.OK and state is State.OK:
            return
        seen = Alert(
            tenant=OPERATOR,
            rule=verdict.name,
            state=PENDING,
            since_us=now_us,
            process=self._settings.process,
            value=verdict.value,
            threshold=verdict.threshold,
            unit=UNITS[verdict.name],
            severity=SEVERITIES.get(verdict.name, "warning"),
            summary=verdict.summary,
            webhooks=self._settings.webhooks,
        )
        self.board.saw(seen, after, now_us)
