"""`CassandraEngine`: the port on Apache Cassandra.

It holds no policy: no retry beyond what the driver does for a request, no cache of answers. What acknowledged means is the
configured consistency; what a node's log does with it is the cluster's affair (docs/deploy/cassandra.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from widerow.engine.cassandra.cluster import CassandraSettings, Connection
from widerow.engine.cassandra.conditional import Turns, apply_each
from widerow.engine.cassandra.encode import Statements, batches, bound_to, pack_row
from widerow.engine.cassandra.names import KnownNames, Naming
from widerow.engine.cassandra.nodes import compactions
from widerow.engine.cassandra.physical import CELL, Physical, cell_name, create_cell, create_keyspace
from widerow.engine.cassandra.scan import Scan
from widerow.engine.port import ALL, Columns, Definition, EngineStats, Expired, Features, Span, TableSize
from widerow.engine.rows import Cursor, Key, Row, Rows
from widerow.model.arrays import Flags, lengths
from widerow.model.batch import CellKind
from widerow.model.errors import ConfigError
from widerow.model.times import MS, Clock
from widerow.schema.table import Table


class CassandraEngine:
    """An engine in one keyspace. Any number of processes and threads."""

    features = Features(durable=True, drops_windows=False, forgets_deletes=False)

    def __init__(self, settings: CassandraSettings, *, clock: Clock) -> None:
        self._settings, self.clock = settings, clock
        self._connection = Connection(settings)
        self._tables: dict[str, Table] = {}
        self._physical: dict[str, Physical] = {}
        self._names = KnownNames()
        self._turns = Turns(settings.timeout_s)
        self._writes = 0

    @property
    def connection(self) -> Connection:
        """For what the port has no words for, such as the sizes of files."""
        return self._connection

    # -- definition

    def apply(self, tables: Sequence[Table]) -> None:
        for table in tables:
            if self._tables.get(table.name) == table:
                continue
            physical = Physical(self._settings.keyspace, table)
            known = self._known(table.name)
            if known is None:
                self._make(physical)
            elif known != (physical.partition, physical.key[len(physical.partition) :]):
                raise ConfigError(f"{physical.name} exists and has other key columns: is the keyspace another program's?")
            self._tables[table.name], self._physical[table.name] = table, physical

    def outline(self, tables: Sequence[Table]) -> Sequence[Definition]:
        keyspace = self._settings.keyspace
        there = keyspace in self._connection.metadata.keyspaces
        made = [
            Definition(table.name, f"{Physical(keyspace, table).create()};", self._known(table.name) is not None)
            for table in tables
        ]
        keyspace_of_them = Definition(keyspace, f"{self._create_keyspace()};", there)
        if all(table.sparse for table in tables):
            return [keyspace_of_them, *made]
        # Tables of an older store go without the type, and work as they are.
        wanted = any(not table.sparse and not one.exists for table, one in zip(tables, made, strict=True))
        cell = Definition(CELL, f"{create_cell(keyspace)};", self._has_cell() or not wanted)
        return [keyspace_of_them, cell, *made]

    def _create_keyspace(self) -> str:
        return create_keyspace(self._settings.keyspace, self._settings.dc, self._settings.replication)

    def _known(self, table: str) -> tuple[list[str], list[str]] | None:
        """The key columns of a table that exists."""
        keyspace = self._connection.metadata.keyspaces.get(self._settings.keyspace)
        found = keyspace.tables.get(table) if keyspace else None
        return found and ([c.name for c in found.partition_key], [c.name for c in found.clustering_key])

    def _has_cell(self) -> bool:
        keyspace = self._connection.metadata.keyspaces.get(self._settings.keyspace)
        return keyspace is not None and CELL in keyspace.user_types

    def _make(self, physical: Physical) -> None:
        if self._settings.keyspace not in self._connection.metadata.keyspaces:
            self._connection.define(self._create_keyspace())
        if not physical.table.sparse and not self._has_cell():
            self._connection.define(create_cell(self._settings.keyspace))
        self._connection.define(physical.create())
        self._connection.await_schema(self._settings.keyspace, physical.table.name)

    # -- writing

    def write(self, changes: Sequence[tuple[Table, Rows]]) -> None:
        now_us = self.clock.now_us()
        for table, rows in [(table, self._checked(table, rows, now_us)) for table, rows in changes]:
            if len(rows):
                naming = Naming(self._names)
                physical, prepared = self._physical[table.name], self._prepared(table)
                self._connection.execute_all(batches(physical, prepared, rows, now_us, naming))
                naming.learn()
        self._writes += 1

    def _prepared(self, table: Table) -> Statements:
        physical, prepare = self._physical[table.name], self._connection.prepare
        return Statements(
            prepare(physical.write()),
            prepare(physical.name_cells()) if table.sparse else None,
            prepare(physical.write_summary()) if table.summaries else None,
            prepare(physical.delete_row()) if table.summaries else None,
        )

    def _checked(self, table: Table, rows: Rows, now_us: int) -> Rows:
        """What of the rows is to be written."""
        self._check_table(table)
        if table.conditional:
            raise ValueError(f"{table.name} is conditional: write it with put_if or insert")
        if (rows.version_us % MS).any():
            raise ValueError("version_us must be whole milliseconds")
        strange = set() if table.sparse else set(rows.cells.names) - set(table.columns)
        if strange:
            raise ValueError(f"{table.name} has no column {', '.join(sorted(strange))}")
        keep = lengths(rows.cells.offsets) > 0
        if table.window:
            width_us, keep_us = table.window.width_us, table.window.keep_us
            window = np.asarray(rows.keys[table.window.column]) // width_us
            keep &= (window + 1) * width_us + keep_us > now_us
        return rows if keep.all() else rows.take(keep)

    def put_if(self, table: Table, key: Key, row: Row | None, expected: Row | None) -> bool:
        self._check_conditional(table)
        physical = self._physical[table.name]
        new = None if row is None else pack_row(table, row)
        at = self._packed_key(physical, key)
        if row is None and expected is None:
            return self.get(table, key) is None
        if expected is None:
            cql, packed = physical.insert_new(), [*at, new]
        elif set(expected) - set(table.columns) or not expected:
            return False
        elif row is None:
            cql, packed = physical.remove(), [*at, pack_row(table, expected)]
        else:
            cql, packed = physical.replace(), [new, *at, pack_row(table, expected)]
        return bool(self._each(table, {0: (key, cql, packed)}))

    def _packed_key(self, physical: Physical, key: Key) -> list[Any]:
        n = len(physical.partition)
        values = physical.partition_values(key) + physical.clustering_values(key[n:])
        return [v.encode() if isinstance(v, str) else v.to_bytes(8, "big", signed=True) for v in values]

    def _bound(self, cql: str, packed: list[Any]) -> Any:
        return bound_to(self._connection.prepare(cql, idempotent=False), packed)

    def insert(self, table: Table, rows: Rows) -> Flags:
        self._check_conditional(table)
        physical = self._physical[table.name]
        first: dict[Key, int] = {}
        for i in range(len(rows)):
            first.setdefault(rows.key(table, i), i)
        wanted = {
            i: (key, physical.insert_new(), [*self._packed_key(physical, key), pack_row(table, rows.row(i))])
            for key, i in first.items()
        }
        inserted = np.zeros(len(rows), np.bool_)
        inserted[self._each(table, wanted)] = True
        return inserted

    def _each(self, table: Table, statements: Mapping[int, tuple[Key, str, list[Any]]]) -> list[int]:
        """Send numbered conditional statements (key, CQL, values), and say which were applied."""
        parts: dict[Key, list[tuple[int, Any]]] = {}
        for i, (key, cql, packed) in statements.items():
            parts.setdefault(key[: len(table.partition)], []).append((i, self._bound(cql, packed)))
        with self._turns.at(table.name, parts):
            return apply_each(self._connection, list(parts.values()))

    # -- reading

    def get(self, table: Table, key: Key, *, may_lag: bool = False) -> Row | None:  # noqa: ARG002 - the consistency decides
        self._check_table(table)
        if table.sparse:
            raise ValueError(f"{table.name} is sparse: scan it")
        return next((rows.row(0) for rows in self.scan(table, [key])), None)

    def scan(
        self,
        table: Table,
        partitions: Sequence[Key] | None,
        span: Span = ALL,
        *,
        limit: int | None = None,
        columns: Columns | None = None,
        after: Cursor | None = None,
        first: bool = False,
        may_lag: bool = False,  # noqa: ARG002 - the consistency decides
    ) -> Iterator[Rows]:
        self._check_table(table)
        physical, now_us = self._physical[table.name], self.clock.now_us()
        scan = Scan(self._connection, physical, now_us=now_us, span=span, limit=limit, columns=columns, first=first)
        return scan.run(partitions, after)

    # -- deleting

    def delete(
        self,
        table: Table,
        partitions: Sequence[Key],
        span: Span = ALL,
        *,
        version_us: int,
        columns: Sequence[str] | None = None,
    ) -> None:
        self._check_table(table)
        if any(len(p) != len(table.partition) for p in partitions):
            raise ValueError(f"{table.name}: delete takes whole partitions, and a span")
        if columns is not None and not table.sparse:
            raise ValueError(f"{table.name} has fixed columns: its rows are deleted whole")
        physical = self._physical[table.name]
        if table.conditional:
            self._remove(physical, partitions, span)
        elif columns is not None:
            self._connection.execute_all(self._cell_deletes(physical, partitions, span, version_us, columns))
        else:
            partitions = [p for p in partitions if physical.can_hold(p)]
            low, low_values, high, high_values = physical.delete_bounds(span)
            statement = self._connection.prepare(physical.delete(low=low, high=high))
            self._connection.execute_all(
                statement.bind([version_us, *physical.partition_values(p), *low_values, *high_values]) for p in partitions
            )

    def _remove(self, physical: Physical, partitions: Sequence[Key], span: Span) -> None:
        table = physical.table
        for rows in self.scan(table, partitions, span):
            keys = {i: rows.key(table, i) for i in range(len(rows))}
            self._each(table, {i: (key, physical.remove_any(), self._packed_key(physical, key)) for i, key in keys.items()})

    def _cell_deletes(
        self, physical: Physical, partitions: Sequence[Key], span: Span, version_us: int, columns: Sequence[str]
    ) -> Iterator[Any]:
        """Each named cell of each row: Cassandra cannot delete one name over a range of times."""
        statement = self._connection.prepare(physical.delete_row())
        n = len(physical.partition)
        for rows in self.scan(physical.table, partitions, span, columns=columns):
            for i in range(len(rows)):
                key = rows.key(physical.table, i)
                at = [*physical.partition_values(key), *physical.clustering_values(key[n:])]
                cells = rows.cells
                for c in range(int(cells.offsets[i]), int(cells.offsets[i + 1])):
                    name = cell_name(cells.names[int(cells.name[c])], tag=cells.kind[c] == CellKind.TAG)
                    yield statement.bind([version_us, *at, name])

    def expire(self, now_us: int) -> Expired:  # noqa: ARG002 - the store looks at its own clock
        """Cassandra drops what has expired by itself, whole tables of a time window at once."""
        return Expired()

    def pending_compactions(self) -> int | None:
        return compactions(self._connection)

    def stats(self) -> EngineStats:
        return EngineStats(writes=self._writes, tables=len(self._tables))

    def sizes(self) -> Mapping[str, TableSize]:
        return {}  # its own tools know

    def close(self) -> None:
        self._connection.close()

    def _check_table(self, table: Table) -> None:
        if self._tables.get(table.name) != table:
            raise ValueError(f"table {table.name} was not applied")

    def _check_conditional(self, table: Table) -> None:
        self._check_table(table)
        if not table.conditional:
            raise ValueError(f"{table.name} is not conditional: use write")
