"""What devices were seen to send, and the buckets that this calls for.

Reports are counted by device and interval of *event* time: a backlog of six hours that comes within a minute is not a fast
device. The interval before the newest is still counted into, for reports that come out of order; older ones are not, since
an epoch is about what comes. An interval is over when the device has moved on by two; if there was a while between it and
the next, that belongs to it, so that a device that reports once an hour is seen to do just that.
Rule 1: buckets become narrower, or are spread wider, when that was called for in a few intervals in a row, and the other way
round after a day, by the most that was seen meanwhile: what has a daily rhythm stays as its busy hours need it.
Rule 2: what is just about right stays. A rate must be a quarter above or below a limit, and a spread four times what it
need be.
Rule 3: a device gets an epoch for what was observed every few hours at most. Epochs are for ever.
Counting takes a pass of a kernel over each batch, and 48 bytes for each device that ever reported to this process.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from widerow.model.arrays import Codes, Floats, Ints, lengths
from widerow.model.batch import Batch, CellKind
from widerow.model.device import MAX_SUB_BUCKETS, TARGET_PARTITION_BYTES, VALUE_BYTES, Profile
from widerow.model.figures import figure
from widerow.model.kernel import inlined, kernel
from widerow.model.times import DAY, HOUR, MINUTE, SECOND
from widerow.telemetry.placement import DECLARED, FIRST_EPOCH, OBSERVED, Epoch, following, standing

ABOVE, BELOW = 1.25, 0.75
"""Of a limit between two widths: what a rate must be to be taken for one on the other side."""
_FEWEST_SLOW = 12
"""Intervals in a row that must have been slow, besides the time they must span: for devices that report once a day."""
_MOST = 1 << 30
_TAG = int(CellKind.TAG)
# Columns of what is counted: the newest interval with its reports and values, and the one before.
_NOW, _REPORTS, _VALUES, _THEN, _REPORTS_THEN, _VALUES_THEN = range(6)
# Columns of the most that was seen in intervals in a row that call for a change.
_PEAK, _VALUES_PEAK = range(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSettings:
    interval_us: int = 5 * MINUTE
    fast_intervals: int = 2
    """In a row, before buckets become narrower or are spread wider."""
    slow_us: int = DAY
    """How long before they become wider, or are spread less."""
    hold_us: int = 3 * HOUR
    """Between two epochs of a device that follow from what was observed."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What a device sent, in event time."""

    reports_per_s: float
    values_per_s: float


class Observed:
    """The devices of one tenant, by the ids its writer has for them. Safe to share between threads."""

    def __init__(self, settings: ObservedSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._counts = np.full((0, 6), -1, np.int32)
        self._peaks = np.zeros((0, 2), np.float64)
        self._run = np.zeros(0, np.int32)
        """Intervals in a row that called for narrower buckets (positive) or wider ones (negative), ..."""
        self._run_from = np.zeros(0, np.int32)
        """... and the first of them."""

    def observe(self, device: Codes, batch: Batch, newest: Codes, width_us: Ints, subs: Ints) -> None:
        """Count reports; `newest` is the epoch that each device has, a row of `width_us` and `subs`."""
        if not len(batch):
            return
        cells = batch.cells
        values = lengths(cells.offsets)
        tags = cells.kind == _TAG
        if tags.any():
            before = np.concatenate([[0], np.cumsum(tags)])
            values = values - (before[cells.offsets[1:]] - before[cells.offsets[:-1]])
        with self._lock:
            self._grow(len(newest))
            _observe(
                device,
                batch.time_us,
                values,
                self.settings.interval_us,
                self._counts,
                self._peaks,
                self._run,
                self._run_from,
                newest,
                width_us,
                subs,
            )

    def _grow(self, size: int) -> None:
        more = size - len(self._run)
        if more > 0:
            self._counts = np.concatenate([self._counts, np.full((more, 6), -1, np.int32)])
            self._peaks = np.concatenate([self._peaks, np.zeros((more, 2), np.float64)])
            self._run_from = np.concatenate([self._run_from, np.zeros(more, np.int32)])
            self._run = np.concatenate([self._run, np.zeros(more, np.int32)])

    def candidates(self) -> tuple[list[int], list[int]]:
        """Devices that were too fast for their buckets for long enough, and those that were too slow."""
        s = self.settings
        with self._lock:
            fast = self._run >= s.fast_intervals
            spanned_us = (self._counts[:, _NOW].astype(np.int64) - self._run_from) * s.interval_us
            slow = (self._run <= -_FEWEST_SLOW) & (spanned_us >= s.slow_us)
            return np.flatnonzero(fast).tolist(), np.flatnonzero(slow).tolist()

    def peak(self, device: int) -> Rate:
        """The most that was seen in the intervals that made it a candidate."""
        with self._lock:
            return Rate(float(self._peaks[device, _PEAK]), float(self._peaks[device, _VALUES_PEAK]))

    def begin_anew(self, device: int) -> None:
        """The device is no candidate any more, until it becomes one again."""
        with self._lock:
            self._run[device] = 0

    def rate(self, device: int, now_us: int) -> Rate | None:
        """What a device sends: in its newest interval if that is over, else in the one before; None: there is none yet."""
        width_us = self.settings.interval_us
        with self._lock:
            if device >= len(self._run) or self._counts[device, _NOW] < 0:
                return None
            now, reports, values, then, reports_then, values_then = self._counts[device].tolist()
        past_us = now_us - now * width_us
        if past_us < width_us:
            if then < 0:
                return None
            past_us, reports, values = (now - then) * width_us, reports_then, values_then
        return Rate(reports * SECOND / past_us, values * SECOND / past_us)


def observed_epoch(
    epochs: Sequence[Epoch], profile: Profile, seen: Rate, earliest_us: int, hold_us: int = 0
) -> Epoch | None:
    """What was observed adds to a device's epochs: nothing, if the newest will do, or the last such epoch is too young.

    The profile and what was observed both count, whichever calls for more: buckets are never wider, nor spread less, than a
    rate that is declared calls for, because whoever declares it knows what the device may start to send; and never
    wider than what was seen calls for, because partitions grow by what is sent, not by what was declared. A spread
    that has another reason (a device that is hot) is not made narrower: whoever gave it takes it back (`cooled_epoch`).
    """
    newest = epochs[-1] if epochs else FIRST_EPOCH
    width_us, sub_buckets = fitting(seen.reports_per_s, seen.values_per_s, newest.width_us, newest.sub_buckets)
    if profile.reports_per_s:
        if profile.bucket_width_us() < width_us:
            width_us = profile.bucket_width_us()
            sub_buckets = spread_over(seen.values_per_s, width_us)
        values_per_s = profile.bucket_bytes() / VALUE_BYTES / (profile.bucket_width_us() / SECOND)
        sub_buckets = max(sub_buckets, spread_over(values_per_s, width_us))
    others = [e for e in standing(epochs) if not e.reason.startswith((DECLARED, OBSERVED))]
    sub_buckets = max([int(sub_buckets), *(e.sub_buckets for e in others[-1:])])
    if (newest.width_us, newest.sub_buckets) == (width_us, sub_buckets) or is_held(epochs, earliest_us, hold_us):
        return None
    values = round(seen.values_per_s / seen.reports_per_s) if seen.reports_per_s else 0
    reason = f"{OBSERVED}rate: {figure(seen.reports_per_s)} reports/s of {values} values"
    return following(newest, earliest_us, int(width_us), sub_buckets, reason)


def is_held(epochs: Sequence[Epoch], earliest_us: int, hold_us: int) -> bool:
    """Whether the last epoch for what was observed is too young for another."""
    last = next((e.from_us for e in reversed(epochs) if e.reason.startswith(OBSERVED)), None)
    return last is not None and earliest_us < last + hold_us


@inlined
def width_for(reports_per_s: float) -> int:
    """As `Profile.bucket_width_us`, of a rate that is known."""
    if reports_per_s > 1:
        return 15 * MINUTE
    return HOUR if reports_per_s >= 1 / 60 else 6 * HOUR


@inlined
def spread_over(values_per_s: float, width_us: int) -> int:
    """As `Profile.sub_buckets`, for buckets of any width."""
    needed = values_per_s * (width_us / SECOND) * VALUE_BYTES / TARGET_PARTITION_BYTES
    spread = 1
    while spread < needed and spread < MAX_SUB_BUCKETS:
        spread *= 2
    return spread


@inlined
def fitting(reports_per_s: float, values_per_s: float, width_us: int, subs: int) -> tuple[int, int]:
    """The width and spread for such a device, whose buckets are as given: those, if they are about right."""
    width = width_us
    if width_for(reports_per_s / ABOVE) < width_us:
        width = width_for(reports_per_s / ABOVE)
    elif width_for(reports_per_s / BELOW) > width_us:
        width = width_for(reports_per_s / BELOW)
    spread = spread_over(values_per_s, width)
    if width == width_us and spread < subs < 4 * spread:
        spread = subs
    return width, spread


@kernel
def _observe(
    device: Codes,
    time_us: Ints,
    values: Ints,
    interval_us: int,
    counts: Codes,
    peaks: Floats,
    run: Codes,
    run_from: Codes,
    newest: Codes,
    width_us: Ints,
    subs: Ints,
) -> None:
    for i in range(len(device)):
        d = device[i]
        interval = time_us[i] // interval_us
        if interval == counts[d, _NOW]:
            counts[d, _REPORTS] += 1
            counts[d, _VALUES] = min(counts[d, _VALUES] + values[i], _MOST)
            continue
        if interval < counts[d, _NOW]:
            if 0 <= counts[d, _THEN] <= interval:
                counts[d, _REPORTS_THEN] += 1
                counts[d, _VALUES_THEN] = min(counts[d, _VALUES_THEN] + values[i], _MOST)
            continue
        if counts[d, _THEN] >= 0:
            seconds = (counts[d, _NOW] - counts[d, _THEN]) * (interval_us / SECOND)
            reports_per_s = counts[d, _REPORTS_THEN] / seconds
            values_per_s = counts[d, _VALUES_THEN] / seconds
            e = newest[d]
            _conclude(d, counts[d, _THEN], reports_per_s, values_per_s, peaks, run, run_from, width_us[e], subs[e])
        counts[d, _THEN] = counts[d, _NOW]
        counts[d, _REPORTS_THEN] = counts[d, _REPORTS]
        counts[d, _VALUES_THEN] = counts[d, _VALUES]
        counts[d, _NOW] = interval
        counts[d, _REPORTS] = 1
        counts[d, _VALUES] = min(values[i], _MOST)


@inlined
def _conclude(
    d: int,
    interval: int,
    reports_per_s: float,
    values_per_s: float,
    peaks: Floats,
    run: Codes,
    run_from: Codes,
    width_us: int,
    subs: int,
) -> None:
    """An interval of a device is over."""
    width, spread = fitting(reports_per_s, values_per_s, width_us, subs)
    if width == width_us and spread == subs:
        run[d] = 0
        return
    faster = width < width_us or (width == width_us and spread > subs)
    if (run[d] > 0) != faster or run[d] == 0:
        run[d] = 0
        run_from[d] = interval
        peaks[d, _PEAK] = peaks[d, _VALUES_PEAK] = 0
    run[d] += 1 if faster else -1
    peaks[d, _PEAK] = max(peaks[d, _PEAK], reports_per_s)
    peaks[d, _VALUES_PEAK] = max(peaks[d, _VALUES_PEAK], values_per_s)
