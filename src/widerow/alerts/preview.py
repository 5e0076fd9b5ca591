"""A preview runs a rule over the last day and tells nobody but the caller.

It asks for the minutes of the devices as any question does, within the tenant's limits, and goes through them with the code
that judges live minutes. Few devices are looked at: the first that match.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from widerow.alerts.rule import OFFLINE, QUOTA, Rule
from widerow.alerts.state import State
from widerow.alerts.track import Change, Minute, Track
from widerow.model.errors import Rejected
from widerow.model.names import Names
from widerow.model.series import Series
from widerow.model.times import DAY, MINUTE, TimeSpan
from widerow.query.question import Question, question_of

MOST_DEVICES = 20
SPAN_US = DAY
_COLUMNS = ("sum", "count", "min", "max", "last")
_ROOM = 1 << 24


@dataclass(slots=True)
class Preview:
    points: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """By device: the figure that is judged, and when."""
    changes: list[Change] = field(default_factory=list)

    @property
    def notices(self) -> int:
        """How often people would have been told: each time that an alert fired, or was resolved after that."""
        fired, count = set[str](), 0
        for change in self.changes:
            if change.state is State.FIRING:
                fired.add(change.device)
                count += 1
            elif change.state is State.OK and change.device in fired:
                fired.discard(change.device)
                count += 1
        return count


def question(rule: Rule, now_us: int) -> Question:
    """What the day is asked for."""
    if rule.kind == QUOTA:
        raise Rejected("a rule of kind quota has no preview: ask `GET /v1/usage` for the use of the last days", code="field")
    span = TimeSpan(now_us - now_us % MINUTE - SPAN_US, now_us - now_us % MINUTE)
    metrics = None if rule.kind == OFFLINE else [rule.metric]
    aggregates = ["count"] if rule.kind == OFFLINE else list(_COLUMNS)
    return question_of(span, step="1m", aggregates=aggregates, fill=None, tz=None, metrics=metrics)


def preview(rule: Rule, devices: Sequence[str], series: Series, span: TimeSpan) -> Preview:
    """`series`: the answer to `question` of these devices."""
    track = Track(_of_all(rule), most_bytes=_ROOM)
    if rule.kind == OFFLINE:
        return _silences(track, devices, series, span)
    found = Preview()
    for minute in _minutes(track, series):
        values, end_us = track.figures(minute), minute.start_us + MINUTE
        for name, value in zip(track.names(minute.ids), values.tolist(), strict=True):
            if math.isfinite(value):
                found.points.setdefault(name, []).append((end_us, value))
        found.changes += track.judge(minute, values)
    return found


def _of_all(rule: Rule) -> Rule:
    """The devices were chosen already, and variants of a metric have names of their own here."""
    return msgspec.structs.replace(rule, match=None, device="")


def _minutes(track: Track, series: Series) -> list[Minute]:
    """An answer over steps of a minute, as minutes. Of a metric with labels each variant is a device of its own here."""
    device, metric = series.labels["device"], series.labels["metric"]
    numbers = series.labels["kind"].codes == _code(series, "kind", "number")
    owner = device.codes.astype(np.int64) * max(1, len(metric.names)) + metric.codes
    columns = []
    for name in _COLUMNS:
        rows = np.flatnonzero(numbers & series.of_aggregate(name) & np.isfinite(series.number))
        rows = rows[np.lexsort((owner[rows], series.time_us[rows]))]
        columns.append(series.number[rows])
    assert all(len(column) == len(rows) for column in columns), "each minute has each aggregate"
    time_us, names = series.time_us[rows], device.take(rows).to_list()
    if len(metric.names) > 1:
        names = [f"{name} {variant}" for name, variant in zip(names, metric.take(rows).to_list(), strict=True)]
    if not len(rows):
        return []
    cuts = np.flatnonzero(np.append(True, time_us[1:] != time_us[:-1])).tolist()
    minutes = []
    for low, high in zip(cuts, [*cuts[1:], len(rows)], strict=True):
        sums, counts, lows, highs, lasts = (column[low:high] for column in columns)
        start_us = int(time_us[low])
        last_us = np.full(high - low, start_us + MINUTE)
        ids = track.ids(Names.of(names[low:high]))
        minutes.append(Minute(start_us, ids, sums, counts, lows, highs, lasts, last_us))
    return minutes


def _code(series: Series, label: str, value: str) -> int:
    return next((code for code, name in enumerate(series.labels[label].names) if name == value), -1)


def _silences(track: Track, devices: Sequence[str], series: Series, span: TimeSpan) -> Preview:
    """Minute by minute: for how long each device had sent nothing."""
    found, ids = Preview(), track.ids(Names.of(devices))
    reported: dict[str, set[int]] = {}
    for name, time_us in zip(series.labels["device"].to_list(), series.time_us.tolist(), strict=True):
        reported.setdefault(name, set()).add(time_us)
    last_us = np.full(len(devices), span.start_us)
    for now_us in range(span.start_us + MINUTE, span.stop_us + 1, MINUTE):
        for i, name in enumerate(devices):
            if now_us - MINUTE in reported.get(name, ()):
                last_us[i] = now_us
        found.changes += track.silent(ids, last_us, now_us)
        for i, name in enumerate(devices):
            found.points.setdefault(name, []).append((now_us, (now_us - int(last_us[i])) / 1e6))
    return found
