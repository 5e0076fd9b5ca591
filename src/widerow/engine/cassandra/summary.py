"""What records of rollups say, packed as columns.

Rule 1: all records of a write are read at once.
Rule 2: a record that says nothing in numbers, or that cannot be read, has no columns. That is no error here: who reads the
record back finds out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from widerow.codec.fleet import FLEET, decode_fleet
from widerow.codec.record import BOTH, STATISTICS, VALUES, decode
from widerow.codec.stats import Stats
from widerow.model.arrays import Bytes, Ints, lengths
from widerow.model.errors import Corrupt
from widerow.model.names import Names
from widerow.model.times import MS

Packed = Sequence[bytes]
"""The columns of one record, in the order asked for."""
_Said: TypeAlias = tuple[Ints, Stats]
"""How many devices records are of, and what they say."""


def packed_columns(records: Names, window_us: Ints, statistics: Sequence[str]) -> list[Packed | None]:
    """For each record, its window's begin given, the statistics as CQL has them; None where it has none."""
    out: list[Packed | None] = [None] * len(records)
    for which, stats in _read(records, window_us):
        columns = [_packed(_column(*stats, name)) for name in statistics]
        for i, values in zip(which.tolist(), zip(*columns, strict=True), strict=True):
            out[i] = values
    return out


def _read(records: Names, window_us: Ints) -> list[tuple[Ints, _Said]]:
    """Which records are of numbers, and what they say: all together, unless there are broken ones among them."""
    some = np.flatnonzero(lengths(records.offsets) > 0)
    form: Bytes = records.data[records.offsets[some]]
    found: list[tuple[Ints, _Said]] = []
    for known in (some[np.isin(form, (VALUES, STATISTICS, BOTH))], some[form == FLEET]):
        for groups in ([known], np.split(known, max(1, len(known)))):
            said = [(which, one) for which in groups if len(which) and (one := _said(records, window_us, which)) is not None]
            if said:
                break
        found += said
    return found


def _said(records: Names, window_us: Ints, which: Ints) -> _Said | None:
    some, start_us = records.take(which), window_us[which]
    try:
        if some.data[0] == FLEET:
            fleet = decode_fleet(some, start_us)
            return fleet.devices, fleet.stats
        return np.ones(len(some), np.int64), decode(some, start_us)
    except Corrupt:
        return None


def _column(devices: Ints, stats: Stats, statistic: str) -> Any:
    if statistic == "devices":
        return devices
    if statistic == "avg":
        return stats.mean
    if statistic == "stddev":
        return stats.stddev()
    if statistic.endswith("_time"):
        return getattr(stats, f"{statistic.removesuffix('_time')}_us") // MS
    return getattr(stats, statistic)


def _packed(column: Any) -> list[bytes]:
    """Numbers of 8 bytes, either kind, as CQL has them."""
    packed: list[bytes] = np.ascontiguousarray(column).astype(column.dtype.newbyteorder(">")).view("V8").tolist()
    return packed
