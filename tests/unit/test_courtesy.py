"""Giving way: rests are in proportion, and end when nothing is urgent any more."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from widerow.ops.courtesy import STEP_S, Patience, Rests, give_way, yielding


@dataclass
class Site:
    now_s: float = 100.0
    urgent_until_s: float = float("inf")
    busy_until_s: float = 0.0
    times: float = 2.0
    longest_s: float = 0.1
    rests: Rests = field(init=False)

    def __post_init__(self) -> None:
        self.rests = Rests(
            lambda: self.now_s < self.urgent_until_s,
            times=self.times,
            longest_s=self.longest_s,
            busy=lambda: self.now_s < self.busy_until_s,
            at_least=1.5,
            clock_s=lambda: self.now_s,
            sleep=self.pass_by,
        )

    def pass_by(self, seconds: float) -> None:
        self.now_s += seconds

    def rested_s(self, worked_s: float) -> float:
        self.now_s += worked_s
        before_s = self.now_s
        self.rests()
        return self.now_s - before_s


def test_a_rest_is_in_proportion_to_the_work_before_it() -> None:
    site = Site()
    for worked_s in (0.001, 0.004, 0.002):
        assert site.rested_s(worked_s) == pytest.approx(2 * worked_s, abs=STEP_S)


def test_while_others_are_busy_it_rests_in_any_case_and_longer_if_something_is_urgent() -> None:
    site = Site(urgent_until_s=0.0, busy_until_s=float("inf"))
    assert [site.rested_s(worked_s) for worked_s in (0.001, 0.004, 1.0)] == pytest.approx([0.0015, 0.006, 0.1])
    assert site.rested_s(STEP_S / 2) == 0
    site = Site(busy_until_s=float("inf"))
    assert site.rested_s(0.01) == pytest.approx(0.02, abs=0.001)
    site.busy_until_s = site.urgent_until_s = site.now_s
    assert site.rested_s(0.01) == 0


def test_no_rest_is_longer_than_it_may_be() -> None:
    assert Site().rested_s(10.0) == pytest.approx(0.1, abs=STEP_S)


def test_short_steps_are_counted_together() -> None:
    site = Site()
    assert [site.rested_s(STEP_S / 4) for _ in range(3)] == [0, 0, 0]
    assert site.rested_s(STEP_S / 3) > 0


def test_a_rest_ends_when_nothing_is_urgent_any_more() -> None:
    site = Site()
    site.urgent_until_s = site.now_s + 0.012
    assert site.rested_s(0.01) == pytest.approx(0.002, abs=STEP_S)
    assert site.rested_s(0.01) == 0


def test_what_never_ceases_to_be_urgent_makes_it_slower_by_a_known_factor() -> None:
    site, worked_s = Site(), 0.0
    began_s = site.now_s
    for _ in range(1000):
        site.rested_s(0.001)
        worked_s += 0.001
    assert (site.now_s - began_s) / worked_s == pytest.approx(3.0, rel=0.2)


def test_only_the_thread_that_said_so_gives_way() -> None:
    paused: list[str] = []
    give_way()
    with yielding(lambda: paused.append("here")):
        give_way()
        with yielding(lambda: paused.append("inside")):
            give_way()
        other = threading.Thread(target=give_way)
        other.start()
        other.join()
        give_way()
    give_way()
    assert paused == ["here", "inside", "here"]


def test_what_a_pause_raises_ends_the_work() -> None:
    def pause() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError), yielding(pause):
        give_way()
    give_way()


def test_what_is_done_in_a_pause_gives_way_to_nobody() -> None:
    pauses = 0

    def pause() -> None:
        nonlocal pauses
        pauses += 1
        give_way()

    with yielding(pause):
        give_way()
        give_way()
    assert pauses == 2


def test_rest_that_was_not_needed_is_saved_up_to_the_longest() -> None:
    site = Site()
    site.urgent_until_s = 0.0
    for _ in range(10):
        assert site.rested_s(0.001) == 0
    site.urgent_until_s = float("inf")
    assert site.rested_s(0.001) == pytest.approx(2 * 11 * 0.001, abs=0.002)
    assert site.rested_s(0.001) == pytest.approx(0.002, abs=0.002), "that is used up"
    site.urgent_until_s = 0.0
    site.rested_s(10.0)
    site.urgent_until_s = float("inf")
    assert site.rested_s(0.001) == pytest.approx(0.1, abs=0.002)


def test_time_before_work_begins_is_no_work() -> None:
    site = Site()
    site.now_s += 10.0
    site.rests.begin()
    assert site.rested_s(0.001) == pytest.approx(0.002, abs=0.001)


def test_patience_is_for_so_long_in_all() -> None:
    urgent, looks = True, 0

    def is_urgent() -> bool:
        nonlocal looks
        looks += 1
        return urgent

    patience = Patience(is_urgent, 0.02)
    patience()
    waited = looks
    assert waited >= 2, "it looked again"
    patience()
    assert looks == waited, "nothing is left of it"
    urgent = False
    Patience(is_urgent, 60.0)()
    assert looks == waited + 1, "it goes on at once"
