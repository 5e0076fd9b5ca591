"""Versions of what is computed: the instant before its inputs were read, each greater than the one before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from widerow.model.times import MS, SECOND, Clock


class Versions:
    """Of one process. Safe to share between threads."""

    def __init__(self, clock: Clock, wait: Callable[[float], None] = time.sleep) -> None:
        self._clock, self._wait = clock, wait
        self._lock = threading.Lock()
        self._last_us = 0

    def next(self) -> int:
        """What is erased a moment later must be newer: waits where the clock cannot see to that."""
        with self._lock:
            self._last_us = version_us = max(self._clock.version_us(), self._last_us + MS)
            self._clock.cover(version_us)
        if (early_us := version_us - self._clock.version_us()) > 0:
            self._wait(min(early_us, 10 * MS) / SECOND)
        return version_us
