"""What a fleet's records say: as much as all values of all its devices do, however these were put together."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.codec.fleet import FleetStats, decode_fleet, encode, stacked
from widerow.codec.record import encode_stats
from widerow.codec.sketch import RELATIVE_ERROR
from widerow.codec.stats import COLUMNS, Stats
from widerow.engine.cassandra.summary import packed_columns
from widerow.model.errors import Corrupt
from widerow.model.names import Names
from widerow.schema.rollups import FLEET_STATISTICS

WINDOW_US = 3_600_000_000
values = st.lists(st.lists(st.floats(-1e9, 1e9).map(lambda v: round(v, 3)), min_size=1, max_size=6), min_size=1, max_size=8)


def of(devices: list[list[float]]) -> FleetStats:
    """Each device with a value a second, the devices a minute apart, the last one first."""
    offsets = np.cumsum([0, *map(len, devices)])
    time_us = np.concatenate(
        [WINDOW_US + (len(devices) - d) * 60_000_000 + np.arange(len(v)) * 1_000_000 for d, v in enumerate(devices)]
    )
    return FleetStats.of_devices(Stats.of(time_us, np.concatenate([np.array(v) for v in devices]), offsets))


def all_of(fleet: FleetStats) -> FleetStats:
    return fleet.merged(np.array([0, len(fleet)]))


def bits(fleet: FleetStats) -> bytes:
    return b"".join(encode(np.full(len(fleet), WINDOW_US), fleet).to_bytes_list())


@given(values)
def test_a_fleet_says_what_its_values_say(devices: list[list[float]]) -> None:
    fleet, flat = all_of(of(devices)), np.concatenate([np.array(v) for v in devices])
    stats, scale = fleet.stats, max(1.0, float(np.abs(flat).max()))
    assert fleet.devices.tolist() == [len(devices)]
    assert (int(stats.count[0]), float(stats.min[0]), float(stats.max[0])) == (len(flat), flat.min(), flat.max())
    assert stats.sum[0] == pytest.approx(flat.sum(), abs=1e-12 * scale * len(flat))
    assert stats.mean[0] == pytest.approx(flat.mean(), abs=1e-12 * scale)
    assert stats.stddev()[0] == pytest.approx(flat.std(), rel=1e-6, abs=1e-6 * scale)
    assert stats.last_us[0] >= stats.first_us[0] >= WINDOW_US
    gains = sum(b - a if b >= a else b for v in devices for a, b in pairwise(v))
    assert stats.increase[0] == pytest.approx(gains, abs=1e-9 * scale), "nothing is gained from one device to the next"
    ordered = np.sort(flat)
    for q, found in ((0.5, stats.p50[0]), (0.95, stats.p95[0]), (0.99, stats.p99[0])):
        at = q * (len(ordered) - 1)
        low, high = ordered[int(np.floor(at))], ordered[int(np.ceil(at))]
        error = RELATIVE_ERROR * max(abs(low), abs(high)) + 1e-9
        assert low - error <= found <= high + error


@given(values, st.data())
def test_in_how_many_goes_does_not_matter(devices: list[list[float]], data: st.DataObject) -> None:
    fleet = of(devices)
    cut = data.draw(st.integers(1, len(devices)))
    before = all_of(fleet.take(np.arange(cut)))
    assert bits(all_of(stacked([before, fleet.take(np.arange(cut, len(fleet)))]))) == bits(all_of(fleet))


@given(values)
def test_a_record_reads_back_as_it_was(devices: list[list[float]]) -> None:
    fleet = of(devices)
    window_us = np.full(len(fleet), WINDOW_US)
    again = decode_fleet(encode(window_us, fleet), window_us)
    assert again.devices.tolist() == fleet.devices.tolist()
    for name in COLUMNS:
        assert getattr(again.stats, name).tolist() == getattr(fleet.stats, name).tolist()
    assert bits(again) == bits(fleet)


def test_over_time_a_fleet_is_as_many_devices_as_at_most() -> None:
    hours = stacked([all_of(of([[1.0]] * n)) for n in (2, 5, 3)])
    assert hours.later(np.array([0, 3])).devices.tolist() == [5]
    assert hours.merged(np.array([0, 3])).devices.tolist() == [10]


def test_cassandra_shows_what_a_record_says() -> None:
    fleet, window_us = all_of(of([[1.0, 2.0], [6.0]])), np.array([WINDOW_US])
    records = Names.of_bytes([b"", *encode(window_us, fleet).to_bytes_list(), b"\x04\x05"])
    shown = packed_columns(records, np.full(3, WINDOW_US), [statistic for _, statistic in FLEET_STATISTICS[:4]])
    assert shown[0] is None
    assert shown[2] is None
    assert shown[1] is not None
    assert struct.unpack(">qqdd", b"".join(shown[1])) == (2, 3, 1.0, 6.0)


def test_what_is_no_record_of_a_fleet_is_refused() -> None:
    window_us = np.array([WINDOW_US])
    good = encode(window_us, of([[1.0]])).bytes_at(0)
    device = encode_stats(window_us, of([[1.0]]).stats).bytes_at(0)
    for broken in (
        b"",
        good[:1],
        good[:5],
        b"\x09" + good[1:],
        device,
        good[:1] + b"\x00" + good[2:],
        good[:1] + b"\xff" * 12,
    ):
        with pytest.raises(Corrupt):
            decode_fleet(Names.of_bytes([broken]), window_us)
