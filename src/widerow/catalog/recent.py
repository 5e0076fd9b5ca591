"""What was read lately: a bounded cache whose entries are trusted for a while, then read again.

Rule 1: an entry is at most `keep_us` old when it is given out.
Rule 2: after `forget`, nothing that was read before it can come back, not even by a reader that was slow to store it.
Rule 3: at most `capacity` entries; the one that was used least recently goes first.
Rule 4: where the store does not answer, `renew` lets an entry be given out for another while, if it was read not long ago.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from widerow.model.times import MINUTE

V = TypeVar("V")

GRACE_US = 10 * MINUTE
"""For how long what was read of tokens and tenants may be relied on while the store does not answer."""


class Recent(Generic[V]):
    """Values by name. Safe to share between threads.

    A reader takes `mark()`, reads the store, then calls `put(..., mark)`; a `forget` in between makes that put void.
    """

    def __init__(self, capacity: int, keep_us: int) -> None:
        self.capacity, self.keep_us = capacity, keep_us
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, tuple[V, int, int]] = OrderedDict()
        """Values, since when each is trusted, and when it was read."""
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str, now_us: int) -> V | None:
        with self._lock:
            entry = self._entries.get(name)
            # A clock that was set back must not make an entry live longer, hence the absolute value.
            if entry is None or abs(now_us - entry[1]) >= self.keep_us:
                return None
            self._entries.move_to_end(name)
            return entry[0]

    def mark(self) -> int:
        return self._forgotten

    def put(self, name: str, value: V, now_us: int, mark: int) -> None:
        with self._lock:
            if mark != self._forgotten:
                return
            self._entries[name] = (value, now_us, now_us)
            self._entries.move_to_end(name)
            if len(self._entries) > self.capacity:
                self._entries.popitem(last=False)

    def renew(self, name: str, now_us: int, within_us: int) -> bool:
        """Trust an entry for `keep_us` from now on, if there is one that was read within that time."""
        with self._lock:
            entry = self._entries.get(name)
            if entry is None or abs(now_us - entry[2]) >= within_us:
                return False
            self._entries[name] = (entry[0], now_us, entry[2])
            return True

    def forget(self, name: str) -> None:
        """Call it after the store has changed."""
        with self._lock:
            self._forgotten += 1
            self._entries.pop(name, None)
