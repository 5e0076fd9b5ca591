"""The laws of an engine, kept by Bigtable: on the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from widerow.engine.bigtable import BigtableEngine, BigtableSettings
from widerow.engine.contract import START_US, TABLES, EngineContract
from widerow.engine.port import Engine
from widerow.model.times import DAY, ManualClock

# The tests' clocks are not the server's, which must not find their data old.
SETTINGS = BigtableSettings(age_margin_us=50 * 365 * DAY)


@pytest.mark.usefixtures("bigtable_host")
class TestBigtable(EngineContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(START_US)

    @pytest.fixture
    def engine(self, clock: ManualClock) -> Iterator[Engine]:
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
