"""The key space as this process uses it: how much is written and read in each range of keys, minute by minute.

A key is `TENANT/DEVICE`, whatever the layout of the store. Batches and questions are sampled (`ops.key_samples`); `fold`
counts the samples into ranges of keys. It is called every few seconds and before each view.
Rule 1: `fold` cuts a range in two, at the median of its samples, as long as it has more than 1/128 of the writes or reads of
the interval and more than one key. So a hot key has a range of its own after one interval.
Rule 2: there are 512 ranges at most. When there are more, neighbours that are alike and quiet become one.
Rule 3: the minutes before a cut are shared out by the number of keys on each side. `since` says from when on a range was
counted apart.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np

from widerow.model.arrays import Flags, Floats, Ints
from widerow.model.batch import Batch
from widerow.model.names import Names
from widerow.model.sizes import REPORT_BYTES
from widerow.model.times import MINUTE
from widerow.ops.key_counts import SIGMAS, Counted, KeyCounts
from widerow.ops.key_samples import MOST_OF_A_BATCH, KeySamples, Sample

MINUTES = 60
MOST_RANGES = 512
HOT_SHARE = 1 / 128
MOST_HOTTEST = 20
_TOGETHER = 0.25
"""What the load of two neighbours counts, beside the part of it that moves between keys, when ranges are merged."""
EVERY_S = 5
"""How often samples are counted: the interval within which a hot key shows."""
_NEXT = "\0"
"""Behind a key, it makes the first text after it: no name has a control character."""
_WRITES, _READS, _BYTES, _KEYS, _WRITE_VARIANCE, _READ_VARIANCE = range(6)
_PLANES = 6


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys from `start` to before `stop` ("": open), and their minutes, the oldest first."""

    start: str
    stop: str
    since_us: int
    """From this minute on it was counted apart; before, it has its share of a wider range."""
    keys: int
    """How many keys were seen in one interval, at least."""
    writes: Sequence[float]
    reads: Sequence[float]
    writes_error: float
    """Give or take, of the sum of all its minutes."""
    reads_error: float
    bytes: float
    """Written, before compression."""


@dataclass(frozen=True, slots=True)
class Use:
    """Of writes or of reads: how many, how unevenly the ranges share them, and the keys with the most."""

    count: int
    """Exactly, and of all keys, whatever part was asked for."""
    skew: float
    """The most that a key has by the mean, as far as the ranges tell keys apart."""
    gini: float
    """0: all keys have the same; towards 1: one key has all."""
    hottest: Sequence[Counted]


@dataclass(frozen=True, slots=True)
class View:
    """A part of the key space."""

    since_us: int
    """When counting began."""
    minutes_us: Sequence[int]
    """When each minute begins."""
    ranges: Sequence[KeyRange]
    writes: Use
    reads: Use


class _Range:
    __slots__ = ("cells", "since", "start")

    def __init__(self, start: str, since: int, cells: Floats) -> None:
        self.start, self.since, self.cells = start, since, cells


class KeySpace:
    """The key space of a process. Safe to share between threads."""

    def __init__(self, now_us: int, seed: int = 1) -> None:
        self._began_us = now_us
        self._writes, self._reads = KeySamples(seed), KeySamples(seed + 1)
        self._random = np.random.default_rng(seed)
        self._lock, self._drawing = threading.Lock(), threading.Lock()
        self._minute = now_us // MINUTE
        self._ranges = [_Range("", self._minute, _no_cells())]
        self._hot_writes, self._hot_reads = KeyCounts(MINUTES), KeyCounts(MINUTES)
        self._totals = np.zeros((MINUTES, 2), np.int64)

    # -- counting

    def wrote(self, tenant: str, batch: Batch) -> None:
        """Reports that were written."""
        self._writes.add(tenant, batch.device.names, batch.device.codes, batch.cells.offsets, REPORT_BYTES + len(tenant))

    def read(self, tenant: str, devices: Sequence[str]) -> None:
        """Devices that one question is about."""
        step = max(1, -(-len(devices) // MOST_OF_A_BATCH))
        some = devices
        if step > 1:
            with self._drawing:
                some = devices[int(self._random.integers(step)) :: step]
        self._reads.add_some(tenant, Names.of(some), step, len(devices))

    def fold(self, now_us: int) -> None:
        """Count the samples since the last time, as of the minute of `now_us`."""
        with self._lock:
            self._move_on(now_us // MINUTE)
            writes, reads = self._writes.take(), self._reads.take()
            column = self._minute % MINUTES
            self._totals[column] += writes.total, reads.total
            if not writes.keys and not reads.keys:
                return
            distinct, codes = np.unique(np.array([*writes.keys, *reads.keys], object), return_inverse=True)
            keys: list[str] = distinct.tolist()
            found = _counted(writes, reads, codes, len(keys))
            self._hot_writes.add(self._minute, _heavy(keys, found, _WRITES, _WRITE_VARIANCE))
            self._hot_reads.add(self._minute, _heavy(keys, found, _READS, _READ_VARIANCE))
            self._cut(keys, found)
            cuts = [*(bisect_left(keys, one.start) for one in self._ranges), len(keys)]
            for one, lo, hi in zip(self._ranges, cuts, cuts[1:], strict=False):
                if lo < hi:
                    sums = found[lo:hi].sum(axis=0)
                    sums[_KEYS] = max(0.0, sums[_KEYS] - one.cells[column, _KEYS])  # of an interval, not of all
                    one.cells[column] += sums
            _merge_likest(self._ranges, MOST_RANGES)

    def _move_on(self, minute: int) -> None:
        """Minutes that begin are empty. A clock that is set back goes on in the minute it was in."""
        for m in range(self._minute + 1, min(minute, self._minute + MINUTES) + 1):
            for one in self._ranges:
                one.cells[m % MINUTES] = 0.0
            self._totals[m % MINUTES] = 0
        if minute > self._minute + MINUTES:
            for one in self._ranges:
                one.cells[:] = 0.0
            self._totals[:] = 0
        self._minute = max(minute, self._minute)

    def _cut(self, keys: Sequence[str], found: Floats) -> None:
        """Cut the ranges that are hot in this interval, and around each key that is."""
        shares = np.stack([found[:, plane] / max(1.0, found[:, plane].sum()) for plane in (_WRITES, _READS)], axis=1)
        sums = np.zeros((len(keys) + 1, 2))
        np.cumsum(shares, axis=0, out=sums[1:])
        hot = shares.max(axis=1) > HOT_SHARE
        stops = [*(one.start for one in self._ranges[1:]), ""]
        at = [*(bisect_left(keys, one.start) for one in self._ranges), len(keys)]
        out: list[_Range] = []
        for one, stop, lo, hi in zip(self._ranges, stops, at, at[1:], strict=False):
            pieces = _pieces(one.start, stop, keys, [lo, *_places(sums, lo, hi), hi], hot)
            if len(pieces) == 1:
                out.append(one)
            else:
                for start, count in pieces:
                    cells = one.cells * (count / (hi - lo))
                    if count == 1:
                        cells[:, _KEYS] = np.minimum(cells[:, _KEYS], 1.0)
                    out.append(_Range(start, self._minute, cells))
        self._ranges = out

    # -- looking

    def view(self, now_us: int, *, minutes: int = MINUTES, start: str = "", stop: str = "", most: int = 64) -> View:
        """The last minutes of the ranges that have keys from `start` to before `stop`, as `most` ranges at most."""
        self.fold(now_us)
        with self._lock:
            last = self._minute
            since = max(last - min(minutes, MINUTES) + 1, self._began_us // MINUTE)
            columns = np.arange(since, last + 1) % MINUTES
            stops = [*(one.start for one in self._ranges[1:]), ""]
            part = [
                (_Range(one.start, one.since, one.cells[columns]), end)
                for one, end in zip(self._ranges, stops, strict=True)
                if (not end or end > start) and (not stop or one.start < stop)
            ]
            counts = self._totals[columns].sum(axis=0).tolist()
            hottest = [
                counted.heaviest(since, lambda key: key >= start and (not stop or key < stop), MOST_HOTTEST)
                for counted in (self._hot_writes, self._hot_reads)
            ]
        chosen, end = [one for one, _ in part], part[-1][1] if part else ""
        uses = [Use(counts[plane], *_skew(chosen, plane), hottest[plane]) for plane in (_WRITES, _READS)]
        _merge_empty(chosen)
        _merge_likest(chosen, most)
        ends = [*(one.start for one in chosen[1:]), end]
        ranges = [_shown(one, stop_key) for one, stop_key in zip(chosen, ends, strict=True)] if chosen else []
        return View(self._began_us, [m * MINUTE for m in range(since, last + 1)], ranges, *uses)


def _no_cells() -> Floats:
    return np.zeros((MINUTES, _PLANES), np.float64)


def _counted(writes: Sample, reads: Sample, codes: Ints, n: int) -> Floats:
    """The planes of each key, from the samples of writes and of reads."""
    of_writes, of_reads = codes[: len(writes.keys)], codes[len(writes.keys) :]
    found = np.zeros((n, _PLANES), np.float64)
    for at, sample, count, variance in (
        (of_writes, writes, _WRITES, _WRITE_VARIANCE),
        (of_reads, reads, _READS, _READ_VARIANCE),
    ):
        w = sample.weight
        found[:, count] = np.bincount(at, w, n)
        found[:, variance] = np.bincount(at, w * (w - 1), n)
    found[:, _BYTES] = np.bincount(of_writes, writes.weight * writes.size_bytes, n)
    found[:, _KEYS] = 1.0
    return found


def _heavy(keys: Sequence[str], found: Floats, count: int, variance: int) -> list[tuple[str, float, float]]:
    some = np.flatnonzero(found[:, count])
    return [(keys[i], w, v) for i, w, v in zip(some.tolist(), *found[some][:, (count, variance)].T.tolist(), strict=True)]


def _places(sums: Floats, lo: int, hi: int) -> list[int]:
    """Where to cut the keys from `lo` to `hi`, given the running sums of their shares."""
    found, left = [], [(lo, hi)]
    while left:
        a, b = left.pop()
        share = sums[b] - sums[a]
        hotter = int(share.argmax())
        if b - a < 2 or share[hotter] <= HOT_SHARE:
            continue
        middle = (sums[a, hotter] + sums[b, hotter]) / 2
        m = int(np.searchsorted(sums[a + 1 : b, hotter], middle)) + a + 1
        # Before or after the key in which the middle lies: where the halves are more alike.
        m = min(max(m, a + 1), b - 1)
        if m - 1 > a and middle - sums[m - 1, hotter] < sums[m, hotter] - middle:
            m -= 1
        found.append(m)
        left += [(a, m), (m, b)]
    return sorted(found)


def _pieces(start: str, stop: str, keys: Sequence[str], at: Sequence[int], hot: Flags) -> list[tuple[str, int]]:
    """The parts of a range that is cut at some of its keys: where they begin, and how many keys they have. A hot key is
    alone in its part.
    """
    out: list[tuple[str, int]] = []
    begin: str | None = start
    for lo, hi in pairwise(at):
        if hi - lo == 1 and hot[lo]:
            if begin is not None and begin < keys[lo]:
                out.append((begin, 0))
            out.append((keys[lo], 1))
            begin = keys[lo] + _NEXT
            if hi == at[-1] and begin != stop:
                out.append((begin, 0))
        else:
            out.append((keys[lo] if begin is None else begin, hi - lo))
            begin = None
    return out


def _merge_likest(ranges: list[_Range], most: int) -> None:
    """As long as there are too many, make one of the two neighbours of which it hides least.

    That is the part of the load that moves from key to key if all of both get the same, and, so that ranges do not grow
    without end where keys are alike, some of what they have together. The greater of writes and reads counts.
    """
    if len(ranges) <= most:
        return
    load = np.array([one.cells[:, : _READS + 1].sum(axis=0) for one in ranges]).T
    load /= np.maximum(load.sum(axis=1, keepdims=True), 1.0)
    keys = np.array([max(1.0, one.cells[:, _KEYS].max(initial=0.0)) for one in ranges])
    while len(ranges) > most:
        sums = load[:, 1:] + load[:, :-1]
        moved = 2 * np.abs(load[:, :-1] * keys[1:] - load[:, 1:] * keys[:-1]) / (keys[1:] + keys[:-1])
        i = int(np.argmin((moved + _TOGETHER * sums).max(axis=0)))
        ranges[i] = _joined(ranges[i], ranges.pop(i + 1))
        load[:, i], keys[i] = sums[:, i], keys[i] + keys[i + 1]
        load, keys = np.delete(load, i + 1, axis=1), np.delete(keys, i + 1)


def _merge_empty(ranges: list[_Range]) -> None:
    """The gaps behind hot keys, in which there is nothing, go to the keys before them; one before all keys is left out."""
    found: list[_Range] = []
    for one in ranges:
        if one.cells.any():
            found.append(one)
        elif found:
            found[-1] = _joined(found[-1], one)
    ranges[:] = found


def _joined(one: _Range, other: _Range) -> _Range:
    return _Range(one.start, max(one.since, other.since), one.cells + other.cells)


def _skew(ranges: Sequence[_Range], plane: int) -> tuple[float, float]:
    """Of the load by key: its maximum by its mean, and the Gini coefficient. The keys of a range count as equal."""
    load = np.array([one.cells[:, plane].sum() for one in ranges])
    keys = np.array([one.cells[:, _KEYS].max(initial=0.0) for one in ranges])
    load, keys = load[keys > 0], keys[keys > 0]
    if not load.sum():
        return 1.0, 0.0
    rate, mean = load / keys, load.sum() / keys.sum()
    order = np.argsort(rate)
    load, keys = load[order] / load.sum(), keys[order] / keys.sum()
    below = np.cumsum(load) - load / 2
    return float(rate.max() / mean), float(1 - 2 * (below @ keys))


def _shown(one: _Range, stop: str) -> KeyRange:
    cells = one.cells
    sums = cells.sum(axis=0).tolist()
    return KeyRange(
        one.start,
        stop,
        one.since * MINUTE,
        int(np.ceil(cells[:, _KEYS].max(initial=0.0))),
        cells[:, _WRITES].tolist(),
        cells[:, _READS].tolist(),
        SIGMAS * sqrt(sums[_WRITE_VARIANCE]),
        SIGMAS * sqrt(sums[_READ_VARIANCE]),
        sums[_BYTES],
    )
