"""The clock of one embedded store: versions that never run back, whatever happens to the machine's clock.

Rule 1: a version is never less than one that was given before, by this process or an earlier one. The store keeps the last
one with everything it writes (`last_us`), so nothing is stored that is newer than what the next process begins with.
Rule 2: it gives versions only. Event times, retention and quotas go by the machine's clock (`now_us`).
Rule 3: while it is ahead of the machine's clock it goes on at half its pace, until that one has caught up. Nobody waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from widerow.model.times import MS, SECOND, Clock, whole_ms

_PACE = 1 / 2
"""Of a second, what passes here in one while this clock is ahead. More than 0, since a correction must be newer than what it
corrects; less than 1, so that it is not ahead for ever."""


class StoreClock:
    """Safe to share between threads."""

    def __init__(self, machine: Clock, last_us: int = 0, *, clock_s: Callable[[], float] = monotonic) -> None:
        """`last_us`: the greatest version that is stored."""
        self._machine, self._clock_s = machine, clock_s
        self._lock = threading.Lock()
        self._last_us, self._at_s = last_us, clock_s()

    @property
    def last_us(self) -> int:
        """The greatest version that was given, or covered."""
        return self._last_us

    @property
    def ahead_us(self) -> int:
        """How far versions are ahead of the machine's clock."""
        return max(0, self._last_us - self._machine.now_us())

    def now_us(self) -> int:
        return self._machine.now_us()

    def version_us(self) -> int:
        with self._lock:
            now_us, now_s = whole_ms(self._machine.now_us()), self._clock_s()
            if now_us >= self._last_us:
                self._last_us, self._at_s = now_us, now_s
            else:
                passed_ms = int((now_s - self._at_s) * _PACE * SECOND) // MS
                self._last_us += passed_ms * MS
                self._at_s += passed_ms * MS / SECOND / _PACE
            return self._last_us

    def cover(self, version_us: int) -> None:
        with self._lock:
            if version_us > self._last_us:
                self._last_us, self._at_s = version_us, self._clock_s()
