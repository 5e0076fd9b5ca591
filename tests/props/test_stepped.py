"""A question whose answer comes from several levels says what raw reports alone say."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.rollup_suite import DEVICES, NOW, TENANT, Site, reports_of
from props.test_rolling import cells
from widerow.codec.sketch import RELATIVE_ERROR
from widerow.engine.memory import MemoryEngine
from widerow.model.arrays import Flags, Ints
from widerow.model.batch import Value
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.query.budget import Budget, QuerySettings
from widerow.query.points import points_of
from widerow.query.stepped import AGGREGATES, Sources, Stepped, stepped
from widerow.query.steps import steps_of, whole_span
from widerow.rollup.aggregate import summary_of_raw

histories = st.lists(st.tuples(st.lists(cells, min_size=1, max_size=12), st.booleans()), max_size=6)
asked = st.sampled_from(
    [
        *(("", step) for step in ("10s", "1m", "10m", "90m", "1h", "6h", "1d", "1w", "1mo", "")),
        *((zone, step) for zone in ("America/New_York", "Asia/Kolkata") for step in ("1h", "6h", "1d", "1mo")),
    ]
)
ends = st.integers(0, 31 * 24).map(lambda n: NOW - n * HOUR + 17 * SECOND) | st.integers(0, 8 * HOUR).map(lambda n: NOW - n)


def plain(found: Stepped, aggregate: str) -> dict[tuple[str, str, int], float]:
    steps, values = found.summary, found.values(aggregate).tolist()
    return {(steps.device[i], steps.metric[i], int(steps.start_us[i])): values[i] for i in range(len(steps))}


def ask(site: Site, devices: list[str], span: TimeSpan, step: str, tz: str = "", *, sketches: bool = True) -> Stepped:
    sources = Sources(site.telemetry, site.rollups, site.roller.dirt, site.clock)
    steps = steps_of(step, span, tz) if step else whole_span(span)
    budget = Budget(QuerySettings(), TENANT)
    return stepped(sources, TENANT, devices, span=span, steps=steps, budget=budget, sketches=sketches)


def gone(time_us: Ints, found: Stepped) -> Flags:
    """What lies in steps that cannot be answered any more."""
    missing = np.zeros(len(time_us), np.bool_)
    for part in found.missing:
        missing |= (time_us >= part.start_us) & (time_us < part.stop_us)
    return missing


def check_against_raw(site: Site, found: Stepped, span: TimeSpan, devices: Sequence[str] = DEVICES) -> None:
    """It says what raw reports say that are read now."""
    steps = found.steps
    raw = [
        rows.take(~gone(np.asarray(rows.keys["event_us"]), found))
        for rows in site.telemetry.read_many(TENANT, devices, span, beyond_us=7 * DAY)
    ]
    want = Stepped(summary_of_raw(raw, steps), steps, span, {})
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
        if not math.isnan(value):  # a text
            numbers[device, metric, int(steps(np.array([time_us]))[0])].append(float(value))
    for aggregate, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        for key, value in plain(found, aggregate).items():
            ordered = sorted(numbers[key])
            at = q * (len(ordered) - 1)
            low, high = ordered[math.floor(at)], ordered[math.ceil(at)]
            error = RELATIVE_ERROR * max(abs(low), abs(high)) + 1e-9
            assert low - error <= value <= high + error


@settings(max_examples=60)
@given(histories, ends, ends, asked)
def test_no_seam_shows(
    history: list[tuple[list[tuple[str, int, str, Value]], bool]], a: int, b: int, asked: tuple[str, str]
) -> None:
    clock = ManualClock(NOW)
    site = Site(MemoryEngine(clock), clock)
    for n, (some, roll) in enumerate(history):
        site.write(reports_of(some, NOW + n * MS))
        if roll:
            site.roll(most=3)
    span = TimeSpan(min(a, b), max(a, b))
    found = ask(site, list(DEVICES), span, asked[1], asked[0])
    check_against_raw(site, found, span)
    alone = ask(site, list(DEVICES), span, asked[1], asked[0], sketches=False)
    assert all(plain(alone, aggregate) == plain(found, aggregate) for aggregate in AGGREGATES), "as stored or as sketched"


def test_it_says_where_it_looked() -> None:
    clock = ManualClock(NOW)
    site = Site(MemoryEngine(clock), clock)
    old, new = NOW - 5 * HOUR, NOW - MINUTE
    site.write(reports_of([("a", old, "temp", 1.0), ("a", old + MINUTE, "temp", 3.0)], NOW))
    site.roll()
    site.write(reports_of([("a", new, "temp", 5.0)], NOW + MS))
    span = TimeSpan(NOW - NOW % HOUR - 6 * HOUR, NOW)
    found = ask(site, ["a"], span, "1h")
    assert found.used == {"hour": 1, "minute": 0, "raw": 1}
    assert list(plain(found, "avg").values()) == [2.0, 5.0]
    nothing = ask(site, ["a"], TimeSpan(NOW, NOW), "1h")
    assert len(nothing) == 0
    assert isinstance(nothing.values("sum"), np.ndarray)


@settings(max_examples=30)
@given(histories, st.sampled_from(["1m", "1h", "6h", "1d"]))
def test_what_counters_gain_in_steps_adds_up(
    history: list[tuple[list[tuple[str, int, str, Value]], bool]], step: str
) -> None:
    clock = ManualClock(NOW)
    site = Site(MemoryEngine(clock), clock)
    for n, (some, roll) in enumerate(history):
        site.write(reports_of(some, NOW + n * MS))
        if roll:
            site.roll(most=3)
    span = TimeSpan(NOW - 29 * DAY, NOW)
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for (device, metric, _), gained in plain(ask(site, list(DEVICES), span, step), "increase").items():
        sums[device, metric] += gained
    whole = {key[:2]: gained for key, gained in plain(ask(site, list(DEVICES), span, ""), "increase").items()}
    assert sums == pytest.approx(whole, rel=1e-9, abs=1e-6)


def test_every_aggregate_is_there() -> None:
    clock = ManualClock(NOW)
    site = Site(MemoryEngine(clock), clock)
    at = NOW - NOW % HOUR
    values = [3.0, 5.0, 1.0, 2.0]
    site.write(reports_of([("a", at + i * MINUTE, "temp", value) for i, value in enumerate(values)], NOW))
    found = ask(site, ["a"], TimeSpan(at + 60 * SECOND, at + HOUR), "1h")
    want = {
        "min": 1.0, "max": 5.0, "avg": 8 / 3, "sum": 8.0, "count": 3.0, "stddev": float(np.std(values[1:])), "first": 5.0,
        "last": 2.0, "p50": 2.0, "p95": 4.7, "p99": 4.94, "increase": 2.0, "rate": 2.0 / 3540,
    }  # fmt: skip
    assert {name: found.values(name)[0] for name in AGGREGATES} == pytest.approx(want)


def test_what_has_expired_is_answered_by_what_has_not() -> None:
    clock = ManualClock(NOW)
    site = Site(MemoryEngine(clock), clock)
    at = NOW - NOW % DAY
    site.write(reports_of([("a", at + i * MINUTE, "temp", float(i)) for i in range(0, 90, 3)], NOW))
    site.roll()
    clock.time_us = at + 40 * DAY  # raw reports are gone, minutes are not
    span = TimeSpan(at, at + 2 * HOUR)
    minutes = ask(site, ["a"], span, "3m")
    assert (sum(plain(minutes, "count").values()), minutes.missing, set(minutes.used)) == (30, [], {"minute"})
    seconds = ask(site, ["a"], span, "90s")
    assert (len(seconds), seconds.missing) == (0, [span])
    edge = ask(site, ["a"], TimeSpan(at + 30 * SECOND, at + 2 * HOUR), "1m")
    assert edge.missing == [TimeSpan(at + 30 * SECOND, at + MINUTE)], "the edge is left out, not guessed"
    assert sum(plain(edge, "count").values()) == 29
    clock.time_us = at + 100 * DAY  # nor are minutes left
    hours = ask(site, ["a"], span, "1h")
    assert list(plain(hours, "count").values()) == [20, 10]
    half = ask(site, ["a"], TimeSpan(at + 30 * MINUTE, at + 2 * HOUR), "2h")
    assert (len(half), half.missing) == (0, [TimeSpan(at + 30 * MINUTE, at + 2 * HOUR)]), "half a step is not all of it"
    clock.time_us = at + 400 * DAY
    assert plain(ask(site, ["a"], TimeSpan(at, at + DAY), "1d"), "count") == {("a", "temp", at): 30}
    assert ask(site, ["a"], TimeSpan(at, at + DAY), "1h").missing == [TimeSpan(at, at + DAY)]


def test_what_was_not_rolled_in_time_is_read_from_raw_reports_beyond_their_retention() -> None:
    clock = ManualClock(NOW)
    site = Site(MemoryEngine(clock), clock)
    at = NOW - NOW % HOUR - HOUR
    site.write(reports_of([("a", at + i * MINUTE, "temp", float(i)) for i in range(60)], NOW))
    clock.time_us = at + 33 * DAY
    found = ask(site, ["a"], TimeSpan(at, at + HOUR), "1h")
    assert (plain(found, "count"), found.used) == ({("a", "temp", at): 60}, {"raw": 60})
    site.roll()
    found = ask(site, ["a"], TimeSpan(at, at + HOUR), "1h")
    assert (plain(found, "count"), found.used) == ({("a", "temp", at): 60}, {"hour": 1})
