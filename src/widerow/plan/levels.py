"""How many rows and bytes each level of a design takes: raw reports, minutes, hours and days.

Rule 1: rates are those by day, at the fleet's busiest; bytes follow from the mean rate of a day.
Rule 2: a window is counted only where a device reports in it: one report each 15 minutes fills four minutes an hour.
Rule 3: bytes are of one copy. Widerow keeps data a week longer than it shows it, and the total has that week.
Rule 4: a retention without end is planned for `FOREVER_YEARS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from widerow.model.device import MAX_METRICS_PER_REPORT, Profile
from widerow.model.tenant import FOREVER, GUARD_US
from widerow.model.times import DAY, HOUR, MINUTE, SECOND
from widerow.plan.fleet import DeviceClass, Fleet
from widerow.plan.footprint import Footprint, footprint

FOREVER_YEARS = 5
WIDTHS_US: Mapping[str, int] = {"minute": MINUTE, "hour": HOUR, "day": DAY}
KEPT_US: Mapping[str, int] = {"minute": 90 * DAY, "hour": 365 * DAY, "day": FOREVER}
"""How long Widerow keeps rollups of a tenant that says nothing else."""
PERIODS_US: Mapping[str, int] = {"minute": DAY, "hour": 30 * DAY, "day": 365 * DAY}
"""The time whose windows of a device are one partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What is planned."""

    fleet: Fleet
    engine: str = "cassandra"
    layout: str = "rows"
    copies: int = 3
    """Replicas of Cassandra, clusters of Bigtable."""
    kept_us: Mapping[str, int] = field(default_factory=lambda: dict(KEPT_US))
    """Of rollups. A level that is not named is not kept at all."""
    minute_us: int = MINUTE
    """The width of the finest rollups. Widerow's are of a minute; wider ones are for comparison."""
    metric_bytes: float | None = None
    """Bytes on disk of one raw value, where somebody knows better than `footprint`."""
    guard_us: int = GUARD_US

    @property
    def footprint(self) -> Footprint:
        return footprint(self.engine, self.layout, self.metric_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level, of the whole fleet."""

    name: str
    kept_us: int
    stored_us: int
    """How long bytes stay on the disk."""
    windows_per_s: float
    """Reports, or windows of devices, that are written a second."""
    rows_per_s: float
    metrics_per_s: float
    day_bytes: float
    devices: int

    @property
    def device_day_bytes(self) -> float:
        return self.day_bytes / self.devices

    @property
    def total_bytes(self) -> float:
        return self.day_bytes * self.stored_us / DAY

    @property
    def row_bytes(self) -> float:
        """Of a row in the store, on the disk."""
        return self.day_bytes / (self.rows_per_s * DAY / SECOND) if self.rows_per_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The fullest partition of a kind of device, before compression."""

    kind: str
    level: str
    span_us: int
    parts: int
    """Over how many partitions the span is spread."""
    rows: float
    plain_bytes: float


def stored_us(kept_us: int, guard_us: int) -> int:
    return (FOREVER_YEARS * 365 * DAY if kept_us == FOREVER else kept_us) + guard_us


def levels(design: Design) -> tuple[Level, ...]:
    """From fine to coarse, raw reports first."""
    widths = {**WIDTHS_US, "minute": design.minute_us}
    kept = {"raw": design.fleet.retention_us, **{name: design.kept_us[name] for name in widths if name in design.kept_us}}
    return tuple(_level(design, name, kept_us, widths.get(name, 0)) for name, kept_us in kept.items())


def _level(design: Design, name: str, kept_us: int, width_us: int) -> Level:
    size = design.footprint
    windows = metrics = rows = bytes_per_s = 0.0
    for kind in design.fleet.classes:
        per_s = kind.devices * SECOND / max(kind.interval_us, width_us)
        mean = per_s if width_us > kind.interval_us else per_s * (1 + kind.at_night) / 2
        windows += per_s
        metrics += per_s * kind.metrics
        rows += per_s * size.rows(kind.metrics)
        values = max(1.0, width_us / kind.interval_us)
        bytes_per_s += mean * size.stored_bytes(name, kind.metrics, values, kind.text_bytes)
    return Level(
        name=name,
        kept_us=kept_us,
        stored_us=stored_us(kept_us, design.guard_us),
        windows_per_s=windows,
        rows_per_s=rows,
        metrics_per_s=metrics,
        day_bytes=bytes_per_s * DAY / SECOND,
        devices=design.fleet.devices,
    )


def partitions(design: Design) -> tuple[Partition, ...]:
    """Of each class of devices: of raw reports, and of each level that is kept. None where the store has no partitions."""
    if design.engine != "cassandra" or design.layout != "rows":
        return ()
    return tuple(one for kind in design.fleet.classes for one in _partitions(design, kind))


def _partitions(design: Design, kind: DeviceClass) -> list[Partition]:
    size = design.footprint
    profile = Profile(
        reports_per_s=min(SECOND / kind.interval_us, 1e6), metrics_per_report=min(kind.metrics, MAX_METRICS_PER_REPORT)
    )
    spans = {"raw": (profile.bucket_width_us(), profile.sub_buckets(), 0)}
    widths = {**WIDTHS_US, "minute": design.minute_us}
    spans |= {name: (PERIODS_US[name], 1, widths[name]) for name in widths if name in design.kept_us}
    found = []
    for name, (span_us, parts, width_us) in spans.items():
        windows = max(1.0, span_us / max(kind.interval_us, width_us) / parts)
        values = max(1.0, width_us / kind.interval_us)
        plain = windows * size.plain_bytes(name, kind.metrics, values, kind.text_bytes)
        rows = windows * size.rows(kind.metrics)
        found.append(Partition(kind=kind.name, level=name, span_us=span_us, parts=parts, rows=rows, plain_bytes=plain))
    return found
