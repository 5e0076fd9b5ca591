"""Outcomes on their way from the pipeline's threads back to the event loop.

Waking a loop from another thread costs a system call. One commit answers hundreds of small requests, so outcomes queue here
and a single wake-up hands all of them over.
Rule: an outcome is never lost. It is queued before the flag is looked at, and the flag is lowered before the queue is read.
"""

from __future__ import annotations

import asyncio
from collections import deque

from widerow.pipeline.pipeline import Outcome


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
