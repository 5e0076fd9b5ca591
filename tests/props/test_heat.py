"""The laws of counting who sends much, whatever is sent."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from widerow.admit.heat import HeavyKeys
from widerow.model.batch import Report, batch_of

K = 4
NAMES = [f"{'n' * (i % 3)}{i}" for i in range(40)] + ["x" * 255 + "1", "x" * 255 + "2", "\N{SNOWMAN}"]
rows = st.tuples(st.integers(0, 2), st.sampled_from(NAMES) | st.sampled_from(NAMES[:3]))
streams = st.lists(st.lists(rows, min_size=1, max_size=60), max_size=30)


def counted(batches: list[list[tuple[int, str]]], k: int = K) -> HeavyKeys:
    keys = HeavyKeys(k)
    for batch in batches:
        for owner in sorted({owner for owner, _ in batch}):
            sent = batch_of([Report(name, 1, {"x": 1.0}, {}) for who, name in batch if who == owner])
            keys.add(owner, sent.device.names, sent.device.codes, sent.time_us)
    return keys


def plain_counts(rows: list[tuple[int, str]], k: int) -> tuple[dict[tuple[int, str], int], int]:
    """The plain version, fed row by row; gives the table and its error."""
    table: dict[tuple[int, str], int] = {}
    error = 0
    for key in rows:
        if key not in table and len(table) == 2 * k:
            cut = sorted(table.values())[len(table) // 2]
            table = {other: count - cut for other, count in table.items() if count > cut}
            error += cut
        table[key] = table.get(key, 0) + 1
    return table, error


def table(keys: HeavyKeys) -> dict[tuple[int, str], int]:
    return {(heavy.owner, heavy.name): heavy.count for heavy in keys.heaviest(0)}


@given(streams)
def test_counts_are_exact_up_to_an_error_that_is_told_and_bounded(batches: list[list[tuple[int, str]]]) -> None:
    truth = Counter(row for batch in batches for row in batch)
    keys = counted(batches)
    found = table(keys)
    assert keys.total == truth.total()
    assert keys.error <= keys.total / K
    assert all(count <= truth[key] <= count + keys.error for key, count in found.items())
    assert all(key in found for key, count in truth.items() if count > keys.total / K)
    assert all(key in found for key, count in truth.items() if count > keys.error)


@given(streams)
def test_counting_one_report_at_a_time_is_what_the_plain_version_does(batches: list[list[tuple[int, str]]]) -> None:
    each = [row for batch in batches for row in batch][:300]
    keys = counted([[row] for row in each])
    assert (table(keys), keys.error) == plain_counts(each, K)


@given(streams)
def test_with_room_for_all_keys_counts_are_exact(batches: list[list[tuple[int, str]]]) -> None:
    keys = counted(batches, k=3 * len(NAMES))
    assert (table(keys), keys.error) == (dict(Counter(row for batch in batches for row in batch)), 0)


@given(st.lists(st.integers(0, 20), min_size=1), st.integers(0, 20))
def test_what_is_older_than_asked_is_not_counted(times: list[int], since_us: int) -> None:
    keys = HeavyKeys(K)
    batch = batch_of([Report("d", time_us, {"x": 1.0}, {}) for time_us in times])
    keys.add(0, batch.device.names, batch.device.codes, batch.time_us, since_us)
    assert keys.total == int((np.array(times) >= since_us).sum())
