"""The laws of an engine, kept by Bigtable: on the emulator at BIGTABLE_EMULATOR_HOST."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest

from widerow.engine.bigtable import BigtableEngine, BigtableSettings
from widerow.engine.contract import START_US, TABLES, EngineContract
from widerow.engine.port import Engine
from widerow.model.times import DAY, ManualClock

# The tests' clocks are not the server's, which must not find their data old.
SETTINGS = BigtableSettings(age_margin_us=50 * 365 * DAY)


@pytest.fixture
def emulator() -> str:
    """The address of a running emulator."""
    host = os.environ.get("BIGTABLE_EMULATOR_HOST")
    if not host:
        pytest.skip("no Bigtable emulator: BIGTABLE_EMULATOR_HOST is not set")
    return host


class TestBigtable(EngineContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(START_US)

    @pytest.fixture
    def engine(self, clock: ManualClock, emulator: str) -> Iterator[Engine]:
        assert emulator
        self._clock, self._prefix = clock, f"c{uuid4().hex[:8]}"
        self._engine = self._open()
        self._engine.apply(TABLES)
        yield self._engine
        self._engine.close()

    def _open(self) -> BigtableEngine:
        return BigtableEngine("widerow", "contract", self._prefix, clock=self._clock, settings=SETTINGS)

    def reopen(self) -> Engine:
        self._engine.close()
        self._engine = self._open()
        return self._engine
