"""A table file with a damaged block: what touches it fails, and nothing is answered short."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from widerow.catalog.store import bring_up
from widerow.cli import checks
from widerow.engine.contract import START_US, sparse_rows
from widerow.engine.contract.tables import FIXED, SPARSE, V1, A
from widerow.engine.port import EngineStats, Span
from widerow.engine.rocksdb import RocksEngine
from widerow.engine.rows import Key, Rows, rows_of
from widerow.migrate.copy import copy
from widerow.model.errors import Corrupt, StoreUnavailable
from widerow.model.times import ManualClock
from widerow.schema.table import Table
from widerow.schema.tables import DEVICES
from widerow.server import status
from widerow.server.failures import failure

ROWS = 4_000
BY_COLUMN = replace(SPARSE, name="by_column", by_column=True)
LAYOUTS = [SPARSE, BY_COLUMN]


def opened(folder: Path) -> RocksEngine:
    return RocksEngine(folder, clock=ManualClock(START_US))


def flushed(engine: RocksEngine) -> None:
    for name in engine.db.names():
        family = engine.db.family(name)
        assert family is not None
        family.flush()


def numbers(table: Table, count: int = ROWS) -> Rows:
    noise = np.random.default_rng(1).random(count)
    return sparse_rows(table, [((*A, i), {"x": float(noise[i]), "y": float(i)}) for i in range(count)], version_us=V1)


def fixed_rows(count: int = ROWS) -> Rows:
    noise = np.random.default_rng(2).random(count)
    return rows_of(FIXED, [(fixed_key(i), {FIXED.columns[0]: float(noise[i])}) for i in range(count)], version_us=V1)


def fixed_key(i: int) -> Key:
    return tuple(f"{i:06}" if column.type == "text" else i for column in FIXED.key)


def flip(file: Path, part: float = 0.5) -> None:
    content = bytearray(file.read_bytes())
    content[int(len(content) * part)] ^= 4
    file.write_bytes(content)


def largest(engine: RocksEngine) -> Path:
    """Its largest table file."""
    return max(engine.db.path.glob("*.sst"), key=lambda file: file.stat().st_size)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def damaged(folder: Path, table: Table, rows: Rows) -> RocksEngine:
    """A store with one table, with a flipped bit amid its data."""
    engine = opened(folder)
    engine.apply([table])
    engine.write([(table, rows)])
    flushed(engine)
    file = largest(engine)
    engine.close()
    flip(file)
    engine = opened(folder)
    engine.apply([table])
    return engine


def everything(engine: RocksEngine, table: Table, **how: Any) -> int:
    return sum(len(rows) for rows in engine.scan(table, **how))


# -- nothing is answered short


@pytest.mark.parametrize("table", LAYOUTS, ids=["by row", "by column"])
def test_a_scan_that_meets_a_damaged_block_fails(folder: Path, table: Table) -> None:
    engine = damaged(folder, table, numbers(table))
    partition = [A[: len(table.partition)]]
    for how in (
        {"partitions": None},
        {"partitions": partition},
        {"partitions": partition, "limit": ROWS},
        {"partitions": partition, "columns": ["x", "y"]},
    ):
        with pytest.raises(Corrupt, match=r"\d+\.sst of .* cannot be read"):
            everything(engine, table, **how)
    engine.close()


@pytest.mark.parametrize("table", LAYOUTS, ids=["by row", "by column"])
def test_a_delete_that_meets_a_damaged_block_fails_and_deletes_nothing(folder: Path, table: Table) -> None:
    engine = damaged(folder, table, numbers(table))
    with pytest.raises(Corrupt):
        engine.delete(table, [A[: len(table.partition)]], version_us=V1)
    assert everything(engine, table, partitions=[A[: len(table.partition)]], span=Span(ROWS // 4, ROWS // 4 + 10)) == 10
    engine.close()


def test_looking_for_the_first_cells_of_partitions_fails_at_a_damaged_block(folder: Path) -> None:
    partitions = [(*A[: len(SPARSE.partition) - 1], i) for i in range(ROWS)]
    noise = np.random.default_rng(1).random(ROWS)
    rows = sparse_rows(SPARSE, [((*p, 1), {"x": float(noise[i])}) for i, p in enumerate(partitions)], version_us=V1)
    engine = damaged(folder, SPARSE, rows)
    with pytest.raises(Corrupt):
        everything(engine, SPARSE, partitions=partitions, first=True)
    with pytest.raises(Corrupt):
        everything(engine, SPARSE, partitions=partitions)
    engine.close()


def test_reading_and_replacing_fixed_rows_fails_at_a_damaged_block(folder: Path) -> None:
    engine = damaged(folder, FIXED, fixed_rows())
    with pytest.raises(Corrupt):
        everything(engine, FIXED, partitions=None)
    with pytest.raises(Corrupt):
        everything(engine, FIXED, partitions=[fixed_key(i) for i in range(ROWS)])
    unreadable = 0
    for i in range(0, ROWS, 10):
        try:
            assert engine.get(FIXED, fixed_key(i)) is not None
        except Corrupt:
            unreadable += 1
    assert 0 < unreadable < ROWS // 20, "the rest is read"
    with pytest.raises(Corrupt):
        engine.write([(FIXED, fixed_rows())])
    engine.close()


def test_a_copy_to_another_store_stops_at_a_damaged_block(folder: Path, tmp_path: Path) -> None:
    source, target = opened(folder), opened(tmp_path / "target")
    bring_up(source)
    text = np.random.default_rng(3).bytes(ROWS * 8).hex()
    bodies = [(("acme", 0, f"{i:06}"), {"body": text[i * 16 : i * 16 + 16]}) for i in range(ROWS)]
    source.insert(DEVICES, rows_of(DEVICES, bodies, version_us=0))
    flushed(source)
    file = largest(source)
    source.close()
    flip(file)
    source = opened(folder)
    with pytest.raises(Corrupt):
        list(copy(source, target, ManualClock(START_US), "rocksdb:source"))
    source.close()
    target.close()


# -- what is said of it


def test_a_damaged_file_is_logged_once_and_stays_in_the_figures(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = damaged(folder, SPARSE, numbers(SPARSE))
    assert engine.stats().damage == ()
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            with pytest.raises(Corrupt):
                everything(engine, SPARSE, partitions=None)
    assert len([r for r in caplog.records if "cannot be read" in r.getMessage()]) == 1
    (said,) = engine.stats().damage
    assert "checksum mismatch" in said
    engine.close()


def test_readiness_stays_and_says_degraded_where_the_store_is_damaged() -> None:
    def answer(*damage: str) -> tuple[int, Any]:
        service = SimpleNamespace(
            trouble=lambda: "",
            pipeline=SimpleNamespace(pressure=SimpleNamespace(look=lambda: SimpleNamespace(healthy=True, reasons=()))),
            engine=SimpleNamespace(stats=lambda: EngineStats(damage=damage)),
        )
        call = SimpleNamespace(service=service, front=SimpleNamespace(stopping=False, troubles=(), strains=()))
        given = status.ready(cast("Any", call))
        return given.status, msgspec.json.decode(given.body)

    assert answer() == (200, {"status": "ready"})
    code, said = answer("000012.sst cannot be read: ...")
    assert (code, said["status"]) == (200, "degraded")
    assert "000012" not in str(said), "anybody may ask"


def test_doctor_fails_where_the_store_is_damaged() -> None:
    assert checks.check_damage(()).verdict is checks.Verdict.OK
    found = checks.check_damage(("000012.sst cannot be read: ...",))
    assert found.verdict is checks.Verdict.FAIL
    assert "000012.sst" in found.found


def test_a_caller_reads_corrupt_and_not_the_file(caplog: pytest.LogCaptureFixture) -> None:
    answer = failure(Corrupt("000012.sst of /var/lib/widerow cannot be read: Corruption: block checksum mismatch"))
    assert answer.status == 500
    error = msgspec.json.decode(answer.body)["error"]
    assert error["code"] == "corrupt"
    assert "/var" not in error["message"]
    assert "000012.sst" in caplog.text


# -- compaction


def test_damage_that_compaction_meets_stops_compaction_and_not_writes(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = opened(folder)
    engine.apply([SPARSE])
    for _ in range(3):
        engine.write([(SPARSE, numbers(SPARSE))])
        flushed(engine)
    file = largest(engine)
    engine.close()
    flip(file)
    for start in range(2):  # the same again after a restart
        engine = opened(folder)
        failed = 0
        for i in range(40):
            try:
                engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, ROWS + i), {"x": 1.0})], version_us=V1))])
                if not engine.stats().damage:
                    compacted(engine)
            except StoreUnavailable:
                failed += 1
        assert failed == 1, f"start {start}"
        assert "automatic compaction is off, since it met a damaged file" in engine.stats().damage
        engine.close()
    assert "reopening with automatic compaction off" in caplog.text


def compacted(engine: RocksEngine) -> None:
    """RocksDB begins by itself when there are four files."""
    with contextlib.suppress(Exception):  # it has met the damage already, and is not reopened yet
        flushed(engine)
    time.sleep(0.02)
    while engine.stats().detail["running_compactions"]:
        time.sleep(0.01)
