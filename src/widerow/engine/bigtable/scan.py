"""Scans: from partitions and spans to chunks of live rows with cursors.

Rule 1: nothing is held open between chunks. Each is one round of requests with a bound on their rows, so a caller may stop
anywhere, and a server that goes away costs one round.
Rule 2: partitions are read in blocks. What does not fit a page is read again in smaller blocks, at last one by one and page
by page.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec
import numpy as np

from widerow.engine.bigtable import cells, fixed
from widerow.engine.bigtable.answers import Page, read_page
from widerow.engine.bigtable.cells import Found
from widerow.engine.bigtable.connection import Connection
from widerow.engine.bigtable.keys import TableKeys
from widerow.engine.bigtable.requests import Range, lookup_request, newest, read_request
from widerow.engine.port import ALL, Columns, Span
from widerow.engine.rows import Cursor, Key, Rows
from widerow.model.arrays import Flags, Ints
from widerow.model.labels import Selectors
from widerow.model.names import Coded

_CURSOR_DECODER = msgspec.msgpack.Decoder(tuple[int, bytes, int])

PAGE = 4096
"""Rows of one answer."""
BLOCK = 32
"""Partitions that are looked into at once."""
LOOKUPS = 1000
"""Rows that are looked up by whole keys at once."""


@dataclass(slots=True)
class _Place:
    """Where a scan stands: before which of the keys asked for, or within it, behind which row and after how many."""

    index: int = 0
    behind: bytes = b""
    taken: int = 0

    def to_cursor(self) -> Cursor:
        return msgspec.msgpack.encode((self.index, self.behind, self.taken))

    @classmethod
    def of(cls, cursor: Cursor | None) -> _Place:
        if cursor is None:
            return cls()
        try:
            return cls(*_CURSOR_DECODER.decode(cursor))
        except msgspec.DecodeError:
            raise ValueError("not a cursor of this engine") from None


def pages(connection: Connection, table_id: str, ranges: Sequence[Range], row_filter: bytes) -> Iterator[Page]:
    """All rows in the ranges, in key order, page by page."""
    left = sorted(r for r in ranges if _holds_any(r))
    while left:
        page = read_page(connection.read(table_id, [read_request(left, row_filter, PAGE)])[0])
        if len(page):
            yield page
        if len(page) < PAGE:
            return
        last = page.keys.bytes_at(len(page) - 1) + b"\0"
        left = [r for r in ((max(start, last), stop) for start, stop in left) if _holds_any(r)]


def _holds_any(asked: Range) -> bool:
    return not asked[1] or asked[0] < asked[1]


class Scan:
    """One scan of one table: what is wanted, and how to get it piece by piece."""

    def __init__(
        self,
        connection: Connection,
        table_id: str,
        keys: TableKeys,
        *,
        now_us: int,
        span: Span = ALL,
        limit: int | None = None,
        columns: Columns | None = None,
        may_lag: bool = False,
    ) -> None:
        self._connection, self._table_id, self._keys, self._may_lag = connection, table_id, keys, may_lag
        self._now_us, self._span, self._limit = now_us, span, limit
        self._columns = columns if columns is None or isinstance(columns, Selectors) else tuple(columns)
        self._filter = newest(self._columns if keys.table.sparse else None)

    def run(self, partitions: Sequence[Key] | None, after: Cursor | None) -> Iterator[Rows]:
        start = _Place.of(after)
        if self._limit is not None and self._limit <= 0:
            return iter(())
        if partitions is None:
            return self._all(start)
        if partitions and len(partitions[0]) == len(self._keys.table.key):
            return self._lookups(partitions, start.index)
        return self._given(partitions, start)

    def _read(self, requests: Sequence[bytes]) -> Page:
        if not requests:
            return read_page(b"")
        return read_page(b"".join(self._connection.read(self._table_id, requests, may_lag=self._may_lag)))

    def _decode(self, page: Page) -> Found:
        decode = cells.decode if self._keys.table.sparse else fixed.decode
        return decode(self._keys, page, now_us=self._now_us, columns=self._columns)

    # -- whole keys

    def _lookups(self, keys: Sequence[Key], index: int) -> Iterator[Rows]:
        while index < len(keys):
            row_keys = [self._keys.range(key, self._span)[0] for key in keys[index : index + LOOKUPS]]
            index += len(row_keys)
            page = self._read([lookup_request(row_keys, self._filter)])
            asked = {key: i for i, key in enumerate(row_keys)}
            order = np.array([asked[key] for key in page.keys.to_bytes_list()], np.int64)
            yield from _chunk(_ordered(self._decode(page), order).rows, _Place(index))

    # -- partitions, or starts of keys

    def _given(self, partitions: Sequence[Key], place: _Place) -> Iterator[Rows]:
        index, size = place.index, BLOCK
        if place.behind:
            yield from self._one(partitions[index], place)
            index += 1
        while index < len(partitions):
            block = partitions[index : index + size]
            found = self._block(block)
            if found is None and size > 1:
                size = max(1, size // 4)
                continue
            if found is None:
                yield from self._one(block[0], _Place(index))
            else:
                yield from _chunk(found.rows, _Place(index + len(block)))
            index += len(block)

    def _block(self, block: Sequence[Key]) -> Found | None:
        """What there is in some partitions, in the order asked. None: it does not fit a page."""
        ranges = [self._keys.range(key, self._span) for key in block]
        some = {r: i for i, r in enumerate(ranges) if _holds_any(r)}
        if self._limit is None:
            page = self._read([read_request(sorted(some), self._filter, PAGE)] if some else [])
            return None if len(page) >= PAGE else self._in_order(page, some)
        asked = min(PAGE, self._limit)
        page = self._read([read_request([r], self._filter, asked) for r in some])
        found = self._in_order(page, some)
        target = _targets(page, some)
        shown, ordinal = _ordinals(found.row, target)
        full = np.bincount(target, minlength=len(ranges)) >= asked
        if (full & (np.bincount(target[shown], minlength=len(ranges)) < self._limit)).any():
            return None  # some of the rows are not shown, so there may be others to show
        return _kept(found, ordinal <= self._limit)

    def _in_order(self, page: Page, ranges: dict[Range, int]) -> Found:
        return _ordered(self._decode(page), _targets(page, ranges))

    def _one(self, key: Key, place: _Place) -> Iterator[Rows]:
        """The rows of one partition, page by page."""
        start, stop = self._keys.range(key, self._span)
        index, taken, asked = place.index, place.taken, 0
        behind = place.behind
        while True:
            start = max(start, behind + b"\0") if behind else start
            if start >= stop:
                return
            # More each time: rows that are not shown must not cost a round each.
            asked = PAGE if self._limit is None else min(PAGE, max(self._limit - taken, 4 * asked))
            page = self._read([read_request([(start, stop)], self._filter, asked)])
            if not len(page):
                return
            found = self._decode(page)
            if self._limit is not None:
                _, ordinal = _ordinals(found.row, np.zeros(len(page), np.int64))
                found = _kept(found, ordinal <= self._limit - taken)
            taken += len(np.unique(found.row))
            behind = page.keys.bytes_at(len(page) - 1)
            done = len(page) < asked or (self._limit is not None and taken >= self._limit)
            yield from _chunk(found.rows, _Place(index + 1) if done else _Place(index, behind, taken))
            if done:
                return

    # -- all partitions

    def _all(self, place: _Place) -> Iterator[Rows]:
        while True:
            page = self._read([read_request([(place.behind + b"\0" if place.behind else b"", b"")], self._filter, PAGE)])
            if not len(page):
                return
            found = self._decode(page)
            if self._span != ALL:
                found = _kept(found, self._within(found.rows))
            before, place = place, _Place(0, page.keys.bytes_at(len(page) - 1))
            if self._limit is not None and self._keys.table.clustering:
                found, place = self._limited(page, found, before)
            yield from _chunk(found.rows, place)
            if len(page) < PAGE:
                return

    def _limited(self, page: Page, found: Found, before: _Place) -> tuple[Found, _Place]:
        """The rows that the limit of each partition still allows, and where to go on."""
        assert self._limit is not None
        prefixes = [self._keys.partition_prefix(key) for key in page.keys.to_bytes_list()]
        target = np.cumsum([prefix != last for last, prefix in pairwise(["", *prefixes])], dtype=np.int64)
        resumed = before.behind and self._keys.partition_prefix(before.behind) == prefixes[0]
        taken = np.zeros(int(target[-1]) + 1, np.int64)
        taken[1] = before.taken if resumed else 0
        shown, ordinal = _ordinals(found.row, target)
        found = _kept(found, ordinal + taken[target[found.row]] <= self._limit)
        in_last = min(int(taken[-1] + (target[shown] == target[-1]).sum()), self._limit)
        if in_last == self._limit:  # the rest of the partition need not be read
            return found, _Place(0, prefixes[-1] + b"\xff")
        return found, _Place(0, page.keys.bytes_at(len(page) - 1), in_last)

    def _within(self, rows: Rows) -> Flags:
        """Which rows lie in the span; texts by their bytes."""
        column = rows.keys[self._keys.table.clustering[0].name] if self._keys.table.clustering else None
        if column is None:
            raise ValueError(f"{self._keys.table.name} has no clustering column for a span")
        inside = np.ones(len(rows), np.bool_)
        if isinstance(column, Coded):
            texts = [text.encode() for text in column.to_list()]
            low, high = (None if end is None else str(end).encode() for end in (self._span.start, self._span.stop))
            return np.array([(low is None or low <= t) and (high is None or t < high) for t in texts], np.bool_)
        if self._span.start is not None:
            inside &= column >= int(self._span.start)
        if self._span.stop is not None:
            inside &= column < int(self._span.stop)
        return inside


def _chunk(rows: Rows, place: _Place) -> Iterator[Rows]:
    if len(rows):
        yield replace(rows, cursor=place.to_cursor())


def _kept(found: Found, fragments: Flags) -> Found:
    return found if fragments.all() else Found(found.rows.take(fragments), found.row[fragments])


def _ordered(found: Found, order: Ints) -> Found:
    """Fragments by the order given for the page's rows; those of equal rank stay as they are."""
    rank = order[found.row]
    if (rank[1:] >= rank[:-1]).all():
        return found
    turned = np.argsort(rank, kind="stable")
    return Found(found.rows.take(turned), found.row[turned])


def _targets(page: Page, ranges: dict[Range, int]) -> Ints:
    """For each row of a page the number of the range it lies in."""
    known = sorted(ranges)
    starts = [start for start, _ in known]
    return np.array([ranges[known[bisect_right(starts, key) - 1]] for key in page.keys.to_bytes_list()], np.int64)


def _ordinals(row: Ints, target: Ints) -> tuple[Ints, Ints]:
    """The logical rows there are fragments of, and for each fragment which row of its target it belongs to, from 1 on."""
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    shown = row[starts]
    firsts = np.flatnonzero(np.diff(target[shown], prepend=-1))
    rank = np.arange(1, len(shown) + 1) - np.repeat(firsts, np.diff(np.append(firsts, len(shown))))
    return shown, np.repeat(rank, np.diff(np.append(starts, len(row))))
