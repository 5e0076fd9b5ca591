"""Steps without a value: left out, unless somebody asked for something else.

`none`: there is no point. `null`: there is one, with no value. `previous`: the value of the step before. `linear`: on the
line between the neighbours that have one. Nothing is invented before the first value of a series, and by `linear` nothing
behind the last: those stay null. By both, counts are 0. Steps that can no longer be answered have no point in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from widerow.model.arrays import Codes, Flags, Floats, Ints
from widerow.model.times import TimeSpan
from widerow.query.steps import Steps

FILLS = ("none", "null", "previous", "linear")
COUNTS = ("count", "devices")
"""Aggregates that are not copied: in a step without values they are 0."""


def grid(steps: Steps, span: TimeSpan, missing: Sequence[TimeSpan]) -> Ints:
    """The begins of all steps of a span that can be answered."""
    starts = steps.edges[:-1]
    starts = starts[starts < span.stop_us]
    for gone in missing:
        starts = starts[(np.maximum(starts, span.start_us) < gone.start_us) | (starts >= gone.stop_us)]
    return starts


@dataclass(frozen=True, slots=True)
class Filled:
    """Every series with every step."""

    row: Ints
    """For each entry one of its series, to take its labels from."""
    time_us: Ints
    at: Ints
    """Where each of the entries there were is now."""

    def values(self, known: Floats, fill: str) -> Floats:
        out = np.full(len(self.row), np.nan)
        out[self.at] = known
        if fill == "null" or not len(out):
            return out
        there = np.zeros(len(out), np.bool_)
        there[self.at] = True
        return _previous(out, there, self.row) if fill == "previous" else _linear(out, there, self.row, self.time_us)

    def counts(self, known: Floats, fill: str) -> Floats:
        """The same for counts."""
        found = self.values(known, "null")
        return found if fill == "null" else np.nan_to_num(found)

    def codes(self, known: Codes, fill: str) -> Codes:
        """The same for codes of texts; -1 where there is none."""
        return np.nan_to_num(self.values(known.astype(np.float64), fill), nan=-1.0).astype(np.int32)


def filled(series: Ints, start_us: Ints, starts: Ints) -> Filled:
    """`series` numbers the series of each entry, from 0 on, ascending; `starts` are all steps, among them `start_us`."""
    first = np.searchsorted(series, np.arange(int(series[-1]) + 1 if len(series) else 0))
    n = len(starts)
    return Filled(np.repeat(first, n), np.tile(starts, len(first)), series * n + np.searchsorted(starts, start_us))


def _previous(values: Floats, there: Flags, series: Ints) -> Floats:
    last = np.maximum.accumulate(np.where(there, np.arange(len(values)), 0))
    return np.where(series[last] == series, values[last], np.nan)


def _linear(values: Floats, there: Flags, series: Ints, time_us: Ints) -> Floats:
    places = np.arange(len(values))
    before = np.maximum.accumulate(np.where(there, places, 0))
    after = np.minimum.accumulate(np.where(there, places, len(values) - 1)[::-1])[::-1]
    between = there[before] & there[after] & (series[before] == series) & (series[after] == series)
    width = np.maximum(time_us[after] - time_us[before], 1)
    share = (time_us - time_us[before]) / width
    line = values[before] + (values[after] - values[before]) * share
    return np.where(there, values, np.where(between, line, np.nan))
