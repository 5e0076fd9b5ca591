"""Times for reports that came without one: a microsecond each, in the order in which they came.

Rule 1: no two of a process have the same, also if they came in one body or read, or in two of the same instant: reports of
one device and time would be one report, and all but the last of them lost.
Rule 2: they lie before the receipt, one microsecond for each report that came with it. Where reads follow each other faster
than that they follow the last one given, which cannot run away: nobody takes a million reports a second for long.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np

from widerow.model.arrays import Codes, Ints
from widerow.model.batch import RECEIVED_TAG, Batch
from widerow.model.tags import has_tag
from widerow.model.times import SECOND

_MOST_AHEAD_US = SECOND
"""Further ahead of the clock than this was no rush: the clock was set back."""


class Stamps:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next_us = 0

    def take(self, received_us: int, count: int) -> int:
        """The time of the first of so many reports; each has a microsecond more than the one before it."""
        with self._lock:
            first_us = received_us - count
            if first_us < self._next_us <= received_us + _MOST_AHEAD_US:
                first_us = self._next_us
            self._next_us = first_us + count
            return first_us


def timeless(batch: Batch, received_us: int) -> Ints:
    """The rows of reports that came without a time, and were given `received_us` by the decoder."""
    same = batch.time_us == received_us
    return np.flatnonzero(same & has_tag(batch.cells, RECEIVED_TAG[0])) if same.any() else np.zeros(0, np.int64)


def dated(batch: Batch, rows: Ints, message: Ints | Codes, first_us: Ints) -> Batch:
    """The batch with times for those rows. Each is of a message, in order; the first of message m gets `first_us[m]`, and
    each further one a microsecond more.
    """
    if not len(rows):
        return batch
    time_us = batch.time_us.copy()
    time_us[rows] = first_us[message] + np.arange(len(rows)) - np.searchsorted(message, message)
    return replace(batch, time_us=time_us)
