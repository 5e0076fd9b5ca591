"""The laws of an engine, kept by the embedded one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from widerow.engine.contract import START_US, TABLES, AllByColumn, EngineContract, sparse_rows
from widerow.engine.contract.tables import FIXED, SPARSE, V1, A
from widerow.engine.port import Engine
from widerow.engine.rocksdb import RocksEngine
from widerow.model.errors import ConfigError
from widerow.model.times import ManualClock


class TestRocksDB(EngineContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(START_US)

    @pytest.fixture
    def engine(self, clock: ManualClock, tmp_path: Path) -> Iterator[Engine]:
        self._clock, self._path = clock, tmp_path / "store"
        self._engine = RocksEngine(self._path, clock=clock)
        self._engine.apply(TABLES)
        yield self._engine
        self._engine.close()

    def reopen(self) -> Engine:
        self._engine.close()
        self._engine = RocksEngine(self._path, clock=self._clock)
        return self._engine


class TestRocksDBByColumn(EngineContract):
    """The same laws where every sparse table is by column."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(START_US)

    @pytest.fixture
    def engine(self, clock: ManualClock, tmp_path: Path) -> Iterator[Engine]:
        self._clock, self._path = clock, tmp_path / "store"
        self._engine = AllByColumn(RocksEngine(self._path, clock=clock))
        self._engine.apply(TABLES)
        yield self._engine
        self._engine.close()

    def reopen(self) -> Engine:
        self._engine.close()
        self._engine = AllByColumn(RocksEngine(self._path, clock=self._clock))
        return self._engine


@pytest.mark.parametrize("by_column", [False, True])
def test_a_table_that_was_made_with_the_other_layout_is_refused(tmp_path: Path, by_column: bool) -> None:
    made = replace(SPARSE, by_column=by_column)
    for reopened in (False, True):
        engine = RocksEngine(tmp_path / "store", clock=ManualClock(START_US))
        if not reopened:
            engine.apply([made])
        with pytest.raises(ConfigError, match=rf"{SPARSE.name}.*use that release, or a store in a new folder"):
            engine.apply([FIXED, replace(SPARSE, by_column=not by_column)])
        engine.apply([made])
        engine.close()


def test_memory_has_the_blocks_that_were_read_in_it(tmp_path: Path) -> None:
    text = Random(1).randbytes(100_000).hex()
    engine = RocksEngine(tmp_path, clock=ManualClock(START_US))
    engine.apply([SPARSE])
    engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 1), {"x": text})], version_us=V1))])
    engine.close()
    engine = RocksEngine(tmp_path, clock=ManualClock(START_US))
    engine.apply([SPARSE])
    before = engine.stats().memory_bytes or 0
    assert sum(len(rows) for rows in engine.scan(SPARSE, None)) == 1
    assert (engine.stats().memory_bytes or 0) - before > 100_000
    engine.close()
