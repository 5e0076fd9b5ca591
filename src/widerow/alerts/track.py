"""A track holds the last minutes and the states of the series that one rule watches. Pure: no clock, no I/O.

Rule 1: everything is a column with a place for each device; a step is a few passes of NumPy, whatever the number of devices.
Rule 2: a figure of a window is over the minutes in it that had values. The window ends with the minute that is judged.
Rule 3: memory is bounded: where a device does not fit into `most_bytes`, new devices are not watched.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from widerow.alerts.rule import OFFLINE, RATE, Rule
from widerow.alerts.state import State, States, step
from widerow.model.arrays import Codes, Flags, Floats, Ints
from widerow.model.intern import NameTable
from widerow.model.names import Names
from widerow.model.times import MINUTE

_CAPACITY = 1 << 24
_CHECKED_US = 10 * MINUTE
"""For how long it is relied on that a device matches."""
_PAUSE_US = 5 * MINUTE
"""A series that had no value for longer than this, beyond its window, was not bad all the while."""
_DEVICE_BYTES, _MINUTE_BYTES, _OPEN_BYTES = 64, 24, 160
_NEVER = -(1 << 60)


@dataclass(frozen=True, slots=True)
class Minute:
    """What one minute of some devices comes to, each device once."""

    start_us: int
    ids: Codes
    """Of the devices, in their track."""
    sums: Floats
    counts: Floats
    lows: Floats
    highs: Floats
    lasts: Floats
    last_us: Ints

    def merged(self, later: Minute) -> Minute:
        """With values of the same minute that came later."""
        size = int(max(self.ids.max(initial=-1), later.ids.max(initial=-1))) + 1
        sums, counts = np.zeros(size), np.zeros(size)
        lows, highs, lasts = np.full(size, np.inf), np.full(size, -np.inf), np.zeros(size)
        last_us = np.full(size, _NEVER)
        for part in (self, later):
            sums[part.ids] += part.sums
            counts[part.ids] += part.counts
            lows[part.ids] = np.minimum(lows[part.ids], part.lows)
            highs[part.ids] = np.maximum(highs[part.ids], part.highs)
            newer = part.last_us >= last_us[part.ids]
            lasts[part.ids[newer]], last_us[part.ids[newer]] = part.lasts[newer], part.last_us[newer]
        ids = np.flatnonzero(counts).astype(np.int32)
        return Minute(self.start_us, ids, sums[ids], counts[ids], lows[ids], highs[ids], lasts[ids], last_us[ids])


@dataclass(frozen=True, slots=True)
class Change:
    """The alert of a device has another state now."""

    device: str
    state: State
    value: float
    at_us: int


class Track:
    """One thread at a time."""

    def __init__(self, rule: Rule, *, most_bytes: int) -> None:
        self.rule = rule
        self._table = NameTable(_CAPACITY)
        self._width = 1 if rule.kind == OFFLINE or rule.aggregate == "last" else rule.window_us // MINUTE
        self._size = 0
        self._most = most_bytes // (_DEVICE_BYTES + _OPEN_BYTES + _MINUTE_BYTES * self._width)
        self.state = np.zeros(0, np.uint8)
        self.since_us = np.zeros(0, np.int64)
        self.seen_us = np.zeros(0, np.int64)
        self._checked_us = np.zeros(0, np.int64)
        """When it was looked up whether the device matches; below 0: it does not."""
        self._minute = np.full((self._width, 0), _NEVER)
        self._a = np.zeros((self._width, 0))
        self._b = np.zeros((self._width, 0))
        self._open: dict[int, Minute] = {}
        if rule.device:
            self._table.add(Names.of((rule.device,)))
            self._grow(1)

    @property
    def bytes(self) -> int:
        columns = (self.state, self.since_us, self.seen_us, self._checked_us, self._minute, self._a, self._b)
        opened = sum(52 * len(minute.ids) for minute in self._open.values())
        return self._table.bytes + sum(column.nbytes for column in columns) + opened

    # -- devices

    def ids(self, devices: Names) -> Codes:
        """Of devices, which may be new; -1 where one is not watched, or there is no room."""
        ids = self._table.find(devices)
        missing = 0 if self.rule.device else int(np.count_nonzero(ids < 0))
        if missing and len(self._table) + missing <= self._most:
            ids = self._table.add(devices)
            self._grow(len(self._table))
        return ids

    def names(self, ids: Codes | Ints) -> list[str]:
        return self._table.at(ids).to_list()

    def recall(self, device: str, state: State, since_us: int) -> None:
        """The state of an alert as it is in the store."""
        at = int(self.ids(Names.of((device,)))[0])
        if at >= 0:
            self.state[at], self.since_us[at], self.seen_us[at] = state, since_us, since_us

    def forget(self, device: str) -> None:
        """Its alert was withdrawn, or is to be judged again."""
        at = int(self._table.find(Names.of((device,)))[0])
        if at >= 0:
            self.state[at], self.since_us[at], self._checked_us[at] = State.OK, 0, 0

    def unchecked(self, ids: Codes, now_us: int) -> Codes:
        """Those of which it is not known any more whether they match."""
        ids = np.unique(ids[ids >= 0])
        return ids[now_us - np.abs(self._checked_us[ids]) > _CHECKED_US]

    def checked(self, ids: Codes, match: Collection[str], now_us: int) -> None:
        """Of these devices, those in `match` match now."""
        there = np.array([device in match for device in self.names(ids)], np.bool_)
        self._checked_us[ids] = np.where(there, now_us, -now_us)

    def watched(self, ids: Codes) -> Flags:
        """Which of these are watched."""
        there: Flags = ids >= 0
        if self.rule.match is None or not self._size:
            return there
        return there & (self._checked_us[ids] > 0)

    def _grow(self, size: int) -> None:
        if size <= self._size:
            return
        more = max(size, 2 * self._size, 64) - self._size
        self.state = np.append(self.state, np.zeros(more, np.uint8))
        self.since_us = np.append(self.since_us, np.zeros(more, np.int64))
        self.seen_us = np.append(self.seen_us, np.zeros(more, np.int64))
        self._checked_us = np.append(self._checked_us, np.zeros(more, np.int64))
        if self._width > 1:
            self._minute = np.concatenate([self._minute, np.full((self._width, more), _NEVER)], axis=1)
            self._a = np.concatenate([self._a, np.zeros((self._width, more))], axis=1)
            self._b = np.concatenate([self._b, np.zeros((self._width, more))], axis=1)
        self._size += more

    # -- steps

    def add(self, minute: Minute) -> None:
        """Values of a minute that is open."""
        old = self._open.get(minute.start_us)
        self._open[minute.start_us] = old.merged(minute) if old else minute

    def close(self, until_us: int) -> list[Change]:
        """Judge the open minutes that end until then, in order."""
        changes: list[Change] = []
        for start_us in sorted(self._open):
            if start_us + MINUTE <= until_us:
                minute = self._open.pop(start_us)
                changes += self.judge(minute, self.figures(minute))
        return changes

    def silent(self, ids: Codes, last_us: Ints, now_us: int) -> list[Change]:
        """Devices reported last at `last_us`."""
        known = np.flatnonzero(self.watched(ids))
        return self._step(ids[known], (now_us - last_us[known]) / 1e6, now_us)

    def figures(self, minute: Minute) -> Floats:
        """The figure of each device over the window that ends with this minute; NaN: it has none."""
        new_a, new_b = _columns(self.rule, minute)
        if self._width == 1:
            return new_a / new_b if self.rule.kind != RATE and self.rule.aggregate == "mean" else new_a
        ids, number = minute.ids, minute.start_us // MINUTE
        slot = number % self._width
        self._minute[slot, ids], self._a[slot, ids], self._b[slot, ids] = number, new_a, new_b
        inside = self._minute[:, ids] > number - self._width
        return _over(self.rule, inside, self._a[:, ids], self._b[:, ids], self._minute[:, ids])

    def judge(self, minute: Minute, values: Floats) -> list[Change]:
        """What becomes of the alerts of the devices, by their figures."""
        good = np.isfinite(values)
        return self._step(minute.ids[good], values[good], minute.start_us + MINUTE)

    def _step(self, ids: Codes, values: Floats, now_us: int) -> list[Change]:
        rule = self.rule
        state, since_us = self.state[ids], self.since_us[ids]
        paused = (state == State.PENDING) & (now_us - self.seen_us[ids] > rule.window_us + _PAUSE_US)
        state = np.where(paused, State.OK, state).astype(np.uint8)
        bad, clear = judged(rule, values)
        after = step(States(state, since_us), bad, clear, now_us, rule.for_us)
        changed = np.flatnonzero(after.state != self.state[ids])
        self.state[ids], self.since_us[ids], self.seen_us[ids] = after.state, after.since_us, now_us
        return [
            Change(name, State(int(after.state[i])), float(values[i]), now_us)
            for name, i in zip(self.names(ids[changed]), changed.tolist(), strict=True)
        ]


def judged(rule: Rule, values: Floats) -> tuple[Flags, Flags]:
    """Which values are bad, and which are clear."""
    if rule.is_below:
        return values < rule.threshold, values >= rule.clear_at
    return values > rule.threshold, values <= rule.clear_at


def _columns(rule: Rule, minute: Minute) -> tuple[Floats, Floats]:
    """What is kept of a minute."""
    if rule.kind == RATE:
        return minute.lasts, minute.last_us / MINUTE
    column = {
        "mean": minute.sums,
        "sum": minute.sums,
        "count": minute.counts,
        "min": minute.lows,
        "max": minute.highs,
        "last": minute.lasts,
    }[rule.aggregate]
    return column, minute.counts


def _over(rule: Rule, inside: Flags, a: Floats, b: Floats, numbers: Ints) -> Floats:
    """Over the minutes that are inside the window; one column for each device."""
    if rule.kind == RATE:
        first = np.argmin(np.where(inside, numbers, np.inf), axis=0)
        last = np.argmax(np.where(inside, numbers, -np.inf), axis=0)
        at = np.arange(a.shape[1])
        passed = b[last, at] - b[first, at]
        changed: Floats = np.where(passed > 0, (a[last, at] - a[first, at]) / np.where(passed > 0, passed, 1.0), np.nan)
        return changed
    if rule.aggregate == "min":
        lows: Floats = np.where(inside, a, np.inf).min(axis=0)
        return lows
    if rule.aggregate == "max":
        highs: Floats = np.where(inside, a, -np.inf).max(axis=0)
        return highs
    sums: Floats = np.where(inside, a, 0.0).sum(axis=0)
    return sums / np.where(inside, b, 0.0).sum(axis=0) if rule.aggregate == "mean" else sums


def minutes_in(ids: Codes, time_us: Ints, values: Floats) -> Sequence[Minute]:
    """The minutes of some values, in order of time."""
    if not len(values):
        return []
    start_us = time_us - time_us % MINUTE
    order = np.lexsort((time_us, ids, start_us))
    ids, time_us, values, start_us = ids[order], time_us[order], values[order], start_us[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (ids[1:] != ids[:-1]) | (start_us[1:] != start_us[:-1])
    heads = np.flatnonzero(first)
    ends = np.append(heads[1:], len(order)) - 1
    sums, counts = np.add.reduceat(values, heads), (ends - heads + 1).astype(np.float64)
    lows, highs = np.minimum.reduceat(values, heads), np.maximum.reduceat(values, heads)
    lasts, last_us, begins, ids = values[ends], time_us[ends], start_us[heads], ids[heads]
    cuts = np.flatnonzero(np.append(True, begins[1:] != begins[:-1])).tolist()
    found = []
    for low, high in zip(cuts, [*cuts[1:], len(heads)], strict=True):
        some = slice(low, high)
        columns = sums[some], counts[some], lows[some], highs[some], lasts[some]
        found.append(Minute(int(begins[low]), ids[some], *columns, last_us=last_us[some]))
    return found
