"""Every instant of a span is asked of exactly one level, and of none that cannot know."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from widerow.model.tenant import Retention, Tenant
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, TimeSpan, format_duration
from widerow.query.cover import Part, Plan, plan
from widerow.query.kept import EVERYTHING, Kept
from widerow.query.steps import Steps, steps_of, whole_span
from widerow.rollup.dirt import CLEAN, Dirt
from widerow.schema.rollups import DAYS, HOURS, MINUTES

BEGIN = 1_800_000_000_000_000 // DAY * DAY
times = (
    st.integers(0, 4 * DAY) | st.integers(0, 4 * 24).map(lambda n: n * HOUR) | st.integers(0, 5000).map(lambda n: n * MINUTE)
)
steps = st.sampled_from([SECOND, MINUTE, 5 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY])
zoned = st.sampled_from(
    [
        *(("", step) for step in ("1s", "1m", "5m", "90m", "1h", "6h", "1d", "3d", "1w", "1mo")),
        *((zone, step) for zone in ("Europe/Berlin", "Asia/Kolkata") for step in ("15m", "1h", "6h", "1d", "1w", "1mo")),
        ("", ""),
    ]
)
hours = st.sets(st.integers(0, 4 * 24).map(lambda n: BEGIN + n * HOUR), max_size=6)


def cut(span: TimeSpan, asked: tuple[str, str]) -> Steps:
    return steps_of(asked[1], span, asked[0]) if asked[1] else whole_span(span)


def check_parts(
    found: Plan, span: TimeSpan, steps: Steps, dirty: set[int], minutes: Mapping[int, int] | None = None
) -> None:
    """The laws of any plan."""
    right = minutes or {}
    pieces = sorted([*(part.span for part in found.parts), *found.missing], key=lambda piece: piece.start_us)
    assert [(piece.start_us, piece.stop_us) for piece in pieces] == [*pairwise(sorted({*edges(pieces)}))]
    assert span.start_us == span.stop_us or (pieces[0].start_us, pieces[-1].stop_us) == (span.start_us, span.stop_us)
    inner = steps.edges[(steps.edges > span.start_us) & (steps.edges < span.stop_us)]
    for part in found.parts:
        assert part.span.start_us < part.span.stop_us
        if part.level is not None:
            width = part.level.width_us
            assert part.span.start_us % width == part.span.stop_us % width == 0
            within = inner[(inner > part.span.start_us) & (inner < part.span.stop_us)]
            assert not (within % width).any()
            for hour in dirty:
                until = right.get(hour, hour) if part.level is MINUTES else hour
                apart = part.span.stop_us <= hour or hour + HOUR <= part.span.start_us
                assert apart or min(part.span.stop_us, hour + HOUR) <= until


def edges(pieces: list[TimeSpan]) -> list[int]:
    return [edge for piece in pieces for edge in (piece.start_us, piece.stop_us)]


@given(times, times, zoned, hours)
def test_parts_are_the_span_whole_windows_clean_and_in_one_step(
    a: int, b: int, asked: tuple[str, str], dirty: set[int]
) -> None:
    span = TimeSpan(BEGIN + min(a, b), BEGIN + max(a, b))
    steps = cut(span, asked)
    found = plan(span, steps, Dirt.of(dirty))
    assert found.missing == []
    check_parts(found, span, steps, dirty)


@given(times, times, zoned, hours, st.lists(st.integers(0, 60), min_size=6, max_size=6))
def test_of_a_dirty_hour_the_minutes_that_are_right_are_asked_and_no_others(
    a: int, b: int, asked: tuple[str, str], dirty: set[int], closed: list[int]
) -> None:
    span = TimeSpan(BEGIN + min(a, b), BEGIN + max(a, b))
    minutes = {hour: hour + closed[n] * MINUTE for n, hour in enumerate(sorted(dirty))}
    steps = cut(span, asked)
    found, before = (plan(span, steps, Dirt.of(dirty, minutes=right)) for right in (minutes, {}))
    check_parts(found, span, steps, dirty, minutes)

    def raw(of: Plan) -> int:
        return sum(length(part) for part in of.parts if part.level is None)

    if steps.whole(MINUTE):
        first = span.start_us + -span.start_us % MINUTE
        spared = [min(until, span.stop_us) // MINUTE * MINUTE - max(hour, first) for hour, until in minutes.items()]
        assert raw(found) == raw(before) - sum(max(0, some) for some in spared)


@given(times, times, zoned, hours, st.lists(st.integers(1, 100), min_size=4, max_size=4), times)
def test_what_is_not_kept_is_missing_by_whole_steps(
    a: int, b: int, asked: tuple[str, str], dirty: set[int], keeps: list[int], now: int
) -> None:
    span = TimeSpan(BEGIN + min(a, b), BEGIN + max(a, b))
    raw, minute, hour, day = (keep * HOUR for keep in sorted(keeps))
    tenant = Tenant(name="t", retention=Retention(raw_us=raw, minute_us=minute, hour_us=hour, day_us=day))
    now_us = BEGIN + now
    kept, steps = Kept.of(tenant, now_us), cut(span, asked)
    found = plan(span, steps, Dirt.of(dirty), kept)
    whole = plan(span, steps, Dirt.of(dirty), EVERYTHING)
    check_parts(found, span, steps, set())
    for gone in found.missing:
        for edge in (gone.start_us, gone.stop_us):
            assert edge in (span.start_us, span.stop_us) or edge in steps.edges
    keep_us = {None: raw, MINUTES: minute, HOURS: hour, DAYS: day}
    late_us = 7 * DAY if dirty else 0
    for part in found.parts:
        width = part.level.width_us if part.level else 1
        assert part.span.start_us + width > now_us - keep_us[part.level] - late_us
    if not found.missing and not dirty:
        assert sum(length(part) for part in found.parts) == sum(length(part) for part in whole.parts)


def length(part: Part) -> int:
    return part.span.stop_us - part.span.start_us


@given(times, times, steps)
def test_without_dirty_hours_raw_reports_are_read_at_the_edges_only(a: int, b: int, step_us: int) -> None:
    span = TimeSpan(BEGIN + min(a, b), BEGIN + max(a, b))
    raw = [part for part in plan(span, steps_of(format_duration(step_us), span), CLEAN).parts if part.level is None]
    if step_us % MINUTE == 0:
        assert sum(part.span.stop_us - part.span.start_us for part in raw) < 2 * MINUTE


def test_what_serves_is_as_coarse_as_can_be() -> None:
    def check(start: int, stop: int, step_us: int, dirty: set[int], want: list[tuple[object, int, int]]) -> None:
        span = TimeSpan(BEGIN + start, BEGIN + stop)
        steps = steps_of(format_duration(step_us), span)
        found = plan(span, steps, Dirt.of(BEGIN + hour for hour in dirty))
        assert found.parts == [Part(level, TimeSpan(BEGIN + a, BEGIN + b)) for level, a, b in want]  # type: ignore[arg-type]

    check(0, 2 * DAY, DAY, set(), [(DAYS, 0, 2 * DAY)])
    check(0, 2 * DAY, HOUR, set(), [(HOURS, 0, 2 * DAY)])
    check(0, HOUR, SECOND, set(), [(None, 0, HOUR)])
    check(30 * MINUTE, 3 * HOUR, HOUR, set(), [(MINUTES, 30 * MINUTE, HOUR), (HOURS, HOUR, 3 * HOUR)])
    check(
        1,
        2 * MINUTE + 1,
        MINUTE,
        set(),
        [(None, 1, MINUTE), (MINUTES, MINUTE, 2 * MINUTE), (None, 2 * MINUTE, 2 * MINUTE + 1)],
    )
    check(0, DAY, HOUR, {5 * HOUR}, [(HOURS, 0, 5 * HOUR), (None, 5 * HOUR, 6 * HOUR), (HOURS, 6 * HOUR, DAY)])
    check(
        0,
        2 * DAY,
        DAY,
        {5 * HOUR},
        [(HOURS, 0, 5 * HOUR), (None, 5 * HOUR, 6 * HOUR), (HOURS, 6 * HOUR, DAY), (DAYS, DAY, 2 * DAY)],
    )
    check(
        5 * MINUTE,
        2 * HOUR,
        MINUTE,
        {0},
        [(None, 5 * MINUTE, HOUR), (MINUTES, HOUR, 2 * HOUR)],
    )
    span = TimeSpan(BEGIN, BEGIN + 2 * HOUR)
    found = plan(span, steps_of("1h", span), Dirt.of([BEGIN + HOUR], minutes={BEGIN + HOUR: BEGIN + HOUR + 7 * MINUTE}))
    cuts = [0, HOUR, HOUR + 7 * MINUTE, 2 * HOUR]
    want = zip((HOURS, MINUTES, None), pairwise(cuts), strict=True)
    assert found.parts == [Part(level, TimeSpan(BEGIN + start, BEGIN + stop)) for level, (start, stop) in want]
