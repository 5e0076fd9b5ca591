"""The simulated fleet: the same question has the same answer, and networks misbehave as often as asked."""

from collections import Counter

import numpy as np
import pytest

from widerow.model.batch import Report, reports_of
from widerow.model.check import name_fault
from widerow.model.errors import Rejected
from widerow.model.times import DAY, MS, SECOND
from widerow.simulate.fleet import MAX_DELAY, Fleet
from widerow.simulate.kinds import FLEETS, KINDS, STATES

START_US = 1_760_000_000 * SECOND


def fleet_of(devices: int = 60, *, seed: int = 7, share: float = 0.1) -> Fleet:
    return Fleet(seed, devices, start_us=START_US, gaps=share, duplicates=share, out_of_order=share)


def tame(devices: int, *, interval_us: int = 10 * SECOND) -> Fleet:
    return Fleet(3, devices, start_us=START_US, interval_us=interval_us, gaps=0, duplicates=0, out_of_order=0)


def sorted_reports(reports: list[Report]) -> list[str]:
    return sorted(map(repr, reports))


def test_equal_seeds_make_equal_fleets_and_others_do_not() -> None:
    one, two, other = fleet_of(), fleet_of(), fleet_of(seed=8)
    assert reports_of(one.batch(5)) == reports_of(two.batch(5))
    assert one.device_records() == two.device_records()
    assert reports_of(one.batch(5)) != reports_of(other.batch(5))


def test_slices_in_any_order_make_up_the_whole() -> None:
    fleet = fleet_of()
    slices = [slice(40, 60), slice(0, 7), slice(7, 40)]
    parts = [report for tick in (9, 3, 4) for s in slices for report in reports_of(fleet.batch(tick, s))]
    whole = [report for tick in (3, 4, 9) for report in reports_of(fleet.batch(tick))]
    assert sorted_reports(parts) == sorted_reports(whole)


def test_a_report_is_the_same_whether_late_or_not() -> None:
    wild, calm = fleet_of(share=0.3), Fleet(7, 60, start_us=START_US, gaps=0, duplicates=0, out_of_order=0)
    made = {(r.device, r.time_us): r for tick in range(8) for r in reports_of(calm.batch(tick))}
    for tick in range(8):
        for report in reports_of(wild.batch(tick)):
            assert report == made[report.device, report.time_us]


@pytest.mark.parametrize("share", [0.01, 0.2])
def test_faults_are_about_as_frequent_as_asked(share: float) -> None:
    ticks, devices = 60, 1500
    fleet = fleet_of(devices, share=share)
    seen: Counter[tuple[str, int]] = Counter()
    late = 0
    for tick in range(ticks + MAX_DELAY):
        batch = fleet.batch(tick)
        made = (batch.time_us - START_US) // fleet.interval_us
        now = made < ticks
        seen.update(zip(np.array(batch.device.to_list())[now].tolist(), batch.time_us[now].tolist(), strict=True))
        late += len(
            {
                (c, t)
                for c, t in zip(batch.device.codes[now], batch.time_us[now], strict=True)
                if t < START_US + tick * fleet.interval_us
            }
        )
        assert (tick - made).max() <= MAX_DELAY
    total = ticks * devices
    assert 1 - len(seen) / total == pytest.approx(share, rel=0.1)
    assert sum(n - 1 for n in seen.values()) / len(seen) == pytest.approx(share, rel=0.1)
    assert max(seen.values()) == 2
    assert late / len(seen) == pytest.approx(share, rel=0.1)


def test_a_tame_fleet_reports_once_a_tick_each() -> None:
    batch = tame(50).batch(4)
    assert batch.device.codes.tolist() == list(range(50))
    assert batch.position.tolist() == list(range(50))


def test_times_lie_within_their_tick_and_are_whole_milliseconds() -> None:
    fleet = Fleet(3, 40, start_us=START_US + 999, interval_us=7_000_001, gaps=0, out_of_order=0)
    assert fleet.start_us == START_US
    for tick in (0, 1, 77):
        time_us = fleet.batch(tick).time_us
        low_us = START_US + tick * fleet.interval_us // MS * MS
        assert low_us <= time_us.min() <= time_us.max() < low_us + fleet.interval_us
        assert (time_us % MS == 0).all()


def test_short_intervals_never_give_a_device_one_time_twice() -> None:
    fleet = tame(5, interval_us=MS)
    times = np.array([fleet.batch(tick).time_us for tick in range(200)])
    assert (np.diff(times, axis=0) > 0).all()


def test_a_report_has_about_ten_values_all_of_them_finite() -> None:
    batch = fleet_of(600).batch(30)
    assert 9.5 < len(batch.cells) / len(batch) < 11.5
    for report in reports_of(batch):
        assert all(isinstance(v, str) or np.isfinite(v) for v in report.values.values())


def test_counters_never_fall_and_flags_are_zero_or_one() -> None:
    fleet = tame(12)
    counters = {"strokes", "rejects", "energy", "Batch Qty", "items", "distance", "volume", "starts"}
    flags = {"guard_open", "door_open", "jam", "light_barrier", "seal_leak"}
    last: dict[tuple[str, str], float] = {}
    grown = 0
    for tick in range(150):
        for report in reports_of(fleet.batch(tick)):
            for name, value in report.values.items():
                if name in counters:
                    assert isinstance(value, float)
                    before = last.get((report.device, name), value)
                    assert value >= before
                    grown += value > before
                    last[report.device, name] = value
                if name in flags:
                    assert value in (0.0, 1.0)
    assert grown > 100


def test_states_are_told_when_they_change_and_now_and_then() -> None:
    fleet = Fleet(3, 4, start_us=START_US, kinds=("pump",), gaps=0, duplicates=0, out_of_order=0)
    told = [[r.values.get("state") for r in reports_of(fleet.batch(tick))] for tick in range(600)]
    flat = [state for row in told for state in row]
    share = sum(state is not None for state in flat) / len(flat)
    assert 1 / 30 <= share < 0.1
    assert {state for state in flat if state is not None} <= set(STATES)
    assert len(set(flat)) > 2


def test_daily_curves_peak_in_the_afternoon() -> None:
    fleet = Fleet(3, 200, start_us=START_US - START_US % DAY, kinds=("climate",), interval_us=DAY // 24, gaps=0)
    means = []
    for hour in range(24):
        reports = reports_of(fleet.batch(hour))
        means.append(np.mean([float(r.values["temperature"]) for r in reports]))
    assert 13 <= int(np.argmax(means)) <= 17
    assert max(means) - min(means) > 3


def test_names_are_distinct_valid_and_some_are_awkward() -> None:
    names = fleet_of(2000).names.to_list()
    assert len(set(names)) == 2000
    assert not [name for name in names if name_fault(name)]
    for awkward in (" ", "/", "#", "ö", "=", ",", "%"):
        assert any(awkward in name for name in names)
    assert "Halle 3/Presse #6" in names


def test_records_describe_devices_and_metrics() -> None:
    fleet = fleet_of(50)
    records = fleet.device_records(slice(10, 20))
    assert [r.name for r in records] == fleet.names.to_list()[10:20]
    assert [r.type for r in records] == fleet.types(slice(10, 20))
    assert all(r.location and r.tags and r.profile.reports_per_s == 0.1 for r in records)
    reported = {name for r in reports_of(fleet.batch(30)) for name in r.values}
    assert reported <= {m.name for m in fleet.metric_records()}


def test_what_makes_no_sense_is_refused() -> None:
    def check(match: str, **options: float) -> None:
        with pytest.raises(Rejected, match=match):
            Fleet(1, **{"devices": 3, "start_us": 0, **options})  # type: ignore[arg-type]

    check("at least one device", devices=0)
    check("interval", interval_us=10)
    check("gaps", gaps=1.5)
    with pytest.raises(Rejected, match="choose from"):
        Fleet(1, 1, start_us=0, kinds=("submarine",))
    assert set(KINDS) == {"press", "oven", "conveyor", "pump", "climate", "power_meter", "truck"}


def test_what_was_made_is_what_arrives_each_report_once() -> None:
    wild, ticks = fleet_of(share=0.2), range(3, 40)
    made = reports_of(wild.made(ticks, slice(5, 50)))
    arrived = {repr(r): r for t in range(3, 40 + MAX_DELAY) for r in reports_of(wild.batch(t, slice(5, 50)))}
    within = {text for text, r in arrived.items() if START_US + 3 * 10 * SECOND <= r.time_us < START_US + 40 * 10 * SECOND}
    assert len(made) == len(set(map(repr, made))) == len(within)
    assert set(map(repr, made)) == within


def test_unless_asked_a_fleet_is_a_factory() -> None:
    assert set(fleet_of().types()) == set(FLEETS["factory"]) == set(KINDS) - {"truck"}
