"""Texts over steps of time: the last one, how many there were, and how long each state lasted.

Rule 1: a state lasts from its report to the next one of its metric. Between the last report of a step and the first of a
later step it is the last state that lasts: up to the end of its own step, and from the begin of the later step. In steps
without reports nothing is shown.
Rule 2: before the first report of an answer and after its last one nobody knows, and nothing is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np

from widerow.model.arrays import Floats
from widerow.model.names import Coded, Names
from widerow.model.times import SECOND, TimeSpan
from widerow.query.steps import Steps
from widerow.rollup.aggregate import TextSummary

STATES = "states"
TEXT_AGGREGATES = ("last", "count", STATES)
"""What can be asked of a step of texts."""
OTHER = "*"
"""What states are summed up as that are not told apart."""

_NO_TEXT = Names.of(())


def text_values(summary: TextSummary, aggregate: str, steps: Steps, span: TimeSpan) -> tuple[Floats, Coded]:
    """Of each entry a number (NaN: it is a text) and a text (-1: it is a number). What `states` says is JSON."""
    n, states = len(summary), summary.states
    if aggregate == "count":
        return states.count.astype(np.float64), Coded(_NO_TEXT, np.full(n, -1, np.int32))
    if aggregate == "last":
        return np.full(n, np.nan), Coded(states.names, states.last)
    texts = [msgspec.json.encode(state).decode() for state in states_by_step(summary, steps, span)]
    return np.full(n, np.nan), Coded(Names.of(texts), np.arange(n, dtype=np.int32))


def states_by_step(summary: TextSummary, steps: Steps, span: TimeSpan) -> Sequence[dict[str, dict[str, float]]]:
    """Of each entry: text -> seconds that it lasted, and count of reports that said it."""
    states, names = summary.states, summary.states.names.to_list()
    cuts = states.offsets.tolist()
    value, counts, lasted = states.value.tolist(), states.counts.tolist(), states.lasted_us.tolist()
    out: list[dict[str, dict[str, float]]] = []
    for g, (start, stop) in enumerate(pairwise(cuts)):
        found = {names[value[i]]: _state(lasted[i], counts[i]) for i in range(start, stop)}
        if states.other_count[g] or states.other_us[g]:
            _add(found, OTHER, int(states.other_us[g]), int(states.other_count[g]))
        out.append(found)
    _add_between(out, summary, steps, span)
    return out


def _add_between(out: list[dict[str, dict[str, float]]], summary: TextSummary, steps: Steps, span: TimeSpan) -> None:
    """See rule 1."""
    states, names = summary.states, summary.states.names.to_list()
    device, metric = summary.device.codes, summary.metric.codes
    follows = np.flatnonzero((device[1:] == device[:-1]) & (metric[1:] == metric[:-1])).tolist()
    ends = np.minimum(steps.ends(summary.start_us), span.stop_us).tolist() if len(summary) else []
    for g in follows:
        text = names[int(states.last[g])]
        _add(out[g], text, ends[g] - int(states.last_us[g]), 0)
        _add(out[g + 1], text, int(states.first_us[g + 1]) - int(summary.start_us[g + 1]), 0)


def _state(lasted_us: int, count: int) -> dict[str, float]:
    return {"seconds": lasted_us / SECOND, "count": count}


def _add(found: dict[str, dict[str, float]], text: str, lasted_us: int, count: int) -> None:
    known = found.setdefault(text, {"seconds": 0.0, "count": 0})
    known["seconds"] += lasted_us / SECOND
    known["count"] += count
