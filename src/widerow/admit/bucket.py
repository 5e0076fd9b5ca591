"""Token buckets, exact to the last report: of a tenant, and of all its devices at once.

A bucket fills at its rate up to its burst, and a report takes one token. So over any span at most rate x span + burst pass;
and nothing is refused while a token is there. Levels are integers, in billionths of a token: what a microsecond adds at a
thousandth of a report a second is one of them, so nothing is ever rounded away.
Time is given by the caller. A clock that was set back adds nothing, takes nothing, and counts from there.
"""

from __future__ import annotations

import threading

import numpy as np

from widerow.model.arrays import Codes, Flags, Ints
from widerow.model.kernel import kernel
from widerow.model.times import SECOND

TOKEN = 1_000_000_000
"""One report, in what levels are counted in."""
_FILL = TOKEN // SECOND
"""What a rate of one a second adds in a microsecond."""
MOST_BURST = (1 << 62) // TOKEN
_WINDOW_US = 5 * SECOND
"""Over how long the rate is judged that a refusal tells."""
_SET_BACK_US = SECOND
"""A clock that went back by more was set: buckets fill from there on. By less, a thread was just late."""


def filled(per_s: float) -> int:
    """What a rate adds in a microsecond. A rate above 0 is at least a thousandth of a report a second."""
    return max(1, round(per_s * _FILL)) if per_s > 0 else 0


class Bucket:
    """One bucket, for several threads."""

    def __init__(self, per_s: float, burst: float, now_us: int) -> None:
        self._lock = threading.Lock()
        self._fill, self._burst = filled(per_s), full_level(burst)
        self._level, self._at_us = self._burst, now_us
        self._offered = Meter(now_us)

    def change(self, per_s: float, burst: float, now_us: int) -> None:
        """Another rate from now on. What is in the bucket stays, as far as there is room for it."""
        with self._lock:
            self._refill(now_us)
            self._fill, self._burst = filled(per_s), full_level(burst)
            self._level = min(self._level, self._burst)

    def take(self, wanted: int, now_us: int, *, whole: bool = False) -> int:
        """How many of so many reports may pass; `whole`: all of them, or none.

        A batch larger than the burst could never pass whole. It does when the bucket is full, and leaves a debt.
        """
        with self._lock:
            self._offered.add(wanted, now_us)
            self._refill(now_us)
            if whole:
                passes = self._level >= min(wanted * TOKEN, self._burst)
                granted = wanted if passes else 0
            else:
                granted = min(wanted, max(0, self._level) // TOKEN)
            self._level -= granted * TOKEN
            return granted

    def give_back(self, count: int) -> None:
        """So many that were granted did not pass after all."""
        with self._lock:
            self._level = min(self._burst, self._level + count * TOKEN)

    def retry_after_s(self, wanted: int) -> float:
        """When so many could pass, if nobody else came; at most the burst, which is all that there ever is."""
        with self._lock:
            missing = min(wanted * TOKEN, self._burst) - self._level
            return max(0, missing) / self._fill / SECOND if self._fill else 0.0

    def offered_per_s(self, now_us: int) -> float:
        """How many reports came lately, those that were refused included."""
        with self._lock:
            return self._offered.per_s(now_us)

    def _refill(self, now_us: int) -> None:
        passed_us = now_us - self._at_us
        if passed_us > 0:
            self._level = min(self._burst, self._level + passed_us * self._fill)
        if passed_us > 0 or passed_us < -_SET_BACK_US:
            self._at_us = now_us


def full_level(burst: float) -> int:
    """The level of a bucket that is full. One that held less than a token would never let anything pass."""
    return int(min(max(1.0, burst), MOST_BURST) * TOKEN)


class Meter:
    """How many came in the last seconds: the window before this one, and this one so far."""

    __slots__ = ("_before", "_count", "_since_us")

    def __init__(self, now_us: int) -> None:
        self._since_us, self._count, self._before = now_us, 0, 0

    def add(self, count: int, now_us: int) -> None:
        self._turn(now_us)
        self._count += count

    def per_s(self, now_us: int) -> float:
        self._turn(now_us)
        passed = min(max(now_us - self._since_us, 0), _WINDOW_US) / _WINDOW_US
        return (self._before * (1 - passed) + self._count) * SECOND / _WINDOW_US

    def _turn(self, now_us: int) -> None:
        windows = (now_us - self._since_us) // _WINDOW_US
        if now_us < self._since_us - _SET_BACK_US:
            self._since_us = now_us
        if windows > 0:
            self._before = self._count if windows == 1 else 0
            self._count = 0
            self._since_us += windows * _WINDOW_US


class DeviceBuckets:
    """A bucket for each device of a tenant, by id: columns that grow as devices come. One batch at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fill = np.zeros(0, np.int64)
        """0: no limit."""
        self._burst = np.zeros(0, np.int64)
        self._level = np.zeros(0, np.int64)
        self._at_us = np.zeros(0, np.int64)

    def set(self, device: int, per_s: float, burst: float, now_us: int) -> None:
        """What a device may send from now on; 0: as much as it likes. A device that had no limit begins with its burst."""
        with self._lock:
            self._grow(device + 1)
            had = self._fill[device] > 0
            level, at_us = full_level(burst), now_us
            if had:  # what it had saved, as far as there was room for it
                at_us = max(now_us, int(self._at_us[device]))
                saved = int(self._level[device]) + (at_us - int(self._at_us[device])) * int(self._fill[device])
                level = min(level, saved, int(self._burst[device]))
            self._fill[device], self._burst[device] = filled(per_s), full_level(burst)
            self._level[device], self._at_us[device] = level, at_us

    def take(self, device: Codes, now_us: int, refused: Flags) -> tuple[int, float]:
        """Marks the reports (given by their devices' ids) that may not pass, in their order.

        Gives how many those are, and when the last of their devices has a token again, in seconds.
        """
        with self._lock:
            self._grow(int(device.max()) + 1 if len(device) else 0)
            count, wait_us = _take_each(device, now_us, self._fill, self._burst, self._level, self._at_us, refused)
            return count, wait_us / SECOND

    def give_back(self, device: Codes) -> None:
        """Reports that could pass, given as to `take`, did not after all."""
        with self._lock:
            ids, counts = np.unique(device, return_counts=True)
            self._grow(int(ids[-1]) + 1 if len(ids) else 0)
            self._level[ids] = np.minimum(self._level[ids] + counts * TOKEN, self._burst[ids])

    def _grow(self, size: int) -> None:
        if size <= len(self._fill):
            return
        more = np.zeros(max(size, 2 * len(self._fill), 64) - len(self._fill), np.int64)
        self._burst, self._level, self._at_us, self._fill = (
            np.concatenate([column, more]) for column in (self._burst, self._level, self._at_us, self._fill)
        )


@kernel
def _take_each(
    device: Codes, now_us: int, fill: Ints, burst: Ints, level: Ints, at_us: Ints, refused: Flags
) -> tuple[int, int]:
    count = 0
    wait_us = np.int64(0)
    for i in range(len(device)):
        d = device[i]
        if fill[d] == 0:
            continue
        passed_us = now_us - at_us[d]
        if passed_us > 0:
            room = burst[d] - level[d]
            # Dividing first: a product of a rate and a long time does not fit.
            level[d] = burst[d] if passed_us > room // fill[d] else level[d] + passed_us * fill[d]
        if passed_us > 0 or passed_us < -_SET_BACK_US:
            at_us[d] = now_us
        if level[d] >= TOKEN:
            level[d] -= TOKEN
        else:
            refused[i] = True
            count += 1
            wait_us = max(wait_us, (TOKEN - level[d]) // fill[d] + 1)
    return count, int(wait_us)
