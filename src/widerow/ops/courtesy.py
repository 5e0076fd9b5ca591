"""Giving way: a thread that works for long lets what is urgent pass, between two small steps of its work.

Threads take turns holding the GIL, so one that works on and on makes everything else slower, however many cores there are.
Whoever starts such work says how it gives way (`yielding`), and what does the work says when it could (`give_way`), deep
down in an engine if need be: there nobody knows for whom a row is read. Where nothing was said it costs next to nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

STEP_S = 0.0005
"""About as long as others may be kept waiting."""
LEAVING_S = 0.001
"""What was answered is urgent for that long still: until the answer has left, of which a third is usual. Beside work that
goes on at once it took several times as long."""

_here = threading.local()


@contextmanager
def yielding(pause: Callable[[], None]) -> Iterator[None]:
    """What this thread does in here gives way by `pause`, which returns at once or waits a little, and may raise."""
    before = getattr(_here, "pause", None)
    _here.pause = pause
    try:
        yield
    finally:
        _here.pause = before


def undisturbed() -> AbstractContextManager[None]:
    """What this thread does in here gives way to nobody: it holds what others wait for."""
    return yielding(_nothing)


def _nothing() -> None: ...


def give_way() -> None:
    """Between two steps of about `STEP_S`. What is done in a pause gives way to nobody: it is what others give way to."""
    pause = getattr(_here, "pause", None)
    if pause is not None:
        _here.pause = None
        try:
            pause()
        finally:
            _here.pause = pause


def to_spare_s() -> float:
    """How long this thread may leave to others what they do all the time, such as syncing a log that it wrote to as well."""
    pause = getattr(_here, "pause", None)
    return pause.to_spare_s() if isinstance(pause, Rests) else 0.0


class Patience:
    """A way to give way: wait while something is urgent, for so long in all."""

    __slots__ = ("_left_s", "_urgent")

    def __init__(self, urgent: Callable[[], bool], in_all_s: float) -> None:
        self._urgent, self._left_s = urgent, in_all_s

    def __call__(self) -> None:
        began_s = now_s = time.monotonic()
        while now_s - began_s < self._left_s and self._urgent():
            time.sleep(STEP_S)
            now_s = time.monotonic()
        self._left_s -= now_s - began_s


_LOOK_S = 0.001
"""How often who rests looks whether he may go on: each look takes the GIL."""


class Rests:
    """A way to give way: after each step, while something is urgent, rest; up to so many times as long as it has worked.

    So what never ceases to be urgent makes it slower by a known factor, and does not stop it. Rest that was not needed is
    saved, up to `longest_s`: what is urgent now and then has the machine for itself.
    While others are `busy` it rests for `at_least` times as long in any case. Who comes in a pause then seldom meets it at
    work; without that it would work in every pause.
    """

    __slots__ = ("_at_least", "_busy", "_clock_s", "_longest_s", "_saved_s", "_since_s", "_sleep", "_times", "_urgent")

    def __init__(
        self,
        urgent: Callable[[], bool],
        *,
        times: float,
        longest_s: float,
        busy: Callable[[], bool] = lambda: False,
        at_least: float = 0.0,
        clock_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._urgent, self._times, self._longest_s = urgent, times, longest_s
        self._busy, self._at_least = busy, at_least
        self._clock_s, self._sleep = clock_s, sleep
        self._since_s, self._saved_s = clock_s(), 0.0

    def to_spare_s(self) -> float:
        """While others are busy it may be late by a rest."""
        return self._longest_s if self._at_least and self._busy() else 0.0

    def begin(self) -> None:
        """Work begins, or goes on: the time before this was none."""
        self._since_s = self._clock_s()

    def __call__(self) -> None:
        now_s = self._clock_s()
        worked_s = now_s - self._since_s
        if worked_s < STEP_S:
            return
        until_s = now_s + min(self._saved_s + worked_s * self._times, self._longest_s)
        if self._busy():
            self._sleep(min(worked_s * self._at_least, self._longest_s))
            now_s = self._clock_s()
        while now_s < until_s and self._urgent():
            self._sleep(_LOOK_S)
            now_s = self._clock_s()
        self._since_s, self._saved_s = now_s, max(0.0, until_s - now_s)
