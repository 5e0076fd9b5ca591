"""What `verify` finds wrong with the fleet's hours, and how `repair` mends it: that, and only that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.rollup_suite import NOW, TENANT, TYPES, Site, tampered
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine, Span
from widerow.engine.rocksdb import RocksEngine
from widerow.engine.rows import Rows
from widerow.model.batch import CellKind, Cells, Report
from widerow.model.names import Names
from widerow.model.times import DAY, HOUR, MS, SECOND, ManualClock, TimeSpan
from widerow.rollup.fleet_summary import ALL_TYPES
from widerow.rollup.repair import Repairer, mend_fleet
from widerow.rollup.verify import Checked, Kind, Verifier
from widerow.rollup.verify_fleet import FleetVerifier
from widerow.schema.rollups import FLEET, HOURS, fleet, fleet_partials
from widerow.schema.shards import shard_of
from widerow.schema.table import Table

DAY_US = NOW // DAY * DAY - 2 * DAY
HOUR_US = DAY_US + 5 * HOUR
KEEP_US = TENANT.retention.hour_us


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture(params=["memory", pytest.param("rocksdb", marks=pytest.mark.rest)])
def engine(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Iterator[Engine]:
    engine: Engine = MemoryEngine(clock) if request.param == "memory" else RocksEngine(tmp_path, clock=clock)
    yield engine
    engine.close()


@pytest.fixture
def site(engine: Engine, clock: ManualClock) -> Site:
    """Some hours of two devices, which have a type each, and of one that has none; all rolled."""
    site = Site(engine, clock)
    site.write(
        [
            Report(device, HOUR_US + i * 600 * SECOND, {"temp": i / 4 + k, "flow": float(i % 5)}, {}, NOW)
            for k, device in enumerate((*TYPES, "c"))
            for i in range(12)
        ]
    )
    clock.time_us += SECOND
    site.roll()
    clock.time_us += SECOND
    return site


def devices_verifier(site: Site) -> Verifier:
    return Verifier(site.engine, site.telemetry, site.rollups, site.clock)


def check(site: Site) -> Checked:
    verifier = FleetVerifier(site.fleet, devices_verifier(site), site.telemetry.erasure, site.clock)
    return verifier.check(site.tenant, TimeSpan(DAY_US, DAY_US + DAY))


def rows_of(site: Site, table: Table, type_: str) -> Rows:
    """The rows of the first hour, of all devices or of a type; of the shards, those of the first that has some."""
    span = TimeSpan(HOUR_US, HOUR_US + 1)
    if table is fleet(KEEP_US):
        return site.fleet.store.hours(site.tenant, [type_], span)[0]
    (rows, *_) = site.fleet.store.partials(site.tenant, [shard_of("a")], span)
    types: Any = rows.keys["device_type"]
    return rows.take(np.array([name == type_ for name in types.to_list()]))


def write_cell(site: Site, table: Table, rows: Rows, kind: CellKind, name: str, text: bytes, version_us: int) -> None:
    one = Cells(
        np.array([0, 1]),
        Names.of([name]),
        np.zeros(1, np.int32),
        np.array([int(kind)], np.uint8),
        np.full(1, np.nan),
        Names.of_bytes([text]),
        np.zeros(1, np.int32),
    )
    site.engine.write([(table, Rows(rows.keys, np.full(1, version_us), rows.expire_us[:1], one))])


TABLES = {"fleet": fleet(KEEP_US), "shard": fleet_partials(KEEP_US)}


def test_what_was_rolled_is_right(site: Site) -> None:
    done = check(site)
    assert (done.findings, done.behind) == ([], 0)
    assert done.checked == {"fleet": len(site.fleet_records())}
    assert len(site.fleet_records()) > 2 * 2 * (1 + 2) * 2


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("type_", [ALL_TYPES, TYPES["a"]], ids=["all devices", "a type"])
@pytest.mark.parametrize(
    ("text", "ahead_us"),
    [(b"\xff nonsense", 0), (None, 0), (b"", 300 * SECOND)],
    ids=["nonsense", "another record", "empty, from a clock that is ahead"],
)
def test_a_record_that_was_changed_is_named_and_mended_and_nothing_else(
    site: Site, table: Table, type_: str, text: bytes | None, ahead_us: int
) -> None:
    before, below = site.fleet_records(), site.records()
    rows = rows_of(site, table, type_)
    other = rows.cells.texts.bytes_at(int(rows.cells.text[rows.cells.names.to_list().index("flow") == rows.cells.name][0]))
    version_us = site.clock.now_us() // MS * MS + ahead_us
    write_cell(site, table, rows.take(np.array([0])), CellKind.RECORD, "temp", other if text is None else text, version_us)
    assert len([key for key, cell in site.fleet_records().items() if cell != before[key]]) == 1
    site.clock.time_us += SECOND
    (finding,) = check(site).findings
    assert (finding.kind, finding.device, finding.level, finding.start_us) == (Kind.WRONG, "", FLEET, HOUR_US)
    assert (finding.metric, finding.type, finding.mendable) == ("temp", type_, True)
    assert finding.shard == (shard_of("a") if table is TABLES["shard"] else None)
    assert finding.note == ("" if text is None else "its bytes cannot be decoded")
    assert mend_fleet(site.fleet, site.tenant, [finding]) == [finding]
    assert (check(site).findings, site.fleet_records(), site.records()) == ([], before, below)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("erased", [False, True])
def test_what_is_missing_and_what_is_too_much(site: Site, table: Table, erased: bool) -> None:
    before = site.fleet_records()
    rows = rows_of(site, table, ALL_TYPES).take(np.array([0]))
    key = rows.key(table, 0)[: len(table.partition)]
    record = rows.cells.texts.bytes_at(int(rows.cells.text[0]))
    if erased:
        mark = site.telemetry.erase(site.tenant, metric="invented", span=TimeSpan(HOUR_US, HOUR_US + HOUR))
        (unfinished,) = site.telemetry.erasure.unfinished()
        site.telemetry.erasure.finish(TENANT.name, mark, unfinished[-1])
    now_us = site.clock.now_us() // MS * MS
    site.engine.delete(table, [key], Span(HOUR_US, HOUR_US + 1), version_us=now_us, columns=["flow"])
    write_cell(site, table, rows, CellKind.RECORD, "invented", record, now_us)
    site.clock.time_us += SECOND
    found = check(site).findings
    # Shards have the types of an hour in one partition: the column is gone of all of them.
    gone = sum(k[0] == table.name and k[1][: len(key)] == key and k[3] == "flow" and HOUR_US in k[1] for k in before)
    too_much = Kind.EXTRA if erased else Kind.UNKNOWN
    assert {(f.kind, f.metric) for f in found} == {(too_much, "invented"), (Kind.MISSING, "flow")}
    assert len(found) == gone + 1
    if not erased:
        assert mend_fleet(site.fleet, site.tenant, found) == [], "nobody can tell what the hour should say"
        return
    assert mend_fleet(site.fleet, site.tenant, found) == found
    assert (check(site).findings, site.fleet_records()) == ([], before)


def test_a_row_that_no_longer_names_a_type_is_mended(site: Site) -> None:
    before = site.fleet_records()
    rows = rows_of(site, TABLES["fleet"], ALL_TYPES).take(np.array([0]))
    write_cell(site, TABLES["fleet"], rows, CellKind.TAG, TYPES["a"], b"17", site.clock.now_us() // MS * MS)
    (finding,) = check(site).findings
    assert (finding.kind, finding.metric, finding.type, finding.shard) == (Kind.WRONG, "", TYPES["a"], None)
    site.clock.time_us += SECOND
    mend_fleet(site.fleet, site.tenant, [finding])
    assert (check(site).findings, site.fleet_records()) == ([], before)


def test_what_is_marked_is_behind_and_not_wrong(site: Site) -> None:
    site.write([Report("a", HOUR_US + SECOND, {"temp": 99.0}, {}, NOW + SECOND)])
    assert (check(site).findings, check(site).behind) == ([], 0), "no hour of a device says anything else yet"
    site.clock.time_us += SECOND
    site.roller.roll(TENANT, next(iter(site.marks.pending())))
    assert (check(site).findings, check(site).behind) == ([], 2), "the shard and the fleet"
    site.roll()
    assert (check(site).findings, check(site).behind) == ([], 0)


def test_what_was_erased_is_behind_until_that_is_worked_off(site: Site) -> None:
    site.telemetry.erase(site.tenant, device="a")
    assert (check(site).findings, check(site).behind) == ([], 4), "two hours of a shard and of the fleet"


@pytest.mark.parametrize("text", [b"\xff nonsense", None], ids=["nonsense", "another record"])
def test_an_hour_of_a_device_that_is_wrong_is_not_found_again_in_its_fleet(site: Site, text: bytes | None) -> None:
    before = site.fleet_records()
    tampered(site, HOURS, text)
    assert check(site).findings == []
    site.clock.time_us += SECOND
    found = devices_verifier(site).check(site.tenant, ["a", "b", "c"], DAY_US).findings
    assert len(found) == 1
    Repairer(site.engine, site.rollups, site.roller.fleet).mend(site.tenant, found, read_us=site.clock.now_us())
    site.clock.time_us += SECOND
    site.roll()
    assert (check(site).findings, site.fleet_records()) == ([], before)


def test_of_hours_that_have_expired_nothing_is_said(site: Site) -> None:
    site.clock.time_us = DAY_US + DAY + KEEP_US + HOUR
    assert (check(site).findings, check(site).checked) == ([], {"fleet": 0})
