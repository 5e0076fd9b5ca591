"""The sizes of partitions, from a sample: shares add up, and their errors are true."""

from __future__ import annotations

import random

from widerow.plan.histogram import BOUNDS, histogram, quantile

KIB = 1024


def test_shares_of_everything_are_exact() -> None:
    bins = histogram([500, KIB, 3 * KIB, 20 * KIB], of=4)
    assert [(one.up_to_bytes, one.share.value, one.share.error) for one in bins] == [
        (KIB, 0.5, 0.0),
        (4 * KIB, 0.25, 0.0),
        (16 * KIB, 0.0, 0.0),
        (64 * KIB, 0.25, 0.0),
    ]


def test_nothing_has_no_bins() -> None:
    assert histogram([], of=0) == []
    assert quantile([], 0.5) == 0


def test_a_partition_beyond_all_bounds_is_in_the_last_bin() -> None:
    assert [one.up_to_bytes for one in histogram([2.0 * BOUNDS[-1]], of=1)] == [BOUNDS[-1]]


def test_most_samples_are_within_their_error() -> None:
    chance = random.Random(5)
    everything = [chance.choice([2 * KIB, 10 * KIB, 100 * KIB, 100 * KIB]) for _ in range(20_000)]
    truth = {one.up_to_bytes: one.share.value for one in histogram(everything, of=len(everything))}
    within = total = 0
    for _ in range(200):
        for one in histogram(chance.sample(everything, 100), of=len(everything)):
            total += 1
            within += abs(one.share.value - truth[one.up_to_bytes]) <= one.share.error
    assert within / total > 0.9


def test_a_quantile_is_a_size_that_occurs() -> None:
    assert [quantile([4, 1, 3, 2], q) for q in (0, 0.5, 0.75, 1)] == [1, 2, 3, 4]
