"""What a fleet means for a design: how many values a part has, how many rows and bytes come, and keys to show."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from widerow.keylab.design import CqlTable, Design
from widerow.keylab.sample import Sample, sample_of, shards
from widerow.keys.scan import bucket_width_us
from widerow.keys.spec import Column, KeySpec, date_start
from widerow.keys.template import UNVALUED, WHOLE_SALT, Part
from widerow.model.arrays import Ints
from widerow.model.names import Coded
from widerow.model.times import DAY, HOUR, MINUTE, SECOND
from widerow.plan.fleet import DeviceClass, Fleet

NUMBER_BYTES = 8
_FEW = 2000
_SUMMARY_PERIODS = {"minute": MINUTE, "1min": MINUTE, "minutely": MINUTE, "daily": DAY, "day": DAY}


@dataclass(frozen=True)
class Facts:
    """A design and a fleet, at a moment."""

    design: Design
    fleet: Fleet
    now_us: int

    @cached_property
    def sample(self) -> Sample:
        return sample_of(self.fleet, _FEW)

    @cached_property
    def is_by_metric(self) -> bool:
        return "metric" in self.design.values

    def interval_us(self, kind: DeviceClass) -> int:
        """Between two rows' times of a device: of summaries the period that the design's words tell."""
        if not self.design.is_aggregate:
            time = self.design.time
            # A row shows the last report of a day where its time is a day.
            return max(kind.interval_us, time.unit_us) if time is not None and time.kind == "date" else kind.interval_us
        words = (self.design.table.name if self.design.table else self.design.template).lower()
        return next((period for word, period in _SUMMARY_PERIODS.items() if word in words), HOUR)

    def rows_per_s(self, kind: DeviceClass) -> float:
        """Rows a second of one device."""
        return (kind.metrics if self.is_by_metric else 1) * SECOND / self.interval_us(kind)

    def value_bytes(self, kind: DeviceClass) -> float:
        """Of one row of one report."""
        numbers = NUMBER_BYTES * (1 if self.is_by_metric else kind.metrics)
        return numbers + kind.text_bytes / (kind.metrics if self.is_by_metric else 1)

    def row_bytes(self, kind: DeviceClass) -> float:
        """What one row takes, key and values, before compression."""
        design = self.design
        if design.table is not None:
            return cql_row_bytes(design.table, {part.value for part in design.fields}, kind)
        reports = 1.0
        if design.time is None and design.bucket is not None and not design.is_aggregate:
            reports = max(1.0, bucket_width_us(design.bucket, design.bucket_us) / kind.interval_us)
        return self.key_bytes + reports * self.value_bytes(kind)

    def report_bytes(self, kind: DeviceClass) -> float:
        """What one write adds: of rows that hold many reports the values alone."""
        design = self.design
        is_wide = design.time is None and design.bucket is not None
        return self.value_bytes(kind) if is_wide and design.table is None else self.row_bytes(kind)

    @property
    def all_rows_per_s(self) -> float:
        return sum(kind.devices * self.rows_per_s(kind) for kind in self.fleet.classes)

    def count(self, part: Part) -> int:
        """How many values a part has."""
        if part.kind == "salt":
            return int(16 ** min(part.width, 15))
        if part.value in ("shard", "random", "sub"):
            return int(10**part.width) if part.width else 1
        counts = {
            "tenant": self.fleet.tenants,
            "device": self.fleet.devices,
            "type": max(kind.types for kind in self.fleet.classes),
            "location": max(kind.locations for kind in self.fleet.classes),
            "metric": max(kind.metrics for kind in self.fleet.classes),
        }
        return counts.get(part.value, self.fleet.devices if part.kind == "hash" else 1)

    def spread(self, parts: Sequence[Part]) -> int:
        """Over how many ranges these parts spread what is written at one moment."""
        if any(tells_device(part) for part in parts):
            return self.fleet.devices
        total = 1
        for part in parts:
            total *= self.count(part)
        return min(total, 10**12)

    def largest_share(self, parts: Sequence[Part]) -> float:
        """Of all writes, the share of the busiest value of these parts."""
        share = 1 / self.spread(parts)
        if self.fleet.largest_tenant and any(part.value == "tenant" for part in parts):
            others = self.spread([part for part in parts if part.value != "tenant"])
            share = max(share, self.fleet.largest_tenant / others)
        return share

    def keys(self, rows: Sequence[int], times_us: Sequence[int]) -> list[str]:
        """The keys of these devices at these times, as text."""
        chosen = np.array(rows, np.int64)
        columns = columns_for(
            self.design.spec, self.sample.rows(chosen), np.array(times_us, np.int64), self.design.bucket_us
        )
        return [key.decode(errors="replace") for key in self.design.spec.encode(columns, len(chosen)).to_bytes_list()]

    def two_keys(self, gap_us: int = SECOND) -> list[str]:
        """Keys of two devices, one right after the other."""
        return self.keys([0, len(self.sample) // 2], [self.now_us, self.now_us + gap_us])

    def same_device_keys(self, gap_us: int) -> list[str]:
        return self.keys([0, 0], [self.now_us, self.now_us + gap_us])

    @cached_property
    def key_bytes(self) -> float:
        """The mean length of a key."""
        n = min(len(self.sample), 500)
        chosen = np.linspace(0, len(self.sample) - 1, n).astype(np.int64)
        spec = self.design.spec
        columns = columns_for(spec, self.sample.rows(chosen), np.full(n, self.now_us), self.design.bucket_us)
        return float(spec.encode(columns, n).offsets[-1]) / n


_CQL_BYTES = {"int": 4, "float": 4, "date": 4, "smallint": 2, "tinyint": 1, "boolean": 1, "uuid": 16, "timeuuid": 16}
_CQL_FIXED = 8
_CQL_ROW = 8
"""Of a row: flags, the sizes of it and of the row before, its write time, and its liveness; see the format of SSTables."""
_CQL_CELL = 1


def cql_row_bytes(table: CqlTable, roles: Collection[str], kind: DeviceClass) -> float:
    """A row of Cassandra as it is written to disk, before compression."""
    text = kind.text_bytes / kind.metrics if "metric" in roles else kind.text_bytes
    clustering = sum(_cql_bytes(table.columns[name]) for name in table.clustering)
    values = [name for name in table.columns if name not in table.partition and name not in table.clustering]
    numbers = [name for name in values if table.columns[name] in _NUMBERS]
    filled = numbers[: 1 if "metric" in roles else max(1, min(len(numbers), kind.metrics))]
    cells = sum(_CQL_CELL + _CQL_BYTES.get(table.columns[name], _CQL_FIXED) for name in filled)
    return _CQL_ROW + clustering + cells + text + (1 if len(filled) < len(values) else 0)


_NUMBERS = ("double", "float", "int", "bigint", "smallint", "tinyint", "varint", "decimal", "counter")


def _cql_bytes(kind: str) -> int:
    if kind in ("text", "varchar", "ascii", "blob"):
        return 12
    return _CQL_BYTES.get(kind, _CQL_FIXED)


def tells_device(part: Part) -> bool:
    """The part alone tells devices apart."""
    return part.value == "device" or (part.kind == "salt" and part.width >= WHOLE_SALT) or part.kind == "hash"


def bucket_starts(part: Part, times_us: Ints, bucket_us: int) -> Ints:
    """When the buckets begin that hold these times."""
    return date_start(part, times_us) if part.kind == "date" else times_us // bucket_us * bucket_us


def columns_for(spec: KeySpec, given: Mapping[str, Column], times_us: Ints, bucket_us: int) -> dict[str, Column]:
    """A column for everything that the spec shows."""
    n = len(times_us)
    columns: dict[str, Column] = dict(given)
    columns["time"] = times_us
    columns["bucket"] = times_us // bucket_us * bucket_us
    columns |= {part.value: bucket_starts(part, times_us, bucket_us) for part in spec.parts if part.kind == "date"}
    for part in spec.parts:
        if part.kind in UNVALUED or part.value in columns:
            continue
        if part.value == "shard":
            columns["shard"] = shards(given["device"], part.width) if part.width else np.zeros(n, np.int64)
        elif part.value == "random":
            columns["random"] = (times_us // SECOND * 7919 + np.arange(n)) % 10**part.width
        elif part.value == "sequence":
            columns["sequence"] = times_us // SECOND
        elif part.kind == "digits":
            columns[part.value] = np.zeros(n, np.int64)
        else:
            columns[part.value] = Coded.constant("x", n)
    return columns
