"""The laws of the live key space, whatever is written."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from widerow.model.batch import Report, batch_of
from widerow.model.times import MINUTE
from widerow.ops.key_counts import KeyCounts
from widerow.ops.key_samples import KeySamples
from widerow.ops.keyspace import KeySpace

NAMES = [f"{'n' * (i % 4)}{i}" for i in range(60)]
names = st.sampled_from(NAMES) | st.sampled_from(NAMES[:3])
intervals = st.lists(st.lists(names, max_size=80), min_size=1, max_size=8)


def batch(devices: list[str]) -> object:
    return batch_of([Report(device, 0, {"x": 1.0}, {}) for device in devices])


@given(intervals, st.integers(1, 6))
def test_a_heavy_keys_count_is_off_by_its_error_at_most(sent: list[list[str]], most: int) -> None:
    counts, truth = KeyCounts(minutes=60, most=most), Counter[str]()
    for minute, devices in enumerate(sent):
        counts.add(minute // 2, [(key, float(count), 0.0) for key, count in Counter(devices).items()])
        truth.update(devices)
    found = {one.key: one for one in counts.heaviest(0, lambda _: True, 100)}
    assert all(abs(one.count - truth[key]) <= one.error + 1e-9 for key, one in found.items())
    bound = sum(len(devices) for devices in sent) / (most + 1)
    assert all(2 * one.error <= bound + 1e-9 for one in found.values())
    assert all(key in found for key, count in truth.items() if count > bound)


@given(intervals)
def test_small_batches_are_counted_exactly_in_every_range(sent: list[list[str]]) -> None:
    space, truth = KeySpace(0), Counter[str]()
    for minute, devices in enumerate(sent):
        space.wrote("acme", batch(devices))  # type: ignore[arg-type]
        truth.update(devices)
        space.fold(minute * MINUTE // 3)
    view = space.view(len(sent) * MINUTE // 3, most=512)
    assert view.writes.count == truth.total()
    assert all((one.count, one.error) == (truth[one.key.removeprefix("acme/")], 0) for one in view.writes.hottest)
    assert len(view.writes.hottest) == min(20, len(truth))
    assert abs(sum(sum(one.writes) for one in view.ranges) - truth.total()) < 1e-6
    last = Counter(sent[-1])
    for name, count in last.items():  # 1/128 of 80 is less than one: each key has its range
        (own,) = [one for one in view.ranges if one.start <= f"acme/{name}" and (not one.stop or f"acme/{name}" < one.stop)]
        assert own.keys == 1
        assert sum(own.writes) >= count - 1e-6


@given(st.integers(1, 2000), st.integers(0, 1 << 30))
def test_sums_of_weights_are_right_within_their_error(hot: int, seed: int) -> None:
    """Five standard deviations: not once in a million examples."""
    samples, n = KeySamples(seed, capacity=512), 0
    one = batch_of([Report("hot", 0, {"x": 1.0}, {})] * hot + [Report(f"d{i}", 0, {"x": 1.0}, {}) for i in range(1000)])
    for _ in range(20):
        samples.add("t", one.device.names, one.device.codes, one.cells.offsets, 0)
        n += len(one)
    sample = samples.take()
    assert sample.total == n
    mine = np.array([key == "t/hot" for key in sample.keys], np.bool_)
    w = sample.weight
    sigma = np.sqrt((w[mine] * (w[mine] - 1)).sum())
    assert abs(w[mine].sum() - 20 * hot) <= 5 * sigma + 5 * w.max()
