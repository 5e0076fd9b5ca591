"""Every instant of a span is asked of exactly one level, and of none that cannot know."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from widerow.model.times import DAY, HOUR, MINUTE, SECOND, TimeSpan
from widerow.query.cover import Part, cover
from widerow.rollup.dirt import CLEAN, Dirt
from widerow.schema.rollups import DAYS, HOURS, MINUTES

BEGIN = 1_800_000_000_000_000 // DAY * DAY
times = (
    st.integers(0, 4 * DAY) | st.integers(0, 4 * 24).map(lambda n: n * HOUR) | st.integers(0, 5000).map(lambda n: n * MINUTE)
)
steps = st.sampled_from([SECOND, MINUTE, 5 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY])
hours = st.sets(st.integers(0, 4 * 24).map(lambda n: BEGIN + n * HOUR), max_size=6)


@given(times, times, steps, hours)
def test_parts_are_the_span_whole_windows_clean_and_fit_the_step(a: int, b: int, step_us: int, dirty: set[int]) -> None:
    span = TimeSpan(BEGIN + min(a, b), BEGIN + max(a, b))
    parts = cover(span, step_us, Dirt.of(dirty))
    if span.start_us == span.stop_us:
        assert parts == []
        return
    assert parts[0].span.start_us == span.start_us
    assert parts[-1].span.stop_us == span.stop_us
    for one, following in pairwise(parts):
        assert one.span.stop_us == following.span.start_us
        assert one.level is not following.level
    for part in parts:
        assert part.span.start_us < part.span.stop_us
        if part.level is not None:
            assert step_us % part.level.width_us == 0
            assert part.span.start_us % part.level.width_us == part.span.stop_us % part.level.width_us == 0
            assert not any(hour < part.span.stop_us and hour + HOUR > part.span.start_us for hour in dirty)


@given(times, times, steps)
def test_without_dirty_hours_raw_reports_are_read_at_the_edges_only(a: int, b: int, step_us: int) -> None:
    span = TimeSpan(BEGIN + min(a, b), BEGIN + max(a, b))
    raw = [part for part in cover(span, step_us, CLEAN) if part.level is None]
    if step_us % MINUTE == 0:
        assert sum(part.span.stop_us - part.span.start_us for part in raw) < 2 * MINUTE


def test_what_serves_is_as_coarse_as_can_be() -> None:
    def check(start: int, stop: int, step_us: int, dirty: set[int], want: list[tuple[object, int, int]]) -> None:
        found = cover(TimeSpan(BEGIN + start, BEGIN + stop), step_us, Dirt.of(BEGIN + hour for hour in dirty))
        assert found == [Part(level, TimeSpan(BEGIN + a, BEGIN + b)) for level, a, b in want]  # type: ignore[arg-type]

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
