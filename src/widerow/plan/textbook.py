"""The textbook's arithmetic: a row of 100 bytes for each metric, a tenth more for aggregates, three copies.

Rule 1: `estimate` gives the textbook's own figures, right or wrong.
Rule 2: `corrections` says where they are wrong, each in a sentence with the figure that holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from widerow.model.figures import byte_figure, figure
from widerow.model.tenant import FOREVER
from widerow.model.times import DAY, HOUR, SECOND, format_duration
from widerow.plan.levels import FOREVER_YEARS, WIDTHS_US, Design, stored_us
from widerow.plan.nodes import Sizing, cassandra_sizing
from widerow.plan.prices import CassandraNode

ROW_BYTES = 100.0
ALLOWANCE = 0.1
"""What the textbook adds to raw bytes for all aggregates together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The textbook's figures. Bytes are of one copy, `cluster_bytes` are of all."""

    rates_per_s: dict[str, float]
    device_day_bytes: float
    day_bytes: float
    raw_bytes: float
    total_bytes: float
    cluster_bytes: float
    hour_rows: float
    """Of the partition that a device fills in an hour."""
    hour_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueLevel:
    """A level of rollups as it comes out, in the textbook's shape."""

    name: str
    kept_us: int
    windows_per_s: float
    rows_per_s: float
    total_bytes: float


def estimate(design: Design) -> Estimate:
    row_bytes = design.metric_bytes if design.metric_bytes is not None else ROW_BYTES
    fleet = design.fleet
    day_bytes = sum(kind.devices * kind.metrics * row_bytes * DAY / kind.interval_us for kind in fleet.classes)
    raw_bytes = day_bytes * stored_us(fleet.retention_us, 0) / DAY
    first = fleet.classes[0]
    hour_rows = HOUR / first.interval_us * first.metrics
    rates = {"raw": fleet.reports_per_s}
    rates |= {name: fleet.reports_per_s * SECOND / width_us for name, width_us in WIDTHS_US.items()}
    return Estimate(
        rates_per_s=rates,
        device_day_bytes=day_bytes / fleet.devices,
        day_bytes=day_bytes,
        raw_bytes=raw_bytes,
        total_bytes=raw_bytes * (1 + ALLOWANCE),
        cluster_bytes=raw_bytes * (1 + ALLOWANCE) * design.copies,
        hour_rows=hour_rows,
        hour_bytes=hour_rows * row_bytes,
    )


def sizing(design: Design, node: CassandraNode) -> Sizing:
    """Nodes for the textbook's bytes and rates, with size-tiered compaction, which wants half of each disk."""
    said = estimate(design)
    rows = (design.fleet.metrics_per_s + sum(said.rates_per_s[name] for name in WIDTHS_US)) * design.copies
    return cassandra_sizing(
        node, rows_per_s=rows, bytes_per_s=0.0, stored_bytes=said.cluster_bytes, copies=design.copies, free_share=0.5
    )


def true_levels(design: Design) -> list[TrueLevel]:
    """The rollups that the same fleet has, with a row for each metric as the textbook's tables have."""
    row_bytes = design.metric_bytes if design.metric_bytes is not None else ROW_BYTES
    found = []
    for name, width_us in WIDTHS_US.items():
        if name not in design.kept_us:
            continue
        windows = sum(kind.devices * SECOND / max(kind.interval_us, width_us) for kind in design.fleet.classes)
        rows = sum(kind.devices * kind.metrics * SECOND / max(kind.interval_us, width_us) for kind in design.fleet.classes)
        kept_us = design.kept_us[name]
        total = rows * row_bytes * stored_us(kept_us, 0) / SECOND
        found.append(TrueLevel(name=name, kept_us=kept_us, windows_per_s=windows, rows_per_s=rows, total_bytes=total))
    return found


def corrections(design: Design) -> list[str]:
    said, found = estimate(design), true_levels(design)
    sentences = []
    for level in found:
        told = said.rates_per_s[level.name]
        if level.windows_per_s > 1.01 * told:
            times = _rate(level.windows_per_s / told)
            sentences.append(
                f"{level.name}s: {_rate(level.windows_per_s)} device-{level.name}s/s, {times} times the textbook's "
                f"{_rate(told)}, which divides reports by {WIDTHS_US[level.name] // SECOND:,}; "
                f"{_rate(level.rows_per_s)} rows/s with a row for each metric."
            )
    allowance = said.total_bytes - said.raw_bytes
    for level in found:
        if level.total_bytes > allowance:
            days = f"{FOREVER_YEARS} years" if level.kept_us == FOREVER else format_duration(level.kept_us)
            rows = level.rows_per_s * stored_us(level.kept_us, 0) / SECOND
            sentences.append(
                f"aggregates: 10% of raw is {byte_figure(allowance)}. {level.name.capitalize()}s kept for {days} alone are "
                f"{rows:.3g} rows, {byte_figure(level.total_bytes)}."
            )
    total = said.raw_bytes + sum(level.total_bytes for level in found)
    if total > 1.01 * said.total_bytes:
        sentences.append(
            f"total: with all levels as they are, one copy is {byte_figure(total)}, not {byte_figure(said.total_bytes)}; "
            f"{design.copies} copies are {byte_figure(total * design.copies)}."
        )
    return sentences


def _rate(value: float) -> str:
    """Three digits are enough beside an estimate."""
    return figure(float(f"{value:.3g}"))
