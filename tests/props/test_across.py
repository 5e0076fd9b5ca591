"""Statistics across devices are those of all their values together, whatever groups and chunks they are read in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.rollup_suite import NOW, TENANT, Site, reports_of
from widerow.codec.sketch import RELATIVE_ERROR
from widerow.engine.memory import MemoryEngine
from widerow.model.device import Device
from widerow.model.errors import Unavailable
from widerow.model.names import Names
from widerow.model.tenant import Retention, Tenant
from widerow.model.times import DAY, HOUR, MINUTE, MS, ManualClock, TimeSpan
from widerow.query import across as module
from widerow.query import run
from widerow.query.across import ACROSS, Across, across, in_key_order
from widerow.query.budget import Budget, QuerySettings
from widerow.query.question import Top, question_of
from widerow.query.stepped import Sources
from widerow.query.steps import steps_of
from widerow.rollup.dirt import Dirt
from widerow.schema.shards import shards_of

NAMES = [f"d{i}" for i in range(9)]
SPAN = TimeSpan(NOW - NOW % HOUR - 5 * HOUR, NOW)

values = st.integers(-200, 200).map(lambda n: n / 4)
cells = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 299), st.sampled_from(["temp", "flow"]), values),
    min_size=1,
    max_size=60,
)


def stored(some: list[tuple[str, int, str, float]], rolled: int | None) -> Site:
    clock = ManualClock(NOW)
    site = Site(MemoryEngine(clock), clock)
    site.write(reports_of([(device, SPAN.start_us + n * MINUTE, metric, v) for device, n, metric, v in some], NOW))
    site.roll(most=rolled)
    return site


def sources_of(site: Site) -> Sources:
    return Sources(site.telemetry, site.rollups, site.roller.dirt, site.clock)


def budget() -> Budget:
    return Budget(QuerySettings(), TENANT)


def ask(site: Site, groups: list[int], at_once: int) -> Across:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_DEVICES_AT_ONCE", at_once)
        return across(
            sources_of(site),
            TENANT,
            NAMES,
            span=SPAN,
            steps=steps_of("1h", SPAN),
            budget=budget(),
            groups=np.array(groups, np.int64),
        )


def plain(found: Across, aggregate: str) -> dict[tuple[int, str, int], float]:
    keys = zip(found.group.tolist(), found.metric.to_list(), found.start_us.tolist(), strict=True)
    return dict(zip(keys, found.values(aggregate).tolist(), strict=True))


@settings(max_examples=60)
@given(cells, st.lists(st.integers(0, 2), min_size=len(NAMES), max_size=len(NAMES)), st.integers(0, 40))
def test_groups_say_what_their_values_say(some: list[tuple[str, int, str, float]], groups: list[int], rolled: int) -> None:
    site = stored(some, rolled)
    found = ask(site, groups, 2)
    latest = {(device, n, metric): value for device, n, metric, value in some}
    group_of = dict(zip(NAMES, groups, strict=True))
    numbers: dict[tuple[int, str, int], list[float]] = defaultdict(list)
    who: dict[tuple[int, str, int], set[str]] = defaultdict(set)
    for (device, n, metric), value in sorted(latest.items()):
        key = group_of[device], metric, SPAN.start_us + n // 60 * HOUR
        numbers[key].append(value)
        who[key].add(device)
    assert plain(found, "count") == {key: len(v) for key, v in numbers.items()}
    assert plain(found, "min") == {key: min(v) for key, v in numbers.items()}
    assert plain(found, "max") == {key: max(v) for key, v in numbers.items()}
    assert plain(found, "sum") == pytest.approx({key: sum(v) for key, v in numbers.items()}, abs=1e-9)
    assert plain(found, "avg") == pytest.approx({key: float(np.mean(v)) for key, v in numbers.items()}, abs=1e-9)
    assert plain(found, "stddev") == pytest.approx({key: float(np.std(v)) for key, v in numbers.items()}, abs=1e-6)
    assert dict(zip(plain(found, "count"), found.devices.tolist(), strict=True)) == {key: len(v) for key, v in who.items()}
    for key, value in plain(found, "p95").items():
        low, high = (np.quantile(numbers[key], 0.95, method=m) for m in ("lower", "higher"))
        error = RELATIVE_ERROR * max(abs(low), abs(high)) + 1e-9
        assert low - error <= value <= high + error
    assert list(plain(found, "count")) == sorted(plain(found, "count"))


@settings(max_examples=40)
@given(cells, st.lists(st.integers(0, 2), min_size=len(NAMES), max_size=len(NAMES)), st.integers(1, 9))
def test_chunks_do_not_matter_to_the_last_bit(
    some: list[tuple[str, int, str, float]], groups: list[int], at_once: int
) -> None:
    site = stored(some, None)
    one, other = ask(site, groups, 100), ask(site, groups, at_once)
    for name in ACROSS:
        assert plain(one, name) == plain(other, name)


@settings(max_examples=40)
@given(cells)
def test_what_counters_gain_is_the_sum_of_what_each_gains(some: list[tuple[str, int, str, float]]) -> None:
    site = stored(some, 5)
    together = ask(site, [0] * len(NAMES), 4)
    single = ask(site, list(range(len(NAMES))), 4)
    for name in ("increase", "rate"):
        sums: dict[tuple[int, str, int], float] = defaultdict(float)
        for (_, metric, start), gained in plain(single, name).items():
            sums[0, metric, start] += gained
        assert plain(together, name) == pytest.approx(sums, abs=1e-9)


def test_devices_come_as_the_store_has_them() -> None:
    order = [NAMES[i] for i in in_key_order(NAMES).tolist()]
    shards = dict(zip(NAMES, shards_of(Names.of(NAMES)).tolist(), strict=True))
    assert order == sorted(NAMES, key=lambda name: (shards[name], name))
    assert in_key_order([]).tolist() == []


def test_first_and_last_have_no_meaning() -> None:
    found = ask(stored([("d1", 1, "temp", 1.0)], None), [0] * len(NAMES), 4)
    with pytest.raises(ValueError, match="no meaning"):
        found.values("last")


def test_an_error_in_one_chunk_is_the_error_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    site = stored([(name, 7, "temp", 1.0) for name in NAMES], None)
    monkeypatch.setattr(module, "_DEVICES_AT_ONCE", 1)
    asked: list[str] = []

    def dirt_of(_: Tenant, devices: list[str] | tuple[str, ...]) -> Dirt:
        asked.append(devices[0])
        if len(asked) == 4:
            raise Unavailable("a partition did not answer")
        return Dirt()

    sources = Sources(site.telemetry, site.rollups, dirt_of, site.clock)  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="did not answer"):
        across(sources, TENANT, NAMES, span=SPAN, steps=steps_of("1h", SPAN), budget=budget())
    assert len(asked) < len(NAMES)


def test_what_is_kept_is_the_same_for_all_devices_though_the_clock_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(NOW)
    brief = Tenant(name="acme", retention=Retention(raw_us=DAY, minute_us=DAY, hour_us=DAY))
    site = Site(MemoryEngine(clock), clock, brief)
    start_us = NOW - NOW % HOUR - DAY + HOUR
    span = TimeSpan(start_us, start_us + 6 * HOUR)
    times = range(span.start_us, span.stop_us, HOUR)
    site.write(reports_of([(name, time_us, "temp", 1.0) for name in NAMES for time_us in times], NOW))
    site.roll()
    monkeypatch.setattr(module, "_DEVICES_AT_ONCE", 4)

    def dirt_of(tenant: Tenant, devices: Sequence[str]) -> Dirt:
        clock.time_us += 2 * HOUR
        return site.roller.dirt(tenant, devices)

    sources = Sources(site.telemetry, site.rollups, dirt_of, clock)
    one_by_one = Budget(QuerySettings(readers=1), brief)
    found = across(sources, brief, NAMES, span=span, steps=steps_of("1h", span), budget=one_by_one)
    # Two hours have passed when the first devices are asked, and six when the last are.
    assert dict(zip(found.start_us.tolist(), found.devices.tolist(), strict=True)) == dict.fromkeys(times[1:], len(NAMES))
    assert found.missing == [TimeSpan(times[0], times[1])]


def test_the_top_are_those_with_the_greatest_value_over_the_whole_span() -> None:
    some = [(name, n * 30, "temp", float(i if n else 100 - i)) for i, name in enumerate(NAMES) for n in range(3)]
    site = stored(some, None)

    def check(top: Top, step: str | None, want: list[tuple[str, float]]) -> None:
        question = question_of(SPAN, step=step, aggregates=["last"], metrics=["temp"])
        reply = run.of_top(sources_of(site), TENANT, NAMES, top, question, budget())
        assert list(reply.top) == want
        assert list(dict.fromkeys(reply.series.labels["device"].to_list())) == [name for name, _ in want]

    check(Top(2, "last"), "1h", [("d8", 8.0), ("d7", 7.0)])
    check(Top(2, "max"), None, [("d0", 100.0), ("d1", 99.0)])
    check(Top(3, "last", ascending=True), None, [("d0", 0.0), ("d1", 1.0), ("d2", 2.0)])
    check(Top(2, "count"), "1h", [("d0", 3.0), ("d1", 3.0)])
    assert len(run.of_top(sources_of(site), TENANT, [], Top(1), question_of(
        SPAN, step="1h", aggregates=None, metrics=["temp"]), budget()).series) == 0  # fmt: skip


def test_groups_are_named_by_what_their_devices_have_in_common() -> None:
    site = stored([(name, 7, "temp", float(i)) for i, name in enumerate(NAMES)], None)
    devices = [Device(name=name, type="fan" if i % 2 else "pump", tags={"line": "L1"} if i < 3 else {}) for i, name in enumerate(NAMES)]  # fmt: skip  # noqa: E501

    def check(by: list[str], want: dict[tuple[str, ...], float]) -> None:
        question = question_of(SPAN, step="1d", aggregates=["sum"])
        reply = run.of_groups(sources_of(site), TENANT, devices, by, question, budget())
        labels = [reply.series.labels[name].to_list() for name in by]
        keys = list(zip(*labels, strict=True)) if by else [()] * len(reply.series)
        assert dict(zip(keys, reply.series.number.tolist(), strict=True)) == want

    check([], {(): 36.0})
    check(["type"], {("fan",): 16.0, ("pump",): 20.0})
    check(["tag:line"], {("",): 33.0, ("L1",): 3.0})
    check(["type", "tag:line"], {("fan", ""): 15.0, ("fan", "L1"): 1.0, ("pump", ""): 18.0, ("pump", "L1"): 2.0})
    check(["device"], {(name,): float(i) for i, name in enumerate(NAMES)})


def test_the_day_is_not_over() -> None:
    """What was written after the question's plan does not break it: reports of the current hour are raw."""
    site = stored([("d1", 130, "temp", 1.0)], None)
    site.write(reports_of([("d1", NOW - MINUTE, "temp", 3.0)], NOW + MS))
    found = ask(site, [0] * len(NAMES), 4)
    assert sum(plain(found, "sum").values()) == 4.0
    assert found.used == {"hour": 1, "minute": 0, "raw": 1}
    assert found.missing == []
    assert SPAN.stop_us - SPAN.start_us < DAY
