"""`RocksEngine`: the port on RocksDB.

A table is a column family; a windowed table is one per window, so that expiry is dropping files, not rows. Sparse rows
carry their version in the key and are merged when read; fixed rows are replaced in place by greater versions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
from rocksdict import WriteBatch

from widerow.engine.port import ALL, Columns, Definition, EngineStats, Expired, Features, Span, TableSize
from widerow.engine.rocksdb import append, by_column, fixed
from widerow.engine.rocksdb.database import Database, RocksSettings, items
from widerow.engine.rocksdb.definition import definition
from widerow.engine.rocksdb.families import Families
from widerow.engine.rocksdb.keys import encode_key
from widerow.engine.rocksdb.pieces import ROWS, Piece, decode, shapes_of
from widerow.engine.rocksdb.scan import SparseScan, bounds, rows_of_piece
from widerow.engine.rows import NEVER, Cursor, Key, Row, Rows, rows_of
from widerow.model.arrays import Flags, lengths
from widerow.model.errors import ConfigError
from widerow.model.handfuls import handfuls
from widerow.model.store_clock import StoreClock
from widerow.model.times import MS, SECOND, Clock
from widerow.schema.table import Table

_TABLE_DECODER = msgspec.json.Decoder(Table)

_Ready: TypeAlias = tuple[str, append.Encoded | fixed.Encoded]
"""Rows of one column family."""
_HANDFUL = 1_000
"""Rows that are put in one go. RocksDB's binding holds the GIL meanwhile, for about two microseconds a row."""


class RocksEngine:
    """An engine in a folder of its own. One process at a time; any number of threads."""

    features = Features(durable=True, drops_windows=True, forgets_deletes=True)

    def __init__(self, path: Path, *, clock: Clock, settings: RocksSettings | None = None) -> None:
        self.db = Database(path, settings or RocksSettings())
        self.clock = versions = StoreClock(clock, self.db.first_version_us)
        self.db.last_version_us = lambda: versions.last_us
        try:
            self._tables = self._stored_tables()
        except BaseException:
            self.db.close()
            raise
        self._known = append.KnownShapes()
        self._conditional = threading.Lock()

    def apply(self, tables: Sequence[Table]) -> None:
        new = [table for table in tables if self._tables.get(table.name) != table]
        if not new:  # a store on a full disk can still be opened and read
            self._tables |= {table.name: table for table in tables}  # the same, but known by sight
            return
        for table in new:
            if table.by_column != self._tables.get(table.name, table).by_column:
                raise ConfigError(
                    f"table {table.name} of {self.db.path} was made by another release, which lays out its rows in another "
                    f"way: use that release, or a store in a new folder"
                )
        with self.db.writing():
            batch = WriteBatch(raw_mode=True)
            for table in new:
                batch.put(table.name.encode(), msgspec.json.encode(table))
                if not table.window:
                    self.db.handle(table.name)
            ticket = self.db.write(batch)
        self.db.wait_durable(ticket)
        self._tables |= {table.name: table for table in new}

    def outline(self, tables: Sequence[Table]) -> Sequence[Definition]:
        return [Definition(table.name, definition(table), self._tables.get(table.name) == table) for table in tables]

    def _stored_tables(self) -> dict[str, Table]:
        """What was applied before: windows are dropped on time even if nobody asks for their table any more."""
        with self.db.reading():
            default = self.db.family("default")
            assert default is not None
            stored = [value for _, value in items(self.db, default, b"", None)]
        return {table.name: table for table in (_TABLE_DECODER.decode(value) for value in stored)}

    def write(self, changes: Sequence[tuple[Table, Rows]]) -> None:
        ready: list[_Ready] = []
        for table, rows in changes:
            if len(rows):
                ready += self._prepared(table, rows)
        if not ready:
            return
        tickets = [self._put(some) for some in _handfuls(ready)]
        try:
            self.db.wait_durable(tickets[-1])
            self.db.check_kept(tickets[0])
        except BaseException:
            self._known = append.KnownShapes()  # the shapes of this write may be lost with it
            raise

    def _put(self, some: Sequence[_Ready]) -> int:
        """Into log and memory; gives a ticket to wait for."""
        with self.db.writing():
            batch = WriteBatch(raw_mode=True)
            waiting: dict[tuple[str, bytes], int] = {}
            try:
                for family, encoded in some:
                    if isinstance(encoded, append.Encoded):
                        append.put(batch, self.db, family, encoded, self._known)
                    else:
                        fixed.put_newer(batch, self.db, family, encoded, waiting)
                return self.db.write(batch)
            except BaseException:
                self._known.clear()
                raise

    def _prepared(self, table: Table, rows: Rows) -> list[_Ready]:
        """Rows by column family, encoded."""
        self._check_table(table)
        if table.conditional:
            raise ValueError(f"{table.name} is conditional: write it with put_if or insert")
        if (rows.version_us % MS).any():
            raise ValueError("version_us must be whole milliseconds")
        empty = lengths(rows.cells.offsets) == 0
        if empty.any():
            rows = rows.take(~empty)
        if not table.window or not len(rows):
            return [(table.name, self._encode(table, rows))] if len(rows) else []
        families, width_us = Families(table), table.window.width_us
        windows = np.asarray(rows.keys[table.window.column]) // width_us
        if windows.min() == windows.max():
            return [(families.of_window(int(windows[0])), self._encode(table, rows))]
        return [
            (families.of_window(window), self._encode(table, rows.take(windows == window)))
            for window in np.unique(windows).tolist()
        ]

    def _encode(self, table: Table, rows: Rows) -> append.Encoded | fixed.Encoded:
        if not table.sparse:
            return fixed.encode(table, rows)
        return by_column.encode(table, rows) if table.by_column else append.encode(table, rows)

    def put_if(self, table: Table, key: Key, row: Row | None, expected: Row | None) -> bool:
        self._check_conditional(table)
        if row is not None and not row:
            raise ValueError(f"{table.name}: a row has at least one column; None removes it")
        stored_key = encode_key(table.key, key)
        with self._conditional:  # held until it is durable, so that nobody builds on what may yet be lost
            with self.db.writing():
                found = fixed.get_row(self.db, table, stored_key, now_s=0)
                if found != (None if expected is None else fixed.plain(expected)):
                    return False
                batch = WriteBatch(raw_mode=True)
                batch.set_default_column_family(self.db.handle(table.name))
                if row is None:
                    batch.delete(stored_key)
                else:
                    batch.put(stored_key, fixed.encode(table, rows_of(table, [(key, row)], version_us=0)).values[0])
                ticket = self.db.write(batch)
            self.db.wait_durable(ticket)
        return True

    def insert(self, table: Table, rows: Rows) -> Flags:
        self._check_conditional(table)
        encoded = fixed.encode(table, replace(rows, expire_us=np.full(len(rows), NEVER)))
        inserted = np.zeros(len(rows), np.bool_)
        with self._conditional:
            with self.db.writing():
                found = fixed.get_many(self.db, table.name, encoded.keys)
                new: dict[bytes, int] = {}
                for i, (key, value) in enumerate(zip(encoded.keys, found, strict=True)):
                    if value is None:
                        new.setdefault(key, i)
                batch = WriteBatch(raw_mode=True)
                batch.set_default_column_family(self.db.handle(table.name))
                append.consume(map(batch.put, new, (encoded.values[i] for i in new.values())))
                ticket = self.db.write(batch)
            self.db.wait_durable(ticket)
        inserted[list(new.values())] = True
        return inserted

    def get(self, table: Table, key: Key, *, may_lag: bool = False) -> Row | None:  # noqa: ARG002 - nothing here lags
        self._check_table(table)
        if table.sparse:
            raise ValueError(f"{table.name} is sparse: scan it")
        with self.db.reading():
            return fixed.get_row(self.db, table, encode_key(table.key, key), now_s=self.clock.now_us() // SECOND)

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
        may_lag: bool = False,  # noqa: ARG002 - nothing here lags
    ) -> Iterator[Rows]:
        self._check_table(table)
        now_s = self.clock.now_us() // SECOND
        if table.sparse:
            if table.by_column:  # whose cells are found by name: `first` would save little
                scan: SparseScan = by_column.ColumnScan(self.db, table, span=span, limit=limit, columns=columns, now_s=now_s)
            else:
                scan = SparseScan(self.db, table, span=span, limit=limit, columns=columns, first=first, now_s=now_s)
            return scan.run(partitions, after)
        return fixed.scan(self.db, table, partitions, span, limit=limit, columns=columns, after=after, now_s=now_s)

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
        families = Families(table)
        for partition in partitions:
            family = families.of(partition)
            if self.db.family(family) is None:
                continue
            if table.by_column:
                by_column.delete(self.db, table, family, partition, span, version_us=version_us, columns=columns)
            elif table.sparse:
                self._delete_sparse(table, family, partition, span, version_us, columns)
            else:
                self._delete_fixed(table, partition, span, version_us, columns)

    def _delete_sparse(
        self, table: Table, family: str, partition: Key, span: Span, version_us: int, columns: Sequence[str] | None
    ) -> None:
        """Fragments up to the version go; what they hold besides the named columns is written again under its version."""
        prefix = encode_key(table.partition, partition)
        start, stop = bounds(table, partition, prefix + ROWS, span)
        with self.db.writing():
            rows = self.db.family(family)
            if rows is None:
                return
            stored = list(items(self.db, rows, start, stop))
            if not stored:
                return
            piece = Piece()
            piece.add(partition, prefix, stored, shapes_of(self.db, rows, prefix))
            found = decode(piece, now_s=0, wanted=None, resolve=False)
            doomed = found.version_us <= version_us
            batch = WriteBatch(raw_mode=True)
            batch.set_default_column_family(self.db.handle(family))
            if columns is None:
                append.consume(map(batch.delete, (stored[i][0] for i in np.flatnonzero(doomed).tolist())))
            else:
                named = np.isin(found.cells.names.to_bytes_list(), [c.encode() for c in columns])
                hit = np.zeros(len(doomed), np.bool_)
                hit[found.cells.rows()[named[found.cells.name]]] = True
                doomed &= hit
                append.consume(map(batch.delete, (stored[i][0] for i in np.flatnonzero(doomed).tolist())))
                left = rows_of_piece(table, piece, found)
                left = replace(left, cells=found.cells.keep(~named[found.cells.name])).take(doomed)
                left = left.take(lengths(left.cells.offsets) > 0)
                if len(left):
                    append.put(batch, self.db, family, append.encode(table, left), self._known)
            self._known.clear()
            ticket = self.db.write(batch)
        self.db.wait_durable(ticket)

    def _delete_fixed(
        self, table: Table, partition: Key, span: Span, version_us: int, columns: Sequence[str] | None
    ) -> None:
        if columns is not None:
            raise ValueError(f"{table.name} has fixed columns: its rows are deleted whole")
        with self.db.writing():
            batch = WriteBatch(raw_mode=True)
            batch.set_default_column_family(self.db.handle(table.name))
            for key in fixed.doomed_keys(self.db, table, partition, span, version_us):
                batch.delete(key)
            ticket = self.db.write(batch)
        self.db.wait_durable(ticket)

    def expire(self, now_us: int) -> Expired:
        windows, size = 0, 0
        for name in self.db.names():
            table, _, number = name.partition("@")
            window = self._tables[table].window if table in self._tables and number else None
            if window and (int(number) + 1) * window.width_us + window.keep_us <= now_us:
                with self.db.writing(needs_room=False):
                    size += self.db.drop(name)
                    self._known.clear()
                windows += 1
        return Expired(windows, size)

    def pending_compactions(self) -> int:
        with self.db.reading():
            return self.db.compactions()

    def stats(self) -> EngineStats:
        with self.db.reading():
            names = self.db.names()
            return EngineStats(
                disk_bytes=self.db.disk_bytes(),
                memory_bytes=self.db.sum_property("rocksdb.cur-size-all-mem-tables")
                + self.db.sum_property("rocksdb.estimate-table-readers-mem")
                + self.db.cache_bytes(),
                writes=self.db.writes,
                syncs=self.db.syncs,
                tables=len(self._tables),
                windows=sum("@" in n for n in names),
                detail={
                    "pending_compaction_bytes": self.db.sum_property("rocksdb.estimate-pending-compaction-bytes"),
                    "running_compactions": self.db.running_compactions(),
                    "table_files_bytes": self.db.sum_property("rocksdb.total-sst-files-size"),
                },
                damage=self.db.damage_found(),
            )

    def sizes(self) -> Mapping[str, TableSize]:
        with self.db.reading():
            return self.db.sizes()

    def close(self) -> None:
        self.db.close()

    def _check_table(self, table: Table) -> None:
        known = self._tables.get(table.name)
        if known is not table and known != table:
            raise ValueError(f"table {table.name} was not applied")

    def _check_conditional(self, table: Table) -> None:
        self._check_table(table)
        if not table.conditional:
            raise ValueError(f"{table.name} is not conditional: use write")


def _handfuls(ready: Sequence[_Ready]) -> Iterator[list[_Ready]]:
    """The same in order, in writes that are over soon: while one is under way nobody else gets anything done."""
    parts = (
        (family, part)
        for family, encoded in ready
        for part in (encoded.parts(_HANDFUL) if isinstance(encoded, append.Encoded) else (encoded,))
    )
    return handfuls(parts, lambda each: len(each[1]), _HANDFUL)
