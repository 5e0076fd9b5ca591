"""The stage: looks at what is watched, keeps what came of it, and has people told.

One thread (`look`) judges the process's own figures every `every_s`, and each minute silent devices and the use of limits.
Another one (`judge_minutes`) closes minutes of devices each second, for rules on metrics. Of processes that share a store
each judges its own figures, under its own name; what it finds of a tenant's devices it stores as all others do, and one of
them tells people.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import msgspec

from widerow.alerts.address import networks
from widerow.alerts.alert import FIRING, OPERATOR, PENDING, RESOLVED, Alert, alert_id, shown
from widerow.alerts.board import Board
from widerow.alerts.book import Book, Webhook, read_file
from widerow.alerts.builtin import SEVERITIES, UNITS, Baseline, BuiltinSettings, Verdict, judged
from widerow.alerts.rule import OFFLINE, QUOTA, Rule
from widerow.alerts.state import State, step_one
from widerow.alerts.store import AlertStore
from widerow.alerts.storing import Registered, Storing, registered
from widerow.alerts.watch import LASTING, Matches, Watch
from widerow.alerts.webhook import Courier, Notice, Sent
from widerow.engine.port import Engine
from widerow.engine.rows import Rows
from widerow.model.arrays import Ints
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, MINUTE, SECOND, Clock, format_time
from widerow.ops.counters import Counters
from widerow.ops.figures import Sample, sampled, tenant_figures
from widerow.ops.recurring import Recurring, tried

log = logging.getLogger(__name__)

_READ_AGAIN_US = 5 * SECOND
"""Where other processes may change alerts: how old may be what this process knows of them."""
_HELD_US = DAY
_MOST_TOLD = 10_000
_MINUTELY_US = MINUTE


class Presence(Protocol):
    """When devices reported last."""

    def last_seen(self, tenant: str) -> tuple[Names, Ints]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    every_s: float = 10.0
    for_us: int = MINUTE
    keep_us: int = 90 * DAY
    lateness_us: int = 20 * SECOND
    """How long after its end a minute closes."""
    most_bytes: int = 64 << 20
    builtin: BuiltinSettings = field(default_factory=BuiltinSettings)
    webhooks: tuple[str, ...] = ()
    """Of the built-in alerts."""
    webhook_networks: tuple[str, ...] = ()
    rules: str = ""
    """The operator's file."""
    process: str = ""
    shared: bool = False
    """Whether other processes may change what is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What tenants' rules look at, besides minutes."""

    tenant: Callable[[str], Tenant]
    """Raises NotFound."""
    matches: Matches
    devices: Registered
    used: Callable[[Tenant, str], float | None]
    """How much of a limit a tenant uses now; None: that is not known. Rates are not asked for."""
    presence: Presence | None = None
    presence_us: Callable[[], int | None] = lambda: None
    """Where presence is read from the store: up to when; 0: not yet. None: this process hears each report itself."""


class Alerts:
    """Safe to share between threads."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        counters: Counters,
        settings: AlertSettings,
        sources: Sources,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._counters, self._settings, self._clock_s = clock, counters, settings, clock_s
        self._sources = sources
        self.book = Book(engine, clock, read_file(settings.rules))
        self.store = AlertStore(engine, clock, counters, keep_us=settings.keep_us)
        allowed = networks(settings.webhook_networks)
        self.courier = Courier(counters, lambda: clock.now_us() / SECOND, allowed)
        self.board = Board(self.store, clock, counters, silenced=self.book.silenced, tell=self._tell)
        self.watch = Watch(
            self.book,
            self.store.known,
            sources.matches,
            clock,
            counters,
            lateness_us=settings.lateness_us,
            most_bytes=settings.most_bytes,
        )
        self.storing = Storing(self.board, self.watch, self.book, sources.devices, counters)
        builtin = settings.builtin
        self._window = deque[Sample]()
        self._baseline = Baseline(builtin.window_s, builtin.baseline_s)
        self._telling, self._lacking = threading.Lock(), dict[str, set[str]]()
        """By what a notice is about: the webhooks that do not have it yet."""
        self._loading = threading.Lock()
        self._loaded_us: int | None = None
        self._minute_us = 0
        self._watching = False
        self._looking = Recurring("alerts", self.look, settings.every_s, failing="alerts were not looked at", at_once=True)
        self._minutes = Recurring("alert-minutes", self.judge_minutes, 1.0, failing="minutes were not judged for alerts")

    def start(self) -> None:
        self._watching = True
        self._looking.start()
        self._minutes.start()

    def stop(self) -> None:
        self._looking.stop()
        self._minutes.stop()
        self.courier.stop()

    # -- for the stages

    def written(self, tenant: str, reports: Sequence[Rows]) -> None:
        """Reports are durable."""
        if self._watching:
            self.watch.written(tenant, reports)

    def forget(self, tenant: str) -> None:
        """The tenant is gone."""
        self.book.forget(tenant)
        self.store.forget(tenant)
        self.watch.learn()

    # -- for readers

    def current(self, tenant: str | None = None) -> list[Alert]:
        """The alerts of a tenant, or all: the newest first. From memory, as far as nobody else may have changed them."""
        self.load()
        return self.store.known(tenant)

    def silenced(self, alert: Alert) -> bool:
        """Whether people are spared notices of it now."""
        return self.book.silenced(alert, self._clock.now_us())

    def load(self, *, now: bool = False) -> None:
        """Learn what is stored, if that may have changed."""
        now_us = self._clock.now_us()
        with self._loading:
            known_us = self._loaded_us
            fresh = known_us is not None and (not self._settings.shared or 0 <= now_us - known_us < _READ_AGAIN_US)
            if fresh and not now:
                return
            self.store.load()
            self.book.load()
            self.watch.learn()
            self._loaded_us = now_us

    def rules_changed(self) -> None:
        """Over HTTP: they count from now on."""
        self.watch.learn()
        self._withdraw()

    # -- looking

    def look(self) -> None:
        """Judge what is not judged as minutes close. A part that fails is tried again next time, and stops no other."""
        now_us = self._clock.now_us()
        self.load()
        self._take_sample()
        tried(lambda: self._judge(now_us), "the built-in alerts were not judged", log)
        if not 0 <= now_us - self._minute_us < _MINUTELY_US:
            self._minute_us = now_us
            self._look_at_tenants(now_us)
            tried(self._withdraw, "alerts whose rule or device is gone were not withdrawn", log)
        tried(lambda: self.board.sweep(now_us), "old alerts were not cleared away", log)

    def judge_minutes(self) -> None:
        """Judge the minutes of devices that close now, and store what came of it."""
        self.storing.keep(self.watch.tick())

    def _take_sample(self) -> None:
        sample = sampled(self._counters, self._clock_s())
        self._window.append(sample)
        while len(self._window) > 2 and self._window[1].at_s <= sample.at_s - self._settings.builtin.window_s:
            self._window.popleft()
        self._baseline.add(sample)

    # -- the built-in ones

    def _judge(self, now_us: int) -> None:
        if len(self._window) < 2:
            return
        held = {name: self._held(name, now_us) for name in UNITS}
        for verdict in judged(list(self._window), self._baseline.per_s(), self._settings.builtin, held):
            self._saw(self._builtin(verdict, now_us), bad=verdict.bad, clear=verdict.clear, for_us=self._settings.for_us)

    def _held(self, name: str, now_us: int) -> float | None:
        known = self.store.get(OPERATOR, alert_id(OPERATOR, name, process=self._settings.process))
        lasts = known is not None and known.state in LASTING and now_us - known.since_us < _HELD_US
        return known.threshold if known is not None and lasts else None

    def _builtin(self, verdict: Verdict, now_us: int) -> Alert:
        return Alert(
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

    def _saw(self, seen: Alert, *, bad: bool, clear: bool, for_us: int) -> None:
        """A figure of which there is one: its state is that of its alert."""
        known = self.store.get(seen.tenant, seen.id)
        state = LASTING.get(known.state if known else "", State.OK)
        since_us, now_us = known.since_us if known else 0, seen.since_us
        after, _ = step_one(state, since_us, bad=bad, clear=clear, now_us=now_us, for_us=for_us)
        if after is not state:
            self.board.saw(seen, after, now_us)

    # -- tenants' rules

    def _look_at_tenants(self, now_us: int) -> None:
        for tenant in self.book.tenants():
            for rule in self.book.rules(tenant).values():
                look = {OFFLINE: self._look_for_silence, QUOTA: self._look_at_limit}.get(rule.kind)
                if look is not None:
                    tried(partial(look, tenant, rule, now_us), f"rule {rule.name} of {tenant} was not judged", log)

    def _look_for_silence(self, tenant: str, rule: Rule, now_us: int) -> None:
        if self._sources.presence is None:
            return
        known_us = self._sources.presence_us()
        if known_us == 0:
            return
        devices, last_us = self._sources.presence.last_seen(tenant)
        as_of_us = now_us if known_us is None else min(now_us, known_us)
        self.storing.keep(self.watch.silent(tenant, rule, devices, last_us, as_of_us))

    def _look_at_limit(self, tenant: str, rule: Rule, now_us: int) -> None:
        allowed, used = self._use(tenant, rule.limit)
        if not allowed or used is None:
            return
        value = used / allowed
        seen = Alert(
            tenant=tenant,
            rule=rule.name,
            state=PENDING,
            since_us=now_us,
            value=value,
            threshold=rule.threshold,
            unit=rule.unit,
            severity=rule.severity,
            summary=rule.says(),
            source=self._source(tenant, rule),
            webhooks=rule.webhooks,
        )
        self._saw(seen, bad=value > rule.threshold, clear=value <= rule.clear_at, for_us=rule.for_us)

    def _use(self, tenant: str, limit: str) -> tuple[float, float | None]:
        """What a limit allows, and what is used of it."""
        settings = self._sources.tenant(tenant)
        allowed = float(getattr(settings.limits, limit))
        if limit != "writes_per_s":
            return allowed, self._sources.used(settings, limit)
        if len(self._window) < 2:
            return allowed, None
        before, now = self._window[0], self._window[-1]
        over = now.over_limits.get(tenant, 0.0) - before.over_limits.get(tenant, 0.0)
        rate = tenant_figures(before, now, tenant).ingestion_rate + over / max(now.at_s - before.at_s, 1e-3)
        return allowed, rate

    def _withdraw(self) -> None:
        """Alerts of devices that are gone, and of rules that are gone or cover them no longer."""
        lasting = [alert for alert in self.store.known() if alert.source != "builtin" and alert.state != RESOLVED]
        there = registered(self._sources.devices, lasting)
        by_rule: dict[tuple[str, str], list[Alert]] = {}
        for alert in lasting:
            by_rule.setdefault((alert.tenant, alert.rule), []).append(alert)
        for (tenant, name), alerts in by_rule.items():
            rule = self.book.rules(tenant).get(name)
            covered = [alert for alert in alerts if rule and rule.covers(alert.unit, alert.metric, alert.device)]
            devices = {alert.device for alert in covered if not alert.device or alert.device in there[tenant]}
            if rule and rule.match is not None:
                devices = self._sources.matches(tenant, rule.match.match(), sorted(devices))
            for alert in alerts:
                if alert not in covered or alert.device not in devices:
                    self.board.withdraw(alert)
                    self.watch.forget(alert)

    def _source(self, tenant: str, rule: Rule) -> str:
        return self.book.source(tenant, rule.name)

    # -- telling

    def _tell(self, alert: Alert) -> bool:
        """Hand its notice to the webhooks that do not have it yet; whether there was room for all."""
        body, about = notice_body(alert, self._clock.now_us()), f"{alert.id} {alert.state} {alert.since_us}"
        whose = alert.tenant if alert.source == "http" else OPERATOR
        with self._telling:
            lacking = self._lacking.setdefault(about, set(alert.webhooks))
            names = sorted(lacking)
            if len(self._lacking) > _MOST_TOLD:
                del self._lacking[next(iter(self._lacking))]

        def done(name: str) -> None:
            with self._telling:
                lacking.discard(name)
                if lacking:
                    return
                self._lacking.pop(about, None)
            self.board.delivered(alert)

        def submit(name: str) -> bool:
            webhook = partial(self.book.webhook_of, alert, name)
            return self.courier.submit(Notice(body, webhook, (whose, name), about, partial(done, name)))

        taken = [submit(name) for name in names]  # each, also behind one that has no room
        return all(taken)

    def test(self, tenant: str, webhook: Webhook) -> Sent:
        """Send a notice that says that it is a test. It is tried once."""
        now_us = self._clock.now_us()
        alert = Alert(
            tenant=tenant,
            rule="test",
            state=FIRING,
            since_us=now_us,
            severity="info",
            summary="a test: nothing is wrong",
            source="http",
        )
        return self.courier.try_once(webhook, notice_body(alert, now_us, event="test"))


def notice_body(alert: Alert, now_us: int, event: str = "") -> bytes:
    """What webhooks are sent. `event`: `firing`, `resolved` or `test`."""
    form: dict[str, Any] = {
        "version": 1,
        "event": event or alert.state,
        "sent": format_time(now_us),
        "alert": shown(alert, silenced=False),
    }
    return msgspec.json.encode(form)
