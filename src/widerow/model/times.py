"""Time is an int of microseconds since 1970, UTC. Ranges are `[start, stop)`. `datetime` lives at the edges only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from time import time_ns
from typing import Protocol

from widerow.model.errors import Rejected
from widerow.model.figures import figure

MS = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

MIN_TIME_US = 0
MAX_TIME_US = (1 << 53) - 1
"""The year 2255: up to here a time is exact as a 64-bit float, too."""

FIRST_EVENT_US, END_EVENT_US = 315_532_800 * SECOND, 7_258_118_400 * SECOND
"""1980 and 2200. A report from outside was read in the wrong unit, or comes from a device without a clock."""
NOT_AN_EVENT = (
    "lies outside 1980..2200: give its unit (precision=s, ms, us or ns; MQTT and Kafka take ms), or set the device's clock"
)
"""Why a report's time is refused, with the knob to turn."""

PRECISION_US = {"s": SECOND, "ms": MS, "us": 1}
"""How many microseconds one unit is; nanoseconds are divided by 1,000 instead."""


class Clock(Protocol):
    """Where the present comes from. Passed in, so that tests own it.

    Event times, retention and quotas go by `now_us`, versions by `version_us`: an embedded store has a clock of its own for
    these, which never runs back (`StoreClock`); for all others they are the same instant.
    """

    def now_us(self) -> int: ...

    def version_us(self) -> int:
        """The version of what is received or read now, in whole milliseconds."""
        ...

    def cover(self, version_us: int) -> None:
        """Take note that this version is in use. A clock of a store gives no lesser one from now on."""
        ...


class SystemClock:
    """The machine's."""

    def now_us(self) -> int:
        return time_ns() // 1_000

    def version_us(self) -> int:
        return whole_ms(self.now_us())

    def cover(self, version_us: int) -> None: ...


@dataclass
class ManualClock:
    """A clock that moves when told to."""

    time_us: int

    def now_us(self) -> int:
        return self.time_us

    def version_us(self) -> int:
        return whole_ms(self.time_us)

    def cover(self, version_us: int) -> None: ...


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The times t with start_us <= t < stop_us."""

    start_us: int
    stop_us: int

    def __post_init__(self) -> None:
        if self.start_us > self.stop_us:
            raise Rejected(f"start {format_time(self.start_us)} is after end {format_time(self.stop_us)}", code="span")


def bucket_start(time_us: int, width_us: int) -> int:
    """The start of the bucket of that width which holds the time; also right before 1970."""
    return time_us - time_us % width_us


def whole_ms(time_us: int) -> int:
    """Rounded down to whole milliseconds, as versions are."""
    return time_us - time_us % MS


_RELATIVE = re.compile(r"(now)?(?:([+-])(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w))?")
_UNIT_US = {"us": 1, "ms": MS, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_EPOCH = re.compile(r"-?\d+(\.\d+)?")


def parse_time(text: str, now_us: int) -> int:
    """RFC 3339, epoch milliseconds, or relative to now: `now`, `-1h`, `now-7d`, `+5m`."""
    text = text.strip()
    match = _RELATIVE.fullmatch(text)
    if text and match:
        _, sign, count, unit = match.groups()
        shift = int(Decimal(count) * _UNIT_US[unit]) if count else 0
        time_us = now_us + (shift if sign == "+" else -shift)
    elif _EPOCH.fullmatch(text):
        time_us = round(float(text) * MS) if "." in text else int(text) * MS
        if time_us and not FIRST_EVENT_US <= time_us < END_EVENT_US:
            raise Rejected(
                f"time {text[:40]!r} is a number, read as milliseconds since 1970, and lies outside 1980..2200: "
                "give milliseconds or RFC 3339 (epoch= is the unit of the times in answers)",
                code="time",
            )
    else:
        time_us = parse_rfc3339(text)
    if not MIN_TIME_US <= time_us <= MAX_TIME_US:
        raise Rejected(f"time {text!r} lies outside 1970..2255", code="time")
    return time_us


def parse_rfc3339(text: str) -> int:
    """An instant with its zone, as `2026-11-15T08:00:00.25Z` or with an offset. Digits beyond microseconds are cut."""
    try:
        moment = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
    except ValueError:
        raise Rejected(
            f"time {text!r} is none of RFC 3339 (2026-11-15T08:00:00Z), epoch milliseconds, or relative (-1h, now)",
            code="time",
        ) from None
    if moment.tzinfo is None:
        raise Rejected(f"time {text!r} has no zone: add Z or an offset such as +01:00", code="time")
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * SECOND + delta.microseconds


def format_time(time_us: int) -> str:
    """RFC 3339 in UTC, with as many decimals as needed: none, three or six."""
    try:
        moment = datetime.fromtimestamp(time_us // SECOND, UTC)
    except (OverflowError, OSError, ValueError):
        return f"{time_us}us"
    micros = time_us % SECOND
    fraction = "" if not micros else f".{micros // MS:03d}" if micros % MS == 0 else f".{micros:06d}"
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*(us|ms|s|m|h|d|w)")


def parse_duration(text: str) -> int:
    """`90s`, `15m`, `1.5h`, `30d`, in microseconds."""
    match = _DURATION.fullmatch(text.strip())
    if not match:
        raise Rejected(f"duration {text!r}: give a number and a unit, such as 90s, 15m, 6h or 30d", code="duration")
    return int(Decimal(match[1]) * _UNIT_US[match[2]])


_ONE_DECIMAL_BELOW = 10
_SHOWN_UNITS = ("d", "h", "m", "s", "ms", "us")
"""Retentions are compared: `7d` beside `90d`, never `1w`."""


def format_duration(width_us: int) -> str:
    """All of it, as `parse_duration` reads it: `90d`, `36h`, `1500ms`."""
    unit = next(unit for unit in _SHOWN_UNITS if width_us % _UNIT_US[unit] == 0) if width_us else "s"
    return f"{width_us // _UNIT_US[unit]}{unit}"


def about_duration(span_us: float) -> str:
    """What was measured, in two digits or all whole ones, as `parse_duration` reads it: `250us`, `2.4s`, `36m`, `120d`."""
    unit = next((unit for unit in _SHOWN_UNITS if span_us >= _UNIT_US[unit]), "ms")
    count = span_us / _UNIT_US[unit]
    return f"{count:.0f}{unit}" if count >= _ONE_DECIMAL_BELOW else f"{figure(round(count, 1))}{unit}"
