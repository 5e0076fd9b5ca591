"""How many reports a body is taken to have by its size."""

from __future__ import annotations

from widerow.admit.density import Density


def test_nothing_is_known_at_first() -> None:
    assert (Density().at_least(1_000_000), Density().about(1_000_000)) == (0, 0)


def test_bodies_that_are_alike_tell_how_many_others_have() -> None:
    density = Density()
    for size, reports in ((15_000, 100), (30_150, 200), (1_480, 10)):
        density.learn(size, reports)
    assert 95 <= density.at_least(15_000) <= 100
    assert 98 <= density.about(15_000) <= 102


def test_the_emptiest_body_of_late_counts_until_it_is_forgotten() -> None:
    density = Density()
    for reports in (100, 100, 10):
        density.learn(15_000, reports)
    assert density.at_least(15_000) == 10
    assert density.about(15_000) > 80
    for _ in range(200):
        density.learn(15_000, 100)
    assert density.at_least(15_000) >= 99


def test_where_a_body_had_nothing_no_other_is_taken_to_have_any() -> None:
    density = Density()
    density.learn(15_000, 100)
    density.learn(15_000, 0)
    assert density.at_least(15_000) == 0
    density.learn(15_000, 100)
    assert 0 < density.at_least(15_000) < 10, "by and by"
