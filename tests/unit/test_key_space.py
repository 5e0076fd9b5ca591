"""The live key space: it is bounded, finds hot keys, and its errors are true."""

from __future__ import annotations

import random

import pytest

from widerow.model.batch import Report, batch_of
from widerow.model.times import MINUTE, SECOND
from widerow.ops.key_counts import KeyCounts
from widerow.ops.key_samples import CAPACITY, MOST_OF_A_BATCH
from widerow.ops.keyspace import EVERY_S, MINUTES, MOST_RANGES, KeyRange, KeySpace, View

NOW_US = 1_760_000_000 * SECOND // MINUTE * MINUTE


def send(space: KeySpace, devices: list[str], tenant: str = "acme") -> None:
    space.wrote(tenant, batch_of([Report(device, NOW_US, {"x": 1.0}, {}) for device in devices]))


def range_of(view: View, key: str) -> KeyRange:
    (found,) = [one for one in view.ranges if one.start <= key and (not one.stop or key < one.stop)]
    return found


def fleet(n: int) -> list[str]:
    return [f"press-{i:05d}" for i in range(n)]


def test_few_reports_are_counted_exactly() -> None:
    space = KeySpace(NOW_US)
    for _ in range(3):
        send(space, ["a", "b", "b"])
    send(space, ["c"], tenant="zeta")
    space.read("acme", ["b"])
    view = space.view(NOW_US)
    assert (view.writes.count, view.reads.count) == (10, 1)
    assert {one.key: (one.count, one.error) for one in view.writes.hottest} == {
        "acme/a": (3, 0),
        "acme/b": (6, 0),
        "zeta/c": (1, 0),
    }
    assert [(one.start, sum(one.writes), sum(one.reads), one.keys) for one in view.ranges] == [
        ("acme/a", 3, 0, 1),
        ("acme/b", 6, 1, 1),
        ("zeta/c", 1, 0, 1),
    ]
    assert range_of(view, "acme/b").bytes == 6 * (41 + len("acme") + len("b") + 8)
    assert view.writes.skew == pytest.approx(6 / (10 / 3))


def test_a_hot_device_among_thousands_has_a_range_of_its_own_after_one_interval() -> None:
    space, names, chance = KeySpace(NOW_US, seed=7), fleet(5_000), random.Random(7)
    for turn in range(4):
        for _ in range(20):
            send(space, chance.sample(names, 1_000))
        space.fold(NOW_US + turn * EVERY_S * SECOND)
    assert range_of(space.view(NOW_US), "acme/press-02500").keys > 5
    for _ in range(20):
        send(space, [*chance.sample(names, 1_000), *["press-02500"] * 100])
    view = space.view(NOW_US + MINUTE)
    hot = range_of(view, "acme/press-02500")
    assert (hot.start, hot.keys) == ("acme/press-02500", 1)
    assert hot.writes[-1] == pytest.approx(2_000, abs=hot.writes_error)
    assert view.writes.hottest[0].key == "acme/press-02500"
    assert abs(view.writes.hottest[0].count - 2_016) <= view.writes.hottest[0].error
    assert view.writes.skew > 10
    assert [len(one.writes) for one in view.ranges] == [2] * len(view.ranges)


def test_a_key_with_a_fiftieth_of_the_writes_has_a_line_of_its_own_in_a_view() -> None:
    space, names, chance = KeySpace(NOW_US, seed=2), fleet(5_000), random.Random(2)
    for turn in range(3):
        for _ in range(20):
            send(space, [*chance.sample(names, 980), *["press-01234"] * 20])
        space.fold(NOW_US + turn * EVERY_S * SECOND)
    view = space.view(NOW_US + 3 * EVERY_S * SECOND, most=64)
    own = range_of(view, "acme/press-01234")
    assert (own.start, own.keys, len(view.ranges)) == ("acme/press-01234", 1, 64)
    assert abs(sum(own.writes) - 1_200) < own.writes_error + 60
    assert max(sum(one.writes) for one in view.ranges if one is not own) < 10_000


def test_what_is_kept_is_bounded() -> None:
    space, chance = KeySpace(NOW_US), random.Random(1)
    for turn in range(8):
        for _ in range(5):
            devices = [f"{chance.randrange(1 << 40):x}" for _ in range(200)]
            for _ in range(CAPACITY // MOST_OF_A_BATCH):
                send(space, devices, tenant=f"t{turn}")
            space.read("acme", devices)
        assert space._writes._state[0] <= CAPACITY
        space.fold(NOW_US + turn * MINUTE)
        assert len(space._ranges) <= MOST_RANGES
    assert len(space._ranges) == MOST_RANGES
    assert all(one.cells.shape == (MINUTES, 6) for one in space._ranges)
    assert len(space.view(NOW_US + 8 * MINUTE, most=5).ranges) == 5


def test_the_ranges_of_a_view_lie_side_by_side_and_hold_everything() -> None:
    space, chance, sent = KeySpace(NOW_US, seed=3), random.Random(3), 0
    for turn in range(5):
        for _ in range(50):
            send(space, [f"d{chance.randrange(3_000)}" for _ in range(128)])
            sent += 128
        space.fold(NOW_US + turn * MINUTE)
    view = space.view(NOW_US + 4 * MINUTE, most=20)
    assert view.writes.count == sent
    assert sum(sum(one.writes) for one in view.ranges) == pytest.approx(sent, rel=0.01)
    assert all(one.stop == other.start for one, other in zip(view.ranges, view.ranges[1:], strict=False))
    assert view.ranges[-1].stop == ""


def test_zooming_in_gives_finer_ranges_of_the_part_alone() -> None:
    space, names = KeySpace(NOW_US), fleet(500)
    for _ in range(10):
        for at in range(0, 500, 100):
            send(space, names[at : at + 100])
    space.fold(NOW_US)
    whole, part = space.view(NOW_US, most=4), space.view(NOW_US, start="acme/press-00100", stop="acme/press-00200", most=50)
    assert len(whole.ranges) == 4
    assert len(part.ranges) > 10
    assert all(one.stop > "acme/press-00100" for one in part.ranges)
    assert all("acme/press-00100" <= one.key < "acme/press-00200" for one in part.writes.hottest)
    assert space.view(NOW_US, start="zeta").reads.hottest == []


def test_minutes_that_are_over_an_hour_old_are_forgotten() -> None:
    space = KeySpace(NOW_US)
    send(space, ["a"])
    space.fold(NOW_US)
    assert sum(range_of(space.view(NOW_US + 59 * MINUTE), "acme/a").writes) == 1
    for later in (60, 200):
        view = space.view(NOW_US + later * MINUTE)
        assert (view.writes.count, view.ranges, view.writes.hottest) == (0, [], [])
        assert len(view.minutes_us) == MINUTES


def test_a_clock_that_is_set_back_goes_on_in_its_minute() -> None:
    space = KeySpace(NOW_US)
    send(space, ["a"])
    space.fold(NOW_US)
    send(space, ["a"])
    view = space.view(NOW_US - 5 * MINUTE)
    assert (view.writes.count, len(view.minutes_us)) == (2, 1)


def test_a_question_about_many_devices_counts_each_of_them() -> None:
    space = KeySpace(NOW_US, seed=5)
    for _ in range(20):
        space.read("acme", fleet(10_000))
    view = space.view(NOW_US)
    assert view.reads.count == 200_000
    assert sum(sum(one.reads) for one in view.ranges) == pytest.approx(200_000, rel=0.02)


def test_a_name_that_no_device_may_have_is_left_out() -> None:
    """A question may name anything, however long."""
    space = KeySpace(NOW_US)
    space.read("acme", ["x" * 1_000_000, "d", "x" * 257])
    assert [(one.key, one.count) for one in space.view(NOW_US).reads.hottest] == [("acme/d", 1)]


def test_long_names_are_sampled_too() -> None:
    space, names = KeySpace(NOW_US), ["\N{SNOWMAN}" * 80 + f"{i:04d}" for i in range(4_000)]
    for at in range(0, 4_000, 100):
        send(space, names[at : at + 100])
    view = space.view(NOW_US)
    assert sum(sum(one.writes) for one in view.ranges) == pytest.approx(4_000, rel=0.1)


def test_an_old_minute_of_heavy_keys_is_forgotten() -> None:
    counts = KeyCounts(minutes=2)
    for minute in range(5):
        counts.add(minute, [("k", 1.0, 0.0)])
    assert [one.count for one in counts.heaviest(0, lambda _: True, 9)] == [2.0]
