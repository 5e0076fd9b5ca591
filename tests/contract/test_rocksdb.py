"""The laws of an engine, kept by the embedded one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from widerow.engine.contract import START_US, TABLES, EngineContract
from widerow.engine.port import Engine
from widerow.engine.rocksdb import RocksEngine
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
