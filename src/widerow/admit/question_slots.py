"""Places for requests that may wait for the store: how many are worked on at once, and which comes next.

Rule 1: `at_once` requests are worked on, of these at most `long_at_once` long ones (its route says whether a request is
long, such as a question about a fleet). One place at least is kept for short ones.
Rule 2: one tenant has at most all places but one, and half of the long ones. A place that becomes free goes to the tenant
that has fewest, and among its requests to the oldest.
Rule 3: a window of rollups takes one place, when no request waits; after `ROLL_WAITS_S` in any case, so that rolling goes on
where questions never cease.
Rule 4: lines are bounded. A tenant whose line is full is refused (`QueryBusy`), and so is a request that waited for
`max_wait_s`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from widerow.model.errors import Overloaded, QueryBusy, Unavailable
from widerow.model.times import SECOND, about_duration
from widerow.ops.counters import Counters

ROLL_WAITS_S = 10.0
_MOST_IN_ALL = 1024
_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSettings:
    at_once: int = 4
    long_at_once: int = 2
    max_waiting: int = 64
    """Of one tenant."""
    max_wait_s: float = 30.0


class Slot:
    """One request, from its question to its answer. It has its place from when `begun` has a result until its `end`."""

    def __init__(self, slots: QuestionSlots, tenant: str, now_s: float, *, long: bool) -> None:
        self._slots, self.tenant, self.asked_s, self.long = slots, tenant, now_s, long
        self.begun: Future[None] = Future()
        self.bytes = 0
        """Bytes in memory for it."""
        self._given_up = False
        self._ends: list[Callable[[], None]] = []

    def at_end(self, call: Callable[[], None]) -> None:
        """Call this when it is answered or has failed, on the thread that works on it."""
        self._ends.append(call)

    def end(self) -> None:
        """Answered, failed, or not wanted any more. Ending twice is harmless."""
        while self._ends:
            self._ends.pop()()
        self._slots.end(self)

    def give_up(self) -> None:
        """Nobody will read the answer: the next `check` raises."""
        self._given_up = True

    def check(self) -> None:
        """Between one read and the next."""
        if self._given_up:
            raise Unavailable("the server is stopping, or nobody waits for the answer")


@dataclass(frozen=True, slots=True)
class Standing:
    """Of one tenant."""

    waiting: int
    running: int
    bytes: int


class QuestionSlots:
    """One per process. Safe to share between threads."""

    def __init__(self, settings: SlotSettings, counters: Counters, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.settings, self._counters, self._clock_s = settings, counters, clock_s
        self._changed = threading.Condition()
        self._waiting: list[Slot] = []
        self._running: list[Slot] = []
        self._rolls = 0
        self._closed = False

    def ask(self, tenant: str, *, long: bool = False) -> Slot:
        """Raises `QueryBusy`, `Overloaded`. The caller ends the slot, even if it stopped waiting for it."""
        slot = Slot(self, tenant, self._clock_s(), long=long)
        with self._changed:
            self._check_room(tenant)
            self._waiting.append(slot)
            self._begin()
        return slot

    def too_long(self, slot: Slot) -> QueryBusy:
        """Why a request is refused that waited for `max_wait_s`."""
        self._counters.query_refused.labels(slot.tenant, QueryBusy.code).inc()
        return QueryBusy(
            f"{slot.tenant or 'operators'}: this has waited for {about_duration(self.settings.max_wait_s * SECOND)}, "
            "which is as long as query.max_wait_s allows; ask fewer or smaller questions at a time",
            retry_after_s=2 * _RETRY_AFTER_S,
        )

    def end(self, slot: Slot) -> None:
        with self._changed:
            for slots in (self._waiting, self._running):
                if slot in slots:
                    slots.remove(slot)
            self._begin()

    @contextmanager
    def roll(self) -> Iterator[None]:
        """The place of a window that is rolled, for one thread: see rule 3."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (not self._waiting and self._has_place()), ROLL_WAITS_S)
            self._rolls += 1
        try:
            yield
        finally:
            with self._changed:
                self._rolls -= 1
                self._begin()

    def close(self) -> None:
        """No window waits any more: its thread is told to stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def standing(self) -> dict[str, Standing]:
        """Of the tenants that ask something."""
        with self._changed:
            waiting = Counter(slot.tenant for slot in self._waiting)
            running = Counter(slot.tenant for slot in self._running)
            held = Counter[str]()
            for slot in self._running:
                held[slot.tenant] += slot.bytes
        return {tenant: Standing(waiting[tenant], running[tenant], held[tenant]) for tenant in waiting | running}

    def refresh_gauges(self) -> None:
        waiting, running = self._counters.query_waiting, self._counters.query_running
        waiting.clear()
        running.clear()
        for tenant, standing in self.standing().items():
            waiting.labels(tenant).set(standing.waiting)
            running.labels(tenant).set(standing.running)

    # -- with the lock

    def _check_room(self, tenant: str) -> None:
        count = sum(slot.tenant == tenant for slot in self._waiting)
        if count >= self.settings.max_waiting:
            self._counters.query_refused.labels(tenant, QueryBusy.code).inc()
            raise QueryBusy(
                f"{tenant or 'operators'}: {count} requests wait, as query.max_waiting allows; wait for answers before "
                "asking more",
                retry_after_s=_RETRY_AFTER_S,
            )
        if len(self._waiting) >= _MOST_IN_ALL:
            self._counters.query_refused.labels(tenant, Overloaded.code).inc()
            raise Overloaded(f"{len(self._waiting)} requests wait to be answered, which is as many as may")

    def _has_place(self) -> bool:
        return len(self._running) + self._rolls < self.settings.at_once

    def _begin(self) -> None:
        """Start all requests that may begin."""
        while self._has_place() and (slot := self._next()) is not None:
            self._waiting.remove(slot)
            if slot.begun.set_running_or_notify_cancel():
                self._running.append(slot)
                self._counters.query_wait_seconds.observe(max(0.0, self._clock_s() - slot.asked_s))
                slot.begun.set_result(None)
        if not self._waiting:
            self._changed.notify_all()

    def _next(self) -> Slot | None:
        has, long = Counter(s.tenant for s in self._running), Counter(s.tenant for s in self._running if s.long)
        most = max(1, self.settings.at_once - 1)
        most_long = max(1, min(self.settings.long_at_once, most))
        possible = (
            slot
            for slot in self._waiting
            if has[slot.tenant] < most
            and not (slot.long and (long.total() >= most_long or long[slot.tenant] >= -(-most_long // 2)))
        )
        return min(possible, key=lambda slot: has[slot.tenant], default=None)
