"""Steps of time: by width, and by the calendar of a time zone, checked against the standard library."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from widerow.model.errors import Rejected
from widerow.model.times import DAY, HOUR, MAX_TIME_US, MIN_TIME_US, MINUTE, SECOND, TimeSpan, parse_rfc3339
from widerow.query.steps import MOST_STEPS, steps_of, whole_span

ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Havana", "Pacific/Apia")
YEAR = TimeSpan(parse_rfc3339("2026-01-01T12:34:56Z"), parse_rfc3339("2027-01-01T00:00:00Z"))


def us(text: str) -> int:
    return parse_rfc3339(text)


def local(time_us: int, zone: str) -> datetime:
    return datetime.fromtimestamp(time_us / SECOND, UTC).astimezone(ZoneInfo(zone))


def midnight(day: date, zone: str) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).timestamp()) * SECOND


@pytest.mark.parametrize("zone", ZONES)
def test_days_of_a_zone_begin_at_its_midnights(zone: str) -> None:
    steps = steps_of("1d", YEAR, zone)
    day = local(YEAR.start_us, zone).date()
    want: list[int] = []
    while not want or want[-1] < YEAR.stop_us:
        want.append(midnight(day, zone))
        day += timedelta(days=1)
    assert steps.edges.tolist() == want
    moments = np.arange(YEAR.start_us, YEAR.stop_us, 37 * MINUTE)
    begins = steps(moments).tolist()
    assert begins == [midnight(local(t, zone).date(), zone) for t in moments.tolist()]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("step", ["15m", "30m", "1h"])
def test_short_steps_begin_where_the_clock_shows_a_multiple(zone: str, step: str) -> None:
    steps = steps_of(step, YEAR, zone)
    width = {"15m": 15, "30m": 30, "1h": 60}[step]
    leaps = zone == "Australia/Lord_Howe"  # by half an hour
    for edge in steps.edges.tolist():
        assert local(edge, zone).minute % (30 if leaps and width == 60 else width) == 0
        assert local(edge, zone).second == 0
    widths = set(np.diff(steps.edges).tolist())
    assert widths == ({30 * MINUTE, 60 * MINUTE, 90 * MINUTE} if leaps and width == 60 else {width * MINUTE})


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata"])
def test_steps_of_hours_follow_the_clock_on_the_wall(zone: str) -> None:
    steps = steps_of("6h", YEAR, zone)
    assert {(local(edge, zone).hour, local(edge, zone).minute) for edge in steps.edges.tolist()} == {
        (0, 0),
        (6, 0),
        (12, 0),
        (18, 0),
    }
    hours = sorted(set((np.diff(steps.edges) // HOUR).tolist()))
    assert hours == ([6] if zone == "Asia/Kolkata" else [5, 6, 7])


def test_a_day_has_23_24_or_25_hours() -> None:
    def check(day: str, zone: str, hours: float) -> None:
        start = midnight(date.fromisoformat(day), zone)
        steps = steps_of("1d", TimeSpan(start, start + 1), zone)
        assert (steps.edges[1] - steps.edges[0]) / HOUR == hours

    check("2026-03-29", "Europe/Berlin", 23)
    check("2026-10-25", "Europe/Berlin", 25)
    check("2026-10-26", "Europe/Berlin", 24)
    check("2026-03-08", "America/New_York", 23)
    check("2026-11-01", "America/New_York", 25)
    check("2026-10-25", "Asia/Kolkata", 24)
    check("2026-04-05", "Australia/Lord_Howe", 24.5)


def test_weeks_begin_on_monday_and_months_on_the_first() -> None:
    for zone in ("", "America/New_York"):
        at = ZoneInfo(zone) if zone else UTC
        weeks = [datetime.fromtimestamp(edge // SECOND, at) for edge in steps_of("1w", YEAR, zone).edges.tolist()]
        assert {(week.weekday(), week.hour) for week in weeks} == {(0, 0)}
        months = [datetime.fromtimestamp(edge // SECOND, at) for edge in steps_of("1mo", YEAR, zone).edges.tolist()]
        assert [(m.month, m.day, m.hour) for m in months] == [(m, 1, 0) for m in (*range(1, 13), 1)]
        quarters = [datetime.fromtimestamp(edge // SECOND, at) for edge in steps_of("3mo", YEAR, zone).edges.tolist()]
        assert [m.month for m in quarters] == [1, 4, 7, 10, 1]


def test_steps_begin_at_multiples_and_cover_the_span() -> None:
    def check(step: str, start: str, end: str, first: str, count: int) -> None:
        span = TimeSpan(us(start), us(end))
        steps = steps_of(step, span)
        assert (steps.edges[0], len(steps)) == (us(first), count)
        assert steps.edges[-2] < span.stop_us <= steps.edges[-1]

    check("1h", "2026-05-01T10:30:00Z", "2026-05-01T12:00:00Z", "2026-05-01T10:00:00Z", 2)
    check("1h", "2026-05-01T10:30:00Z", "2026-05-01T12:00:01Z", "2026-05-01T10:00:00Z", 3)
    check("5m", "2026-05-01T10:00:00Z", "2026-05-01T10:05:00Z", "2026-05-01T10:00:00Z", 1)
    check("1d", "2026-05-01T10:00:00Z", "2026-05-03T00:00:00Z", "2026-05-01T00:00:00Z", 2)
    check("1w", "2026-05-01T10:00:00Z", "2026-05-03T00:00:00Z", "2026-04-27T00:00:00Z", 1)


def test_the_whole_span_can_be_one_step() -> None:
    steps = whole_span(TimeSpan(5, 5 + DAY))
    assert len(steps) == 1
    assert steps(np.array([5, 7, 4 + DAY])).tolist() == [5, 5, 5]
    assert steps.whole(DAY)


@pytest.mark.parametrize(
    ("step", "tz", "code"),
    [
        ("", "", "step"),
        ("1", "", "step"),
        ("0h", "", "step"),
        ("-1h", "", "step"),
        ("1y", "", "step"),
        ("1ms", "", "step"),
        ("7h", "Europe/Berlin", "step"),
        ("1d", "Europe/Nowhere", "tz"),
        ("1d", "../../etc/passwd", "tz"),
        ("1d", "/etc/localtime", "tz"),
        ("1d", "Europe", "tz"),
    ],
)
def test_what_cannot_be_is_refused(step: str, tz: str, code: str) -> None:
    with pytest.raises(Rejected) as refused:
        steps_of(step, YEAR, tz)
    assert refused.value.code == code


@pytest.mark.parametrize("tz", ["", "Europe/Berlin", "Asia/Kolkata"])
def test_the_longest_step_there_is_is_named(tz: str) -> None:
    ever = TimeSpan(MIN_TIME_US, MAX_TIME_US)

    def check(step: str, longest: str) -> None:
        with pytest.raises(Rejected, match=f"give {longest} at most") as refused:
            steps_of(step, YEAR, tz)
        assert refused.value.code == "step"
        for span in (YEAR, ever):
            edges = steps_of(longest, span, tz).edges
            assert edges.dtype == np.int64
            assert edges[0] <= span.start_us < edges[1]
            assert edges[-2] < span.stop_us <= edges[-1]

    check("100000mo", "3333mo")
    check("999999999mo", "3333mo")
    check("999999999d", "100000d")
    check("100001d", "100000d")
    check("999999999w", "14285w")


def test_no_more_steps_than_any_answer_has() -> None:
    second = TimeSpan(0, MOST_STEPS * SECOND)
    assert len(steps_of("1s", second)) == MOST_STEPS
    with pytest.raises(Rejected, match="longer step"):
        steps_of("1s", TimeSpan(0, (MOST_STEPS + 1) * SECOND))
