"""The retention guard: how far rolling is behind, and how much time is left before what is still to be rolled is gone.

What rollups are computed from stays on disk for `GUARD_US` beyond its retention. As long as rolling keeps up nothing of that
is needed. When it is held up, data passes its retention and the margin shrinks; that is told while there is still time:
by figures, by `widerow doctor`, and by the log. Reports are still taken meanwhile: each stays at least `GUARD_US` more.
The figures are pure: they follow from what is marked, the tenants' retentions, and the present.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from widerow.engine.port import Engine
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import DAY, HOUR, MAX_TIME_US, MINUTE, SECOND, Clock, about_duration
from widerow.rollup.backlog import versions_of_units
from widerow.rollup.unit import Unit
from widerow.schema.rollups import DIRTY, DIRTY_DAYS, DIRTY_FLEET
from widerow.schema.table import Table

log = logging.getLogger(__name__)

LEVELS = {"hour": HOUR, "day": DAY, "fleet": HOUR}
"""What is rolled on its own, and how long its windows are. Minutes are rolled with their hour."""
TABLES: Mapping[str, Table] = {"hour": DIRTY, "day": DIRTY_DAYS, "fleet": DIRTY_FLEET}

LATE_US = 2 * HOUR
"""Who is further behind than this is not just busy."""
LEAST_MARGIN_US = GUARD_US // 2

_SILENT_US = 10 * MINUTE
"""The log says the same no more often than this; and nothing right after the start, when there is catching up to do."""
_LOOK_US = MINUTE
"""How old figures may be that the store must be read for."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How one level stands."""

    level: str
    pending: int
    """Windows, of a shard of devices each, that are marked."""
    behind_us: int
    """For how long the oldest of them has been due."""
    margin_us: int
    """How long what they are rolled from is there for sure, at most `GUARD_US`; 0: some of it may be gone."""


Pending = Mapping[str, Mapping[Unit, int]]
"""By level: what is marked, and when it was marked; 0: that is not known."""


def lags(pending: Pending, tenant_of: Callable[[str], Tenant | None], now_us: int, *, wait_us: int = 0) -> list[Lag]:
    """How the levels stand. `wait_us`: so long a window may rest after it ended, or was marked, before it is due."""
    tenants: dict[str, Tenant | None] = {}
    out = []
    for level, width_us in LEVELS.items():
        count, behind_us, margin_us = 0, 0, GUARD_US
        for unit, since_us in pending.get(level, {}).items():
            if unit.tenant not in tenants:
                tenants[unit.tenant] = tenant_of(unit.tenant)
            tenant = tenants[unit.tenant]
            if tenant is None:  # it was deleted, and its data with it
                continue
            count += 1
            since_us = since_us if since_us <= now_us else 0  # noqa: PLW2901 - versions may be ahead of the clock
            behind_us = max(behind_us, now_us - max(unit.start_us + width_us, since_us) - wait_us)
            margin_us = min(margin_us, _inputs_until_us(tenant, level, unit.start_us) + GUARD_US - now_us)
        out.append(Lag(level, count, behind_us, max(margin_us, 0)))
    return out


def _inputs_until_us(tenant: Tenant, level: str, start_us: int) -> int:
    """Until when all that a window is rolled from can be read. Retention may have changed within it."""
    stop_us = start_us + LEVELS[level]
    epochs = tenant.raw_held() if level == "hour" else tenant.rollups_held("hour")
    within = (held for held in epochs if held.keep_us and held.start_us < stop_us and start_us < held.stop_us)
    return min((max(held.start_us, start_us) + held.keep_us for held in within), default=MAX_TIME_US)


def marked_in_store(engine: Engine) -> Pending:
    """As the store has it: for processes that do not roll."""
    return {level: versions_of_units(table, engine.scan(table, None), newest=False) for level, table in TABLES.items()}


class Guard:
    """Looks at how rolling stands, and raises the alarm. Safe to share between threads."""

    def __init__(
        self,
        pending: Callable[[], Pending],
        tenant_of: Callable[[str], Tenant | None],
        clock: Clock,
        *,
        wait_us: int,
        reads_store: bool,
    ) -> None:
        """`reads_store`: asking what is pending is costly, and not done more than once a minute."""
        self._pending, self._tenant_of, self._clock = pending, tenant_of, clock
        self._wait_us, self._fresh_us = wait_us, _LOOK_US if reads_store else 0
        self._lock = threading.Lock()
        self._last: tuple[int, list[Lag]] | None = None
        self._told_us: dict[str, int] = dict.fromkeys(LEVELS, clock.now_us())

    def look(self) -> list[Lag]:
        """How the levels stand; what is wrong with them is logged, if it was not lately."""
        with self._lock:
            now_us = self._clock.now_us()
            if self._last is None or self._last[0] + self._fresh_us <= now_us:
                self._last = now_us, lags(self._pending(), self._tenant_of, now_us, wait_us=self._wait_us)
                self._tell(self._last[1], now_us)
            return self._last[1]

    def _tell(self, found: Iterable[Lag], now_us: int) -> None:
        for lag in found:
            if lag.behind_us <= LATE_US or self._told_us[lag.level] + _SILENT_US > now_us:
                continue
            self._told_us[lag.level] = now_us
            short = lag.margin_us < LEAST_MARGIN_US
            log.log(
                logging.ERROR if short else logging.WARNING,
                "rollups: level %s is %s behind, %d windows wait; their sources are there for %s more%s",
                lag.level,
                about_duration(lag.behind_us),
                lag.pending,
                about_duration(lag.margin_us),
                ": they will be lost" if short else "",
            )


def standing(found: Iterable[Lag]) -> dict[str, object]:
    """For `GET /v1/status`."""
    levels = {
        lag.level: {"behind_s": lag.behind_us // SECOND, "margin_s": lag.margin_us // SECOND, "pending": lag.pending}
        for lag in found
    }
    return {
        "behind_s": max(level["behind_s"] for level in levels.values()),
        "margin_s": min(level["margin_s"] for level in levels.values()),
        "pending": sum(level["pending"] for level in levels.values()),
        "levels": levels,
    }
