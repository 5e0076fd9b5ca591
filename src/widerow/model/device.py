"""Devices and metrics, as the catalog knows them; and what a device's profile means for how it is stored.

A partition is a device's share of one sub-bucket of one bucket. The width of buckets follows from the rate, and the number
of sub-buckets from what a bucket then weighs on Cassandra, where partitions are what must not grow: past 10 MiB they slow
down reads, repairs and compactions. Tests compute that for all profiles, and measure it for some.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil

from widerow.model.errors import Rejected
from widerow.model.figures import figure
from widerow.model.times import HOUR, MINUTE, SECOND, format_time

MAX_SUB_BUCKETS = 256
MAX_METRICS_PER_REPORT = 1_000
"""Of a profile; a report may have more. Up to here a full partition holds dozens of reports, which a hash spreads evenly."""
VALUE_BYTES = 70
"""Of one value in a partition, uncompressed: a CQL row on Cassandra 5.0, with 58 bytes and its metric's name, say 12.

Measured with `sstablepartitions` on 20,000 numbers of 30 days' retention (tests/system/test_cassandra_sizes.py does it
again). It grows with what is unlike that: two short tags, which stand beside each value, made it 1.8 times as much.
"""
TARGET_PARTITION_BYTES = 4 << 20
"""What partitions are planned for: 2.5 times below 10 MiB, for names, texts and tags that take more than is assumed here."""

_ASSUMED_REPORTS_PER_S = 1.0
"""Of a device that does not say: the most that its bucket, which is an hour, is meant for."""
_ASSUMED_METRICS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a device is expected to do."""

    reports_per_s: float = 0.0
    """Its usual rate in event time; 0 means unknown."""
    max_reports_per_s: float = 0.0
    """What it may send at most; 0 means no limit."""
    metrics_per_report: int = 0
    """How many values a report usually has; 0 means unknown, and is taken for 10."""

    def __post_init__(self) -> None:
        for name in ("reports_per_s", "max_reports_per_s"):
            rate = getattr(self, name)
            if not 0 <= rate <= 1_000_000:
                raise Rejected(f"profile.{name} is {figure(rate)}: give 0 to 1,000,000", code="profile")
        if not 0 <= self.metrics_per_report <= MAX_METRICS_PER_REPORT:
            given = f"profile.metrics_per_report is {self.metrics_per_report}"
            raise Rejected(f"{given}: give 0 (unknown) to {MAX_METRICS_PER_REPORT}", code="profile")

    def bucket_width_us(self) -> int:
        """More than one report a second: 15 min; at least one a minute, or unknown: 1 h; fewer: 6 h."""
        if self.reports_per_s > 1:
            return 15 * MINUTE
        if self.reports_per_s == 0 or self.reports_per_s >= 1 / 60:
            return HOUR
        return 6 * HOUR

    def bucket_bytes(self) -> float:
        """What all partitions of a bucket weigh together, about."""
        return self._values_per_s() * (self.bucket_width_us() / SECOND) * VALUE_BYTES

    def sub_buckets(self) -> int:
        """Over how many partitions a bucket is spread: the least power of two that keeps them at the target.

        Powers of two, because each change is an epoch for ever, and rates are corrected by less than that. A profile that
        calls for more than there may be gets that many; `overload` says which those are.
        """
        needed = ceil(self.bucket_bytes() / TARGET_PARTITION_BYTES)
        return min(1 << max(needed - 1, 0).bit_length(), MAX_SUB_BUCKETS)

    def overload(self) -> str | None:
        """Why a device with this profile cannot be stored well, or None. What is stored is read all the same."""
        if self.bucket_bytes() <= MAX_SUB_BUCKETS * TARGET_PARTITION_BYTES:
            return None
        most = MAX_SUB_BUCKETS * TARGET_PARTITION_BYTES * SECOND // (VALUE_BYTES * self.bucket_width_us())
        return (
            f"{figure(self.reports_per_s)} reports/s of {self.metrics_per_report or _ASSUMED_METRICS} values "
            f"are too many for one device, which may have {most:,} values/s: split it into several, or, if it sends less, "
            "lower reports_per_s or metrics_per_report"
        )

    def _values_per_s(self) -> float:
        return (self.reports_per_s or _ASSUMED_REPORTS_PER_S) * (self.metrics_per_report or _ASSUMED_METRICS)


MAX_HARDWARE = 10
"""Pieces of hardware that a device remembers, the current one included."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What stands, or stood, in a device's place. Another one does not make it another device."""

    id: str
    since_us: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    name: str
    display_name: str = ""
    type: str = ""
    location: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    profile: Profile = field(default_factory=Profile)
    hardware: tuple[Hardware, ...] = ()
    """The current piece, and those before it, newest first. It changes by `swapped` alone."""
    created_us: int = 0
    revision: int = 0
    """Grows by one with each change; the ETag of the HTTP API."""


def swapped(device: Device, hardware: Hardware) -> Device:
    """The device with other hardware in its place; the same as before, if it is there already."""
    current = device.hardware[0] if device.hardware else None
    if current and current.id == hardware.id:
        return device
    if current and hardware.since_us < current.since_us:
        raise Rejected(f"{current.id!r} came later, at {format_time(current.since_us)}: give a later time", code="field")
    return replace(device, hardware=(hardware, *device.hardware)[:MAX_HARDWARE])


class MetricKind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    name: str
    kind: MetricKind = MetricKind.GAUGE
    unit: str = ""
    description: str = ""
    created_us: int = 0
    revision: int = 0
