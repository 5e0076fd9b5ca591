"""The plain in-memory engine: what the port means, as simply as Python can say it. The oracle of the tests.

Rule 1: a stored cell is a tuple that begins with its version, and of two the greater is kept. So the order of arrival cannot
matter, and even equal versions settle the same way every time.
Rule 2: nothing is indexed, cached or deferred. A scan looks at everything it was asked for, and sorts it.
Rule 3: one lock. A scan takes what it will show while it holds it, and makes the columns afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import pack
from threading import Lock
from typing import NamedTuple, TypeAlias

import numpy as np

from widerow.engine.port import ALL, Columns, Definition, EngineStats, Expired, Features, Span, TableSize
from widerow.engine.rows import NEVER, Column, Cursor, Key, Row, Rows
from widerow.model.arrays import Flags
from widerow.model.batch import CellKind, Cells
from widerow.model.names import Coded, Names
from widerow.model.store_clock import StoreClock
from widerow.model.times import MS, SECOND, Clock
from widerow.schema.table import KeyColumn, Table


class _CellId(NamedTuple):
    """What makes two cells of a row the same one. Tags have a name space of their own."""

    name: str
    tag: bool


class _Cell(NamedTuple):
    version_us: int
    expire_us: int
    kind: int
    value: bytes
    """The text, or the 8 bytes of the number."""


_Row: TypeAlias = dict[_CellId, _Cell]
_Partitions: TypeAlias = dict[Key, dict[Key, _Row]]
_Place: TypeAlias = tuple[bytes | int | tuple[int, ...], ...]


class _Fragment(NamedTuple):
    key: Key
    version_us: int
    expire_us: int
    cells: list[tuple[_CellId, _Cell]]


class _Stop(NamedTuple):
    """Where a scan stood: behind which row, and how many it had shown for what was asked. A cursor, once encoded."""

    asked: Key
    clustering: Key
    taken: int


class _Shown(NamedTuple):
    """A logical row of a scan."""

    stop: _Stop
    fragments: list[_Fragment]


def definition(table: Table) -> str:
    """A table in a line: its key, as ((partition), clustering), and its cells."""
    partition, clustering = (
        [f"{c.name}{' DESC' if c.descending else ''}" for c in columns] for columns in (table.partition, table.clustering)
    )
    key = ", ".join([f"({', '.join(partition)})", *clustering])
    return f"table {table.name} ({key}): {', '.join(table.columns) or 'named cells'}"


class MemoryEngine:
    """An `Engine` that forgets everything when it goes."""

    features = Features(durable=False, drops_windows=True, forgets_deletes=True)

    def __init__(self, clock: Clock, *, chunk_rows: int = 500) -> None:
        """A scan's chunks have `chunk_rows` rows: few, so that tests meet chunks that end inside a partition."""
        self.clock = StoreClock(clock)
        self._chunk_rows = chunk_rows
        self._lock = Lock()
        self._tables: dict[str, Table] = {}
        self._data: dict[str, _Partitions] = {}
        self._writes = 0

    def apply(self, tables: Sequence[Table]) -> None:
        with self._lock:
            for table in tables:
                known = self._tables.get(table.name, table)
                same = (known.key, known.sparse, known.conditional) == (table.key, table.sparse, table.conditional)
                if not same or table.columns[: len(known.columns)] != known.columns:
                    raise ValueError(f"{table.name}: columns may be appended to a table; nothing else of it may change")
                self._tables[table.name] = table
                self._data.setdefault(table.name, {})

    def write(self, changes: Sequence[tuple[Table, Rows]]) -> None:
        with self._lock:
            for table, rows in changes:
                self._partitions(table)
                if table.conditional:
                    raise ValueError(f"{table.name} is conditional: use put_if or insert")
                if np.any(rows.version_us % MS):
                    raise ValueError(f"{table.name}: versions are whole milliseconds")
            for table, rows in changes:
                for key, cells in _unpacked(table, rows):
                    self._keep(table, key, cells)
            self._writes += 1

    def _keep(self, table: Table, key: Key, cells: list[tuple[_CellId, _Cell]]) -> None:
        at, clustering = key[: len(table.partition)], key[len(table.partition) :]
        if not table.sparse:
            row = _checked(table, dict(cells))
            partition = self._partitions(table).setdefault(at, {})
            partition[clustering] = max(partition.get(clustering, row), row, key=_rank)
        elif cells:
            row = self._partitions(table).setdefault(at, {}).setdefault(clustering, {})
            for name, cell in cells:
                row[name] = max(row.get(name, cell), cell)

    def put_if(self, table: Table, key: Key, row: Row | None, expected: Row | None) -> bool:
        with self._lock:
            self._conditional(table)
            return self._put_if(table, key, _fixed(table, row), _fixed(table, expected))

    def insert(self, table: Table, rows: Rows) -> Flags:
        with self._lock:
            self._conditional(table)
            plain = [
                (key, _checked(table, {name: cell._replace(version_us=0, expire_us=NEVER) for name, cell in cells}))
                for key, cells in _unpacked(table, rows)
            ]
            return np.array([self._put_if(table, key, row, None) for key, row in plain], np.bool_)

    def _put_if(self, table: Table, key: Key, row: _Row | None, expected: _Row | None) -> bool:
        partitions = self._partitions(table)
        at, clustering = key[: len(table.partition)], key[len(table.partition) :]
        if partitions.get(at, {}).get(clustering) != expected:
            return False
        if row is not None:
            partitions.setdefault(at, {})[clustering] = row
        elif expected is not None:
            del partitions[at][clustering]
        return True

    def outline(self, tables: Sequence[Table]) -> Sequence[Definition]:
        return [Definition(table.name, definition(table), self._tables.get(table.name) == table) for table in tables]

    def get(self, table: Table, key: Key, *, may_lag: bool = False) -> Row | None:  # noqa: ARG002 - nothing here lags
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
        may_lag: bool = False,  # noqa: ARG002 - nothing here lags
    ) -> Iterator[Rows]:
        now_us = self.clock.now_us()
        start = None if after is None else _read_cursor(after)
        shown: list[_Shown] = []
        with self._lock:
            stored = self._partitions(table)
            for asked, rows in _asked(table, stored, partitions, span, start):
                at = asked[: len(table.partition)]
                if _window_end_us(table, at) <= now_us:
                    continue
                seen: set[_CellId] = set()
                taken = start.taken if start is not None and start.asked == asked else 0
                for clustering in rows:
                    if limit is not None and taken >= limit:
                        break
                    live = [
                        (name, cell)
                        for name, cell in stored[at][clustering].items()
                        if cell.expire_us > now_us and (columns is None or name.name in columns) and name not in seen
                    ]
                    if not table.sparse:
                        live.sort(key=lambda item: table.columns.index(item[0].name))
                    if first:
                        seen.update(name for name, _ in live)
                    if live:
                        taken += 1
                        shown.append(_Shown(_Stop(asked, clustering, taken), _fragments(at + clustering, live)))
        chunks = (shown[i : i + self._chunk_rows] for i in range(0, len(shown), self._chunk_rows))
        return (_packed(table, [f for row in chunk for f in row.fragments], chunk[-1].stop) for chunk in chunks)

    def delete(
        self,
        table: Table,
        partitions: Sequence[Key],
        span: Span = ALL,
        *,
        version_us: int,
        columns: Sequence[str] | None = None,
    ) -> None:
        if columns is not None and not table.sparse:
            raise ValueError(f"{table.name}: a fixed row is deleted as a whole")
        if any(len(at) != len(table.partition) for at in partitions):
            raise ValueError(f"{table.name}: whole partitions are deleted, or spans of them")
        with self._lock:
            stored = self._partitions(table)
            for at in partitions:
                for clustering in _sorted(table, stored.get(at, {}), span):
                    left = {
                        name: cell
                        for name, cell in stored[at][clustering].items()
                        if (columns is not None and name.name not in columns)
                        or (cell.version_us > version_us and not table.conditional)
                    }
                    _set(stored, at, clustering, left)

    def expire(self, now_us: int) -> Expired:
        windows = 0
        with self._lock:
            for name, table in self._tables.items():
                stored = self._data[name]
                dropped = [at for at in stored if _window_end_us(table, at) <= now_us]
                windows += len({_window_end_us(table, at) for at in dropped})
                for at in dropped:
                    del stored[at]
                for at in list(stored):
                    for clustering, row in list(stored[at].items()):
                        _set(stored, at, clustering, {n: cell for n, cell in row.items() if cell.expire_us > now_us})
        return Expired(windows=windows)

    def pending_compactions(self) -> int:
        return 0

    def stats(self) -> EngineStats:
        with self._lock:
            ends = {(name, _window_end_us(self._tables[name], at)) for name, stored in self._data.items() for at in stored}
            windows = sum(1 for _, end_us in ends if end_us != NEVER)
            return EngineStats(disk_bytes=0, writes=self._writes, tables=len(self._tables), windows=windows)

    def sizes(self) -> Mapping[str, TableSize]:
        return {}  # there are no files

    def close(self) -> None:
        pass

    def _partitions(self, table: Table) -> _Partitions:
        if table.name not in self._data:
            raise ValueError(f"table {table.name} does not exist: apply it first")
        return self._data[table.name]

    def _conditional(self, table: Table) -> None:
        self._partitions(table)
        if not table.conditional:
            raise ValueError(f"{table.name} is not conditional: use write")


def _set(stored: _Partitions, at: Key, clustering: Key, row: _Row) -> None:
    """Replace a row; what is empty goes."""
    stored[at][clustering] = row
    if not row:
        del stored[at][clustering]
    if not stored[at]:
        del stored[at]


def _rank(row: _Row) -> tuple[int, list[tuple[_CellId, _Cell]]]:
    """Fixed rows are compared as wholes. All cells of one have its version; the rest settles ties."""
    return max(cell.version_us for cell in row.values()), sorted(row.items())


def _checked(table: Table, row: _Row) -> _Row:
    """A row of no columns cannot be told from no row on every engine, so there is none."""
    if not row or any(name.tag or name.name not in table.columns for name in row):
        raise ValueError(f"{table.name}: a row has at least one of {', '.join(table.columns)} and nothing else")
    return row


def _fixed(table: Table, row: Row | None) -> _Row | None:
    """A row of a conditional table: neither versioned nor expiring."""
    if row is None:
        return None
    return _checked(table, {
        _CellId(name, tag=False): _Cell(0, NEVER, CellKind.TEXT, value.encode())
        if isinstance(value, str)
        else _Cell(0, NEVER, CellKind.NUMBER, pack("=d", value))
        for name, value in row.items()
    })  # fmt: skip


def _window_end_us(table: Table, partition: Key) -> int:
    """When the partition's window is dropped."""
    if table.window is None:
        return NEVER
    start_us = dict(zip((c.name for c in table.partition), partition, strict=True))[table.window.column]
    assert isinstance(start_us, int)
    return (start_us // table.window.width_us + 1) * table.window.width_us + table.window.keep_us


def _place(columns: Sequence[KeyColumn], key: Key) -> _Place:
    """Sorts as the key does: text by its bytes, descending columns reversed."""
    return tuple(_place_of(value, column.descending) for column, value in zip(columns, key, strict=True))


def _place_of(value: str | int, descending: bool) -> bytes | int | tuple[int, ...]:
    if isinstance(value, int):
        return -value if descending else value
    # Reversed, a text comes before its own prefixes: 256 is greater than any byte.
    return (*(255 - b for b in value.encode()), 256) if descending else value.encode()


def _sorted(table: Table, rows: Iterable[Key], span: Span) -> list[Key]:
    """The clustering keys that lie in the span, in order."""
    if span == ALL:
        inside = list(rows)
    elif not table.clustering:
        raise ValueError(f"{table.name} has no clustering column for a span")
    else:
        low, high = (None if end is None else _place_of(end, descending=False) for end in (span.start, span.stop))
        inside = []
        for clustering in rows:
            place = _place_of(clustering[0], descending=False)
            if (low is None or low <= place) and (high is None or place < high):  # type: ignore[operator]
                inside.append(clustering)
    return sorted(inside, key=lambda clustering: _place(table.clustering, clustering))


def _asked(
    table: Table, stored: _Partitions, partitions: Sequence[Key] | None, span: Span, start: _Stop | None
) -> Iterator[tuple[Key, list[Key]]]:
    """Each key that a scan asks for, and the clustering keys it is the start of, in order, from behind the cursor on."""
    keys = sorted(stored, key=lambda at: _place(table.partition, at)) if partitions is None else list(partitions)
    if start is not None and partitions is None:  # found by order, as the partition may have gone since
        keys = [at for at in keys if _place(table.partition, at) >= _place(table.partition, start.asked)]
    elif start is not None:
        keys = keys[keys.index(start.asked) :]
    for key in keys:
        at, beginning = key[: len(table.partition)], key[len(table.partition) :]
        rows = [row for row in _sorted(table, stored.get(at, {}), span) if row[: len(beginning)] == beginning]
        if start is not None and key == start.asked:
            last = _place(table.clustering, start.clustering)
            rows = [row for row in rows if _place(table.clustering, row) > last]
        yield key, rows


def _read_cursor(cursor: Cursor) -> _Stop:
    asked, clustering, taken = json.loads(cursor)
    return _Stop(tuple(asked), tuple(clustering), taken)


def _fragments(key: Key, cells: list[tuple[_CellId, _Cell]]) -> list[_Fragment]:
    """A logical row as one fragment per version and expiry, newest first."""
    stamps = sorted({(cell.version_us, cell.expire_us) for _, cell in cells}, reverse=True)
    return [
        _Fragment(key, *stamp, [(name, cell) for name, cell in cells if (cell.version_us, cell.expire_us) == stamp])
        for stamp in stamps
    ]


def _unpacked(table: Table, rows: Rows) -> Iterator[tuple[Key, list[tuple[_CellId, _Cell]]]]:
    """Each fragment's key and cells."""
    columns = [c.to_list() if isinstance(c := rows.keys[k.name], Coded) else c.tolist() for k in table.key]
    cells = rows.cells
    cuts, versions, expires = cells.offsets.tolist(), rows.version_us.tolist(), rows.expire_us.tolist()
    names, texts = cells.names.to_list(), cells.texts.to_bytes_list()
    name, kind, number, text = cells.name.tolist(), cells.kind.tolist(), cells.number.tolist(), cells.text.tolist()
    for i, key in enumerate(zip(*columns, strict=True)):
        expire_us = min(-(-expires[i] // SECOND) * SECOND, NEVER)
        yield (
            key,
            [
                (
                    _CellId(names[name[c]], kind[c] == CellKind.TAG),
                    _Cell(
                        versions[i],
                        expire_us,
                        kind[c],
                        pack("=d", number[c]) if kind[c] == CellKind.NUMBER else texts[text[c]],
                    ),
                )
                for c in range(cuts[i], cuts[i + 1])
            ],
        )


def _packed(table: Table, fragments: list[_Fragment], stop: _Stop) -> Rows:
    """Fragments as columns."""
    keys: dict[str, Column] = {}
    for k, column in enumerate(table.key):
        values = [fragment.key[k] for fragment in fragments]
        keys[column.name] = Coded.of([str(v) for v in values]) if column.type == "text" else np.array(values, np.int64)
    flat = [pair for fragment in fragments for pair in fragment.cells]
    offsets = np.zeros(len(fragments) + 1, np.int64)
    np.cumsum([len(fragment.cells) for fragment in fragments], out=offsets[1:])
    name = Coded.of([name.name for name, _ in flat])
    kind = np.array([cell.kind for _, cell in flat], np.uint8)
    is_number = kind == CellKind.NUMBER
    number = np.full(len(flat), np.nan)
    number[is_number] = np.frombuffer(b"".join(cell.value for _, cell in flat if cell.kind == CellKind.NUMBER))
    text = np.full(len(flat), -1, np.int32)
    text[~is_number] = np.arange(len(flat) - int(is_number.sum()))
    texts = Names.of_bytes([cell.value for _, cell in flat if cell.kind != CellKind.NUMBER])
    return Rows(
        keys,
        np.array([fragment.version_us for fragment in fragments], np.int64),
        np.array([fragment.expire_us for fragment in fragments], np.int64),
        Cells(offsets, name.names, name.codes, kind, number, texts, text),
        json.dumps(stop).encode(),
    )
