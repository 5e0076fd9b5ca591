"""Simulated trucks: they drive, rest and refuel, nothing jumps, and what they say adds up."""

import numpy as np
import pytest

from widerow.model.arrays import Ints
from widerow.model.batch import reports_of
from widerow.model.check import name_fault
from widerow.model.device import MetricKind
from widerow.model.times import DAY, HOUR, SECOND
from widerow.simulate.fleet import Fleet
from widerow.simulate.journey import MODELS, STATUSES, Journey, model_of

START_US = 1_760_000_000 * SECOND
PACE_US = 10 * SECOND
TIMES = START_US + np.arange(0, 15 * DAY, PACE_US)
DRIVING, RESTING, LOADING, UNLOADING, REFUELLING = range(len(STATUSES))
PER_HOUR = HOUR // PACE_US


def journey_of(truck: int, times: Ints = TIMES, seed: int = 3) -> Journey:
    return Journey(seed, np.full(len(times), truck), times)


def trucks(devices: int = 30, *, interval_us: int = PACE_US) -> Fleet:
    return Fleet(3, devices, start_us=START_US, kinds=("truck",), interval_us=interval_us, gaps=0)


def test_a_report_has_what_a_truck_reports() -> None:
    fleet = trucks()
    report = reports_of(fleet.batch(0))[0]
    readings = {"latitude", "longitude", "elevation", "velocity", "heading", "grade", "fuel_consumption"}
    assert set(report.values) - {"status"} == readings | {"fuel_state", "current_load"}
    kinds = {m.name: m.kind for m in fleet.metric_records()}
    assert kinds.pop("status") == MetricKind.TEXT
    assert set(kinds.values()) == {MetricKind.GAUGE}
    assert set(kinds) == readings | {"fuel_state", "current_load"}


def test_a_truck_is_described_by_what_it_is() -> None:
    fleet = trucks(200)
    records = fleet.device_records()
    assert len({r.name for r in records}) == 200
    assert not [r.name for r in records if name_fault(r.name)]
    assert any("Ü" in r.name for r in records)
    assert {r.type for r in records} == {"truck"}
    told = {"name", "fleet", "driver", "model", "load_capacity", "fuel_capacity", "nominal_fuel_consumption"}
    for truck, record in enumerate(records):
        assert set(record.tags) == told
        model = MODELS[int(model_of(3, np.array([truck]))[0])]
        assert record.tags["model"] == model.name
        assert record.tags["load_capacity"] == str(model.load_kg)
    assert len({r.location for r in records}) == 5


def test_values_depend_on_the_time_alone_not_on_the_pace() -> None:
    often, seldom = journey_of(4), journey_of(4, TIMES[::60])
    for what in ("latitude", "fuel_state", "current_load", "status"):
        assert np.array_equal(getattr(often, what)[::60], getattr(seldom, what))
    assert not np.array_equal(often.latitude, journey_of(4, seed=4).latitude)


@pytest.mark.parametrize("truck", range(4))
def test_nothing_jumps_and_speed_is_the_change_of_position(truck: int) -> None:
    journey = journey_of(truck)
    north = np.diff(journey.latitude) * 111.2
    east = np.diff(journey.longitude) * 111.2 * np.cos(np.radians(journey._depot("latitude")[1:]))
    kmh = np.hypot(north, east) * PER_HOUR
    between = (journey.velocity[1:] + journey.velocity[:-1]) / 2
    assert np.abs(kmh - between).max() < 0.5
    assert 60 < journey.velocity.max() < 90
    climbed_m = np.diff(journey.elevation)
    way_m = 1000 * between / PER_HOUR
    assert np.abs(climbed_m).max() < 8
    assert np.abs(climbed_m - (journey.grade[1:] / 100) * way_m).max() < 0.8  # the way has bends, the grade's has none
    assert np.abs(np.diff(journey.current_load)).max() <= 0.01 * journey._model("load_kg")[0]
    assert ((journey.heading >= 0) & (journey.heading < 360)).all()


@pytest.mark.parametrize("truck", range(4))
def test_the_tank_loses_what_the_engine_burns_and_is_filled_when_refuelling(truck: int) -> None:
    journey = journey_of(truck)
    litres_per_h = -np.diff(journey.fuel_state) * journey._model("fuel_l")[0] * PER_HOUR
    refuelling = journey.status == REFUELLING
    burning = ~(refuelling[1:] | refuelling[:-1])
    between = (journey.fuel_consumption[1:] + journey.fuel_consumption[:-1]) / 2
    assert np.abs(litres_per_h - between)[burning].max() < 0.2
    assert (litres_per_h[refuelling[1:] & refuelling[:-1]] < 0).all()
    assert journey.fuel_state.max() == 1.0
    assert 0.05 < journey.fuel_state.min() < 0.7


@pytest.mark.parametrize("truck", range(4))
def test_trucks_drive_about_eight_hours_and_rest_on_sundays(truck: int) -> None:
    journey = journey_of(truck)
    driving = journey.status == DRIVING
    assert ((journey.velocity > 0) <= driving).all()
    assert np.median(journey.velocity[driving]) > 40
    assert driving.mean() == pytest.approx(8 / 24 * 6 / 7, abs=0.05)
    assert {int(s) for s in journey.status} == set(range(len(STATUSES)))
    noon = (TIMES // DAY + 3) % 7 == 6
    assert not driving[noon & (TIMES % DAY > 12 * HOUR)].any()
    empty = (journey.status == RESTING) & (journey.current_load == 0)
    assert empty.any()
    assert journey.current_load[driving].max() > 0


def test_values_have_few_decimals() -> None:
    def check(name: str, decimals: int) -> None:
        values = [float(v) for r in reports for n, v in r.values.items() if n == name]
        assert values == [round(v, decimals) for v in values]
        assert len(set(values)) > 10

    reports = reports_of(trucks(300).batch(0))
    for name in ("latitude", "longitude"):
        check(name, 5)
    for name in ("velocity", "grade", "fuel_consumption"):
        check(name, 1)
    for name in ("elevation", "heading"):
        check(name, 0)
    check("fuel_state", 3)
    check("current_load", -1)


def test_a_status_is_told_when_it_changes_and_now_and_then() -> None:
    fleet = trucks(1, interval_us=5 * 60 * SECOND)
    reports = reports_of(fleet.made(range(600)))
    journey = journey_of(0, np.array([r.time_us for r in reports]))
    told = ["status" in r.values for r in reports]
    assert 1 / 30 <= sum(told) / len(told) < 0.15
    for i, report in enumerate(reports):
        assert report.values.get("status") in (None, STATUSES[int(journey.status[i])])
        if i and journey.status[i] != journey.status[i - 1]:
            assert told[i]
