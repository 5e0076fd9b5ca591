"""Texts over steps of time: the last one, how many there were, and how long each state lasted.

Rule 1: a state lasts from its report to the next one of its metric, and the last one until the span ends or the present is
reached. So the steps of an answer add up to what one step over all of them says, and steps without reports have states.
Rule 2: what lasted into the span was reported up to `BEFORE_US` before it. Before the first report that is known nothing is
counted, and nothing in steps that can no longer be answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec
import numpy as np

from widerow.codec.states import States
from widerow.model.arrays import Floats, Ints
from widerow.model.names import Coded, Names
from widerow.model.times import DAY, SECOND, TimeSpan
from widerow.query.steps import Steps
from widerow.rollup.aggregate import TextSummary, combined_states

STATES = "states"
TEXT_AGGREGATES = ("last", "count")
"""What can be asked of a step of texts, besides their states."""
OTHER = "*"
"""What states are summed up as that are not told apart."""
BEFORE_US = 30 * DAY
"""How far before a span the state is looked for that lasts into it: days of rollups, and less at the end."""

Allow: TypeAlias = Callable[[int], None]
_Tally: TypeAlias = dict[str, tuple[int, int]]
"""Text -> microseconds that it lasted, and count of reports that said it."""

_NO_TEXT = Names.of(())


def text_values(summary: TextSummary, aggregate: str) -> tuple[Floats, Coded]:
    """Of each entry a number (NaN: it is a text) and a text (-1: it is a number)."""
    n, states = len(summary), summary.states
    if aggregate == "count":
        return states.count.astype(np.float64), Coded(_NO_TEXT, np.full(n, -1, np.int32))
    return np.full(n, np.nan), Coded(states.names, states.last)


def before(span: TimeSpan) -> TimeSpan:
    """Where the states are looked for that last into the span: from a midnight on, so that days of rollups can say it."""
    start_us = span.start_us - BEFORE_US
    return TimeSpan(max(start_us - start_us % DAY, 0), span.start_us)


@dataclass(frozen=True, slots=True, eq=False)
class Lasting:
    """How long each state lasted: by device, metric and step."""

    device: Coded
    metric: Coded
    start_us: Ints
    states: Sequence[dict[str, dict[str, float]]]
    """Text -> seconds that it lasted, and count of reports that said it."""

    def __len__(self) -> int:
        return len(self.start_us)

    def texts(self) -> Coded:
        """As JSON."""
        return Coded.of([msgspec.json.encode(states).decode() for states in self.states])


def lasting(
    found: TextSummary, earlier: TextSummary | None, steps: Steps, starts: Ints, span: TimeSpan, now_us: int, allow: Allow
) -> Lasting:
    """See the rules. `earlier`: what was said before the span; `starts`: all steps that can be answered; `allow`: raises if
    these are too many points.
    """
    parts = [] if earlier is None else [replace(earlier, start_us=np.full(len(earlier), -1))]
    both = combined_states([*parts, found])
    begins, ends = np.maximum(starts, span.start_us), np.minimum(steps.ends(starts), span.stop_us)
    until_us = min(span.stop_us, now_us)
    step = np.searchsorted(starts, both.start_us, side="right") - 1  # -1: before the span
    is_last = np.ones(len(both), np.bool_)
    is_last[:-1] = (np.diff(both.device.codes) != 0) | (np.diff(both.metric.codes) != 0)
    next_step = np.where(is_last, np.searchsorted(begins, until_us) - 1, np.roll(step, -1))
    next_us = np.where(is_last, until_us, np.roll(both.states.first_us, -1))
    allow(len(found) + int(np.maximum(next_step - np.maximum(step, 0), 0).sum()))
    entry: list[int] = []
    at: list[int] = []
    out: list[dict[str, dict[str, float]]] = []
    by_step: dict[int, _Tally] = {}
    told = _told(both.states)
    for g, ended in enumerate(is_last.tolist()):
        text, last_us, stop_us = both.states.names[int(both.states.last[g])], int(both.states.last_us[g]), int(next_us[g])
        if step[g] >= 0:
            for said, lasted_us, count in told(g):
                _add(by_step.setdefault(int(step[g]), {}), said, lasted_us, count)
        for i in range(max(int(step[g]), 0), int(next_step[g]) + 1):
            lasted_us = min(int(ends[i]), stop_us) - max(int(begins[i]), last_us)
            if lasted_us > 0:
                _add(by_step.setdefault(i, {}), text, lasted_us, 0)
        if ended:
            entry += [g] * len(by_step)
            at += by_step
            out += [
                {text: {"seconds": us / SECOND, "count": count} for text, (us, count) in tally.items()}
                for tally in by_step.values()
            ]
            by_step = {}
    which = np.array(entry, np.int64)
    return Lasting(both.device.take(which), both.metric.take(which), starts[np.array(at, np.int64)], out)


def _told(states: States) -> Callable[[int], Iterator[tuple[str, int, int]]]:
    """Of a window the texts that were said in it, how long each lasted there, and how often it was said."""
    names, cuts = states.names.to_list(), states.offsets.tolist()
    value, counts, lasted_us = states.value.tolist(), states.counts.tolist(), states.lasted_us.tolist()

    def told(g: int) -> Iterator[tuple[str, int, int]]:
        for i in range(cuts[g], cuts[g + 1]):
            yield names[value[i]], lasted_us[i], counts[i]
        if states.other_count[g] or states.other_us[g]:
            yield OTHER, int(states.other_us[g]), int(states.other_count[g])

    return told


def _add(tally: _Tally, text: str, lasted_us: int, count: int) -> None:
    known_us, known = tally.get(text, (0, 0))
    tally[text] = known_us + lasted_us, known + count
