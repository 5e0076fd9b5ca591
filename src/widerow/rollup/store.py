"""Where rollups are: the tables of a tenant's levels, made when they are first needed."""

from __future__ import annotations

from collections.abc import Sequence

from widerow.engine.port import Engine, Span
from widerow.engine.rows import Key, Rows
from widerow.model.tenant import Tenant
from widerow.model.times import TimeSpan
from widerow.schema.rollups import DAYS, HOURS, MINUTES, Level, rollups
from widerow.schema.table import Table


def kept_us(tenant: Tenant, level: Level) -> int:
    """How long the rollups of a level can be read."""
    retention = tenant.retention
    return {MINUTES: retention.minute_us, HOURS: retention.hour_us, DAYS: retention.day_us}[level]


class Rollups:
    """Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._applied: set[str] = set()

    def table(self, tenant: Tenant, level: Level) -> Table:
        table = rollups(level, kept_us(tenant, level))
        if table.name not in self._applied:
            self._engine.apply([table])
            self._applied.add(table.name)
        return table

    def read(
        self, tenant: Tenant, devices: Sequence[str], level: Level, span: TimeSpan, *, metrics: Sequence[str] | None = None
    ) -> list[Rows]:
        """The rollups of devices whose windows begin within a span."""
        first = span.start_us - span.start_us % level.period_us
        periods = range(first, span.stop_us, level.period_us)
        keys: list[Key] = [(tenant.name, device, period) for device in devices for period in periods]
        return list(self._engine.scan(self.table(tenant, level), keys, Span(span.start_us, span.stop_us), columns=metrics))
