"""Where a store has copies that follow with a delay, only answers to questions about reports may come from those."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from widerow.catalog.catalog import Catalog
from widerow.engine.memory import MemoryEngine
from widerow.engine.rows import Key, Row, Rows
from widerow.model.batch import Report, batch_of
from widerow.model.device import Device
from widerow.model.tenant import Tenant
from widerow.model.times import HOUR, MS, SECOND, ManualClock, TimeSpan
from widerow.query.queries import Queries
from widerow.rollup.dirt import CLEAN
from widerow.rollup.store import Rollups
from widerow.schema.table import Table
from widerow.schema.tables import TABLES
from widerow.telemetry.store import Telemetry, TelemetrySettings

NOW_US = 1_760_000_000 * SECOND


class Watched(MemoryEngine):
    """Notes which tables were read, and whether that might have lagged."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.read: set[tuple[str, bool]] = set()

    def get(self, table: Table, key: Key, *, may_lag: bool = False) -> Row | None:
        self.read.add((table.name, may_lag))
        return next((rows.row(0) for rows in super().scan(table, [key])), None)

    def scan(self, table: Table, *args: Any, **options: Any) -> Iterator[Rows]:
        self.read.add((table.name, options.get("may_lag", False)))
        return super().scan(table, *args, **options)


def test_only_reports_that_are_asked_for_may_lag() -> None:
    clock = ManualClock(NOW_US)
    engine = Watched(clock)
    engine.apply(TABLES)
    catalog = Catalog(engine, clock)
    telemetry = Telemetry(engine, clock, TelemetrySettings(max_future_us=SECOND, refresh_us=SECOND))
    tenant = catalog.tenants.create(Tenant(name="acme"))
    for name in ("a", "b"):
        catalog.devices.create(tenant, Device(name=name))
    telemetry.write(tenant, batch_of([Report(name, NOW_US - MS, {"x": 1.0}, {}, NOW_US) for name in ("a", "b")]))
    span = TimeSpan(NOW_US - HOUR, NOW_US)
    list(telemetry.read(tenant, "a", span))
    telemetry.latest(tenant, ["a"])
    mark = telemetry.erase(tenant, device="b")
    telemetry.purge(tenant.name, mark, ["b"])
    assert not [name for name, may_lag in engine.read if may_lag], "unless it is said"

    engine.read.clear()
    clock.time_us += 2 * SECOND
    rollups = Rollups(engine, clock, telemetry.erasure)
    queries = Queries(telemetry, catalog, rollups, lambda _tenant, _devices: CLEAN, clock)
    assert len(queries.series(tenant, "a", span=span, limit=10).points) == 1
    assert len(queries.latest(tenant, ["a"])) == 1
    assert len(queries.latest(tenant, ["a", "b"])) == 1
    lagging = {name for name, may_lag in engine.read if may_lag}
    exact = {name for name, may_lag in engine.read if not may_lag}
    assert lagging == {"telemetry_30d", "last_seen"}
    assert not lagging & exact
    assert {"erased", "placements"} <= exact, "what hides and places them is always as it was written last"
