"""Devices and metrics, as the catalog knows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from widerow.model.errors import Rejected
from widerow.model.times import HOUR, MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a device is expected to do."""

    reports_per_s: float = 0.0
    """Its usual rate in event time; 0 means unknown."""
    max_reports_per_s: float = 0.0
    """What it may send at most; 0 means no limit."""

    def __post_init__(self) -> None:
        for name in ("reports_per_s", "max_reports_per_s"):
            rate = getattr(self, name)
            if not 0 <= rate <= 1_000_000:
                raise Rejected(f"profile.{name} is {rate:g}: give 0 to 1000000", code="profile")

    def bucket_width_us(self) -> int:
        """More than one report a second: 15 min; at least one a minute, or unknown: 1 h; fewer: 6 h."""
        if self.reports_per_s > 1:
            return 15 * MINUTE
        if self.reports_per_s == 0 or self.reports_per_s >= 1 / 60:
            return HOUR
        return 6 * HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    name: str
    display_name: str = ""
    type: str = ""
    location: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    profile: Profile = field(default_factory=Profile)
    created_us: int = 0
    revision: int = 0
    """Grows by one with each change; the ETag of the HTTP API."""


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
