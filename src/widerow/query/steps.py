"""How a question cuts time into steps: by a fixed width, or by the calendar of a time zone.

Rule 1: a step is named by its begin. The last step that begins within a span may end behind it; what is asked is what lies
in both.
Rule 2: without a time zone, or in UTC, steps begin at multiples of their width since 1970; weeks on Mondays, months on their
first day.
Rule 3: in a time zone, steps of a day and more begin at midnight there, so a day has 23, 24 or 25 hours. Shorter ones begin
where the clock on the wall shows a multiple of the width; those of an hour at most are of one length, where clocks are put
forward and back by whole hours.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np

from widerow.model.arrays import Ints
from widerow.model.errors import Rejected
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, TimeSpan

_STEP = re.compile(r"(\d{1,9})\s*(ms|s|m|h|d|w|mo)")
_UNIT_US = {"ms": MS, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_MONTH = 30 * DAY
"""About; for estimates only."""
_EPOCH = date(1970, 1, 1)
_MONDAY = 4 * DAY
"""The first one: 1970 began on a Thursday."""
LONGEST_US = 100_000 * DAY
"""About all the time that there can be reports of, from 1970 to 2255; so edges are dates that the calendar has."""
MOST_STEPS = 1_000_000
"""More than fit into any answer."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The steps that touch a span: step i is [edges[i], edges[i + 1]). At least one, and the last edge ends the last one."""

    edges: Ints
    name: str
    """As it was asked for; empty: the whole span is one step."""
    tz: str = ""
    regular: tuple[int, int] | None = None
    """Width, and where the first begins: steps of one width. None: they differ."""

    def __call__(self, time_us: Ints) -> Ints:
        """Where the step of each time begins, which lies within the span."""
        if self.regular is not None:
            width, phase = self.regular
            return time_us - (time_us - phase) % width
        return self.edges[np.searchsorted(self.edges, time_us, side="right") - 1]

    def __len__(self) -> int:
        return len(self.edges) - 1

    def ends(self, start_us: Ints) -> Ints:
        """Where the steps end that begin there."""
        if self.regular is not None:
            return start_us + self.regular[0]
        return self.edges[np.searchsorted(self.edges, start_us, side="right")]

    def shortest_us(self) -> int:
        return self.regular[0] if self.regular is not None else int((self.edges[1:] - self.edges[:-1]).min())

    def whole(self, width_us: int) -> bool:
        """Whether each step is whole windows of that width."""
        if self.regular is not None:
            return self.regular[0] % width_us == 0 and self.regular[1] % width_us == 0
        inner = self.edges[1:-1] if not self.name else self.edges
        return not (inner % width_us).any()

    def are_windows(self, width_us: int) -> bool:
        """Whether each step is one window of that width."""
        return self.regular is not None and self.regular[0] == width_us and self.whole(width_us)


def whole_span(span: TimeSpan) -> Steps:
    """The span as one step."""
    return Steps(np.array([span.start_us, max(span.stop_us, span.start_us + 1)]), "")


def steps_of(text: str, span: TimeSpan, tz: str = "") -> Steps:
    """`10s`, `5m`, `1h`, `1d`, `1w`, `1mo`, in a time zone such as `Europe/Berlin`. `Rejected`: there are no such steps."""
    match = _STEP.fullmatch(text.strip())
    if not match or int(match[1]) < 1:
        raise Rejected(
            f"step {text[:40]!r}: give a whole number and a unit, such as 10s, 5m, 1h, 1d, 1w or 1mo", code="step"
        )
    count, unit = int(match[1]), match[2]
    name = f"{count}{unit}"
    unit_us = _UNIT_US.get(unit, _MONTH)
    width_us = count * unit_us
    if width_us > LONGEST_US:
        raise Rejected(
            f"step {name}: give {LONGEST_US // unit_us}{unit} at most; without a step the whole span is one", code="step"
        )
    span = TimeSpan(span.start_us, max(span.stop_us, span.start_us + 1))
    if (span.stop_us - span.start_us) // width_us > MOST_STEPS:
        raise Rejected(
            f"step {name}: from start to end that is more than {MOST_STEPS:,} steps; give a longer step or a shorter span",
            code="step",
        )
    zone = _zone(tz)
    if zone is None and unit != "mo":
        return _regular(span, width_us, _MONDAY if unit == "w" else 0, name, tz)
    if unit in ("d", "w", "mo"):
        return Steps(_calendar(span, count, unit, zone), name, tz)
    if DAY % width_us:
        raise Rejected(f"step {name}: in a time zone give one that divides the day, such as 5m, 1h or 6h", code="step")
    assert zone is not None
    if width_us <= HOUR:
        phases = {-offset % width_us for offset in _offsets(span, zone)}
        if len(phases) == 1:
            return _regular(span, width_us, phases.pop(), name, tz)
    return Steps(_by_the_clock(span, width_us, zone), name, tz)


def _zone(tz: str) -> ZoneInfo | None:
    """None: UTC."""
    if tz in ("", "UTC", "Z"):
        return None
    try:
        return ZoneInfo(tz)
    except (OSError, ValueError, KeyError):
        raise Rejected(
            f"tz {tz[:80]!r} is no time zone that this machine knows: give one such as Europe/Berlin", code="tz"
        ) from None


def _regular(span: TimeSpan, width_us: int, phase: int, name: str, tz: str) -> Steps:
    first = span.start_us - (span.start_us - phase) % width_us
    return Steps(np.arange(first, span.stop_us + width_us, width_us), name, tz, (width_us, phase))


def _instant(day: date, zone: ZoneInfo | None, second: int = 0, fold: int = 0) -> int:
    """When the clock in a zone shows that time. What it leaps over is when it leaps."""
    wall = datetime(
        day.year, day.month, day.day, second // 3600, second // 60 % 60, second % 60, tzinfo=zone or UTC, fold=fold
    )
    return int(wall.timestamp()) * SECOND


def _local_day(time_us: int, zone: ZoneInfo | None) -> date:
    return datetime.fromtimestamp(time_us // SECOND, zone or UTC).date()


def _calendar(span: TimeSpan, count: int, unit: str, zone: ZoneInfo | None) -> Ints:
    """Midnights: of every `count`-th day, Monday or first of a month, counted from 1970."""
    first, last = _local_day(span.start_us, zone), _local_day(span.stop_us - 1, zone)
    if unit == "mo":
        at = _months(first) // count * count
        days = []
        while at <= _months(last) + count:
            days.append(date(1970 + at // 12, at % 12 + 1, 1))
            at += count
    else:
        width, shift = (7 * count, 4) if unit == "w" else (count, 0)
        at = (first - _EPOCH).days
        at -= (at - shift) % width
        days = [_EPOCH + timedelta(days=n) for n in range(at, (last - _EPOCH).days + width + 1, width)]
    return _ending([_instant(day, zone) for day in days], span)


def _months(day: date) -> int:
    return 12 * (day.year - 1970) + day.month - 1


def _by_the_clock(span: TimeSpan, width_us: int, zone: ZoneInfo) -> Ints:
    """Whenever the clock shows a multiple of the width. An hour that the clock shows twice is two steps, if steps are that
    short; longer ones go on through it.
    """
    first, last = _local_day(span.start_us, zone) - timedelta(days=1), _local_day(span.stop_us - 1, zone) + timedelta(days=1)
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    if width_us % SECOND:
        raise Rejected("step: in this time zone give whole seconds", code="step")
    edges = []
    for day in days:
        for second in range(0, 86_400, width_us // SECOND):
            edges.append(_instant(day, zone, second))
            if width_us <= HOUR:
                again = _instant(day, zone, second, fold=1)
                if again > edges[-1]:  # earlier: the clock leaps over it
                    edges.append(again)
    return _ending(edges, span)


def _ending(edges: list[int], span: TimeSpan) -> Ints:
    """The edges in order, from the last one before the span's start to the first one at or behind its end."""
    edges = sorted(set(edges))
    first = max(0, bisect_left(edges, span.start_us + 1) - 1)
    return np.array(edges[first : bisect_left(edges, span.stop_us) + 1])


@lru_cache(64)
def _offsets_by_day(first: int, last: int, zone: ZoneInfo) -> frozenset[int]:
    moments = (datetime.fromtimestamp(day * 86_400, zone).utcoffset() for day in range(first, last + 1))
    return frozenset(int(offset.total_seconds()) * SECOND for offset in moments if offset is not None)


def _offsets(span: TimeSpan, zone: ZoneInfo) -> frozenset[int]:
    """What the zone's clock is ahead of UTC in a span, as of each midnight."""
    return _offsets_by_day(span.start_us // DAY, span.stop_us // DAY + 1, zone)
