"""The tables of rollups: a row for each device and window, in it a record for each metric.

Every level has a table per retention class, as raw reports have. A partition is one device over one period.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from widerow.model.tenant import GUARD_US
from widerow.model.times import DAY, HOUR, MINUTE
from widerow.schema.table import KeyColumn, Moment, Summaries, Table, Window
from widerow.schema.tables import class_name, window_width_us


@dataclass(frozen=True, slots=True)
class Level:
    """A width of windows, and the period of time whose windows of a device lie together."""

    name: str
    table: str
    width_us: int
    period_us: int
    known_as: tuple[str, str]
    """What people call a period and a window."""


MINUTES = Level("minute", "telemetry_1min", MINUTE, DAY, ("day", "minute"))
HOURS = Level("hour", "telemetry_hourly", HOUR, 30 * DAY, ("period", "hour_bucket"))
DAYS = Level("day", "telemetry_daily", DAY, 365 * DAY, ("period", "day"))
LEVELS = (MINUTES, HOURS, DAYS)
"""From fine to coarse. Windows and periods begin at multiples of their widths since 1970, in UTC."""

STATISTICS = tuple(
    "count min max sum avg stddev p50 p95 p99 increase first first_time last last_time".split()  # noqa: SIM905 - a line
)
"""What people see of a rollup, where an engine has columns for it."""

_SHARD = (KeyColumn("tenant_id"), KeyColumn("shard", "int"))
_SINCE = ("since_us",)

DIRTY = Table("dirty", partition=_SHARD, clustering=(KeyColumn("hour_us", "int"), KeyColumn("device_id")), columns=_SINCE)
"""Hours of devices whose rollups may not say what their reports say. Written before the reports, removed after the roll."""

DIRTY_DAYS = Table(
    "dirty_days", partition=_SHARD, clustering=(KeyColumn("day_us", "int"), KeyColumn("device_id")), columns=_SINCE
)
"""Days of devices whose row may not say what their hours say. Written with the hours, removed after the day is rolled."""

DIRTY_FLEET = Table("dirty_fleet", partition=_SHARD, clustering=(KeyColumn("hour_us", "int"),), columns=_SINCE)
"""Hours in which what the fleet's rows say of a shard may not be what the hours of its devices say."""

MARK_TABLES = (DIRTY, DIRTY_DAYS, DIRTY_FLEET)

NEWEST_HOURS = Table("newest_hours", partition=_SHARD, clustering=(KeyColumn("device_id"),), columns=("hours",))
"""In which hour each metric of a device has its newest value (`rollup.newest`), as far as hours are rolled."""


@lru_cache(maxsize=256)
def rollups(level: Level, keep_us: int) -> Table:
    """The rollups of one level and retention class (0: for ever)."""
    width_us = -(-window_width_us(keep_us) // level.period_us) * level.period_us  # a period never outlives its window
    period, window = level.known_as
    return Table(
        class_name(level.table, keep_us),
        partition=(KeyColumn("tenant_id"), KeyColumn("device_id"), KeyColumn("period", "int")),
        clustering=(KeyColumn("start_us", "int", descending=True),),
        # A row is kept from the end of its window on. Engines count from the begin, which is in its key.
        window=Window("period", width_us, level.width_us + keep_us + GUARD_US) if keep_us else None,
        prefix=f"agg#{level.name}",
        moments=(Moment("period", level.period_us, period), Moment("start_us", level.width_us, window)),
        summaries=Summaries("start_us", tuple((name, name) for name in STATISTICS)),
        # Hours and days are asked for a metric over months. A device's minutes are many, and written once: one row each.
        by_column=level is not MINUTES,
    )


FLEET_PERIOD_US = 7 * DAY
PARTIALS_PERIOD_US = DAY
"""The periods of time whose hours of a fleet lie together: of all its devices, and of those of one shard."""

FLEET = Level("fleet", "fleet_telemetry_hourly", HOUR, FLEET_PERIOD_US, ("period", "hour_bucket"))
"""The hours of fleets, where they are named beside the levels of devices. Their rows have keys of their own."""

FLEET_STATISTICS = (
    ("device_count", "devices"),
    ("total_readings", "count"),
    *((f"fleet_{name}", name) for name in ("min", "max", "avg", "stddev", "sum", "p50", "p95", "p99")),
)
"""What people see of a fleet's record, where an engine has columns for it."""

MOST_TYPES = 256
"""Types of devices whose hours are summed up apart, for each tenant and hour; the first by their bytes."""


@lru_cache(maxsize=64)
def fleet(keep_us: int) -> Table:
    """What all devices of a tenant say of an hour; and those of a type, a partition each. The empty type is all devices."""
    return Table(
        class_name("fleet_telemetry_hourly", keep_us),
        partition=(KeyColumn("tenant_id"), KeyColumn("device_type"), KeyColumn("period", "int")),
        clustering=(KeyColumn("hour_us", "int", descending=True),),
        window=_window(FLEET_PERIOD_US, keep_us),
        prefix="agg#fleet",
        moments=(Moment("period", FLEET_PERIOD_US, "period"), Moment("hour_us", HOUR, "hour_bucket")),
        summaries=Summaries("hour_us", FLEET_STATISTICS),
    )


@lru_cache(maxsize=64)
def fleet_partials(keep_us: int) -> Table:
    """The same of the devices of one shard: what a fleet's hours are put together from."""
    return Table(
        class_name("fleet_partials_hourly", keep_us),
        partition=(KeyColumn("tenant_id"), KeyColumn("shard", "int"), KeyColumn("period", "int")),
        clustering=(KeyColumn("hour_us", "int"), KeyColumn("device_type")),
        window=_window(PARTIALS_PERIOD_US, keep_us),
        prefix="agg#fleet-shard",
        moments=(Moment("period", PARTIALS_PERIOD_US, "day"), Moment("hour_us", HOUR, "hour_bucket")),
        summaries=Summaries("hour_us", FLEET_STATISTICS),
    )


def _window(period_us: int, keep_us: int) -> Window | None:
    """A period never outlives its window."""
    if not keep_us:
        return None
    return Window("period", -(-window_width_us(keep_us) // period_us) * period_us, HOUR + keep_us + GUARD_US)
