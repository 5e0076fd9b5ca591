"""From the hours of devices to those of fleets, and from and to the rows these are stored in.

Rule 1: pure, as the levels beneath are: computing again from the same hours gives the same bytes.
Rule 2: a device counts for the type that is stored with its hour, so that a change of type leaves the past as it was.
Rule 3: there are no more than `MOST_TYPES` types in an hour, the first by their bytes; an hour that has that many may have
more. Which are the first does not depend on the order in which devices or shards are gone through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from widerow.codec.fleet import FleetStats, decode_fleet, encode, stacked
from widerow.codec.stats import Stats
from widerow.engine.rows import NEVER, Column, Rows
from widerow.model.arrays import Codes, Flags, Ints
from widerow.model.batch import CellKind, Cells
from widerow.model.combine import in_order, united
from widerow.model.combine import stacked as stacked_names
from widerow.model.names import Coded, Names
from widerow.model.tags import tags
from widerow.model.times import HOUR
from widerow.rollup.aggregate import summary_of_rollups
from widerow.schema.rollups import FLEET_PERIOD_US, MOST_TYPES, PARTIALS_PERIOD_US

ALL_TYPES = ""
"""Stands for all devices, whether they have a type or not."""
TYPE = "type"
"""The tag of a device's hour that names its type."""


@dataclass(frozen=True, slots=True, eq=False)
class FleetSummary:
    """Of fleets by type, metric and window, sorted by these; each stands in it once."""

    type: Coded
    metric: Coded
    start_us: Ints
    fleet: FleetStats

    def __len__(self) -> int:
        return len(self.start_us)

    def take(self, which: Ints) -> FleetSummary:
        return FleetSummary(self.type.take(which), self.metric.take(which), self.start_us[which], self.fleet.take(which))


@cache
def nothing() -> FleetSummary:
    """Of no device. Not a constant, because making it takes kernels, which not every command needs."""
    stats = Stats.of(np.zeros(0, np.int64), np.zeros(0), np.zeros(1, np.int64))
    return FleetSummary(Coded.of(()), Coded.of(()), np.zeros(0, np.int64), FleetStats.of_devices(stats))


def folded(parts: Sequence[FleetSummary]) -> FleetSummary:
    """Summaries of disjoint devices as one. What is of the same type, metric and window is merged in the order it comes."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return nothing()
    type_, metric = in_order(united([p.type for p in parts])), in_order(united([p.metric for p in parts]))
    start_us = np.concatenate([p.start_us for p in parts])
    order = np.lexsort((start_us, metric.codes, type_.codes))  # stable
    type_, metric, start_us = type_.take(order), metric.take(order), start_us[order]
    heads = np.flatnonzero(begins(type_.codes, metric.codes, start_us))
    fleet = stacked([p.fleet for p in parts]).take(order).merged(np.append(heads, len(order)))
    return FleetSummary(type_.take(heads), metric.take(heads), start_us[heads], fleet)


def hours_of_devices(before: FleetSummary, hours: Sequence[Rows]) -> FleetSummary:
    """What devices say of the one hour that their rows are of, with those before them: these have smaller names."""
    found = summary_of_rollups(hours, HOUR)
    if not len(found):
        return before
    device = in_order(found.device)
    order = np.argsort(device.codes, kind="stable")
    every = FleetSummary(
        Coded.constant(ALL_TYPES, len(order)),
        found.metric.take(order),
        found.start_us[order],
        FleetStats.of_devices(found.stats.take(order)),
    )
    type_ = _types(hours, device).take(order)
    typed = np.flatnonzero(type_.codes >= 0)
    some = every.take(typed)
    return first_types(folded([before, every, FleetSummary(type_.take(typed), some.metric, some.start_us, some.fleet)]))


def _types(hours: Sequence[Rows], device: Coded) -> Coded:
    """The type of each entry of a column of devices, or none.

    A tag that is older than the records is what an earlier roll left behind: the device has no type any more.
    """
    known = {name: code for code, name in enumerate(device.names.to_bytes_list())}
    newest_us, tagged_us = np.full(len(known), -1), np.full(len(known), -1)
    texts: list[Coded] = []
    owners: list[Codes] = []
    for rows in hours:
        column = rows.keys["device_id"]
        assert isinstance(column, Coded)
        code = np.array([known.get(name, -1) for name in column.names.to_bytes_list()], np.int32)[column.codes]
        cells, row = rows.cells, rows.cells.rows()
        is_record = (cells.kind == CellKind.RECORD) & (code[row] >= 0)
        np.maximum.at(newest_us, code[row[is_record]], rows.version_us[row[is_record]])
        is_type = tags(cells, TYPE) & (code[row] >= 0)
        tagged_us[code[row[is_type]]] = rows.version_us[row[is_type]]
        owners.append(code[row[is_type]])
        texts.append(Coded(cells.texts, cells.text[is_type]))
    found = stacked_names(texts)
    types = np.full(len(known), -1, np.int32)
    types[np.concatenate(owners)] = found.codes
    types[tagged_us < newest_us] = -1
    return _used(Coded(found.names, types[device.codes]))


def _used(column: Coded) -> Coded:
    """The same with only the names that occur."""
    used, where = np.unique(column.codes, return_inverse=True)
    none = int(len(used) > 0 and used[0] < 0)
    return Coded(column.names.take(used[none:]), (where - none).astype(np.int32))


def first_types(summary: FleetSummary) -> FleetSummary:
    """Without what is too much: see rule 3. Of one hour."""
    if len(summary.type.names) <= MOST_TYPES:
        return summary
    rank, start = np.unique(summary.type.codes, return_index=True)
    most = MOST_TYPES + (summary.type.names[int(rank[0])] == ALL_TYPES)
    return summary.take(np.arange(start[most] if len(rank) > most else len(summary)))


# -- rows


def partial_rows(tenant: str, shard: int, hour_us: int, summary: FleetSummary, *, version_us: int) -> Rows:
    """What the devices of a shard say of an hour. When it expires is for whoever knows how long it is kept."""
    types, cells = _cells(summary, types=False)
    n = len(types)
    keys: dict[str, Column] = {
        "tenant_id": Coded.constant(tenant, n),
        "shard": np.full(n, shard),
        "period": np.full(n, hour_us - hour_us % PARTIALS_PERIOD_US),
        "hour_us": np.full(n, hour_us),
        "device_type": types,
    }
    return Rows(keys, np.full(n, version_us), np.full(n, NEVER), cells)


def fleet_rows(tenant: str, hour_us: int, summary: FleetSummary, *, version_us: int) -> Rows:
    """What all devices say of an hour, and those of each type. The former names the latter, with tags."""
    types, cells = _cells(summary, types=True)
    n = len(types)
    keys: dict[str, Column] = {
        "tenant_id": Coded.constant(tenant, n),
        "device_type": types,
        "period": np.full(n, hour_us - hour_us % FLEET_PERIOD_US),
        "hour_us": np.full(n, hour_us),
    }
    return Rows(keys, np.full(n, version_us), np.full(n, NEVER), cells)


def _cells(summary: FleetSummary, *, types: bool) -> tuple[Coded, Cells]:
    """The types of an hour, and for each a record for each metric.

    `types`: with tags in the row of all devices: the name of each type, and how many devices it has (of one metric or more,
    as far as that can be told from its metrics).
    """
    count, metrics = len(summary), summary.metric.names
    heads = np.flatnonzero(begins(summary.type.codes))
    type_, cuts = summary.type.take(heads), np.append(heads, count)
    records = encode(summary.start_us, summary.fleet)
    name, text = summary.metric.codes.astype(np.int32), np.arange(count, dtype=np.int32)
    names, texts, kind = metrics, records, np.full(count, int(CellKind.RECORD), np.uint8)
    if types and len(heads) > 1:
        known = {metric: code for code, metric in enumerate(metrics.to_bytes_list())}
        tag = [known.setdefault(one.encode(), len(known)) for one in type_.to_list()[1:]]
        devices = np.maximum.reduceat(summary.fleet.devices, heads)[1:]
        names = Names.of_bytes(list(known))
        texts = Names.of_bytes([*records.to_bytes_list(), *(str(n).encode() for n in devices.tolist())])
        at = np.full(len(tag), cuts[1])
        name = np.insert(name, at, np.array(tag, np.int32))
        kind = np.insert(kind, at, np.full(len(tag), int(CellKind.TAG), np.uint8))
        text = np.insert(text, at, count + np.arange(len(tag), dtype=np.int32))
        cuts[1:] += len(tag)
    return type_, Cells(cuts, names, name, kind, np.full(len(name), np.nan), texts, text)


def summary_of_fleets(chunks: Sequence[Rows]) -> FleetSummary:
    """What rows of fleets or of their shards say: all types, metrics and hours, the rows of each in the order they came."""
    parts = [_summary(rows) for rows in chunks if len(rows)]
    return folded(parts)


def _summary(rows: Rows) -> FleetSummary:
    cells, row = rows.cells, rows.cells.rows()
    is_record = cells.kind == CellKind.RECORD
    row, type_ = row[is_record], rows.keys["device_type"]
    assert isinstance(type_, Coded)
    start_us = np.asarray(rows.keys["hour_us"])[row]
    fleet = decode_fleet(cells.texts.take(cells.text[is_record]), start_us)
    return FleetSummary(type_.take(row), Coded(cells.names, cells.name[is_record]), start_us, fleet)


def types_in(rows: Rows) -> list[tuple[int, str]]:
    """The hours and types that rows of all devices name."""
    is_tag = rows.cells.kind == CellKind.TAG
    hours = np.asarray(rows.keys["hour_us"])[rows.cells.rows()[is_tag]]
    names = Coded(rows.cells.names, rows.cells.name[is_tag]).to_list()
    return list(zip(hours.tolist(), names, strict=True))


def begins(*columns: Codes | Ints) -> Flags:
    """Where another group of equal entries begins."""
    first = np.ones(len(columns[0]), np.bool_)
    first[1:] = False
    for column in columns:
        first[1:] |= column[1:] != column[:-1]
    return first
