"""The demo's tenants: their history goes on into the present, and the story has its devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from widerow.cli.actors import CAST, Actor, cast
from widerow.cli.demo_history import missing
from widerow.cli.demo_story import voices
from widerow.model.arrays import Ints
from widerow.model.batch import Batch
from widerow.model.times import DAY, HOUR, MINUTE, SECOND
from widerow.simulate.kinds import Draw

NOW_US = 1_790_000_000_000_000 // MINUTE * MINUTE


def values(batch: Batch, metric: str) -> list[float]:
    cells = batch.cells
    chosen = cells.name == cells.names.to_list().index(metric)
    return [float(number) for number in cells.number[chosen]]


def started(devices: int = 40, kind: str = "factory") -> list[Actor]:
    return cast(devices, devices, NOW_US, kind)


def test_counters_do_not_fall_where_the_history_ends_and_the_present_begins() -> None:
    past, present = started()[0].past, started()[0].present
    before = past.made(range(1439, 1440))
    after = present.made(range(DAY // SECOND, DAY // SECOND + 3))
    assert max(before.time_us) < min(after.time_us)
    last, first = values(before, "items"), values(after, "items")
    assert len(last) >= 5
    assert all(0 <= new - old < 200 for old, new in zip(last, first[: len(last)], strict=True))


def test_fleets_of_one_pace_are_in_the_same_state_at_the_same_time() -> None:
    device, minutes = np.zeros(1440, np.int64), np.arange(1440)

    def states(interval_us: int, ticks: Ints) -> list[int]:
        draw = Draw(1, device, ticks, NOW_US + ticks * interval_us, interval_us, 10 * SECOND)
        found: list[int] = draw.state.tolist()
        return found

    assert states(MINUTE, minutes) == states(SECOND, minutes * 60)
    assert len(set(states(MINUTE, minutes))) > 1


def test_the_history_has_each_minute_of_each_device_once_and_begins_with_the_oldest() -> None:
    actors = started()
    for actor in actors:
        actor.filled = 24 * 60 - 90
    bodies = missing(actors, NOW_US)
    assert [body.ticks.start for body in bodies] == sorted(body.ticks.start for body in bodies)
    for actor in actors:
        found = [
            (int(place), tick) for body in bodies if body.actor is actor for tick in body.ticks for place in body.places
        ]
        assert sorted(found) == [(d, t) for d in range(actor.past.devices) for t in range(1350, 1440)]


def test_a_body_of_the_history_holds_one_type_of_device_and_not_too_much() -> None:
    for body in missing(started(3000), NOW_US):
        assert len(set(body.actor.past.types(body.places))) == 1
        assert len(body.ticks) * len(body.places) <= 12_000


def test_a_minute_that_is_not_over_is_no_history() -> None:
    actors = started()
    assert max(body.ticks.stop for body in missing(actors, NOW_US + 59 * SECOND)) == 1440
    assert max(body.ticks.stop for body in missing(actors, NOW_US + MINUTE)) == 1441


def test_one_device_has_a_gap_of_two_hours_in_its_history() -> None:
    actor, *_ = actors = started()
    (place,) = actor.paused
    found: list[int] = []
    for body in missing(actors[:1], NOW_US):
        batch = body.batch()
        found += batch.time_us[[name == actor.past.names[place] for name in names(batch)]].tolist()
    gaps = np.diff(sorted(found))
    assert len(found) == 24 * 60 - 120
    assert [round(gap / HOUR) for gap in gaps if gap > 2 * MINUTE] == [2]


def names(batch: Batch) -> Sequence[str]:
    return [batch.device.names[code] for code in batch.device.codes.tolist()]


@pytest.mark.parametrize("kind", CAST)
def test_what_the_third_tenant_sends_is_within_its_limit_but_not_all_at_once(kind: str) -> None:
    *_, third = cast(415, 500, NOW_US, kind)
    limits = third.limits
    assert 0.85 < third.rate / limits["writes_per_s"] < 0.95
    (gateway,) = voices(third)
    at_once = len(gateway.places) * gateway.every_s * SECOND / third.present.interval_us
    assert 0.85 * at_once < limits["writes_burst"] < at_once


@pytest.mark.parametrize("devices", [3, 4, 7, 20, 415])
def test_every_tenant_has_devices_that_nothing_happens_to(devices: int) -> None:
    for actor in started(devices):
        assert actor.crowd
        assert all(voice.places for voice in voices(actor))


def test_no_metric_of_a_tenant_has_two_units() -> None:
    for kind in CAST:
        for actor in started(kind=kind):
            units: dict[str, str] = {}
            for one in actor.present.kinds:
                for metric in one.metrics:
                    assert units.setdefault(metric.name, metric.unit) == metric.unit, (actor.tenant, metric.name)
