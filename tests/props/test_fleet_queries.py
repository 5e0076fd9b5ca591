"""What a fleet is asked: the answer is what raw reports say, whatever has been rolled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.rollup_suite import DEVICES, NOW, TENANT, TYPES, Site, reports_of
from props.test_rolling import cells
from widerow.catalog.match import Match
from widerow.engine.memory import MemoryEngine
from widerow.model.batch import Report
from widerow.model.device import Device
from widerow.model.errors import Rejected
from widerow.model.series import NUMBER, Reply
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.query import fleet
from widerow.query.budget import Budget, QuerySettings
from widerow.query.fleet import FLEET_AGGREGATES, FleetSources, ask, fleet_question
from widerow.query.points import points_of
from widerow.query.stepped import Sources
from widerow.query.steps import steps_of
from widerow.rollup.fleet import Stale
from widerow.schema.shards import shard_of

Values = dict[tuple[str, ...], float]
histories = st.lists(st.tuples(st.lists(cells, min_size=1, max_size=12), st.booleans()), max_size=6)
ends = st.integers(0, 29 * 24).map(lambda n: NOW - n * HOUR + 17 * SECOND) | st.integers(0, 8 * HOUR).map(lambda n: NOW - n)
steps = st.sampled_from([("10m", ""), ("1h", ""), ("6h", ""), ("1d", ""), ("1d", "Europe/Berlin"), ("1w", "")])
HOUR_US = NOW - NOW % HOUR


def asked(
    site: Site, span: TimeSpan, match: Match | None = None, *, waits: Callable[[], None] = lambda: None, **question: Any
) -> Reply:
    """`waits`: what happens before anything is read."""

    def stale_of(tenant: Tenant) -> Stale:
        waits()
        return site.fleet.stale(tenant, lambda: site.marks.of(tenant.name))

    sources = Sources(site.telemetry, site.rollups, site.roller.dirt, site.clock)
    known = FleetSources(sources, site.fleet.store, site.catalog.devices, stale_of)
    budget = Budget(QuerySettings(), TENANT)
    return ask(known, TENANT, fleet_question(match or Match(), span, **question), budget)


def values(reply: Reply) -> Values:
    """(group, if any, metric, aggregate, kind, begin of the step) -> value."""
    series = reply.series
    columns = [column.to_list() for column in series.labels.values()]
    return dict(zip(zip(*columns, map(str, series.time_us.tolist()), strict=True), series.number.tolist(), strict=True))


def by_hand(site: Site, span: TimeSpan, step: str, tz: str, *, by_type: bool, only: str | None) -> Values:
    """From all reports, with nothing but NumPy. Texts say nothing here."""
    points = points_of(site.telemetry.read_many(TENANT, DEVICES, span))
    begins = steps_of(step, span, tz)(points.time_us).tolist()
    numbers: dict[tuple[str, ...], list[float]] = defaultdict(list)
    devices: dict[tuple[str, ...], dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    entries = zip(
        points.device.to_list(),
        points.metric.to_list(),
        points.time_us.tolist(),
        points.number.tolist(),
        begins,
        strict=True,
    )
    for device, metric, time_us, number, begin in entries:
        type_ = TYPES.get(device)
        if np.isnan(number) or only not in (None, type_) or (by_type and type_ is None):
            continue
        key = (*([str(type_)] if by_type else []), metric, str(begin))
        numbers[key].append(number)
        devices[key][time_us - time_us % HOUR].add(device)
    out: Values = {}
    for key, some in numbers.items():
        column = np.array(some)
        facts = {"count": len(some), "min": column.min(), "max": column.max(), "sum": column.sum(), "avg": column.mean()}
        facts |= {"stddev": column.std(), "devices": max(len(names) for names in devices[key].values())}
        out |= {(*key[:-1], name, NUMBER, key[-1]): float(value) for name, value in facts.items()}
    return out


def check(found: Values, want: Values) -> None:
    assert found.keys() == want.keys()
    for key, value in want.items():
        if key[-3] in ("count", "min", "max", "devices"):
            assert found[key] == value, key
        else:
            assert found[key] == pytest.approx(value, rel=1e-6 if key[-3] == "stddev" else 1e-9, abs=1e-4), key


@settings(max_examples=40)
@given(histories, ends, ends, steps, st.sampled_from([None, "pump"]), st.booleans())
def test_no_seam_shows(
    history: list[tuple[list[tuple[str, int, str, float]], bool]],
    a: int,
    b: int,
    step: tuple[str, str],
    only: str | None,
    by_type: bool,
) -> None:
    clock = ManualClock(NOW)
    site = Site(MemoryEngine(clock), clock)
    for n, (some, roll) in enumerate(history):
        clock.time_us += 50 * MS
        site.write(reports_of(some, NOW + n * MS))
        if roll:
            site.roll(most=3)
    span = TimeSpan(min(a, b), max(a, b))
    aggregates = ("count", "min", "max", "sum", "avg", "stddev", "devices")
    question: dict[str, Any] = {"step": step[0], "tz": step[1] or None, "by": "type" if by_type else None}
    reply = asked(site, span, Match(type=only), aggregates=aggregates, **question)
    check(values(reply), by_hand(site, span, *step, by_type=by_type, only=only))


@pytest.fixture
def site() -> Site:
    clock = ManualClock(NOW)
    return Site(MemoryEngine(clock), clock)


def report(site: Site, device: str, at: int, value: float = 1.0) -> None:
    site.clock.time_us += MS
    site.write([Report(device, at, {"temp": value}, {}, site.clock.time_us)])


def day(site: Site) -> TimeSpan:
    """Five devices, reports in each of the last 24 hours; all but the last hour is rolled."""
    for n in range(5):
        site.catalog.devices.apply(TENANT, [Device(name=f"d{n}", type="pump", location="Linz" if n < 2 else "Graz")])
        for h in range(24):
            report(site, f"d{n}", HOUR_US - h * HOUR + MINUTE, n + h)
        if n == 3:
            site.roll()
    for unit in sorted(site.marks.pending()):
        if unit.start_us < HOUR_US:
            site.roller.roll(TENANT, unit)
    for unit in sorted(site.roller.fleet.pending()):
        if unit.start_us < HOUR_US:
            site.fleet.roll(TENANT, unit)
    report(site, "d0", HOUR_US + 2 * MINUTE)
    return TimeSpan(HOUR_US - 23 * HOUR, HOUR_US + HOUR)


def test_it_says_where_it_looked(site: Site) -> None:
    span = day(site)
    reply = asked(site, span, step="1h", aggregates=["devices"])
    assert reply.used == {"fleet": 24 + 2 * 3, "raw": 3}, "of three shards' last hour all devices and their type"
    assert set(values(reply).values()) == {5.0}
    assert asked(site, TimeSpan(span.start_us, HOUR_US), step="1h").used == {"fleet": 23}
    assert asked(site, TimeSpan(span.start_us, HOUR_US), Match(type="pump"), step="1d").used == {"fleet": 23}
    located = asked(site, TimeSpan(span.start_us, HOUR_US), Match(location="Linz"), step="1h", aggregates=["devices"])
    assert located.used == {"hour": 2 * 23}
    assert set(values(located).values()) == {2.0}


def test_devices_are_grouped_by_what_they_have(site: Site) -> None:
    span = day(site)
    for match in (Match(), Match(type="pump")):
        grouped = values(asked(site, span, match, step="1d", by="location", aggregates=["sum", "devices"]))
        assert {key[0] for key in grouped} == {"Linz", "Graz"}
        assert {key[0]: value for key, value in grouped.items() if key[2] == "devices"} == {"Linz": 2.0, "Graz": 3.0}
    assert {key[0] for key in values(asked(site, span, step="1h", by="type"))} == {"pump"}
    assert values(asked(site, span, step="1h", by="tag:line")) == {}


def test_a_late_device_is_asked_itself_and_the_other_shards_are_not(site: Site) -> None:
    span = TimeSpan(day(site).start_us, HOUR_US)
    report(site, "d1", span.start_us + MINUTE + SECOND, 100.0)
    reply = asked(site, span, step="1h", aggregates=["max"])
    assert len({shard_of(f"d{n}") for n in range(5)}) == 5
    assert reply.used == {"fleet": 23 + 2 * 4, "raw": 2}
    assert max(values(reply).values()) == 100.0


def test_types_beyond_what_is_summed_up_apart_are_asked_themselves(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("widerow.rollup.fleet_summary.MOST_TYPES", 1)
    monkeypatch.setattr(fleet, "MOST_TYPES", 1)
    report(site, "a", HOUR_US - HOUR, 1.0)
    report(site, "b", HOUR_US - HOUR, 2.0)
    site.roll()
    span = TimeSpan(HOUR_US - DAY, HOUR_US)
    for name, value in (("pump", 1.0), (TYPES["b"], 2.0)):
        assert list(values(asked(site, span, Match(type=name), step="1h", aggregates=["sum"])).values()) == [value]
    grouped = values(asked(site, span, step="1h", by="type", aggregates=["sum"]))
    assert {key[0]: value for key, value in grouped.items()} == {"pump": 1.0, TYPES["b"]: 2.0}


def test_what_is_being_erased_is_not_shown(site: Site) -> None:
    report(site, "a", HOUR_US - HOUR, 1.0)
    report(site, "b", HOUR_US - HOUR, 2.0)
    site.roll()
    site.clock.time_us += SECOND
    span = TimeSpan(HOUR_US - HOUR, HOUR_US)
    assert list(values(asked(site, span, step="1h", aggregates=["sum"])).values()) == [3.0]
    site.fleet.doubts.add(TENANT.name, site.telemetry.erase(TENANT, device="a"))
    assert list(values(asked(site, span, step="1h", aggregates=["sum"])).values()) == [2.0]


def test_a_step_that_can_only_be_answered_in_part_is_missing(site: Site) -> None:
    old = HOUR_US - 200 * DAY
    report(site, "a", HOUR_US - HOUR, 1.0)
    site.roll()
    span = TimeSpan(old - old % DAY + 90 * MINUTE, HOUR_US)
    reply = asked(site, span, step="1d", aggregates=["count"])
    assert reply.missing == [TimeSpan(span.start_us, old - old % DAY + DAY)], "of its first hour only half is asked for"
    assert list(values(reply).values()) == [1.0]


@pytest.mark.parametrize("late", [False, True])
def test_hours_that_are_kept_when_it_is_asked_are_there_when_they_are_read(site: Site, late: bool) -> None:
    hour_us = HOUR_US
    for name in ("a", "b"):
        report(site, name, hour_us)
    site.roll()
    if late:  # so that the other's shard is asked
        report(site, "a", hour_us)
    site.clock.time_us = hour_us + HOUR + TENANT.retention.hour_us - MINUTE

    def an_hour() -> None:
        site.clock.time_us += HOUR

    reply = asked(site, TimeSpan(hour_us, hour_us + HOUR), step="1h", aggregates=["devices"], waits=an_hour)
    assert reply.missing == []
    assert list(values(reply).values()) == [2.0]


def test_gaps_are_filled_when_asked(site: Site) -> None:
    for h in (3, 1):
        report(site, "a", HOUR_US - h * HOUR, float(h))
    site.roll()
    span = TimeSpan(HOUR_US - 4 * HOUR, HOUR_US)
    found = values(asked(site, span, step="1h", fill="linear"))
    assert [value for _, value in sorted(found.items())][1:] == [3.0, 2.0, 1.0]
    assert np.isnan(found[min(found)])


def test_what_cannot_be_asked_is_refused() -> None:
    span = TimeSpan(NOW - DAY, NOW)
    for question, code in (
        ({"step": "1h", "aggregates": ["first"]}, "agg"),
        ({"step": "1h", "aggregates": ["increase"]}, "agg"),
        ({"step": "1h", "by": "device"}, "group"),
        ({"step": "1h", "by": "tag:"}, "group"),
        ({"step": "1h", "fill": "x"}, "fill"),
        ({"step": "x"}, "step"),
    ):
        with pytest.raises(Rejected) as refused:
            fleet_question(Match(), span, **question)
        assert refused.value.code == code
    assert "devices" in FLEET_AGGREGATES
