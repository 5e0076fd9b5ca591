"""The suites of telemetry and rollups on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import patient
from contract.chaos_suite import ChaosSuite
from contract.latest_stories import LatestStories
from contract.letter_suite import LetterSuite
from contract.rollup_stories import RollupStories
from contract.rollup_suite import RollupSuite
from contract.telemetry_suite import TelemetrySuite
from servers.cassandra import Cassandra
from widerow.engine.bigtable import BigtableEngine, BigtableSettings
from widerow.engine.cassandra import CassandraEngine
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.engine.rocksdb import RocksEngine
from widerow.model.times import DAY, ManualClock

NOW = 1_800_000_000_123_456


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


class TestOnMemory(TelemetrySuite, RollupSuite, ChaosSuite, RollupStories, LatestStories, LetterSuite):
    @pytest.fixture
    def engine(self, clock: ManualClock) -> Engine:
        return MemoryEngine(clock)


class TestOnRocksDB(TelemetrySuite, RollupSuite, ChaosSuite, RollupStories, LatestStories, LetterSuite):
    @pytest.fixture
    def engine(self, clock: ManualClock, tmp_path: Path) -> Iterator[Engine]:
        engine = RocksEngine(tmp_path, clock=clock)
        yield engine
        engine.close()


class TestOnCassandra(TelemetrySuite, RollupSuite, ChaosSuite, RollupStories, LatestStories, LetterSuite):
    @pytest.fixture
    def engine(self, clock: ManualClock, cassandra_server: Cassandra) -> Iterator[Engine]:
        settings = patient.settings(cassandra_server, f"telemetry_{uuid4().hex[:12]}")
        engine = CassandraEngine(settings, clock=clock)
        yield engine
        engine._connection.define(f"DROP KEYSPACE IF EXISTS {settings.keyspace}")
        engine.close()


@pytest.mark.usefixtures("bigtable_host")
class TestOnBigtable(TelemetrySuite, RollupSuite, ChaosSuite, RollupStories, LatestStories, LetterSuite):
    @pytest.fixture
    def engine(self, clock: ManualClock) -> Iterator[Engine]:
        settings = BigtableSettings(age_margin_us=50 * 365 * DAY)  # the server's clock is another
        engine = BigtableEngine("widerow", "telemetry", f"t{uuid4().hex[:8]}", clock=clock, settings=settings)
        yield engine
        engine.close()
