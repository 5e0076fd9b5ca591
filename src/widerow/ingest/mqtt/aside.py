"""What is done a little later, or out of the way of those who must not wait: in a thread of its own, in order of time.

It has no bound of its own: whatever waits here belongs to messages that are not acknowledged, which are bounded.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable
from itertools import count

log = logging.getLogger(__name__)

_AGAIN_S = 2.0


class Aside:
    """`put` from any thread. What is left when it stops is dropped."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="mqtt-aside")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def put(self, action: Callable[[], None], *, delay_s: float = 0.0) -> None:
        with self._changed:
            heapq.heappush(self._waiting, (time.monotonic() + delay_s, next(self._numbers), action))
            self._changed.notify_all()

    def _run(self) -> None:
        while (action := self._next()) is not None:
            try:
                action()
            except Exception:  # nobody may be left waiting for an acknowledgement that never comes
                log.exception("an MQTT message could not be dealt with; it is tried again")
                self.put(action, delay_s=_AGAIN_S)

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._stopping:
                wait_s = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if wait_s is not None and wait_s <= 0:
                    return heapq.heappop(self._waiting)[2]
                self._changed.wait(wait_s)
            return None
