"""Whether what a rollup is computed from is still there, all of it.

Rule: where it is not, nothing is computed again, and what was rolled stays as it is: of what is left it would say less.
Data is on disk for `GUARD_US` beyond the retention that held at its time. A span may have several, each for a part of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from widerow.model.tenant import GUARD_US, Held, Tenant
from widerow.model.times import DAY, HOUR, MINUTE, TimeSpan
from widerow.schema.rollups import HOURS, Level

EXPIRING_US = 10 * MINUTE
"""What expires so soon counts as gone: it might go while it is looked at."""


def raw_is_there(tenant: Tenant, hour_us: int, now_us: int) -> bool:
    """Whether no raw report of an hour is gone yet."""
    return _is_there(tenant.raw_held(), TimeSpan(hour_us, hour_us + HOUR), now_us)


def windows_are_there(tenant: Tenant, level: Level, hour_us: int, now_us: int) -> bool:
    """The same for the windows of a level that begin in the hour."""
    return _is_there(tenant.rollups_held(level.name), TimeSpan(hour_us, hour_us + HOUR - level.width_us + 1), now_us)


def hours_are_there(tenant: Tenant, day_us: int, now_us: int) -> bool:
    """The same for the hours of a day."""
    return _is_there(tenant.rollups_held(HOURS.name), TimeSpan(day_us, day_us + DAY - HOUR + 1), now_us)


def _is_there(retentions: Iterable[Held], span: TimeSpan, now_us: int) -> bool:
    return all(
        held.keep_us == 0 or max(held.start_us, span.start_us) > now_us - held.keep_us - GUARD_US + EXPIRING_US
        for held in retentions
        if held.start_us < span.stop_us and held.stop_us > span.start_us
    )
