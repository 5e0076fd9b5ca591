"""A question whose answer comes from several levels says what raw reports alone say."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.rollup_suite import DEVICES, NOW, TENANT, Site, reports_of
from props.test_rolling import cells
from widerow.codec.sketch import RELATIVE_ERROR
from widerow.engine.memory import MemoryEngine
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.query.points import points_of
from widerow.query.stepped import Stepped, stepped
from widerow.rollup.aggregate import summary_of_raw

histories = st.lists(st.tuples(st.lists(cells, min_size=1, max_size=12), st.booleans()), max_size=6)
steps = st.sampled_from([SECOND, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY])
ends = st.integers(0, 31 * 24).map(lambda n: NOW - n * HOUR + 17 * SECOND) | st.integers(0, 8 * HOUR).map(lambda n: NOW - n)


def plain(found: Stepped, aggregate: str) -> dict[tuple[str, str, int], float]:
    steps, values = found.steps, found.values(aggregate).tolist()
    return {(steps.device[i], steps.metric[i], int(steps.start_us[i])): values[i] for i in range(len(steps))}


@given(histories, ends, ends, steps)
def test_no_seam_shows(history: list[tuple[list[tuple[str, int, str, float]], bool]], a: int, b: int, step_us: int) -> None:
    clock = ManualClock(NOW)
    site = Site(MemoryEngine(clock), clock)
    for n, (some, roll) in enumerate(history):
        site.write(reports_of(some, NOW + n * MS))
        if roll:
            site.roll(most=3)
    span = TimeSpan(min(a, b), max(a, b))
    dirty = site.roller.dirt(TENANT, DEVICES)
    found = stepped(site.telemetry, site.rollups, TENANT, DEVICES, span=span, step_us=step_us, dirt=dirty)
    raw = site.telemetry.read_many(TENANT, DEVICES, span)
    want = Stepped(summary_of_raw(raw, step_us), step_us, {})
    for aggregate in ("count", "min", "max", "first", "last"):
        assert plain(found, aggregate) == plain(want, aggregate)
    for aggregate in ("sum", "avg", "increase", "rate"):
        assert plain(found, aggregate) == pytest.approx(plain(want, aggregate), rel=1e-9, abs=1e-9)
    assert plain(found, "stddev") == pytest.approx(plain(want, "stddev"), rel=1e-6, abs=1e-4)
    numbers: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    points = points_of(raw)
    for device, metric, time_us, value in zip(
        points.device.to_list(), points.metric.to_list(), points.time_us, points.number, strict=True
    ):
        numbers[device, metric, int(time_us) - int(time_us) % step_us].append(float(value))
    for aggregate, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        for key, value in plain(found, aggregate).items():
            ordered = sorted(numbers[key])
            at = q * (len(ordered) - 1)
            low, high = ordered[math.floor(at)], ordered[math.ceil(at)]
            error = RELATIVE_ERROR * max(abs(low), abs(high)) + 1e-9
            assert low - error <= value <= high + error


def test_it_says_where_it_looked() -> None:
    clock = ManualClock(NOW)
    site = Site(MemoryEngine(clock), clock)
    old, new = NOW - 5 * HOUR, NOW - MINUTE
    site.write(reports_of([("a", old, "temp", 1.0), ("a", old + MINUTE, "temp", 3.0)], NOW))
    site.roll()
    site.write(reports_of([("a", new, "temp", 5.0)], NOW + MS))
    dirty = site.roller.dirt(TENANT, ["a"])
    span = TimeSpan(NOW - NOW % HOUR - 6 * HOUR, NOW)
    found = stepped(site.telemetry, site.rollups, TENANT, ["a"], span=span, step_us=HOUR, dirt=dirty)
    assert found.used == {"hour": 1, "raw": 1}
    assert list(plain(found, "avg").values()) == [2.0, 5.0]
    nothing = stepped(site.telemetry, site.rollups, TENANT, ["a"], span=TimeSpan(NOW, NOW), step_us=HOUR)
    assert len(nothing.steps) == 0
    assert isinstance(nothing.values("sum"), np.ndarray)
