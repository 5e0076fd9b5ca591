"""`BigtableEngine`: the port on Google Bigtable.

A table of ours is a table there, named `{prefix}_{table}`, with a readable row key and a family for each kind of cell. The
version of a cell is its timestamp. What Bigtable does by itself (garbage collection, splitting, replication) is left to it;
what it does not promise (expiry to the second) is done on reading.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from google.api_core.exceptions import GoogleAPICallError
from google.auth.credentials import Credentials

from widerow.engine.bigtable import fixed
from widerow.engine.bigtable.answers import Page
from widerow.engine.bigtable.connection import BigtableSettings, Connection, admin_failure
from widerow.engine.bigtable.expiry import outlives_its_age, stored_s
from widerow.engine.bigtable.families import EXPIRES, EXPIRES_CODE, KEPT_CODE, NAMES, commands, ensure, families, rules
from widerow.engine.bigtable.keys import TableKeys
from widerow.engine.bigtable.mutations import (
    DELETE_ROW,
    elsewhere,
    encode_cells,
    encode_deletions,
    entry,
    requests,
)
from widerow.engine.bigtable.requests import insert_request, newest, replace_request
from widerow.engine.bigtable.scan import Scan, pages
from widerow.engine.port import ALL, Columns, Definition, EngineStats, Expired, Features, Span, TableSize
from widerow.engine.rows import Cursor, Key, Row, Rows
from widerow.model.arrays import Flags, lengths
from widerow.model.errors import ConfigError
from widerow.model.names import Names
from widerow.model.times import MS, Clock, whole_ms
from widerow.schema.table import Table

_PREFIX = re.compile(r"[a-z0-9][a-z0-9-]{0,19}")


def creation(table: Table, name: str, margin_us: int = BigtableSettings().age_margin_us) -> str:
    """The commands that make a table of that full name: its splits, its families and what may be collected of each."""
    return commands(name, families(table, margin_us), TableKeys(table).splits())


class BigtableEngine:
    """An engine on the tables of one prefix of one instance. Any number of processes may share them.

    Credentials are those given, or what Google's libraries find; with BIGTABLE_EMULATOR_HOST set there are none.
    """

    features = Features(durable=True, drops_windows=False, forgets_deletes=True)

    def __init__(
        self,
        project: str,
        instance: str,
        prefix: str,
        *,
        clock: Clock,
        settings: BigtableSettings | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ConfigError(f"table prefix {prefix!r}: give 1 to 20 of a-z, 0-9 and -, not beginning with -")
        self._connection = Connection(project, instance, settings or BigtableSettings(), credentials)
        self._margin_us = self._connection.settings.age_margin_us
        self._prefix, self.clock = prefix, clock
        self._tables: dict[str, TableKeys] = {}
        self._applying = threading.Lock()
        self._writes = 0

    def apply(self, tables: Sequence[Table]) -> None:
        for table in tables:
            known = self._tables.get(table.name)
            if known is not None and known.table == table:
                continue
            if known is not None and not _extends(table, known.table):
                raise ValueError(f"{table.name}: columns may be appended to a table; nothing else of it may change")
            keys = TableKeys(table)
            want = families(table, self._margin_us)
            try:
                with self._applying:
                    ensure(self._connection.admin(), self._connection.table_name(self._id(table)), want, keys.splits())
            except GoogleAPICallError as error:
                raise admin_failure(error, self._id(table)) from None
            self._tables[table.name] = keys

    def outline(self, tables: Sequence[Table]) -> Sequence[Definition]:
        out = []
        for table in tables:
            want, name = families(table, self._margin_us), self._connection.table_name(self._id(table))
            try:
                stored = rules(self._connection.admin(), name)
            except GoogleAPICallError as error:
                raise admin_failure(error, self._id(table)) from None
            text = creation(table, name, self._margin_us)
            out.append(Definition(table.name, text, stored is not None and want.items() <= stored.items()))
        return out

    def write(self, changes: Sequence[tuple[Table, Rows]]) -> None:
        for table, rows in changes:
            self._keys(table)
            if table.conditional:
                raise ValueError(f"{table.name} is conditional: use put_if or insert")
            if (rows.version_us % MS).any():
                raise ValueError(f"{table.name}: versions are whole milliseconds")
        encoded = [(table, self._encoded(table, rows)) for table, rows in changes if len(rows)]
        for table, cut in encoded:
            self._connection.mutate(self._id(table), cut)
        self._writes += 1

    def _encoded(self, table: Table, rows: Rows) -> list[Names]:
        keys = self._keys(table)
        if not table.sparse:
            entries = fixed.encode(keys, rows)
            return list(requests(entries, np.full(len(entries), 2)))
        empty = lengths(rows.cells.offsets) == 0
        if empty.any():
            rows = rows.take(~empty)
        odd = outlives_its_age(table, rows.keys, rows.version_us, rows.expire_us, margin_us=self._margin_us)
        if not odd.any():
            return self._encoded_cells(keys, rows, kept=False)
        return self._encoded_cells(keys, rows.take(~odd), kept=False) + self._encoded_cells(keys, rows.take(odd), kept=True)

    def _encoded_cells(self, keys: TableKeys, rows: Rows, *, kept: bool) -> list[Names]:
        row_keys = keys.spec.encode(rows.keys, len(rows))
        expire_s = stored_s(keys.table, rows.keys, rows.expire_us)
        return list(requests(*encode_cells(row_keys, rows.version_us, expire_s, rows.cells, kept=kept)))

    def put_if(self, table: Table, key: Key, row: Row | None, expected: Row | None) -> bool:
        keys = self._conditional(table)
        now_us = whole_ms(self.clock.now_us())
        change = [DELETE_ROW] if row is None else fixed.replacement(fixed.to_json(table, row), now_us)
        row_key = keys.row_key(key)
        if expected is None:
            return not self._connection.check(self._id(table), [insert_request(row_key, change)])[0]
        digest = fixed.digest(fixed.to_json(table, expected))
        return self._connection.check(self._id(table), [replace_request(row_key, digest, change)])[0]

    def insert(self, table: Table, rows: Rows) -> Flags:
        keys = self._conditional(table)
        now_us = whole_ms(self.clock.now_us())
        plain = fixed.plain_rows(table, rows)
        row_keys = keys.spec.encode(rows.keys, len(rows)).to_bytes_list()
        new: dict[bytes, int] = {}
        for i, key in enumerate(row_keys):
            new.setdefault(key, i)
        asked = [insert_request(key, fixed.replacement(plain[i], now_us)) for key, i in new.items()]
        existed = self._connection.check(self._id(table), asked)
        inserted = np.zeros(len(rows), np.bool_)
        inserted[list(new.values())] = ~np.array(existed, np.bool_)
        return inserted

    def get(self, table: Table, key: Key, *, may_lag: bool = False) -> Row | None:
        if table.sparse:
            raise ValueError(f"{table.name} is sparse: scan it")
        return next((rows.row(0) for rows in self.scan(table, [key], may_lag=may_lag)), None)

    def scan(
        self,
        table: Table,
        partitions: Sequence[Key] | None,
        span: Span = ALL,
        *,
        limit: int | None = None,
        columns: Columns | None = None,
        after: Cursor | None = None,
        first: bool = False,  # noqa: ARG002
        may_lag: bool = False,
    ) -> Iterator[Rows]:
        """`first` leaves nothing out: a filter for "what was not yet shown" takes longer than the cells it would save."""
        keys, now_us = self._keys(table), self.clock.now_us()
        wanted = Scan(
            self._connection,
            self._id(table),
            keys,
            now_us=now_us,
            span=span,
            limit=limit,
            columns=columns,
            may_lag=may_lag,
        )
        return wanted.run(partitions, after)

    def delete(
        self,
        table: Table,
        partitions: Sequence[Key],
        span: Span = ALL,
        *,
        version_us: int,
        columns: Sequence[str] | None = None,
    ) -> None:
        keys = self._keys(table)
        if columns is not None and not table.sparse:
            raise ValueError(f"{table.name}: a fixed row is deleted as a whole")
        if any(len(at) != len(table.partition) for at in partitions):
            raise ValueError(f"{table.name}: whole partitions are deleted, or spans of them")
        stop_us = whole_ms(version_us) + MS
        found = newest(None if columns is None else tuple(columns), values=False)
        for page in pages(self._connection, self._id(table), [keys.range(at, span) for at in partitions], found):
            self._connection.mutate(self._id(table), self._deletions(table, page, stop_us, columns))

    def _deletions(self, table: Table, page: Page, stop_us: int, columns: Sequence[str] | None) -> list[Names]:
        """Columns are deleted up to the version, not rows: what is newer stays, also if it came a moment ago."""
        row_keys = page.keys.to_bytes_list()
        if table.conditional:
            entries = Names.of_bytes([entry(key, [DELETE_ROW]) for key in row_keys])
            return list(requests(entries, np.ones(len(entries), np.int64)))
        if not table.sparse:
            entries = fixed.encode_deletions(row_keys, stop_us)
            return list(requests(entries, np.full(len(entries), 2)))
        doomed = page.family < len(NAMES)
        if columns is not None:
            doomed &= _named(page, columns)
        kept = np.zeros(len(doomed) + 1, np.int64)
        np.cumsum(doomed, out=kept[1:])
        offsets = kept[page.offsets]
        rows = np.flatnonzero(lengths(offsets))
        cuts = np.append(offsets[rows], offsets[-1])
        columns_of = page.family[doomed], page.qualifier[doomed], page.qualifiers
        return list(requests(*encode_deletions(page.keys.take(rows), cuts, *columns_of, stop_us)))

    def expire(self, now_us: int) -> Expired:  # noqa: ARG002
        """Bigtable collects by the rules of the families, in its own time."""
        return Expired()

    def pending_compactions(self) -> None:
        return None  # the service compacts, and does not tell

    def stats(self) -> EngineStats:
        counts = self._connection.counts
        return EngineStats(
            writes=self._writes,
            tables=len(self._tables),
            detail={
                "requests": counts.requests,
                "repeated_requests": counts.repeated,
                "sent_bytes": counts.sent_bytes,
                "received_bytes": counts.received_bytes,
            },
        )

    def sizes(self) -> Mapping[str, TableSize]:
        return {}  # its own tools know

    def close(self) -> None:
        self._connection.close()

    def _id(self, table: Table) -> str:
        return f"{self._prefix}_{table.name}"

    def _keys(self, table: Table) -> TableKeys:
        keys = self._tables.get(table.name)
        if keys is None or keys.table != table:
            raise ValueError(f"table {table.name} was not applied")
        return keys

    def _conditional(self, table: Table) -> TableKeys:
        keys = self._keys(table)
        if not table.conditional:
            raise ValueError(f"{table.name} is not conditional: use write")
        return keys


def _extends(table: Table, known: Table) -> bool:
    """Whether it is the same table with, at most, columns appended."""
    return replace(table, columns=known.columns) == known and table.columns[: len(known.columns)] == known.columns


def _named(page: Page, columns: Sequence[str]) -> Flags:
    """Which cells are of these columns, with what is said beside them."""
    names = {name.encode() for name in columns}
    beside = {elsewhere(family, name) for family in NAMES for name in names}
    kept = beside | {elsewhere(EXPIRES, name) for name in beside}
    known = page.qualifiers.to_bytes_list()
    in_plain, in_expires, in_kept = (
        np.array([q in wanted for q in known], np.bool_)[page.qualifier] for wanted in (names, beside, kept)
    )
    return np.select([page.family == EXPIRES_CODE, page.family == KEPT_CODE], [in_expires, in_kept], in_plain)
