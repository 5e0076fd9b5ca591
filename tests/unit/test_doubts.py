"""What is in doubt after an erasure, and for how long."""

from __future__ import annotations

import numpy as np
import pytest

from contract.rollup_suite import NOW, TENANT, Site
from widerow.engine.memory import MemoryEngine
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, ManualClock, TimeSpan
from widerow.rollup.dirt import CLEAN, Dirt
from widerow.rollup.doubts import Doubts
from widerow.rollup.marks import Marks
from widerow.rollup.others import Others
from widerow.rollup.unit import Unit
from widerow.schema.shards import shard_of
from widerow.telemetry.erasure import EVER, Erasure, Mark

HOUR_US = NOW // DAY * DAY - 2 * DAY
NAME = TENANT.name
A = shard_of("a")


def test_windows_that_are_erased_in_part_are_dirty() -> None:
    def check(start_us: int, stop_us: int, want: Dirt, *, metric: str = "x", device: str = "") -> None:
        doubts = Doubts()
        doubts.add(NAME, Mark(device, metric, TimeSpan(start_us, stop_us), 1))
        assert doubts.dirt(NAME, ["a"]) == want
        assert doubts.dirt("another", ["a"]) == CLEAN

    day = HOUR_US
    check(day, day + DAY, CLEAN)
    check(day, day + HOUR, Dirt.of([], [day]))
    check(day + 1, day + DAY, Dirt.of([day]))
    check(day - 1, day + 5 * HOUR + 1, Dirt.of([day - HOUR, day + 5 * HOUR]))
    check(day, day + HOUR, CLEAN, device="b")
    check(day, day + HOUR, Dirt.of([], [day]), device="a")
    check(EVER.start_us, EVER.stop_us, CLEAN, metric="")


def test_many_devices_are_one_doubt_of_the_fleet() -> None:
    doubts = Doubts()
    for n in range(1000):
        doubts.add(NAME, Mark(f"d{n}", "", EVER, n))
    assert [span for span, _ in doubts.shards(NAME)] == [EVER]


class Two:
    """A process that rolls, and another that has the same store."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.site = Site(MemoryEngine(self.clock), self.clock)
        self.erasure = Erasure(self.site.engine, self.clock, refresh_us=SECOND)
        self.elsewhere = Erasure(self.site.engine, self.clock, refresh_us=SECOND)
        self.others = self.opened()

    def opened(self, *, looks: bool = True) -> Others:
        site = self.site
        others = Others(site.engine, self.erasure, site.marks, site.roller, lambda: [NAME], self.clock, looks=looks)
        others.recovered(self.clock.now_us())
        return others

    def mark_elsewhere(self) -> None:
        Marks(self.site.engine, self.clock).again(NAME, "a", np.array([HOUR_US]))

    def finish_elsewhere(self) -> None:
        for name, mark, place in self.elsewhere.unfinished():
            self.elsewhere.finish(name, mark, place)

    def pass_time(self, us: int) -> None:
        self.clock.time_us += us


@pytest.fixture
def two() -> Two:
    return Two()


def test_an_erasure_is_in_doubt_until_its_marks_were_looked_up_after_it_was_done(two: Two) -> None:
    mark = two.elsewhere.erase(TENANT, device="a", metric="x")
    two.pass_time(6 * SECOND)
    two.others.follow(NAME)
    two.others.look()
    assert two.others.doubts.of(NAME) == [mark], "it is not done"
    two.mark_elsewhere()
    two.finish_elsewhere()
    assert two.site.marks.pending() == {}
    two.pass_time(6 * SECOND)
    two.others.look()
    assert two.others.doubts.of(NAME) == []
    assert two.site.marks.pending().keys() == {Unit(NAME, HOUR_US, A)}


def test_an_erasure_that_was_done_after_the_last_look_is_in_doubt(two: Two) -> None:
    two.pass_time(30 * SECOND)
    mark = two.elsewhere.erase(TENANT, device="a")
    two.finish_elsewhere()
    two.pass_time(2 * SECOND)
    two.others.follow(NAME)
    assert two.others.doubts.of(NAME) == [mark]


def test_what_was_done_long_before_is_not_doubted(two: Two) -> None:
    two.elsewhere.erase(TENANT, device="a")
    two.finish_elsewhere()
    two.pass_time(5 * MINUTE)
    others = two.opened()
    others.follow(NAME)
    assert others.doubts.of(NAME) == []


def test_who_looks_into_the_store_for_every_answer_doubts_what_is_not_done(two: Two) -> None:
    others = two.opened(looks=False)
    two.elsewhere.erase(TENANT, device="b")
    two.finish_elsewhere()
    mark = two.elsewhere.erase(TENANT, device="a")
    others.follow(NAME)
    assert others.doubts.of(NAME) == [mark]
    two.finish_elsewhere()
    two.pass_time(6 * SECOND)
    others.follow(NAME)
    assert others.doubts.of(NAME) == []


def test_marks_without_an_erasure_are_found_within_a_minute(two: Two) -> None:
    two.mark_elsewhere()
    two.pass_time(59 * SECOND)
    two.others.look()
    assert two.site.marks.pending() == {}
    two.pass_time(2 * SECOND)
    two.others.look()
    assert two.site.marks.pending() == {Unit(NAME, HOUR_US, A): NOW // 1000 * 1000}


def test_looking_forgets_nothing(two: Two) -> None:
    here = Unit(NAME, HOUR_US - HOUR, 3)
    two.site.marks.note([here], NOW)
    two.mark_elsewhere()
    for _ in range(2):
        two.pass_time(2 * MINUTE)
        two.others.look()
        assert two.site.marks.pending().keys() == {here, Unit(NAME, HOUR_US, A)}
