"""The telemetry suite on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.telemetry_suite import TelemetrySuite
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.engine.rocksdb import RocksEngine
from widerow.model.times import ManualClock

NOW = 1_800_000_000_123_456


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


class TestOnMemory(TelemetrySuite):
    @pytest.fixture
    def engine(self, clock: ManualClock) -> Engine:
        return MemoryEngine(clock)


class TestOnRocksDB(TelemetrySuite):
    @pytest.fixture
    def engine(self, clock: ManualClock, tmp_path: Path) -> Iterator[Engine]:
        engine = RocksEngine(tmp_path, clock=clock)
        yield engine
        engine.close()
