"""The law of rollups, on any engine: whatever happened on the way, they say what one computation from raw says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeAlias

import numpy as np

from widerow.catalog.catalog import Catalog
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.engine.rows import Rows
from widerow.model.batch import Batch, CellKind, Report, Value, batch_of
from widerow.model.device import Device
from widerow.model.names import Names
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.rollup.compare import records_of
from widerow.rollup.fleet import Fleet, type_tags
from widerow.rollup.fleet_summary import ALL_TYPES
from widerow.rollup.marks import Marks
from widerow.rollup.repair import Repairer
from widerow.rollup.roll import Roller
from widerow.rollup.store import Rollups
from widerow.rollup.verify import Finding, Kind, Verifier
from widerow.rollup.versions import Versions
from widerow.rollup.windows import Windows, WindowSettings
from widerow.schema.rollups import DAYS, HOURS, LEVELS, Level, fleet, fleet_partials
from widerow.schema.shards import SHARDS
from widerow.schema.table import Table
from widerow.schema.tables import TABLES
from widerow.telemetry.store import Telemetry, TelemetrySettings

NOW = 1_800_000_000_000_000
DEVICES = ("a", "b", "ü#/")
TYPES = {"a": "pump", "b": "press %#/ü"}
TENANT = Tenant(name="acme")

Records: TypeAlias = dict[Any, bytes]
Action: TypeAlias = tuple[Any, ...]
"""("write", cells, how old its version is), or ("roll",), ("close",), ("restart",), ("again",), ("fail",)."""


class Site:
    """A store with what writes and rolls it; `restart` forgets everything that is not in the store."""

    def __init__(self, engine: Engine, clock: ManualClock, tenant: Tenant = TENANT) -> None:
        self.engine, self.clock, self.tenant = engine, clock, tenant
        engine.apply(TABLES)
        self.started = False
        self.restart()
        self.catalog.devices.apply(tenant, [Device(name=name, type=type_) for name, type_ in TYPES.items()])

    def restart(self) -> None:
        self.telemetry = Telemetry(self.engine, self.clock, TelemetrySettings(max_future_us=HOUR, refresh_us=SECOND))
        self.marks = Marks(self.engine, self.clock)
        self.rollups = Rollups(self.engine, self.clock, self.telemetry.erasure)
        settings = WindowSettings(lateness_us=MINUTE, rest_us=SECOND, late_us=0)
        # Whoever wrote before could write as far ahead as is allowed.
        alone_from_us = self.clock.time_us + HOUR + 1 if self.started else 0
        self.windows = Windows(self.clock, settings, alone_from_us=alone_from_us)
        self.started = True
        self.catalog = Catalog(self.engine, self.clock)
        versions = Versions(self.clock, lambda _: None)  # this clock goes on when it is told to
        self.roller = Roller(
            self.engine,
            self.telemetry,
            self.rollups,
            self.marks,
            self.clock,
            self.windows,
            type_tags(self.catalog.attributes),
            versions,
        )
        self.counts = self.roller.counts
        self.fleet = Fleet(
            self.engine, self.rollups, self.roller.fleet, self.catalog, self.clock, versions, counts=self.counts
        )
        self.roller.recover()

    def write(self, reports: list[Report] | Batch, *, written: bool = True, fresh: Names | None = None) -> None:
        batch = reports if isinstance(reports, Batch) else batch_of(reports)
        self.catalog.devices.register(self.tenant, batch.device.names)
        plan, marks = self.telemetry.plan(self.tenant, batch), self.marks.plan(self.tenant.name, batch)
        # A write that fails leaves whole earlier entries: here the marks alone.
        self.engine.write([*marks.changes, *plan.changes] if written else marks.changes)
        if written:
            self.telemetry.written(plan)
        self.windows.add(self.tenant.name, plan.reports, fresh=fresh, written=written)
        self.marks.settle(marks, written=written)

    def roll(self, most: int | None = None) -> None:
        for unit in sorted(self.marks.pending())[:most]:
            self.roller.roll(self.tenant, unit)
        for unit in sorted(self.roller.days.pending())[:most]:
            self.roller.roll_day(self.tenant, unit)
        for unit in sorted(self.roller.fleet.pending())[:most]:
            self.fleet.roll(self.tenant, unit)

    def records(self) -> Records:
        """(level, device, window, metric) -> record."""
        found: Records = {}
        span = TimeSpan(NOW - 40 * DAY, NOW + DAY)
        for level in LEVELS:
            for device in DEVICES:
                for rows in self.rollups.read(self.tenant, [device], level, span):
                    starts = np.asarray(rows.keys["start_us"])
                    for i in range(len(rows)):
                        for c in range(int(rows.cells.offsets[i]), int(rows.cells.offsets[i + 1])):
                            if rows.cells.kind[c] != CellKind.RECORD:
                                continue
                            key = (level.name, device, int(starts[i]), rows.cells.names[int(rows.cells.name[c])])
                            assert key not in found
                            found[key] = rows.cells.texts.bytes_at(int(rows.cells.text[c]))
        return found

    def stored(self, level: Level, starts: Iterable[int]) -> dict[tuple[str, int], tuple[int, ...]]:
        """(device, window) -> reports, and what they and what is rolled from them take."""
        found: dict[tuple[str, int], tuple[int, ...]] = {}
        for start_us in starts:
            for shard in range(SHARDS):
                for part in self.counts.of_shard(self.tenant, level, start_us, shard):
                    columns = (part.device.to_list(), part.reports.tolist(), part.sizes.tolist())
                    for device, reports, sizes in zip(*columns, strict=True):
                        assert (device, start_us) not in found
                        found[device, start_us] = (reports, *sizes)
        return found

    def sums(self, level: Level) -> dict[int, list[int]]:
        """Window -> devices, reports and sizes of all shards together; without those that have nothing."""
        found: dict[int, list[int]] = {}
        for starts, rows in self.counts.sums(self.tenant, level, TimeSpan(NOW - 40 * DAY, NOW + DAY)):
            for start_us, row in zip(starts.tolist(), rows.tolist(), strict=True):
                found[start_us] = [a + b for a, b in zip(found.get(start_us, [0] * len(row)), row, strict=True)]
        return {start_us: row for start_us, row in found.items() if any(row)}

    def fleet_records(self) -> Records:
        """(table, key, kind, name) -> text or record: all cells of the fleet's hours and of those of its shards."""
        span = TimeSpan(NOW - 40 * DAY, NOW + DAY)
        keep_us = self.tenant.retention.hour_us
        whole = self.fleet.store.hours(self.tenant, [ALL_TYPES, *TYPES.values()], span)
        partials = self.fleet.store.partials(self.tenant, range(SHARDS), span)
        return {**cells_of(fleet(keep_us), whole), **cells_of(fleet_partials(keep_us), partials)}


def cells_of(table: Table, chunks: list[Rows]) -> Records:
    found: Records = {}
    for rows in chunks:
        cells = rows.cells
        for i in range(len(rows)):
            for c in range(int(cells.offsets[i]), int(cells.offsets[i + 1])):
                key = (table.name, rows.key(table, i), int(cells.kind[c]), cells.names[int(cells.name[c])])
                assert key not in found
                found[key] = cells.texts.bytes_at(int(cells.text[c]))
    return found


def reports_of(cells: Sequence[tuple[str, int, str, Value]], version_us: int) -> list[Report]:
    """One report for each device and time; of a metric that is given twice the last counts."""
    rows: dict[tuple[str, int], dict[str, Value]] = {}
    for device, at, metric, value in cells:
        rows.setdefault((device, at), {})[metric] = value
    return [Report(device, at, values, {}, version_us) for (device, at), values in rows.items()]


def check_law(engine: Engine, clock: ManualClock, history: list[Action], tenant: Tenant = TENANT) -> None:
    site = Site(engine, clock, tenant)
    sent: list[list[Report]] = []
    for n, action in enumerate(history):
        clock.time_us += 7 * MS
        if action[0] == "write":
            # Some come with the version of long ago: a replay, or a slow way.
            batch = reports_of(action[1], NOW + (n - action[2]) * MS * 10)
            sent.append(batch)
            site.write(batch)
        elif action[0] == "again" and sent:
            site.write(sent[n % len(sent)])
        elif action[0] == "fail":
            site.write(reports_of([("a", NOW - HOUR, "temp", 1.0)], NOW), written=False)
        elif action[0] == "restart":
            site.restart()
        elif action[0] == "close":
            site.roller.close(tenant)
        else:
            site.roll(most=2)
    site.roll()
    assert not [unit for unit in site.marks.units() if unit.tenant == tenant.name], "everything that was marked is rolled"
    alone_clock = ManualClock(clock.time_us)
    alone = Site(MemoryEngine(alone_clock), alone_clock, tenant)
    for batch in sent:
        alone.write(batch)
    alone.roll()
    assert site.records() == alone.records()
    assert site.roller.fleet.pending() == {}
    assert site.fleet_records() == alone.fleet_records()
    check_stored(site, alone, [report for batch in sent for report in batch])


def check_stored(site: Site, alone: Site, sent: Iterable[Report]) -> None:
    """What is counted as stored is what was sent, each time of a device once, and adds up."""
    ledger = Counter((device, at - at % HOUR) for device, at in {(r.device, r.time_us) for r in sent})
    hours = {hour_us for _, hour_us in ledger}
    stored = site.stored(HOURS, hours)
    assert {key: counted[0] for key, counted in stored.items()} == ledger
    assert stored == alone.stored(HOURS, hours)
    for level in (HOURS, DAYS):
        assert site.sums(level) == alone.sums(level)
        each = site.stored(level, {at - at % level.width_us for at in hours})
        assert {start_us: row[1:] for start_us, row in site.sums(level).items()} == {
            start_us: [sum(column) for column in zip(*(row for (_, at), row in each.items() if at == start_us), strict=True)]
            for start_us in {at for _, at in each}
        }


def any_history(random: Random) -> list[Action]:
    """As Hypothesis would make one, for engines too slow for hundreds of them."""

    def cell() -> tuple[str, int, str, Value]:
        at = NOW - random.randrange(200) * 37 * SECOND if random.random() < 0.5 else NOW - random.randint(1, 720) * HOUR
        value: Value = random.choice(["on", "off"]) if random.random() < 0.2 else random.randint(-1000, 1000) / 8
        return random.choice(DEVICES), at, random.choice(["temp", "flow"]), value

    kinds = ["write", "write", "write", "close", "roll", "restart", "again", "fail"]
    return [
        ("write", [cell() for _ in range(random.randint(1, 12))], random.randint(0, 3)) if kind == "write" else (kind,)
        for kind in random.choices(kinds, k=10)
    ]


# -- what is stored, and what of it is wrong


def all_stored(site: Site) -> dict[Any, tuple[bytes, int]]:
    """(level, device, window, metric) -> record and version, of all that was not erased, expired or not."""
    return {
        (f.level.name, f.device, f.start_us, f.metric): (f.stored, f.version_us)
        for level in LEVELS
        for f in findings_of(site, level)
    }


def findings_of(site: Site, level: Level, metric: str | None = None) -> Iterator[Finding]:
    """Each stored record, as if it were wrong."""
    span = TimeSpan(NOW - 40 * DAY, NOW + DAY)
    stored = records_of(site.rollups.read(site.tenant, DEVICES, level, span, beyond_us=GUARD_US), DEVICES)
    for i in range(len(stored)):
        if metric in (None, stored.metric[i]):
            device, start_us = DEVICES[int(stored.device[i])], int(stored.start_us[i])
            record, version_us = stored.record.bytes_at(i), int(stored.version_us[i])
            yield Finding(
                Kind.WRONG, device, level, start_us, stored.metric[i], right=record, stored=record, version_us=version_us
            )


def tampered(
    site: Site, level: Level, record: bytes | None = None, *, metric: str = "temp", version_us: int | None = None
) -> tuple[str, str, int, str]:
    """Change a record by hand, to what another says if nothing is given; gives its key."""
    first, *_, other = findings_of(site, level, "flow" if metric != "temp" else metric)
    bad = replace(first, metric=metric, right=other.stored if record is None else record)
    Repairer(site.engine, site.rollups).mend(site.tenant, [bad], read_us=version_us or first.version_us + MS)
    return level.name, bad.device, bad.start_us, metric


def check_repair(site: Site, level: Level, record: bytes | None = None, *, frozen: bool = False) -> None:
    """One record is changed by hand: verify names it, repair mends it, and only it."""
    verifier, before = Verifier(site.engine, site.telemetry, site.rollups, site.clock), all_stored(site)
    key = tampered(site, level, record)
    assert {k for k, stored in all_stored(site).items() if stored != before[k]} == {key}
    day_us = key[2] - key[2] % DAY
    site.clock.time_us += SECOND
    (finding,) = verifier.check(site.tenant, DEVICES, day_us).findings
    assert (finding.level.name, finding.device, finding.start_us, finding.metric) == key
    assert (finding.kind, finding.frozen, finding.mendable) == (Kind.WRONG, frozen, True)
    assert Repairer(site.engine, site.rollups).mend(site.tenant, [finding], read_us=site.clock.now_us()) == [finding]
    assert verifier.check(site.tenant, DEVICES, day_us).findings == []
    after = all_stored(site)
    assert after[key][0] == before[key][0]
    assert {k: stored for k, stored in after.items() if k != key} == {k: stored for k, stored in before.items() if k != key}


class RollupSuite:
    """A subclass gives the `engine` and `clock` fixtures and nothing else."""

    def test_rollups_are_a_function_of_raw(self, engine: Engine, clock: ManualClock) -> None:
        clock.time_us = NOW
        for seed in range(2):
            check_law(engine, clock, any_history(Random(seed)), Tenant(name=f"acme-{seed}"))

    def test_a_record_that_was_changed_is_named_and_mended_and_nothing_else(
        self, engine: Engine, clock: ManualClock
    ) -> None:
        clock.time_us = NOW
        site, began_us = Site(engine, clock), NOW - NOW % DAY - DAY
        site.write(
            [
                Report(device, began_us + i * 20 * MINUTE, {"temp": i / 4 + k, "flow": float(i)}, {"type": "tag"}, NOW)
                for k, device in enumerate(DEVICES)
                for i in range(6)
            ]
        )
        clock.time_us += SECOND
        site.roll()
        for level in LEVELS:
            check_repair(site, level)
