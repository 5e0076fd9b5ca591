"""What rows of somebody else's table cost in Widerow: as rows on Cassandra, and as packed columns.

Rule 1: packed columns are made, not guessed: the rows of a few devices become blocks (`widerow.blocks`), and their bytes per
value are taken for all.
Rule 2: a value that no metric can hold, such as a blob, is left out of both, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, sqrt
from statistics import fmean, stdev
from typing import Any

from widerow.blocks.arrange import of_batch
from widerow.blocks.block import Block
from widerow.blocks.merge import merge
from widerow.blocks.pack import pack
from widerow.model.batch import Report, Value, batch_of
from widerow.model.device import VALUE_BYTES
from widerow.model.times import MS
from widerow.plan.foreign import Picker, total
from widerow.plan.sampled import Estimate, Partition, Sample, times_us
from widerow.plan.shape import CLUSTERING, REGULAR, ForeignTable, Shape

_ASSUMED_NAME_BYTES = 12
"""Of the metric's name in `VALUE_BYTES`."""
_NUMBER_BYTES = 8
_PARTS = 4
"""How many of them are packed on their own, to see how much they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What all rows of the table cost. `packed_bytes` is None where nothing of the sample can be packed."""

    values: Estimate
    left_out: float
    """Values that no metric can hold, as a share of all."""
    rows_bytes: Estimate
    packed_bytes: Estimate | None
    packed_values: int
    """How many values were packed to know it."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Reports as blocks: the bytes of each metric's values, and those of all else, such as times."""

    bytes: int
    reports: int
    metrics: Mapping[str, tuple[int, int]]
    """By name: bytes and values."""

    @property
    def values(self) -> int:
        return sum(values for _, values in self.metrics.values())

    def grown(self, reports: float, counts: Mapping[str, float]) -> float:
        """The bytes of so many reports with so many values of each metric. One that was not packed counts as a mean one."""
        in_columns = sum(size for size, _ in self.metrics.values())
        mean = in_columns / self.values
        each = {name: size / values for name, (size, values) in self.metrics.items()}
        rest = (self.bytes - in_columns) / self.reports
        return reports * rest + sum(count * each.get(name, mean) for name, count in counts.items())


def cost(sample: Sample) -> Cost | None:
    """None: the table is no time series, or was not read."""
    shape = sample.shape
    if shape is None or not any(p.values for p in sample.partitions):
        return None
    reader = _Values(sample.table, shape)
    row_bytes, given, other = [], 0, 0
    metrics: dict[tuple[Any, ...], dict[str, float]] = {}
    for p in sample.partitions:
        found = Counter(name for row in range(len(p.values)) for name in reader.values(p, row))
        grown = p.rows / max(1, len(p.values))
        given += found.total()
        other += sum(reader.left_out(p, row) for row in range(len(p.values)))
        row_bytes.append(grown * sum(reader.stored_bytes(p, row) for row in range(len(p.values))))
        metrics[p.key] = {name: count * grown for name, count in found.items()}
    values = total([sum(one.values()) for one in metrics.values()], sample.of)
    per_value, packed_values = _per_value(sample, reader, metrics)
    return Cost(
        values=values,
        left_out=other / (given + other) if other else 0.0,
        rows_bytes=total(row_bytes, sample.of),
        packed_bytes=_product(values, per_value) if packed_values else None,
        packed_values=packed_values,
    )


def packed(table: ForeignTable, shape: Shape, partitions: Sequence[Partition]) -> Packed:
    """All rows that were read of these partitions as packed columns."""
    return packed_reports(_reports(_Values(table, shape), partitions))


def _per_value(
    sample: Sample, reader: _Values, metrics: Mapping[tuple[Any, ...], Mapping[str, float]]
) -> tuple[Estimate, int]:
    """The packed bytes of a value; and how many were packed. `metrics`: how many values each partition has of each."""
    every: list[Report] = []
    reports, counts = 0.0, Counter[str]()
    for stratum in sample.packed:
        mine = _reports(reader, stratum.partitions)
        if not mine:
            continue
        before = sum(counts.values())
        for key in stratum.keys:
            counts.update(metrics[key])
        values = sum(len(report.values) for report in mine)
        reports += (sum(counts.values()) - before) * len(mine) / values
        every += mine
    if not every:
        return Estimate(0.0), 0
    blocks = packed_reports(every)
    per_value = blocks.grown(reports, counts) / sum(counts.values())
    return Estimate(per_value, 0.0 if _is_all(sample) else _error(every) * per_value), blocks.values


def _is_all(sample: Sample) -> bool:
    packed = [p for stratum in sample.packed for p in stratum.partitions]
    return len(packed) >= sample.of.value and all(p.read_to_its_end for p in packed)


def _error(reports: Sequence[Report]) -> float:
    """By what part the bytes of a value may be wrong: some of the devices, packed on their own, show it."""
    ordered = sorted(reports, key=lambda report: (report.device, report.time_us))
    devices = sorted({report.device for report in reports})
    group = {device: i * _PARTS // len(devices) for i, device in enumerate(devices)}
    if len(devices) >= _PARTS:
        parts = [[r for r in ordered if group[r.device] == i] for i in range(_PARTS)]
    else:
        parts = [ordered[len(ordered) * i // _PARTS : len(ordered) * (i + 1) // _PARTS] for i in range(_PARTS)]
    each = [one.bytes / one.values for one in map(packed_reports, parts) if one.values]
    return 2 * stdev(each) / sqrt(len(each)) / fmean(each) if len(each) > 1 else 1.0


def packed_reports(reports: Sequence[Report]) -> Packed:
    """Reports as blocks. Devices that report at different rates are packed apart: in one block, their times would take up to
    three bytes a report, and next to nothing otherwise.
    """
    times: dict[str, list[int]] = {}
    for report in reports:
        times.setdefault(report.device, []).append(report.time_us)
    rate = {device: _rate_class(mine) for device, mine in times.items()}
    size, metrics = 0, dict[str, tuple[int, int]]()
    for wanted in sorted(set(rate.values())):
        batch = batch_of([report for report in reports if rate[report.device] == wanted])
        for block in (block for columns in merge([of_batch(batch)]) for block in pack(columns, dense=True)):
            size += len(block)
            for info in Block(block).infos():
                before, values = metrics.get(info.name, (0, 0))
                metrics[info.name] = before + info.bytes, values + info.values
    return Packed(size, len(reports), metrics)


def _rate_class(times_us: Sequence[int]) -> int:
    """The same for devices whose usual time between two reports differs by less than a factor of four, about."""
    gaps = sorted(b - a for a, b in pairwise(sorted(times_us)))
    return gaps[len(gaps) // 2].bit_length() // 2 if gaps else 0


def _reports(reader: _Values, partitions: Sequence[Partition]) -> list[Report]:
    """One report for each device and time, with all metrics that have a row then."""
    found: dict[tuple[str, str, int], dict[str, Value]] = {}
    written: dict[tuple[str, str, int], int] = {}
    for p in partitions:
        for row, (device, time_us) in enumerate(reader.places(p)):
            key = reader.tenant(p, row), device, time_us
            found.setdefault(key, {}).update(reader.values(p, row))
            written[key] = max(written.get(key, 0), p.written_us[row])
    return [
        Report(f"{tenant}/{device}" if tenant else device, time_us, values, {}, written[key] // MS * MS)
        for key, values in found.items()
        if values
        for tenant, device, time_us in (key,)
    ]


class _Values:
    """Rows as metrics."""

    def __init__(self, table: ForeignTable, shape: Shape) -> None:
        names = [c.name for c in table.of(REGULAR)]
        self._columns = [(names.index(name), name, name in shape.numbers) for name in shape.values]
        self._rest = [names.index(name) for name in shape.rest if name in names]
        self._device, self._unit = Picker(table, shape.entity), shape.unit
        self._tenant = Picker(table, (shape.tenant,)) if shape.tenant else None
        self._metric = Picker(table, (shape.metric,)) if shape.metric else None
        self._time = [c.name for c in table.of(CLUSTERING)].index(shape.time)

    def places(self, p: Partition) -> Iterator[tuple[str, int]]:
        """Of each row that was read: the device and the time."""
        times = times_us(self._unit, [row[self._time] for row in p.clustering])
        if not self._device.is_clustered:
            device = self._device.name(p, 0)
            return ((device, time_us) for time_us in times)
        return ((self._device.name(p, row), time_us) for row, time_us in enumerate(times))

    def tenant(self, p: Partition, row: int) -> str:
        return self._tenant.name(p, row) if self._tenant else ""

    def values(self, p: Partition, row: int) -> Mapping[str, Value]:
        """By metric. With a metric's name in the key, the first value column that is not empty has its value."""
        given = p.values[row]
        found = {name: _value(given[i], number=number) for i, name, number in self._columns if given[i] is not None}
        if self._metric is None or not found:
            return found
        name = self._metric.name(p, row)
        if len(found) == 1:
            return {name: next(iter(found.values()))}
        return {f"{name}_{column}": value for column, value in found.items()}

    def stored_bytes(self, p: Partition, row: int) -> int:
        """The bytes of a row's values in the table `telemetry` on Cassandra, before compression."""
        size = 0
        for name, value in self.values(p, row).items():
            size += VALUE_BYTES - _ASSUMED_NAME_BYTES + len(name.encode(errors="replace"))
            size += len(value.encode(errors="replace")) - _NUMBER_BYTES if isinstance(value, str) else 0
        return size

    def left_out(self, p: Partition, row: int) -> int:
        return sum(p.values[row][i] is not None for i in self._rest)


def _value(value: Any, *, number: bool) -> Value:
    if not number:
        return str(value)
    converted = float(value)
    return converted if isfinite(converted) else 0.0


def _product(a: Estimate, b: Estimate) -> Estimate:
    value = a.value * b.value
    return Estimate(value, value * sqrt(a.relative**2 + b.relative**2))
