"""The contract on Apache Cassandra. Truncating is slow, so only the tables that a test touched are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import patient
from servers.cassandra import Cassandra
from widerow.engine.cassandra import CassandraEngine
from widerow.engine.contract import START_US, TABLES, EngineContract, logical, sparse_rows, values
from widerow.engine.contract.tables import SPARSE, V1, V2, V3, A
from widerow.engine.port import Engine
from widerow.model.times import ManualClock
from widerow.schema.table import Table


class Watched(CassandraEngine):
    """Remembers what was touched."""

    touched: set[str]

    def write(self, changes: Sequence[tuple[Table, Any]]) -> None:
        self.touched |= {table.name for table, _ in changes}
        super().write(changes)

    def put_if(self, table: Table, *args: Any) -> bool:
        self.touched.add(table.name)
        return super().put_if(table, *args)

    def insert(self, table: Table, rows: Any) -> Any:
        self.touched.add(table.name)
        return super().insert(table, rows)

    def delete(self, table: Table, *args: Any, **options: Any) -> None:
        self.touched.add(table.name)
        super().delete(table, *args, **options)


@pytest.fixture(scope="module")
def touched() -> set[str]:
    """Tables that are perhaps not empty."""
    return {table.name for table in TABLES}


class TestCassandra(EngineContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(START_US)

    @pytest.fixture
    def engine(self, clock: ManualClock, touched: set[str], cassandra_server: Cassandra) -> Iterator[Engine]:
        self._clock, self._touched, self._server = clock, touched, cassandra_server
        self._engine = self._open()
        self._engine.apply(TABLES)
        for name in sorted(touched & {table.name for table in TABLES}):
            self._engine._connection.define(f"TRUNCATE contract.{name}")
        touched.clear()
        yield self._engine
        self._engine.close()

    def _open(self) -> Watched:
        engine = Watched(patient.settings(self._server, "contract"), clock=self._clock)
        engine.touched = self._touched
        return engine

    def reopen(self) -> Engine:
        self._engine.close()
        self._engine = self._open()
        return self._engine

    def test_a_delete_leaves_the_names_that_newer_rows_need(self, engine: Engine, clock: ManualClock) -> None:
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 1), {"old": 1.0, "rare": 1.0})], version_us=V1))])
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 2), {"rare": 2.0})], version_us=V3))])
        engine.delete(SPARSE, [A], version_us=V2)
        assert values(logical(engine, SPARSE, [A], first=True)[A]) == [((2,), {"rare": 2.0})]
        clock.time_us = V3  # past the delete: a name that is written now stays
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, 3), {"new": 3.0})], version_us=V3))])
        assert values(logical(engine, SPARSE, [A], first=True)[A]) == [((3,), {"new": 3.0}), ((2,), {"rare": 2.0})]

    def test_every_node_tells_its_compactions(self, engine: Engine) -> None:
        assert (engine.pending_compactions() or 0) >= 0
        assert engine.pending_compactions() is not None
