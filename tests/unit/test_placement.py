"""Placement: where a report belongs, and where it is looked for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.model.device import Profile
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, TimeSpan, bucket_start
from widerow.telemetry.observed import ObservedSettings
from widerow.telemetry.placement import FIRST_EPOCH, Epoch, declared_epoch, partitions, place, segments
from widerow.telemetry.places import DeviceStates, place_batch

epochs = st.lists(
    st.builds(
        Epoch,
        st.integers(1, 5 * DAY // 1000).map(lambda ms: ms * 1000),
        st.sampled_from([15 * MINUTE, HOUR, 6 * HOUR]),
        st.sampled_from([1, 2, 4, 7]),
    ),
    max_size=4,
    unique_by=lambda e: e.from_us,
).map(sorted)
times = st.integers(0, 6 * DAY)


def test_bucket_start() -> None:
    def check(time_us: int, width_us: int, want: int) -> None:
        assert bucket_start(time_us, width_us) == want

    check(59, 60, 0)
    check(60, 60, 60)
    check(-1, 60, -60)


def test_without_epochs_a_device_has_hours_and_no_spread() -> None:
    assert place([], 5 * HOUR + 7).bucket == 5 * HOUR
    assert place([], 5 * HOUR + 7).sub_bucket == 0


@given(epochs, times)
def test_a_report_is_placed_where_it_is_looked_for(known: list[Epoch], time_us: int) -> None:
    assert place(known, time_us) in set(partitions(known, TimeSpan(time_us, time_us + 1)))


@given(epochs, times, times, times)
def test_a_span_names_every_partition_of_its_reports(known: list[Epoch], a: int, b: int, c: int) -> None:
    start, time_us, stop = sorted((a, b, c))
    if time_us < stop:
        assert place(known, time_us) in set(partitions(known, TimeSpan(start, stop)))


@given(epochs, times, times)
def test_segments_cover_a_span_once(known: list[Epoch], a: int, b: int) -> None:
    span = TimeSpan(min(a, b), max(a, b))
    parts = [part for _, part in segments(known, span)]
    assert sum(p.stop_us - p.start_us for p in parts) == span.stop_us - span.start_us
    assert all(p.stop_us == q.start_us for p, q in pairwise(parts))


@given(st.permutations(range(4)), epochs, st.lists(times, min_size=1, max_size=20))
def test_the_kernel_places_as_the_plain_version_does(order: list[int], known: list[Epoch], many: list[int]) -> None:
    state = DeviceStates(ObservedSettings())
    for i in order:  # they may be learned in any order
        state.add_epoch("other", Epoch((i + 1) * SECOND, 6 * HOUR, 2))
        if i < len(known):
            state.add_epoch("d", known[i])
    device = np.full(len(many), state.id_of("d"), np.int32)
    placed = place_batch(state, device, np.array(many, np.int64))
    for i, time_us in enumerate(many):
        where = place(known, time_us)
        assert (placed.bucket[i], placed.sub_bucket[i]) == (where.bucket, where.sub_bucket)
        holds = [e for e in (FIRST_EPOCH, *known) if e.from_us <= time_us][-1]
        e = placed.epoch[i]
        assert (state.from_us[e], state.width_us[e], state.subs[e]) == (holds.from_us, holds.width_us, holds.sub_buckets)


def test_an_epoch_has_a_known_width_and_a_bounded_spread() -> None:
    with pytest.raises(ValueError, match="width"):
        Epoch(0, 7 * HOUR)
    with pytest.raises(ValueError, match="sub-buckets"):
        Epoch(0, HOUR, 0)
    with pytest.raises(ValueError, match="millisecond"):
        Epoch(1)


def test_a_profile_gives_an_epoch_where_the_newest_is_not_what_it_calls_for() -> None:
    def check(known: list[Epoch], profile: Profile, want: tuple[int, int] | None) -> None:
        got = declared_epoch(known, profile, 5 * HOUR + 1)
        assert (None if got is None else (got.width_us, got.sub_buckets)) == want
        if got is not None:
            assert got.from_us == 5 * HOUR + SECOND
            assert declared_epoch([*known, got], profile, 6 * HOUR) is None, "repeating adds nothing"

    fast, heavy, unknown = Profile(reports_per_s=5), Profile(reports_per_s=100, metrics_per_report=50), Profile()
    declared = "declared rate of 100 reports/s"
    check([], unknown, None)
    check([], fast, (15 * MINUTE, 1))
    check([], heavy, (15 * MINUTE, 128))
    check([Epoch(HOUR, 15 * MINUTE, 1, declared)], heavy, (15 * MINUTE, 128))
    check([Epoch(HOUR, 15 * MINUTE, 128, declared)], fast, (15 * MINUTE, 1))
    check([Epoch(HOUR, 15 * MINUTE, 128, declared)], unknown, (HOUR, 1))


def test_what_was_given_for_another_reason_is_not_undone_by_a_profile() -> None:
    def check(known: list[Epoch], profile: Profile, want: tuple[int, int] | None) -> None:
        got = declared_epoch(known, profile, 5 * HOUR)
        assert (None if got is None else (got.width_us, got.sub_buckets)) == want

    fast, unknown = Profile(reports_per_s=5), Profile()
    hot = Epoch(HOUR, 6 * HOUR, 8, "hot")
    check([hot], unknown, None)
    check([hot], fast, (15 * MINUTE, 8))
    check([hot], Profile(reports_per_s=100), (15 * MINUTE, 16))
    later = Epoch(2 * HOUR, 15 * MINUTE, 16, "declared rate: 100 reports/s")
    check([hot, later], fast, (15 * MINUTE, 8))
    check([hot, later, Epoch(3 * HOUR, 15 * MINUTE, 2, "cooled down")], fast, None)


def test_a_declared_epoch_starts_after_the_newest_and_says_why() -> None:
    newest = Epoch(5 * HOUR, 15 * MINUTE, 1, "declared rate: 5 reports/s")
    got = declared_epoch([newest], Profile(reports_per_s=0.001, metrics_per_report=3), 5 * HOUR - SECOND)
    assert got == Epoch(5 * HOUR + SECOND, 6 * HOUR, 1, "declared rate: 0.001 reports/s of 3 values")
