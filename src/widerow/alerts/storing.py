"""Stores what became of alerts of rules, also if the store is away for a while.

Rule 1: of each alert the last change waits until it is stored. Those that wait are tried before new ones.
Rule 2: `MOST_UNSTORED` wait. What is beyond, or cannot be stored at all, is counted, and judged again.
Rule 3: a change whose rule is another one by now is dropped. So is one of a silent device that is not registered.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from widerow.alerts.alert import Alert
from widerow.alerts.board import Board
from widerow.alerts.book import Book
from widerow.alerts.rule import OFFLINE
from widerow.alerts.watch import Seen, Watch
from widerow.model.errors import Unavailable
from widerow.ops.counters import Counters
from widerow.ops.recurring import tried

log = logging.getLogger(__name__)

MOST_UNSTORED = 10_000

Registered: TypeAlias = Callable[[str, Sequence[str]], set[str]]
"""Which of some devices of a tenant there are."""


def registered(devices: Registered, alerts: Iterable[Alert]) -> dict[str, set[str]]:
    """Which devices of these alerts there are, by tenant."""
    names: dict[str, set[str]] = {}
    for alert in alerts:
        if alert.device:
            names.setdefault(alert.tenant, set()).add(alert.device)
    return {tenant: devices(tenant, sorted(some)) for tenant, some in names.items()}


class Storing:
    """Safe to share between threads."""

    def __init__(self, board: Board, watch: Watch, book: Book, devices: Registered, counters: Counters) -> None:
        self._board, self._watch, self._book, self._devices, self._counters = board, watch, book, devices, counters
        self._lock, self._unstored = threading.Lock(), dict[tuple[str, str], tuple[Alert, Seen]]()

    def keep(self, found: Sequence[Seen]) -> None:
        with self._lock:
            for seen in found:
                alert = seen.alert(self._book.source(seen.tenant, seen.rule.name))
                self._unstored[alert.tenant, alert.id] = alert, seen
            if self._unstored:
                tried(self._store_all, "changes of alerts wait to be stored", log)
            while len(self._unstored) > MOST_UNSTORED:
                self._give_up(next(iter(self._unstored)))

    def _store_all(self) -> None:
        """Raises Unavailable if the store is: the others wait as well then."""
        silent = [alert for alert, seen in self._unstored.values() if seen.rule.kind == OFFLINE]
        there = registered(self._devices, silent)
        for key, (alert, seen) in list(self._unstored.items()):
            changed = self._book.rules(alert.tenant).get(alert.rule) != seen.rule
            if changed or (seen.rule.kind == OFFLINE and alert.device not in there[alert.tenant]):
                del self._unstored[key]
                self._watch.forget(alert)
                continue
            try:
                self._board.saw(alert, seen.change.state, seen.change.at_us)
            except Unavailable:
                self._unstored[key] = self._unstored.pop(key)  # next time the others come first
                raise
            except Exception:
                log.exception("alert %s of %s was not stored", alert.rule, alert.tenant)
                self._give_up(key)
            else:
                del self._unstored[key]

    def _give_up(self, key: tuple[str, str]) -> None:
        alert, _ = self._unstored.pop(key)
        self._counters.alerts_dropped.labels(alert.tenant).inc()
        self._watch.forget(alert)
