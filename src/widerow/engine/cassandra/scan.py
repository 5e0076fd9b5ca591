"""Scans: from keys and spans to SELECTs, and from their pages to chunks with cursors.

Rule 1: a page may end within a logical row; a chunk never does. What is left over opens the next chunk.
Rule 2: a cursor is the key of the last row shown, not the driver's paging state: it outlives the row, the process and the
page size.
Rule 3: several partitions are asked for ahead of the one being read, so that a scan of many waits once, not for each.
Rule 4: the server picks cells by their exact names. What selectors mean is first looked up in the names that each partition
has of its cells: one small read more for each, and none of the cells of other metrics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any

import msgspec
import numpy as np

from widerow.engine.cassandra.cluster import Connection, reported
from widerow.engine.cassandra.decode import Reader
from widerow.engine.cassandra.physical import Physical, cell_name
from widerow.engine.port import Columns, Span
from widerow.engine.rows import Cursor, Key, Rows
from widerow.model.labels import Selectors

_CURSOR_DECODER = msgspec.msgpack.Decoder(tuple[int, list[str | int], int])

AHEAD = 32
"""Partitions asked for before they are read."""
PAGE = 5000
"""CQL rows a page."""
FIRST_PAGE = 100
"""The same where only the first appearances of cells are wanted: mostly the first rows have them all."""
MOST_NAMES = 20
"""Of so many cells only these are asked for; of more, everything, as most of it is wanted."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Behind which row a scan stands: the asked key's index, the row's whole key, how many rows were shown for that key."""

    index: int = 0
    key: Key = ()
    taken: int = 0

    def to_cursor(self) -> Cursor:
        return msgspec.msgpack.encode((self.index, list(self.key), self.taken))

    @classmethod
    def of(cls, cursor: Cursor | None) -> _Place:
        if cursor is None:
            return cls()
        try:
            index, key, taken = _CURSOR_DECODER.decode(cursor)
        except msgspec.DecodeError:
            raise ValueError("not a cursor of this engine") from None
        return cls(index, tuple(key), taken)


class Scan:
    """One scan of one table."""

    def __init__(
        self,
        connection: Connection,
        physical: Physical,
        *,
        now_us: int,
        span: Span,
        limit: int | None,
        columns: Columns | None,
        first: bool = False,
    ) -> None:
        self._first = first and limit is None and physical.table.sparse
        self._connection, self._physical, self._table = connection, physical, physical.table
        self._now_us, self._span, self._limit = now_us, span, limit
        self._reader = Reader(physical, now_us=now_us, columns=columns)
        self._names: Sequence[str] | None = None
        """The cells to ask for in every partition; None: all."""
        self._selects = physical.table.sparse and isinstance(columns, Selectors)
        if physical.table.sparse and not isinstance(columns, Selectors | None) and len(columns) <= MOST_NAMES:
            self._names = [cell_name(name, tag=tag) for name in sorted(set(columns)) for tag in (False, True)]

    def run(self, keys: Sequence[Key] | None, after: Cursor | None) -> Iterator[Rows]:
        place = _Place.of(after)
        if keys is None:
            return self._all(place)
        whole = all(len(key) == len(self._table.partition) for key in keys)
        return self._firsts(keys, place.index) if self._first and whole else self._given(keys, place)

    # -- the first appearance of each cell

    def _firsts(self, keys: Sequence[Key], start: int) -> Iterator[Rows]:
        """Chunks of several partitions, each read until every cell it names has been seen."""
        low, low_values, high, high_values = self._physical.span_bounds(self._span)
        cql = self._physical.select_first(low=low, high=high)
        found: list[Any] = []
        last = start
        waiting: deque[tuple[int, Any]] = deque()
        following = (index for index in range(start, len(keys)) if not self._gone(keys[index]))
        while True:
            while len(waiting) < AHEAD and (index := next(following, None)) is not None:
                values = [*self._physical.partition_values(keys[index]), *low_values, *high_values]
                waiting.append((index, self._send(cql, values, page=FIRST_PAGE)))
            if waiting:
                last, future = waiting.popleft()
                found += self._first_of(self._pages(future))
            if found and (len(found) >= PAGE or not waiting):
                rows = self._reader.rows(found)
                found = []
                if rows is not None:
                    yield replace(rows, cursor=_Place(last + 1).to_cursor())
            if not waiting:
                return

    def _first_of(self, pages: Iterator[list[Any]]) -> list[Any]:
        found: list[Any] = []
        pending: set[str] | None = None
        for page in pages:
            for row in page:
                if pending is None and row[-1]:
                    pending = {name for name in row[-1] if self._reader.wants(name)}
                found.append(row)
                if pending is not None:
                    pending.discard(self._reader.live_name(row) or "")
                    if not pending:
                        return found
        return found

    # -- given keys

    def _given(self, keys: Sequence[Key], place: _Place) -> Iterator[Rows]:
        waiting: deque[tuple[_Place, Any]] = deque()
        following = iter(range(place.index, len(keys)))
        named = self._named(keys, (index for index in following if not self._gone(keys[index])))
        while True:
            while len(waiting) < AHEAD and (found := next(named, None)) is not None:
                index, names = found
                resumed = place if index == place.index and place.key else _Place(index)
                waiting.append((resumed, self._ask(keys[index], resumed.key, names)))
            if not waiting:
                return
            resumed, future = waiting.popleft()
            yield from self._chunks(self._pages(future), resumed)

    def _named(self, keys: Sequence[Key], which: Iterator[int]) -> Iterator[tuple[int, Sequence[str] | None]]:
        """The keys to read, by index, and the cells to ask each for. Partitions without wanted cells are left out."""
        if not self._selects:
            yield from ((index, self._names) for index in which)
            return
        cql, n = self._physical.select_names(), len(self._table.partition)
        while some := list(islice(which, AHEAD)):
            asked = [self._send(cql, self._physical.partition_values(keys[index][:n])) for index in some]
            for index, future in zip(some, asked, strict=True):
                with reported():
                    names = next((row[-1] for row in future.result().current_rows), None)
                wanted = sorted(name for name in names or () if self._reader.wants(name))
                if wanted or not names:  # without names, the cells are looked at one by one
                    yield index, wanted if wanted and len(wanted) <= MOST_NAMES else None

    def _gone(self, key: Key) -> bool:
        """Whether there can be no rows: the key's window is past, or its moments are none."""
        window = self._table.window
        if not self._physical.can_hold(key):
            return True
        if window is None:
            return False
        bucket = int(key[[c.name for c in self._table.partition].index(window.column)])
        return bucket - bucket % window.width_us + window.width_us + window.keep_us <= self._now_us

    def _ask(self, key: Key, behind: Key, cells: Sequence[str] | None = None) -> Any:
        """Start reading the rows a key means, from behind a row on. `cells`: only these."""
        physical, n = self._physical, len(self._table.partition)
        given = physical.clustering_values(key[n:])
        values: list[Any] = physical.partition_values(key) + given
        low, low_values, high, high_values = ("", [], "", []) if given else physical.span_bounds(self._span)
        if behind and self._table.clustering:
            last = physical.clustering_values(behind[n:])
            if given:  # the rest of the key is what goes on
                relation = _relation(physical.clustering[len(given) :], "<" if physical.descending else ">")
                low, low_values, high, high_values = relation, last[len(given) :], "", []
                if not relation:
                    return None
            elif physical.descending:
                high, high_values = physical.bound("<", len(last)), last
            else:
                low, low_values = physical.bound(">", len(last)), last
        elif behind:
            return None  # a partition of one row, which was shown
        cql = physical.select(keys=len(given), low=low, high=high, named=cells is not None)
        return self._send(cql, [*values, *low_values, *high_values, *([] if cells is None else [list(cells)])])

    def _send(self, cql: str, values: Sequence[Any], page: int = PAGE) -> Any:
        bound = self._connection.prepare(cql).bind(values)
        bound.fetch_size = page if self._limit is None else min(page, 32 * self._limit + 1)
        return self._connection.send(bound)

    def _pages(self, future: Any) -> Iterator[list[Any]]:
        if future is None:
            return
        with reported():
            result = future.result()
        last_key = len(self._table.key) - (0 if self._table.sparse else 1)
        while True:
            # A partition whose rows are gone may still have its names: a CQL row without clustering columns.
            yield [row for row in result.current_rows if row[last_key] is not None]
            if not result.has_more_pages:
                return
            with reported():
                result.fetch_next_page()

    def _chunks(self, pages: Iterator[list[Any]], place: _Place, *, everything: bool = False) -> Iterator[Rows]:
        """Whole logical rows of one key (or of all partitions), page by page."""
        left: list[Any] = []
        for page in pages:
            left += page
            if not left:
                continue
            cut = len(left)
            last = self._reader.key(left[-1])
            if self._table.sparse:
                while cut and self._reader.key(left[cut - 1]) == last:
                    cut -= 1
            whole, left = left[:cut], left[cut:]
            if whole:
                chunk, place = self._chunk(whole, place, everything)
                if chunk is not None:
                    yield chunk
                if self._limit is not None and not everything and place.taken >= self._limit:
                    return
        if left:
            chunk, place = self._chunk(left, place, everything)
            if chunk is not None:
                yield chunk

    def _chunk(self, found: list[Any], place: _Place, everything: bool) -> tuple[Rows | None, _Place]:
        last = self._reader.key(found[-1])
        if everything:
            found = self._filtered(found)
        rows = self._reader.rows(found) if found else None
        taken = place.taken
        if self._limit is not None:
            rows, taken = self._limited(rows, place, last if everything else None)
        place = _Place(place.index, last, taken)
        return (None if rows is None or not len(rows) else replace(rows, cursor=place.to_cursor())), place

    def _limited(self, rows: Rows | None, place: _Place, everything: Key | None) -> tuple[Rows | None, int]:
        """At most `limit` logical rows of each key asked for; gives how many the last one has had."""
        assert self._limit is not None
        n = len(self._table.partition)
        current = place.key[:n] if everything is not None else ()
        taken = place.taken
        if rows is None:
            return None, taken if everything is None or everything[:n] == current else 0
        kept = np.zeros(len(rows), np.bool_)
        seen: Key | None = None
        for i in range(len(rows)):
            key = rows.key(self._table, i)
            if everything is not None and key[:n] != current:
                current, taken = key[:n], 0
            if key != seen:
                taken, seen = taken + 1, key
            kept[i] = taken <= self._limit
        if everything is not None and everything[:n] != current:
            taken = 0
        return rows.take(kept), min(taken, self._limit)

    # -- everything

    def _all(self, place: _Place) -> Iterator[Rows]:
        physical = self._physical
        values: list[Any] = []
        if place.key:
            # First the rest of the partition the scan stood in, then the partitions behind it on the ring.
            rest = self._pages(self._ask(place.key[: len(self._table.partition)], place.key, self._names))
            yield from self._chunks(rest, place, everything=True)
            values = physical.partition_values(place.key)
        pages = self._pages(self._send(physical.select_all(behind=bool(values)), values))
        yield from self._chunks(pages, _Place(), everything=True)

    def _filtered(self, found: list[Any]) -> list[Any]:
        """Only partitions whose window is not past, and rows of the span."""
        kept: list[Any] = []
        n = len(self._table.partition)
        for key, group in groupby(found, self._reader.key):
            if not self._gone(key) and (not self._table.clustering or self._span.holds(key[n])):
                kept += group
        return kept


def _relation(columns: list[str], operator: str) -> str:
    return f"({', '.join(columns)}) {operator} ({', '.join('?' * len(columns))})" if columns else ""
