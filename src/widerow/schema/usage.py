"""The tables of what tenants used and what they have stored.

Use is recorded, by hour and process. What is stored is counted by rolls, as a function of what is there: for each device
and hour, and put together for each shard. Windows of these counts are classed as the hours and days they stand beside.
"""

from __future__ import annotations

from functools import lru_cache

from widerow.model.tenant import GUARD_US
from widerow.model.times import DAY, HOUR
from widerow.schema.rollups import DAYS, HOURS, Level
from widerow.schema.table import KeyColumn, Moment, Table, Window
from widerow.schema.tables import class_name, window_width_us

MOST_USAGE_DAYS = 800
"""The longest that recorded use is kept. Each row says itself until when it is."""

USAGE = Table(
    "usage",
    partition=(KeyColumn("tenant_id"), KeyColumn("day", "int")),
    clustering=(KeyColumn("hour_us", "int"), KeyColumn("process")),
    window=Window("day", window_width_us(MOST_USAGE_DAYS * DAY), (MOST_USAGE_DAYS + 1) * DAY),
    moments=(Moment("day", DAY, "day"), Moment("hour_us", HOUR, "hour_bucket")),
)
"""What a process did for a tenant within an hour, so far: whole values, so that writing a row again changes nothing.

Cells: numbers by name, `refused:CODE` and `limit:NAME` among them, and two records, `live` and `backlog`: the reports that
were offered in each second of the hour (docs/format/usage.md).
"""

SERIES = Table(
    "series",
    partition=(KeyColumn("tenant_id"), KeyColumn("shard", "int")),
    clustering=(KeyColumn("device_id"),),
)
"""The metrics that devices had, of tenants whose series are limited: a number for each, when it was first accepted."""

COUNTED_LEVELS = (HOURS, DAYS)
"""The levels whose rolls count what is stored."""

TOTALS_PERIOD_US = 30 * DAY
"""The period of time whose totals of a tenant lie together."""


@lru_cache(maxsize=256)
def counts(level: Level, keep_us: int) -> Table:
    """What is stored of each device, by hour or by day. Cells: `event_count`, a number, and `sizes`, a record."""
    return Table(
        class_name("telemetry_by_tenant" if level is HOURS else "telemetry_by_tenant_daily", keep_us),
        partition=(KeyColumn("tenant_id"), KeyColumn("bucket", "int"), KeyColumn("shard", "int")),
        clustering=(KeyColumn("device_id"),),
        window=_window("bucket", level.width_us, level, keep_us),
        prefix=f"use#{level.name}",
        moments=(Moment("bucket", level.width_us, level.known_as[1]),),
    )


@lru_cache(maxsize=256)
def totals(level: Level, keep_us: int) -> Table:
    """The same of all devices of a shard, summed up. Cells: numbers."""
    return Table(
        class_name("stored_hourly" if level is HOURS else "stored_daily", keep_us),
        partition=(KeyColumn("tenant_id"), KeyColumn("period", "int")),
        clustering=(KeyColumn("start_us", "int"), KeyColumn("shard", "int")),
        window=_window("period", TOTALS_PERIOD_US, level, keep_us),
        prefix=f"use#{level.name}-shard",
        moments=(Moment("period", TOTALS_PERIOD_US, "period"), Moment("start_us", level.width_us, level.known_as[1])),
    )


def _window(column: str, period_us: int, level: Level, keep_us: int) -> Window | None:
    """A period never outlives its window."""
    if not keep_us:
        return None
    width_us = -(-window_width_us(keep_us) // period_us) * period_us
    return Window(column, width_us, level.width_us + keep_us + GUARD_US)
