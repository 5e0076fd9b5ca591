"""Versions of what is computed: the instant before its inputs were read, each greater than the one before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from widerow.model.times import MS, SECOND, Clock, whole_ms


class Versions:
    """Of one process. Safe to share between threads."""

    def __init__(self, clock: Clock, wait: Callable[[float], None] = time.sleep) -> None:
        self._clock, self._wait = clock, wait
        self._lock = threading.Lock()
        self._last_us = 0

    def next(self) -> int:
        """Waits until the clock has come so far: what is erased a moment later must be newer."""
        with self._lock:
            now_us = self._clock.now_us()
            self._last_us = version_us = max(whole_ms(now_us), self._last_us + MS)
        if version_us > now_us:
            self._wait(min(version_us - now_us, 10 * MS) / SECOND)
        return version_us
