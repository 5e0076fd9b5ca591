"""Rollup records one by one, and how those that are stored differ from those that should be.

Rule 1: records are compared by their bytes. When they were rolled, and at which version, is aside; so are tags.
Rule 2: pure, and whole columns at a time: Python runs once for each thing that is wrong, not for each that is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from widerow.engine.rows import NEVER, Column, Rows
from widerow.model.arrays import Flags, Ints, lengths
from widerow.model.batch import CellKind, Cells
from widerow.model.combine import stacked, united
from widerow.model.errors import Corrupt
from widerow.model.names import NO_NAMES, Coded, Names
from widerow.rollup.aggregate import coarser_of
from widerow.schema.rollups import DAYS, Level

_RECORD = int(CellKind.RECORD)


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Records of one level. `device` is a number: the place of a device among those that are looked at."""

    device: Ints
    start_us: Ints
    metric: Coded
    record: Names
    version_us: Ints

    def __len__(self) -> int:
        return len(self.device)

    def take(self, which: Ints | Flags) -> Records:
        rows: Ints = np.flatnonzero(which) if which.dtype == np.bool_ else which.astype(np.int64, copy=False)
        return Records(
            self.device[rows],
            self.start_us[rows],
            self.metric.take(rows),
            self.record.take(rows),
            self.version_us[rows],
        )


_NONE = np.zeros(0, np.int64)
NO_RECORDS = Records(_NONE, _NONE, Coded(NO_NAMES, np.zeros(0, np.int32)), NO_NAMES, _NONE)


def records_of(chunks: Sequence[Rows], devices: Sequence[str]) -> Records:
    """The records in rows of these devices."""
    place = {name: i for i, name in enumerate(devices)}
    return joined([_records(rows, place) for rows in chunks if len(rows)])


def _records(rows: Rows, place: dict[str, int]) -> Records:
    cells, device = rows.cells, rows.keys["device_id"]
    assert isinstance(device, Coded)
    of_names = np.array([place[name] for name in device.names.to_list()], np.int64)
    which = np.flatnonzero(cells.kind == _RECORD)
    row = cells.rows()[which]
    return Records(
        of_names[device.codes[row]],
        np.asarray(rows.keys["start_us"])[row],
        Coded(cells.names, cells.name[which]),
        cells.texts.take(cells.text[which]),
        rows.version_us[row],
    )


def joined(parts: Sequence[Records]) -> Records:
    parts = [part for part in parts if len(part)]
    if not parts:
        return NO_RECORDS
    if len(parts) == 1:
        return parts[0]
    every = [Coded(p.record, np.arange(len(p), dtype=np.int32)) for p in parts]
    return Records(
        np.concatenate([p.device for p in parts]),
        np.concatenate([p.start_us for p in parts]),
        united([p.metric for p in parts]),
        stacked(every).names,
        np.concatenate([p.version_us for p in parts]),
    )


def rows_of_records(tenant: str, devices: Sequence[str], level: Level, records: Records) -> Rows:
    """The same as rows of the level's table, one for each window of a device. When they expire is for others to say."""
    order = np.lexsort((records.metric.codes, records.start_us, records.device))
    records = records.take(order)
    first = np.ones(len(records), np.bool_)
    first[1:] = (np.diff(records.device) != 0) | (np.diff(records.start_us) != 0)
    heads = np.flatnonzero(first)
    n, start_us = len(records), records.start_us[heads]
    cells = Cells(
        np.append(heads, n),
        records.metric.names,
        records.metric.codes,
        np.full(n, _RECORD, np.uint8),
        np.full(n, np.nan),
        records.record,
        np.arange(n, dtype=np.int32),
    )
    keys: dict[str, Column] = {
        "tenant_id": Coded.constant(tenant, len(heads)),
        "device_id": Coded(Names.of(devices), records.device[heads].astype(np.int32)),
        "period": start_us - start_us % level.period_us,
        "start_us": start_us,
    }
    return Rows(keys, np.maximum.reduceat(records.version_us, heads) if n else _NONE, np.full(len(heads), NEVER), cells)


@dataclass(frozen=True, slots=True, eq=False)
class Differences:
    """Where stored records differ from the right ones, by their places in these."""

    right: Ints
    stored: Ints
    """Of pairs whose bytes differ: in the right ones, and in the stored."""
    missing: Ints
    extra: Ints


def differences(right: Records, stored: Records) -> Differences:
    """Of one level and the same devices; each device, window and metric stands in either once."""
    right_keys, stored_keys = keys_of(right, stored)
    _, of_right, of_stored = np.intersect1d(right_keys, stored_keys, assume_unique=True, return_indices=True)
    differ = ~_same(right.record.take(of_right), stored.record.take(of_stored))
    return Differences(
        of_right[differ],
        of_stored[differ],
        np.flatnonzero(~np.isin(right_keys, stored_keys, assume_unique=True)),
        np.flatnonzero(~np.isin(stored_keys, right_keys, assume_unique=True)),
    )


def keys_of(a: Records, b: Records) -> tuple[Ints, Ints]:
    """A number for each record of either, the same where device, window and metric are."""
    metric = united([a.metric, b.metric]).codes if len(a) + len(b) else np.zeros(0, np.int32)
    start = np.unique(np.concatenate([a.start_us, b.start_us]), return_inverse=True)[1]
    device = np.concatenate([a.device, b.device])
    metrics, starts = int(metric.max(initial=0)) + 1, int(start.max(initial=0)) + 1
    key = (device * starts + start) * metrics + metric
    return key[: len(a)], key[len(a) :]


def _same(a: Names, b: Names) -> Flags:
    """Whether the texts of two lists, of one length, are the same one by one."""
    same: Flags = lengths(a.offsets) == lengths(b.offsets)
    alike = np.flatnonzero(same)
    a, b = a.take(alike), b.take(alike)
    other = np.zeros(int(a.offsets[-1]) + 1, np.int64)
    np.cumsum(a.data[: a.offsets[-1]] != b.data[: b.offsets[-1]], out=other[1:])
    same[alike] = lengths(other[a.offsets]) == 0
    return same


def unreadable(tenant: str, devices: Sequence[str], level: Level, records: Records) -> Flags:
    """Which records cannot be decoded."""
    bad = np.zeros(len(records), np.bool_)

    def look(which: Ints) -> None:
        """Halve what has a bad one in it until it is found."""
        try:
            # Decoding is what the next level begins with; so whatever can be in a record is known there.
            coarser_of(tenant, [rows_of_records(tenant, devices, level, records.take(which))], DAYS, version_us=0)
        except Corrupt:
            if len(which) == 1:
                bad[which] = True
                return
            middle = len(which) // 2
            look(which[:middle])
            look(which[middle:])

    if len(records):
        look(np.arange(len(records)))
    return bad


def count_in(record: bytes) -> int:
    """How many values a record is of, as its head says; 0 where it has none (see docs/format/rollup.md)."""
    count = 0
    for place, byte in enumerate(record[2:11]):
        count |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return count
    return 0
