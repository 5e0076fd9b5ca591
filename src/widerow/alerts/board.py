"""The board turns a judged state into a stored alert, a line in the history and a notice.

Rule 1: people are told when an alert fires and when it is resolved; of a resolved one only if they were told that it fired.
Rule 2: a notice is owed from the change on until its webhooks have it. The process that made the change sends it. If that
process is gone, another one takes the notice over after `TAKE_OVER_US`.
Rule 3: an alert that begins to fire while it is silenced owes nothing. If it still fires when the silence ends, people are
told then. The end of an alert that people were told of is told during a silence as well.
Rule 4: a notice for which there was no room is sent by the next `sweep` that finds room.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from widerow.alerts.alert import FIRING, PENDING, RESOLVED, Alert
from widerow.alerts.state import State
from widerow.alerts.store import RESOLVED_US, AlertStore
from widerow.model.times import MINUTE, Clock
from widerow.ops.counters import Counters
from widerow.ops.recurring import tried

log = logging.getLogger(__name__)

TAKE_OVER_US = 10 * MINUTE
"""Longer than a notice is tried. One that waits behind others may take longer: then another process may send it as well."""


class Board:
    """Safe to share between threads. `tell` takes a notice to send, and `delivered` is called when its webhooks have it."""

    def __init__(
        self,
        store: AlertStore,
        clock: Clock,
        counters: Counters,
        *,
        silenced: Callable[[Alert, int], bool] = lambda _alert, _now_us: False,
        tell: Callable[[Alert], bool] = lambda _alert: True,
    ) -> None:
        """`tell` says whether there was room for the notice; if not, it stays owed."""
        self.store, self._clock, self._counters = store, clock, counters
        self._silenced, self._tell = silenced, tell
        self._unsent: dict[tuple[str, str], int] = {}
        """Alerts for whose notice there was no room, and since when it is owed."""

    def saw(self, seen: Alert, state: State, now_us: int) -> None:
        """`seen`: the alert with its figure as it is now; its state and times are not looked at."""
        changed, after = self.store.change(seen.tenant, seen.id, lambda old: self._after(old, seen, state, now_us))
        if changed and after is not None and after.state != PENDING:
            self._made(after)

    def withdraw(self, alert: Alert) -> None:
        """Its rule is gone, or no longer watches this device: nobody is told."""
        self.store.change(alert.tenant, alert.id, lambda _old: None)

    def delivered(self, alert: Alert) -> None:
        """The webhooks have the notice of this state, or it was given up."""

        def settled(old: Alert | None) -> Alert | None:
            same = old is not None and (old.state, old.since_us) == (alert.state, alert.since_us)
            return msgspec.structs.replace(old, owed_us=0) if old is not None and same else old

        self.store.change(alert.tenant, alert.id, settled)

    def sweep(self, now_us: int) -> None:
        """Forget what was resolved a day ago, and see to notices that nobody sent."""
        unsent, self._unsent = self._unsent, {}
        for alert in self.store.known():
            if alert.owed_us and unsent.get((alert.tenant, alert.id)) == alert.owed_us:
                self._send(alert)
            elif alert.state == RESOLVED and alert.since_us + RESOLVED_US <= now_us:
                self.store.change(alert.tenant, alert.id, lambda old: None if _is_old(old, now_us) else old)
            elif self._should_be_told(alert, now_us):
                changed, after = self.store.change(alert.tenant, alert.id, lambda old: self._taken(old, now_us))
                if changed and after is not None:
                    self._send(after)
        self._count()

    def _after(self, old: Alert | None, seen: Alert, state: State, now_us: int) -> Alert | None:
        was = old.state if old else None
        if state is State.OK:
            if old is None or was == RESOLVED:
                return old
            if was == PENDING:
                return None
            return msgspec.structs.replace(
                old, state=RESOLVED, since_us=now_us, value=seen.value, owed_us=self._clock.now_us() if old.announced else 0
            )
        if was == FIRING or (was == PENDING and state is State.PENDING):
            return old
        if state is State.PENDING:
            return msgspec.structs.replace(seen, state=PENDING, since_us=now_us)
        owes = bool(seen.webhooks) and not self._silenced(seen, now_us)
        owed_us = self._clock.now_us() if owes else 0
        return msgspec.structs.replace(seen, state=FIRING, since_us=now_us, announced=owes, owed_us=owed_us)

    def _should_be_told(self, alert: Alert, now_us: int) -> bool:
        if alert.owed_us:
            return now_us - alert.owed_us > TAKE_OVER_US
        unannounced = alert.state == FIRING and not alert.announced and bool(alert.webhooks)
        return unannounced and not self._silenced(alert, now_us)

    def _taken(self, old: Alert | None, now_us: int) -> Alert | None:
        if old is None or not self._should_be_told(old, now_us):
            return old
        return msgspec.structs.replace(old, announced=True, owed_us=now_us)

    def _made(self, alert: Alert) -> None:
        whose = "/".join(filter(None, (alert.tenant or "this process", alert.device)))
        log.warning("alert %s of %s is %s: %s", alert.rule, whose, alert.state, alert.summary)
        tried(lambda: self.store.record(alert), f"alert {alert.rule}: its history lacks that it is {alert.state}", log)
        if alert.owed_us:
            self._send(alert)

    def _send(self, alert: Alert) -> None:
        if not self._tell(alert):
            self._unsent[alert.tenant, alert.id] = alert.owed_us
            log.info("alert %s: no room for its notice; it is sent later", alert.rule)

    def _count(self) -> None:
        self._counters.alerts.clear()
        for alert in self.store.known():
            if alert.state != RESOLVED:
                self._counters.alerts.labels(alert.tenant, alert.state).inc()


def _is_old(alert: Alert | None, now_us: int) -> bool:
    return alert is not None and alert.state == RESOLVED and alert.since_us + RESOLVED_US <= now_us
