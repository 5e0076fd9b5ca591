"""Whose question is worked on: a line for each tenant, and turns that are given fairly.

Rule 1: at most `at_once` requests are worked on, and of these `long_at_once` that have taken longer than `long_s`. So a
short one finds a place at once, however many heavy ones there are.
Rule 2: a turn goes to the tenant that used least lately (time, which is forgotten with a half-life); within a tenant to what
had least, and what waits grows older meanwhile. While others wait one tenant has at most half of the places.
Rule 3: what is worked on looks up between one read and the next (`tick`), and pauses if it is another's turn. It keeps its
thread and what it has read; so of one tenant, and in all, only so many are begun.
Rule 4: lines are bounded in length and in time. Who finds its line full, or has waited for `max_wait_s` in all, is refused
(`QueryBusy`), and told when to come again.
Nothing here runs anything: whoever asks says what is to be done when its turn has come.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from widerow.model.errors import Overloaded, QueryBusy, Unavailable
from widerow.ops.counters import Counters

_HALF_LIFE_S = 10.0
_MOST_IN_ALL = 1024
_SHORTEST_RETRY_S, _LONGEST_RETRY_S = 1.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    at_once: int = 4
    long_at_once: int = 1
    long_s: float = 0.025
    slice_s: float = 0.02
    """For how long it is worked on before others are thought of."""
    max_waiting: int = 64
    max_wait_s: float = 15.0
    tenant_begun: int = 8
    most_begun: int = 128
    """Requests that are begun, paused ones included: each has a thread."""


class State(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    OVER = "over"


class Turn:
    """One request, from its question to its answer. `tick` and `holds` by the threads that work on it."""

    __slots__ = (
        "_ends",
        "_turns",
        "bytes",
        "long",
        "refuse",
        "resumed",
        "since_s",
        "start",
        "state",
        "stopped",
        "tenant",
        "used_s",
        "waited_s",
    )

    def __init__(self, turns: Turns, tenant: str, start: Start, refuse: Refuse, now_s: float) -> None:
        self._turns, self.tenant, self.start, self.refuse = turns, tenant, start, refuse
        self.state, self.since_s = State.WAITING, now_s
        """`since_s`: when it came into its state, or was last looked at."""
        self.used_s = self.waited_s = 0.0
        self.long = self.stopped = False
        self.bytes = 0
        self.resumed = threading.Event()
        self._ends: list[Callable[[], None]] = []

    def tick(self) -> None:
        """Between two pieces of work: waits here while it is another's turn. Raises `QueryBusy` if that takes too long."""
        self._turns.look_up(self)

    def holds(self, size: int) -> None:
        """So many bytes are in memory for it."""
        self.bytes = size

    def at_end(self, call: Callable[[], None]) -> None:
        """What is to be done when it is answered, or has failed. By who works on it."""
        self._ends.append(call)

    def end(self) -> None:
        """Answered, or failed. Ending twice is harmless."""
        while self._ends:
            self._ends.pop()()
        self._turns.end(self)

    def stop(self) -> None:
        """Nobody will read the answer: if it is not begun it is not, otherwise its next tick raises."""
        self._turns.stop(self)


Start = Callable[[Turn], None]
Refuse = Callable[[Turn, Exception], None]


@dataclass(slots=True)
class _Line:
    """The requests of a tenant that are not over."""

    waiting: list[Turn] = field(default_factory=list)
    """Not begun, or paused."""
    running: list[Turn] = field(default_factory=list)
    used_s: float = 0.0
    counted_s: float = 0.0

    def use(self, seconds: float, now_s: float) -> None:
        self.used_s = self.lately_s(now_s) + seconds
        self.counted_s = now_s

    def lately_s(self, now_s: float) -> float:
        return self.used_s * math.exp2((self.counted_s - now_s) / _HALF_LIFE_S)

    def begun(self) -> int:
        return len(self.running) + sum(turn.state is State.PAUSED for turn in self.waiting)


@dataclass(frozen=True, slots=True)
class LineStanding:
    waiting: int
    running: int
    bytes: int


class Turns:
    """One per process. Safe to share between threads."""

    def __init__(
        self,
        settings: TurnSettings,
        counters: Counters,
        clock_s: Callable[[], float] = time.monotonic,
        *,
        urgent: Callable[[], bool] = lambda: False,
    ) -> None:
        """`urgent`: whether there is something else that long questions give way to."""
        self.settings, self._counters, self.clock_s, self._urgent = settings, counters, clock_s, urgent
        self._lock = threading.Lock()
        self._lines: dict[str, _Line] = {}
        self._running = self._long = self._begun = self._all = 0

    def ask(self, tenant: str, start: Start, refuse: Refuse) -> Turn:
        """Take a place in the tenant's line. `start` is called once, by any thread, when its turn has come; or `refuse`,
        if that takes too long. Both must be quick. Raises `QueryBusy`, `Overloaded`.
        """
        now_s = self.clock_s()
        turn = Turn(self, tenant, start, refuse, now_s)
        with self._lock:
            line = self._lines.setdefault(tenant, _Line(counted_s=now_s))
            self._make_room(line, tenant)
            line.waiting.append(turn)
            self._all += 1
            begun = self._give(now_s)
        _begin(begun)
        return turn

    def look_up(self, turn: Turn) -> None:
        now_s = self.clock_s()
        if turn.stopped:
            raise Unavailable("the server is stopping, or nobody waits for the answer")
        if turn.state is State.RUNNING and now_s - turn.since_s < self.settings.slice_s:
            return
        begun: list[Turn] = []
        with self._lock:
            if turn.state is State.RUNNING:
                begun = self._look_up(turn, now_s)
            paused = turn.state is State.PAUSED
        _begin(begun)
        if paused:
            self._await(turn)

    def is_urgent(self) -> bool:
        """Whether there is something that others should give way to. Without the lock: a moment ago is good enough."""
        return self._running > self._long or self._urgent()

    def end(self, turn: Turn) -> None:
        with self._lock:
            now_s = self.clock_s()
            if turn.state is State.RUNNING:
                self._count(turn, now_s)
                self._lines[turn.tenant].running.remove(turn)
                self._running -= 1
                self._long -= turn.long
            elif turn.state is State.OVER:
                return
            else:
                self._lines[turn.tenant].waiting.remove(turn)
            self._begun -= turn.state is not State.WAITING
            self._leave(turn)
            begun = self._give(now_s)
        _begin(begun)

    def stop(self, turn: Turn) -> None:
        turn.stopped = True
        turn.resumed.set()
        if turn.state is State.WAITING:
            self.end(turn)

    def expire(self) -> None:
        """Refuse what has waited for too long and is not begun."""
        now_s = self.clock_s()
        with self._lock:
            late = [
                turn
                for line in self._lines.values()
                for turn in line.waiting
                if turn.state is State.WAITING and now_s - turn.since_s >= self.settings.max_wait_s
            ]
            for turn in late:
                self._lines[turn.tenant].waiting.remove(turn)
                self._leave(turn)
        for turn in late:
            turn.refuse(turn, self._too_long(turn))

    def standing(self) -> dict[str, LineStanding]:
        """The lines that have somebody in them."""
        now_s = self.clock_s()
        with self._lock:
            idle = [
                tenant
                for tenant, line in self._lines.items()
                if not line.waiting and not line.running and line.lately_s(now_s) < self.settings.slice_s
            ]
            for tenant in idle:
                del self._lines[tenant]
            return {
                tenant: LineStanding(
                    len(line.waiting), len(line.running), sum(turn.bytes for turn in (*line.waiting, *line.running))
                )
                for tenant, line in self._lines.items()
                if line.waiting or line.running
            }

    def refresh_gauges(self) -> None:
        waiting, running = self._counters.query_waiting, self._counters.query_running
        waiting.clear()
        running.clear()
        for tenant, line in self.standing().items():
            waiting.labels(tenant).set(line.waiting)
            running.labels(tenant).set(line.running)

    # -- all below by who holds the lock

    def _make_room(self, line: _Line, tenant: str) -> None:
        waiting = sum(turn.state is State.WAITING for turn in line.waiting)
        most = self.settings.max_waiting
        if waiting >= most:
            self._counters.query_refused.labels(tenant, QueryBusy.code).inc()
            raise QueryBusy(
                f"{tenant or 'operators'}: {waiting} requests wait for their turn, as query.max_waiting allows; wait for "
                "answers before asking more",
                retry_after_s=self._retry_after_s(line),
            )
        if self._all >= _MOST_IN_ALL:
            self._counters.query_refused.labels(tenant, Overloaded.code).inc()
            raise Overloaded(f"{self._all} requests are being answered, which is as many as may be")

    def _retry_after_s(self, line: _Line) -> float:
        """About when half of the line will have had its turn, if each takes as long as a short one may."""
        ahead_s = len(line.waiting) / 2 * self.settings.long_s / self.settings.at_once
        return min(max(_SHORTEST_RETRY_S, ahead_s), _LONGEST_RETRY_S)

    def _too_long(self, turn: Turn) -> QueryBusy:
        self._counters.query_refused.labels(turn.tenant, QueryBusy.code).inc()
        return QueryBusy(
            f"{turn.tenant or 'operators'}: this has waited for its turn for {self.settings.max_wait_s:g} s, which is as "
            "long as query.max_wait_s allows; ask fewer or smaller questions at a time",
            retry_after_s=2 * _SHORTEST_RETRY_S,
        )

    def _look_up(self, turn: Turn, now_s: float) -> list[Turn]:
        """Its slice is over: it goes back into its line, and whoever is next goes on, itself as often as not."""
        self._count(turn, now_s)
        line = self._lines[turn.tenant]
        line.running.remove(turn)
        self._running -= 1
        self._long -= turn.long
        turn.long = turn.used_s >= self.settings.long_s
        turn.resumed.clear()
        turn.state = State.PAUSED
        line.waiting.append(turn)
        return self._give(now_s)

    def _await(self, turn: Turn) -> None:
        """Without the lock. Several threads may wait for one turn."""
        while turn.state is State.PAUSED and not turn.stopped:
            left_s = self.settings.max_wait_s - turn.waited_s - (self.clock_s() - turn.since_s)
            if left_s <= 0:
                raise self._too_long(turn)
            turn.resumed.wait(left_s)
        if turn.stopped:
            raise Unavailable("the server is stopping, or nobody waits for the answer")

    def _count(self, turn: Turn, now_s: float) -> None:
        seconds = max(0.0, now_s - turn.since_s)
        turn.used_s += seconds
        turn.since_s = now_s
        self._lines[turn.tenant].use(seconds, now_s)

    def _leave(self, turn: Turn) -> None:
        turn.state = State.OVER
        self._all -= 1

    def _give(self, now_s: float) -> list[Turn]:
        """Give turns as long as there are any. What is not begun yet is given back, to be begun without the lock."""
        begun = []
        while self._running < self.settings.at_once and (turn := self._next(now_s)) is not None:
            line = self._lines[turn.tenant]
            line.waiting.remove(turn)
            line.running.append(turn)
            self._running += 1
            self._long += turn.long
            waited_s = max(0.0, now_s - turn.since_s)
            turn.waited_s += waited_s
            turn.since_s = now_s
            if turn.state is State.WAITING:
                self._begun += 1
                begun.append(turn)
                self._counters.query_wait_seconds.observe(waited_s)
            turn.state = State.RUNNING
            turn.resumed.set()
        return begun

    def _next(self, now_s: float) -> Turn | None:
        """Of the tenants that may, the one that used least; of those that have their share already, only if no other can."""
        best, best_rank = None, (True, 0.0)
        half = max(1, self.settings.at_once // 2)
        for line in self._lines.values():
            if not line.waiting:
                continue
            used_s = line.lately_s(now_s) + sum(now_s - turn.since_s for turn in line.running)
            rank = (len(line.running) >= half, used_s)
            if best is not None and rank >= best_rank:
                continue
            turn = min(self._possible(line), key=lambda turn: turn.used_s - (now_s - turn.since_s), default=None)
            if turn is not None:
                best, best_rank = turn, rank
        return best

    def _possible(self, line: _Line) -> Iterator[Turn]:
        settings = self.settings
        may_begin = self._begun < settings.most_begun and line.begun() < settings.tenant_begun
        for turn in line.waiting:
            if may_begin if turn.state is State.WAITING else not turn.long or self._long < settings.long_at_once:
                yield turn


def _begin(turns: list[Turn]) -> None:
    for turn in turns:
        turn.start(turn)
