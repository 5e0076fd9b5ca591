"""Times for reports that came without one: a microsecond for each message, in the order in which they came.

Rule 1: no two messages of a process have the same, also if they came in one read, or in two of the same instant: reports of
one device and time would be one report, and all but the last of them lost.
Rule 2: they lie before the receipt, one microsecond for each message that came with it. Where reads follow each other faster
than that they follow the last one given, which cannot run away: nobody takes a million messages a second for long.
"""

from __future__ import annotations

import threading

from widerow.model.times import SECOND

_MOST_AHEAD_US = SECOND
"""Further ahead of the clock than this was no rush: the clock was set back."""


class Stamps:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next_us = 0

    def take(self, received_us: int, count: int) -> int:
        """The time of the first of so many messages; each has a microsecond more than the one before it."""
        with self._lock:
            first_us = received_us - count
            if first_us < self._next_us <= received_us + _MOST_AHEAD_US:
                first_us = self._next_us
            self._next_us = first_us + count
            return first_us
