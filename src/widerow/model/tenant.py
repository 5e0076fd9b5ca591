"""Tenants: who owns devices, limits, retention and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from widerow.model.errors import Rejected
from widerow.model.hot import Step, StepMode
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, format_duration

ANY_NUMBER = 1 << 62
"""Where a number is not limited."""

FOREVER = 0
"""A retention of nothing less than for ever."""

ROW_ATTRIBUTES = ("type", "location")
"""What of a device can be stored with each of its reports."""

GUARD_US = 7 * DAY
"""How much longer than its retention data stays on disk, so that a late roll still finds what it summarises."""

_END_US = 1 << 62
"""Later than everything."""
MIN_RETENTION_US = HOUR
MAX_RETENTION_US = 20 * 365 * DAY


class LimitMode(StrEnum):
    """What becomes of what is over a limit."""

    ENFORCE = "enforce"
    """It is refused."""
    SHADOW = "shadow"
    """It passes, and is counted as what would have been refused."""
    OFF = "off"
    """It passes, as if there were no limit."""


BURST_S = 10
"""How many seconds of its rate a tenant may send at once, unless it says otherwise: devices that report every ten seconds
may all do so in the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a tenant may use. 0 means no limit."""

    writes_per_s: int = 0
    """Reports accepted per second, sustained. Backlog has as much again of its own."""
    writes_burst: int = 0
    """Reports accepted at once, when none came for a while; 0: what ten seconds at `writes_per_s` bring."""
    storage_bytes: int = 0
    """Bytes kept on disk, all levels together."""
    devices: int = 0
    """Devices registered at one time. Exact: a registration is atomic."""
    series: int = 0
    """Distinct (device, metric) pairs."""
    values_per_report: int = 1_000
    """Values and tags of one report; of a line of line protocol, also those that repeat."""
    query_rows: int = 0
    """Rows that one question may read, instead of `query.max_rows`; 0: that one holds."""
    query_seconds: int = 0
    """Seconds that one question may take, instead of `query.timeout_s`; 0: that one holds."""
    query_cost_per_s: int = 0
    """Rows that all its questions together may read per second, sustained, for each process that answers."""
    query_cost_burst: int = 0
    """Rows that may be read at once, when none were for a while; 0: what ten seconds at `query_cost_per_s` allow."""

    @property
    def most_values(self) -> int:
        """Values and tags that one report may have."""
        return self.values_per_report or ANY_NUMBER


MODED = ("writes_per_s", "storage_bytes", "devices", "series", "device_reports_per_s", "query_cost_per_s")
"""The limits that can be tried out or switched off; `device_reports_per_s` is what the profiles of devices allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long each level of a tenant's data can be read."""

    raw_us: int = 30 * DAY
    minute_us: int = 90 * DAY
    hour_us: int = 365 * DAY
    day_us: int = FOREVER

    def __post_init__(self) -> None:
        levels = (self.raw_us, self.minute_us, self.hour_us, self.day_us)
        for name, keep_us in zip(("raw", "minute", "hour", "day"), levels, strict=True):
            if keep_us != FOREVER and not MIN_RETENTION_US <= keep_us <= MAX_RETENTION_US:
                raise Rejected(
                    f"retention.{name} is {format_duration(keep_us)}: give 1h to 7300d, or 0 for ever", code="retention"
                )
            if keep_us != FOREVER and keep_us % SECOND:
                raise Rejected(f"retention.{name} must be whole seconds", code="retention")
        lengths = [keep_us or MAX_RETENTION_US + 1 for keep_us in levels]
        if lengths != sorted(lengths):
            raise Rejected("retention: raw may not outlive minute, minute not hour, hour not day", code="retention")


@dataclass(frozen=True, slots=True)
class RetentionEpoch:
    """From this event time on, raw data is kept this long. Insert-only, so that old data is found where it was put."""

    from_us: int
    raw_us: int


@dataclass(frozen=True, slots=True)
class RollupEpoch:
    """From this event time on, rollups are kept so long, by the start of their window. Insert-only, too."""

    from_us: int
    minute_us: int
    hour_us: int
    day_us: int


@dataclass(frozen=True, slots=True)
class Held:
    """Event times of one retention: how long their data stays on disk (without the guard), and how long it can be read.

    0: for ever. A shorter retention holds for what is stored already, too, at once. A longer one does not: what could no
    longer be read does not come back.
    """

    start_us: int
    stop_us: int
    keep_us: int
    shown_us: int


def _held(epochs: Sequence[tuple[int, int]]) -> tuple[Held, ...]:
    """Of epochs (start, retention), oldest first: what is shown is the shortest of theirs and those after them."""
    out: list[Held] = []
    stop_us, shown_us = _END_US, FOREVER
    for k, (from_us, keep_us) in reversed(list(enumerate(epochs))):
        shown_us = min(keep_us, shown_us) if keep_us and shown_us else keep_us or shown_us
        start_us = from_us if k else 0
        out.append(Held(start_us, stop_us, keep_us, shown_us))
        stop_us = start_us
    return tuple(reversed(out))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    name: str
    display_name: str = ""
    limits: Limits = field(default_factory=Limits)
    limit_modes: dict[str, LimitMode] = field(default_factory=dict)
    """Of the limits that are not enforced, by name (`MODED`): in shadow, or off."""
    hot_steps: dict[Step, StepMode] = field(default_factory=dict)
    """What may be done about devices that send far too much, where that is not the default (`DEFAULT_MODES`)."""
    retention: Retention = field(default_factory=Retention)
    raw_epochs: tuple[RetentionEpoch, ...] = ()
    """Which raw retention held from which event time on, oldest first; before the first, the first holds."""
    rollup_epochs: tuple[RollupEpoch, ...] = ()
    """The same for rollups."""
    registers_devices: bool = True
    """Whether a device is registered by its first report. Otherwise reports of unknown devices are refused."""
    row_attributes: tuple[str, ...] = ()
    """Attributes of devices that are stored with each report, as tags: for clients that read the store directly."""
    device_tags: tuple[str, ...] = ()
    """Of line protocol: the first of these tags that is there names the device. None: `line.device_tags` holds."""
    attribute_tags: tuple[str, ...] = ()
    """Of line protocol: tags that are attributes of the report, not labels. None: `line.attribute_tags` holds."""
    created_us: int = 0
    revision: int = 0
    """Grows by one with each change; an update must name the one it saw."""

    def mode(self, limit: str) -> LimitMode:
        return self.limit_modes.get(limit, LimitMode.ENFORCE)

    def raw_keep_us(self, time_us: int) -> int:
        """How long a report of that event time is kept."""
        keep_us = self.raw_epochs[0].raw_us if self.raw_epochs else self.retention.raw_us
        for epoch in self.raw_epochs:
            if epoch.from_us <= time_us:
                keep_us = epoch.raw_us
        return keep_us

    def raw_held(self) -> tuple[Held, ...]:
        """The retentions of raw reports, by event time."""
        return _held([(e.from_us, e.raw_us) for e in self.raw_epochs] or [(0, self.retention.raw_us)])

    def rollups_held(self, level: str) -> tuple[Held, ...]:
        """The same of a level of rollups, by the start of their windows."""
        return _held([(epoch.from_us, getattr(epoch, f"{level}_us")) for epoch in self.rollups_kept()])

    def rollups_kept(self) -> tuple[RollupEpoch, ...]:
        """Which retention of rollups holds from which event time on, oldest first; the first from the beginning of time."""
        levels = self.retention
        return self.rollup_epochs or (RollupEpoch(0, levels.minute_us, levels.hour_us, levels.day_us),)


WIDTHS_US = (15 * MINUTE, HOUR, 6 * HOUR)
"""The bucket widths there are."""
