"""Times in and out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.model.errors import Rejected
from widerow.model.times import (
    DAY,
    HOUR,
    MAX_TIME_US,
    MINUTE,
    SECOND,
    TimeSpan,
    about_duration,
    format_duration,
    format_time,
    parse_duration,
    parse_time,
)

NOW = 1_800_000_000_000_000


def test_times_are_rfc_3339_epoch_or_relative() -> None:
    def check(text: str, want: int) -> None:
        assert parse_time(text, NOW) == want

    check("now", NOW)
    check("-1h", NOW - HOUR)
    check("now-7d", NOW - 7 * DAY)
    check("+5m", NOW + 300_000_000)
    check("1700000000000", 1_700_000_000_000_000)
    check("1700000000000.25", 1_700_000_000_000_250)
    check("2026-11-15T08:00:00Z", 1_794_729_600_000_000)
    check("2026-11-15T09:00:00.123456789+01:00", 1_794_729_600_123_456)


def test_a_time_that_cannot_be_read_says_what_can() -> None:
    for text in ("", "yesterday", "2026-11-15T08:00:00", "1h", "--1h", "99999999999999999999", "-9999999d"):
        with pytest.raises(Rejected) as caught:
            parse_time(text, NOW)
        assert caught.value.code == "time"


def test_seconds_given_for_milliseconds_are_refused_with_a_hint_and_0_is_a_time() -> None:
    for text in ("1794729600", "1794729600.5", "-1", "1", "1794729600000000", "9007199254740"):
        with pytest.raises(Rejected, match=r"read as milliseconds.*1980..2200.*epoch=") as caught:
            parse_time(text, NOW)
        assert caught.value.code == "time"
    assert parse_time("0", NOW) == 0
    assert parse_time("1970-01-01T00:00:01Z", NOW) == SECOND, "what is written out is meant"


@given(st.integers(0, MAX_TIME_US))
def test_a_time_written_is_the_time_read(time_us: int) -> None:
    assert parse_time(format_time(time_us), NOW) == time_us


@given(st.integers(1, 10**15))
def test_a_duration_written_is_the_duration_read(width_us: int) -> None:
    assert parse_duration(format_duration(width_us)) == width_us


def test_durations_are_written_in_days_at_most_so_that_retentions_compare() -> None:
    written = {0: "0s", 7 * DAY: "7d", 90 * DAY: "90d", 36 * HOUR: "36h", 1_500_000: "1500ms", 1: "1us"}
    assert [format_duration(us) for us in written] == list(written.values())


def test_what_was_measured_is_written_in_two_digits() -> None:
    def check(span_us: float, want: str) -> None:
        assert about_duration(span_us) == want

    check(0, "0ms")
    check(1, "1us")
    check(250.4, "250us")
    check(1_000, "1ms")
    check(0.4 * SECOND, "400ms")
    check(2.437 * SECOND, "2.4s")
    check(59.6 * SECOND, "60s")
    check(95 * MINUTE, "1.6h")
    check(6.96 * DAY, "7d")
    check(120.4 * DAY, "120d")


@given(st.integers(0, 10**15))
def test_a_measured_duration_is_a_value_of_an_option(span_us: int) -> None:
    text = about_duration(span_us)
    assert abs(parse_duration(text) - span_us) <= 0.06 * span_us
    assert parse_time(f"-{text}", MAX_TIME_US) == MAX_TIME_US - parse_duration(text)


def test_a_span_does_not_run_backwards() -> None:
    with pytest.raises(Rejected, match="after end"):
        TimeSpan(2, 1)
