"""The laws of an engine, kept by the oracle itself."""

from __future__ import annotations

import pytest

from widerow.engine.contract import START_US, TABLES, EngineContract
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.model.times import ManualClock


class TestMemory(EngineContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(START_US)

    @pytest.fixture
    def engine(self, clock: ManualClock) -> Engine:
        engine = MemoryEngine(clock)
        engine.apply(TABLES)
        return engine
