"""Between the event loop and the pipeline's threads: jobs announced to them, and their outcomes on the way back.

Waking a loop from another thread costs a system call. One commit answers hundreds of small requests, so outcomes queue here
and a single wake-up hands all of them over.
Rule: an outcome is never lost. It is queued before the flag is looked at, and the flag is lowered before the queue is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from widerow.pipeline.job import Outcome

_MOST_ROUNDS = 16
"""After so many turns of the loop the committer is woken in any case."""


class Herald:
    """Wakes the committer once the loop has taken in what has arrived. Belongs to one event loop.

    Decoding and committing both need the GIL: a committer that is woken by the first of several requests competes with the
    decoding of the others, and commits that one alone. Waiting for a turn of the loop without a new request costs a few
    microseconds when it is idle.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop, self._wake = loop, wake
        self._announced = self._seen = self._rounds = 0
        self._looking = False

    def announce(self) -> None:
        """A job was submitted quietly."""
        self._announced += 1
        if not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        if self._announced != self._seen and self._rounds < _MOST_ROUNDS:
            self._seen = self._announced
            self._rounds += 1
            self._loop.call_soon(self._look)
            return
        self._looking = False
        self._rounds = 0
        self._wake()


class Completions:
    """Belongs to one event loop. `put` from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[asyncio.Future[Outcome], Outcome]] = deque()
        self._woken = False

    def future(self) -> asyncio.Future[Outcome]:
        return self._loop.create_future()

    def put(self, future: asyncio.Future[Outcome], outcome: Outcome) -> None:
        self._waiting.append((future, outcome))
        if self._woken:
            return
        self._woken = True
        try:
            self._loop.call_soon_threadsafe(self._hand_over)
        except RuntimeError:
            # The loop has ended: the server was told to stop and did not wait. The data is durable, nobody is listening.
            self._waiting.clear()

    def _hand_over(self) -> None:
        self._woken = False
        while self._waiting:
            future, outcome = self._waiting.popleft()
            if not future.done():
                future.set_result(outcome)
