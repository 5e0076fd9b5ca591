"""How many reports lines are taken to be."""

from __future__ import annotations

from widerow.admit.expected import Expected
from widerow.model.times import MINUTE


def test_nothing_is_known_at_first() -> None:
    expected = Expected(0)
    assert (expected.at_least(1_000, 0), expected.about(1_000)) == (0, 0)


def test_the_emptiest_body_counts_for_a_minute_at_least_and_two_at_most() -> None:
    expected = Expected(0)
    for reports in (100, 10, *[100] * 100):
        expected.learn(100, reports, 1)
    assert expected.at_least(100, 1) == 10
    assert expected.about(100) > 90
    expected.learn(100, 100, MINUTE)
    assert expected.at_least(100, 2 * MINUTE - 1) == 10
    assert expected.at_least(100, 2 * MINUTE) == 100
    assert expected.at_least(100, 4 * MINUTE) == 0, "that was long ago"
    expected.learn(100, 50, 4 * MINUTE)
    assert expected.at_least(100, 4 * MINUTE) == 50


def test_where_lines_were_nothing_others_may_be_nothing() -> None:
    expected = Expected(0)
    expected.learn(100, 100, 0)
    expected.learn(100, 0, 0)
    assert expected.at_least(100, 0) == 0


def test_a_clock_that_was_set_back_changes_nothing() -> None:
    expected = Expected(MINUTE)
    expected.learn(100, 50, MINUTE)
    expected.learn(100, 80, 0)
    assert expected.at_least(100, 0) == 50
