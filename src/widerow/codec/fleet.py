"""What many devices say together of a metric: how many they are, and the statistics of all their values.

Rule 1: devices are merged in the order of their names, shards in the order of their numbers: the same bits every time. One
is added after the other, so it does not matter in how many goes that is done.
Rule 2: a fleet has no first and no last value: these are 0. The first and the last time are those of any of its values. Its
increase is the sum of what its devices gained within the window.
Rule 3: records are stored: see docs/format/rollup.md before changing a byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from widerow.codec.record import decode, encode_stats
from widerow.codec.stats import Stats
from widerow.codec.stats import stacked as stacked_stats
from widerow.codec.varint import put_varint, take_varint, varint_bytes
from widerow.model.arrays import PAD, Bytes, Ints, frozen, lengths
from widerow.model.errors import Corrupt
from widerow.model.intern import slices
from widerow.model.kernel import kernel
from widerow.model.names import Names

FLEET = 5
"""The first byte."""


@dataclass(frozen=True, slots=True, eq=False)
class FleetStats:
    """Of many groups of devices, none of them empty."""

    devices: Ints
    """How many had a value."""
    stats: Stats

    def __post_init__(self) -> None:
        frozen(self.devices)

    def __len__(self) -> int:
        return len(self.devices)

    @classmethod
    def of_devices(cls, stats: Stats) -> FleetStats:
        """Each a fleet of one device."""
        nothing = np.zeros(len(stats))
        return cls(np.ones(len(stats), np.int64), replace(stats, first=nothing, last=nothing))

    def merged(self, offsets: Ints) -> FleetStats:
        """One for each group of disjoint fleets, which come in order."""
        return self._merged(offsets, np.add.reduceat(self.devices, offsets[:-1]))

    def later(self, offsets: Ints) -> FleetStats:
        """One for each group of windows of the same fleet. It had as many devices as in the window with the most."""
        return self._merged(offsets, np.maximum.reduceat(self.devices, offsets[:-1]))

    def _merged(self, offsets: Ints, devices: Ints) -> FleetStats:
        first_us = np.minimum.reduceat(self.stats.first_us, offsets[:-1])
        last_us = np.maximum.reduceat(self.stats.last_us, offsets[:-1])
        return FleetStats(devices, replace(self.stats.merged(offsets), first_us=first_us, last_us=last_us))

    def take(self, which: Ints) -> FleetStats:
        return FleetStats(self.devices[which], self.stats.take(which))


def stacked(parts: Sequence[FleetStats]) -> FleetStats:
    """All of them in order; at least one part."""
    if len(parts) == 1:
        return parts[0]
    return FleetStats(np.concatenate([part.devices for part in parts]), stacked_stats([part.stats for part in parts]))


def encode(window_us: Ints, fleet: FleetStats) -> Names:
    records = encode_stats(window_us, fleet.stats)
    heads = np.empty(len(fleet), np.int64)
    _head_bytes(fleet.devices, heads)
    starts = np.zeros(len(fleet) + 1, np.int64)
    np.cumsum(heads + lengths(records.offsets), out=starts[1:])
    data = np.zeros(int(starts[-1]) + PAD, np.uint8)
    _put(fleet.devices, records.data, records.offsets, starts, data)
    return Names(data, starts)


def decode_fleet(records: Names, window_us: Ints) -> FleetStats:
    """What the records say. `Corrupt`: one is not a fleet's record, or of a newer release."""
    devices, at = np.empty(len(records), np.int64), np.empty(len(records), np.int64)
    if not _take_heads(records.data, records.offsets, devices, at):
        raise Corrupt("a record of a fleet cannot be read: was it written by a newer release?")
    return FleetStats(devices, decode(slices(records.data, at, records.offsets[1:] - at), window_us))


@kernel
def _head_bytes(devices: Ints, sizes: Ints) -> None:
    for i in range(len(devices)):
        sizes[i] = 1 + varint_bytes(devices[i])


@kernel
def _put(devices: Ints, records: Bytes, record_starts: Ints, starts: Ints, data: Bytes) -> None:
    for i in range(len(devices)):
        data[starts[i]] = FLEET
        p = put_varint(data, starts[i] + 1, devices[i])
        for k in range(record_starts[i], record_starts[i + 1]):
            data[p] = records[k]
            p += 1


@kernel
def _take_heads(data: Bytes, starts: Ints, devices: Ints, at: Ints) -> bool:
    for i in range(len(devices)):
        if starts[i + 1] - starts[i] < 2 or data[starts[i]] != FLEET:
            return False
        devices[i], at[i] = take_varint(data, starts[i] + 1, starts[i + 1])
        if at[i] < 0 or devices[i] < 1:
            return False
    return True
