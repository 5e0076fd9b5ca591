"""What a store says of itself: the version of its schema, and which tables it should have.

A version is MAJOR.MINOR. A minor one adds tables, so the release before still runs on it. A major one changes tables that
are there, and older releases refuse it. A store of an older version is brought to ours, step by step, when it is opened.
One that `widerow migrate` has not finished says so until it is whole: nobody opens it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from widerow.catalog.tenants import Tenants
from widerow.engine.port import Definition, Engine
from widerow.engine.rows import rows_of
from widerow.model.errors import ConfigError, Unavailable
from widerow.model.tenant import WIDTHS_US, Tenant
from widerow.model.times import HOUR, MS, SystemClock
from widerow.schema.rollups import DIRTY, HOURS, LEVELS, MARK_TABLES, NEWEST_HOURS, fleet, fleet_partials, rollups
from widerow.schema.shards import shard_of
from widerow.schema.table import Table
from widerow.schema.tables import (
    ALERT_EVENTS,
    ALERT_SETTINGS,
    ALERTS,
    AUDIT,
    DEAD_LETTERS,
    DEVICE_CONTROLS,
    DEVICE_SEATS,
    DEVICE_VERSIONS,
    LIMIT_SHARES,
    META,
    ONLINE,
    TABLES,
    telemetry,
)
from widerow.schema.usage import COUNTED_LEVELS, SERIES, USAGE, counts, totals

Version: TypeAlias = tuple[int, int]

SCHEMA: Version = (2, 4)
"""From 2 on reports are marked to be rolled up: a release that does not would leave some that never are."""
STEPS: dict[Version, Callable[[Engine], None]] = {
    (1, 1): lambda engine: engine.apply([DEVICE_VERSIONS]),
    (2, 0): lambda engine: _mark_everything(engine),  # noqa: PLW0108 - it stands further down
    (2, 1): lambda engine: engine.apply([DEAD_LETTERS, ONLINE]),
    (2, 2): lambda engine: engine.apply([AUDIT, DEVICE_CONTROLS, LIMIT_SHARES, DEVICE_SEATS, USAGE, SERIES]),
    (2, 3): lambda engine: engine.apply([NEWEST_HOURS]),
    (2, 4): lambda engine: engine.apply([ALERT_SETTINGS, ALERTS, ALERT_EVENTS]),
}
"""What brings a store from the version before to this one. May be interrupted and repeated."""

_KEY = ("schema",)
COPY = ("migration",)
"""How far a copy into the store is: see `widerow.migrate`."""


def tables_of(tenants: Tenants | None) -> list[Table]:
    """Every table the store should have: those of all stores, and the classes that its tenants use."""
    known = [Tenant(name="any"), *(tenants.list() if tenants else ())]
    raw = {keep_us for t in known for keep_us in (t.retention.raw_us, *(epoch.raw_us for epoch in t.raw_epochs))}
    kept = [epoch for tenant in known for epoch in tenant.rollups_kept()]
    classes = [(level, keep_us) for level in LEVELS for keep_us in sorted({getattr(e, f"{level.name}_us") for e in kept})]
    return [
        *TABLES,
        *MARK_TABLES,
        NEWEST_HOURS,
        USAGE,
        SERIES,
        *(telemetry(keep_us) for keep_us in sorted(raw)),
        *(rollups(level, keep_us) for level, keep_us in classes),
        *(table(keep_us) for table in (fleet, fleet_partials) for level, keep_us in classes if level is HOURS),
        *(table(level, keep_us) for table in (counts, totals) for level, keep_us in classes if level in COUNTED_LEVELS),
    ]


def outline(engine: Engine, tenants: Tenants | None) -> Sequence[Definition]:
    return engine.outline(tables_of(tenants))


def stored_version(engine: Engine) -> Version | None:
    """None: the store is new."""
    found = engine.get(META, _KEY)
    return None if found is None else _read(str(found["body"]))


def unfinished_copy(engine: Engine) -> str:
    """Where a store is being copied from that is not whole yet; empty: it is whole."""
    found = engine.get(META, COPY)
    progress = msgspec.json.decode(str(found["body"])) if found else {}
    return str(progress["source"]) if progress and not progress["done"] else ""


def bring_up(engine: Engine, schema: Version = SCHEMA, steps: dict[Version, Callable[[Engine], None]] | None = None) -> None:
    """Make the tables, and bring an older store to this version. `ConfigError`: a newer release changed it, or it is part of
    a copy.
    """
    engine.apply([*TABLES, *MARK_TABLES, NEWEST_HOURS, USAGE, SERIES])
    if source := unfinished_copy(engine):
        raise ConfigError(
            f"the store is an unfinished copy of {source}: go on with `widerow migrate {source} TO`, where TO is this store"
        )
    found = stored_version(engine)
    if found is None:
        engine.put_if(META, _KEY, {"body": _written(schema)}, None)
        found = stored_version(engine) or schema
    if found[0] > schema[0]:
        raise ConfigError(
            f"the store has schema {_written(found)}, this release knows {_written(schema)}: use a newer release"
        )
    for version, step in sorted((STEPS if steps is None else steps).items()):
        if found < version <= schema:
            step(engine)
            if not engine.put_if(META, _KEY, {"body": _written(version)}, {"body": _written(found)}):
                raise Unavailable("another process is changing the schema: try again in a moment")
            found = version


def _mark_everything(engine: Engine) -> None:
    """Have every hour rolled up that there are reports of: a look at each partition, and a mark for each hour in it."""
    engine.apply(MARK_TABLES)
    tables = [table for table in tables_of(Tenants(engine, SystemClock())) if "bucket" in [c.name for c in table.partition]]
    engine.apply(tables)
    for table in tables:
        for rows in engine.scan(table, None, limit=1):
            marks = {}
            for i in range(len(rows)):
                tenant, device, bucket, *_ = rows.key(table, i)
                # Only the widest buckets begin every six hours, but others do as well. A mark too many costs a look.
                width_us = WIDTHS_US[-1] if int(bucket) % WIDTHS_US[-1] == 0 else HOUR
                for hour_us in range(int(bucket) - int(bucket) % HOUR, int(bucket) + width_us, HOUR):
                    marks[tenant, shard_of(str(device)), hour_us, device] = {"since_us": float(MS)}
            engine.write([(DIRTY, rows_of(DIRTY, list(marks.items()), version_us=MS))])


def _written(version: Version) -> str:
    return f"{version[0]}.{version[1]}" if version[1] else str(version[0])


def _read(text: str) -> Version:
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)
