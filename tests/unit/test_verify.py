"""What `verify` finds wrong with rollups, and how `repair` mends it: that, and only that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contract.rollup_suite import NOW, TENANT, Site, all_stored, check_repair, findings_of, tampered
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine, Span
from widerow.engine.rocksdb import RocksEngine
from widerow.engine.rows import Rows
from widerow.model.batch import CellKind, Cells, Report
from widerow.model.names import Names
from widerow.model.tenant import GUARD_US, Retention
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.rollup.compare import count_in
from widerow.rollup.erase import Eraser
from widerow.rollup.guard import marked_in_store
from widerow.rollup.repair import Repairer
from widerow.rollup.unit import Unit
from widerow.rollup.verify import Checked, Finding, Kind, Verifier
from widerow.schema.rollups import DAYS, HOURS, LEVELS, MINUTES, Level
from widerow.schema.shards import shard_of

DAY_US = NOW // DAY * DAY - 2 * DAY
HOUR_US = DAY_US + 5 * HOUR


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
    return Site(engine, clock)


def filled(site: Site, hours: int = 3) -> Site:
    """Some hours of two devices, rolled up to their day."""
    site.write(
        [
            Report(device, HOUR_US + i * 300 * SECOND, {"temp": i / 4 + k, "flow": float(i % 5)}, {}, NOW)
            for k, device in enumerate(("a", "b"))
            for i in range(12 * hours)
        ]
    )
    site.clock.time_us += SECOND
    site.roll()
    return site


def verifier(site: Site) -> Verifier:
    return Verifier(site.engine, site.telemetry, site.rollups, site.clock)


def check(site: Site) -> Checked:
    return verifier(site).check(site.tenant, ["a", "b"], DAY_US)


def mended(site: Site, findings: list[Finding]) -> list[Finding]:
    site.clock.time_us += SECOND
    return Repairer(site.engine, site.rollups).mend(site.tenant, findings, read_us=site.clock.now_us())


def test_what_was_rolled_is_right(site: Site) -> None:
    done = check(filled(site))
    assert (done.findings, done.behind) == ([], 0)
    assert done.checked == {"minute": 2 * 2 * 36, "hour": 2 * 2 * 3, "day": 2 * 2}
    assert done.frozen == {"minute": 0, "hour": 0, "day": 0}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bytes_", [b"", b"\xff nonsense", None], ids=["empty", "nonsense", "another record"])
def test_a_record_that_was_changed_is_named_and_mended_and_nothing_else(
    site: Site, level: Level, bytes_: bytes | None
) -> None:
    check_repair(filled(site), level, bytes_)


def test_a_record_from_a_clock_that_is_ahead_is_mended(site: Site) -> None:
    filled(site)
    before = all_stored(site)
    key = tampered(site, MINUTES, version_us=NOW + 300 * SECOND)
    mended(site, check(site).findings)
    assert check(site).findings == []
    assert all_stored(site)[key][0] == before[key][0]


def test_what_is_missing_and_what_is_too_much(site: Site) -> None:
    filled(site)
    before = all_stored(site)
    site.clock.time_us += MS
    mark = site.telemetry.erase(site.tenant, metric="invented", span=TimeSpan(DAY_US, DAY_US + DAY))
    site.telemetry.erasure.finish(TENANT.name, mark, site.telemetry.erasure.unfinished()[0][-1])
    tampered(site, HOURS, metric="invented", version_us=site.clock.now_us() + MS)
    site.clock.time_us += 2 * MS
    missing = next(f for f in findings_of(site, DAYS, "temp"))
    remove = replace(missing, kind=Kind.EXTRA)
    assert mended(site, [remove]) == [remove]
    found = check(site).findings
    assert sorted((f.kind, f.level.name, f.metric) for f in found) == [
        (Kind.EXTRA, "hour", "invented"),
        (Kind.MISSING, "day", "temp"),
    ]
    assert mended(site, found) == sorted(found, key=lambda f: LEVELS.index(f.level))
    assert check(site).findings == []
    after = all_stored(site)
    assert {key: record for key, (record, _) in after.items()} == {key: record for key, (record, _) in before.items()}
    assert {key for key in after if after[key] != before[key]} == {("day", missing.device, DAY_US, "temp")}


def test_tags_of_hours_stay_and_come_back_with_a_row_that_was_lost(site: Site) -> None:
    def tagged(_: str, rows: Rows) -> Rows:
        """The tag has the name of a metric, too."""
        return with_tag(rows, "temp", "press")

    def tags() -> list[tuple[int, str]]:
        span = TimeSpan(DAY_US, DAY_US + DAY)
        return sorted(
            (int(np.asarray(rows.keys["start_us"])[rows.cells.rows()[c]]), rows.cells.texts[int(rows.cells.text[c])])
            for rows in site.rollups.read(site.tenant, ["a"], HOURS, span)
            for c in np.flatnonzero(rows.cells.kind == CellKind.TAG)
        )

    site.roller._tagged = tagged
    filled(site)
    want = [(HOUR_US + i * HOUR, "press") for i in range(3)]
    assert tags() == want
    first = [f for f in findings_of(site, HOURS) if (f.device, f.start_us) == ("a", HOUR_US)]
    repairer = Repairer(site.engine, site.rollups, tagged=tagged)
    site.clock.time_us += SECOND
    repairer.mend(site.tenant, [replace(f, kind=Kind.EXTRA) for f in first], read_us=site.clock.now_us())
    assert tags() == want, "records were removed, the tag was not"
    assert sorted(f.metric for f in check(site).findings) == ["flow", "temp"]
    site.clock.time_us += SECOND
    hour = TimeSpan(HOUR_US, HOUR_US + 1)
    for table, _, keys in site.rollups.places(site.tenant, ["a"], HOURS, hour):
        site.engine.delete(table, keys, Span(HOUR_US, HOUR_US + 1), version_us=site.clock.now_us())
    assert tags() == want[1:]
    site.clock.time_us += SECOND
    repairer.mend(site.tenant, check(site).findings, read_us=site.clock.now_us())
    assert (tags(), check(site).findings) == (want, [])


def with_tag(rows: Rows, name: str, value: str) -> Rows:
    """The rows with a tag each, behind their other cells. One of them has a metric of that name."""
    cells, where = rows.cells, rows.cells.offsets[1:]
    tagged = Cells(
        cells.offsets + np.arange(len(cells.offsets)),
        cells.names,
        np.insert(cells.name, where, cells.names.to_list().index(name)),
        np.insert(cells.kind, where, CellKind.TAG),
        np.insert(cells.number, where, np.nan),
        Names.of_bytes([*cells.texts.to_bytes_list(), value.encode()]),
        np.insert(cells.text, where, len(cells.texts)),
    )
    return Rows(rows.keys, rows.version_us, rows.expire_us, tagged)


def test_an_hour_that_is_mended_has_its_fleet_rolled_again(site: Site) -> None:
    filled(site)
    fleet = site.roller.fleet
    for unit in fleet.pending():
        fleet.finish([unit], NOW + HOUR)
    assert fleet.pending() == {}
    tampered(site, MINUTES)
    tampered(site, HOURS)
    site.clock.time_us += SECOND
    Repairer(site.engine, site.rollups, fleet).mend(site.tenant, check(site).findings, read_us=site.clock.now_us())
    assert list(fleet.pending()) == [Unit("acme", HOUR_US + 2 * HOUR, shard_of("a"))]
    assert marked_in_store(site.engine)["fleet"].keys() == fleet.pending().keys()


def test_what_is_marked_is_behind_and_not_wrong(site: Site) -> None:
    filled(site)
    site.write([Report("a", HOUR_US + SECOND, {"temp": 99.0}, {}, NOW + SECOND)])
    done = check(site)
    assert (done.findings, done.behind) == ([], 3), "the minute, the hour and the day"
    site.clock.time_us += SECOND
    site.roller.roll(TENANT, next(iter(site.marks.pending())))
    done = check(site)
    assert (done.findings, done.behind) == ([], 1), "the day"
    site.roll()
    assert (check(site).findings, check(site).behind) == ([], 0)


def test_what_is_rolled_while_it_is_looked_at_is_not_wrong(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst moment: stored rollups were read, reports are not yet; then all is rolled, and no mark is left."""
    filled(site)
    checker, reads = verifier(site), 0
    read_many = site.telemetry.read_many

    def meanwhile(*given: object, **more: object) -> object:
        nonlocal reads
        reads += 1
        if reads == 1:
            site.write([Report("a", HOUR_US + SECOND, {"temp": 99.0}, {}, NOW + SECOND)])
            site.clock.time_us += SECOND
            site.roll()
        return read_many(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(site.telemetry, "read_many", meanwhile)
    done = checker.check(site.tenant, ["a", "b"], DAY_US)
    assert (done.findings, done.behind) == ([], 3)


def test_frozen_windows_are_held_against_what_is_beneath_them(site: Site) -> None:
    filled(site)
    keep_us = site.tenant.retention.raw_us
    site.clock.time_us = DAY_US + DAY + keep_us + GUARD_US + HOUR
    done = check(site)
    assert (done.findings, done.behind) == ([], 0)
    assert done.frozen == done.checked == {"minute": 2 * 2 * 36, "hour": 2 * 2 * 3, "day": 2 * 2}
    check_repair(site, HOURS, b"\xff nonsense", frozen=True)
    check_repair(site, DAYS, b"\xff nonsense", frozen=True)


def test_a_frozen_minute_that_cannot_be_read_is_named_and_cannot_be_mended(site: Site) -> None:
    filled(site)
    site.clock.time_us = DAY_US + DAY + site.tenant.retention.raw_us + GUARD_US + HOUR
    before = all_stored(site)
    key = tampered(site, MINUTES, b"\xff nonsense")
    (finding,) = check(site).findings
    assert (finding.level, finding.kind, finding.frozen, finding.mendable) == (MINUTES, Kind.WRONG, True, False)
    assert mended(site, [finding]) == []
    assert all_stored(site) == before | {key: (b"\xff nonsense", all_stored(site)[key][1])}


def test_a_frozen_record_is_not_replaced_by_one_of_fewer_values(site: Site) -> None:
    filled(site)
    site.clock.time_us = DAY_US + DAY + site.tenant.retention.raw_us + GUARD_US + HOUR
    lost = next(findings_of(site, MINUTES, "temp"))
    mended(site, [replace(lost, kind=Kind.EXTRA)])
    (finding,) = check(site).findings
    assert (finding.level, finding.start_us, finding.mendable) == (HOURS, lost.hour_us, False)
    assert count_in(finding.stored) == count_in(finding.right) + 1


def test_hours_stay_checked_when_their_minutes_are_gone_and_days_when_these_are(engine: Engine, clock: ManualClock) -> None:
    tenant = replace(TENANT, retention=Retention(raw_us=3 * DAY, minute_us=10 * DAY, hour_us=20 * DAY, day_us=0))
    site = filled(Site(engine, clock, tenant))
    for passed_us, levels in (
        (0, {"minute", "hour", "day"}),
        (3 * DAY, {"minute", "hour", "day"}),
        (10 * DAY, {"hour", "day"}),
        (20 * DAY, {"day"}),
    ):
        clock.time_us = DAY_US + DAY + passed_us + (GUARD_US + DAY if passed_us else HOUR)
        done = check(site)
        assert done.findings == []
        assert {level for level, n in done.checked.items() if n} == levels
        assert {level for level, n in done.frozen.items() if n} == (levels if passed_us else set())
    key = tampered(site, DAYS, b"\xff nonsense")
    (finding,) = check(site).findings
    assert (finding.level.name, finding.device, finding.start_us, finding.metric) == key
    assert not finding.mendable


def test_what_was_erased_is_not_missing(site: Site) -> None:
    filled(site)
    site.clock.time_us += MINUTE
    site.telemetry.erase(site.tenant, device="a")
    done = check(site)
    assert (done.findings, done.behind) == ([], 0)
    assert done.checked == {"minute": 2 * 36, "hour": 2 * 3, "day": 2}


@pytest.mark.parametrize("passed_us", [0, 40 * DAY], ids=["with raw reports", "frozen"])
def test_what_was_erased_in_part_is_behind_until_that_is_worked_off_and_right_then(site: Site, passed_us: int) -> None:
    filled(site)
    site.clock.time_us += passed_us
    span = TimeSpan(HOUR_US + 10 * MINUTE, HOUR_US + 20 * MINUTE)
    mark = site.telemetry.erase(site.tenant, device="a", metric="temp", span=span)
    assert (check(site).findings, bool(check(site).behind)) == ([], True)
    eraser = Eraser(site.engine, site.rollups, site.marks, site.roller, site.clock)
    site.clock.time_us += SECOND
    for name, unfinished, place in site.telemetry.erasure.unfinished():
        eraser.purge(site.tenant, unfinished, ["a"], name)
        site.telemetry.erasure.finish(name, mark, place)
    assert (check(site).findings, bool(check(site).behind)) == ([], True)
    site.clock.time_us += SECOND
    site.roll()
    assert (check(site).findings, check(site).behind) == ([], 0)
    # The minutes that were erased, or all of their hour.
    assert check(site).checked == {"minute": 2 * 2 * 36 - 2, "hour": 2 * 2 * 3 - bool(passed_us), "day": 4}
