"""From pages of CQL rows to rows of fragments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from widerow.engine.cassandra.physical import Physical, plain_name, unescaped
from widerow.engine.port import Columns
from widerow.engine.rows import NEVER, Key, Rows, cells_of, key_columns
from widerow.model.arrays import Ints
from widerow.model.batch import CellKind, Cells, Value
from widerow.model.labels import Selectors
from widerow.model.names import Coded, Names
from widerow.model.times import MS


class Reader:
    """Reads the selected columns of one table's rows."""

    def __init__(self, physical: Physical, *, now_us: int, columns: Columns | None) -> None:
        self._table = table = physical.table
        self._now_us = now_us
        self._wanted = columns if columns is None or isinstance(columns, Selectors) else frozenset(columns)
        self._key_length = len(table.key)
        self._single = len(table.partition) == 1 and table.partition[0].type == "text"
        self._cells_at = len(table.key) + table.sparse
        self._moments = [c.name in physical.units for c in table.key] if physical.units else None

    def key(self, row: Sequence[Any]) -> Key:
        """The logical key of a CQL row."""
        key = tuple(row[: self._key_length])
        if self._moments is not None:  # these are read as milliseconds
            key = tuple([v * MS if moment else v for v, moment in zip(key, self._moments, strict=True)])
        return (unescaped(key[0]), *key[1:]) if self._single else key

    def rows(self, found: Sequence[Sequence[Any]]) -> Rows | None:
        """What is live and wanted of whole logical rows, in their order."""
        return self._sparse(found) if self._table.sparse else self._fixed(found)

    def _fixed(self, found: Sequence[Sequence[Any]]) -> Rows | None:
        keys, rows, versions, ends = [], [], [], []
        for row in found:
            body, version, expires, expires_version = row[self._cells_at :]
            if body is None:
                continue
            expire_us = _expiry(expires, expires_version, version)
            content = self._in_order(unpack_row(body))
            if expire_us > self._now_us and content:
                keys.append(self.key(row))
                rows.append(content)
                versions.append(version - version % MS)
                ends.append(expire_us)
        if not keys:
            return None
        columns = key_columns(self._table.key, keys)
        return Rows(columns, np.array(versions, np.int64), np.array(ends, np.int64), cells_of(rows))

    def _in_order(self, content: dict[str, Value]) -> dict[str, Value]:
        """The wanted columns, as the table has them; a map has them by name. A newer release may know more of them."""
        wanted = self._wanted
        return {n: content[n] for n in self._table.columns if n in content and (wanted is None or n in wanted)}

    def live_name(self, row: Sequence[Any]) -> str | None:
        """The stored name of a cell that is shown; None for one that is not."""
        at = self._cells_at
        versions = [row[at + k + 1] for k in (0, 2, 4) if row[at + k] is not None]
        if not versions or _expiry(row[at + 6], row[at + 7], max(versions)) <= self._now_us:
            return None
        name: str = row[at - 1]
        return name if self.wants(name) else None

    def wants(self, stored_name: str) -> bool:
        return self._wanted is None or plain_name(stored_name)[0] in self._wanted

    def _sparse(self, found: Sequence[Sequence[Any]]) -> Rows | None:
        names: list[str] = []
        kinds: list[int] = []
        numbers: list[float] = []
        texts: list[bytes] = []
        text: list[int] = []
        versions: list[int] = []
        ends: list[int] = []
        which: list[int] = []
        keys: list[Key] = []
        last: Key | None = None
        cells = slice(self._cells_at, self._cells_at + 8)
        for row in found:
            name, is_tag = plain_name(row[self._cells_at - 1])
            if self._wanted is not None and name not in self._wanted:
                continue
            number, v_number, string, v_string, record, v_record, expires, v_expires = row[cells]
            # Of several that are set the newest counts; of equal ones, any, but always the same.
            version, kind = max(
                (-1 if number is None else v_number, int(CellKind.NUMBER)),
                (-1 if string is None else v_string, int(CellKind.TAG if is_tag else CellKind.TEXT)),
                (-1 if record is None else v_record, int(CellKind.RECORD)),
            )
            if version < 0:
                continue
            expire_us = _expiry(expires, v_expires, version)
            if expire_us <= self._now_us:
                continue
            key = self.key(row)
            if key != last:
                keys.append(key)
                last = key
            which.append(len(keys) - 1)
            names.append(name)
            kinds.append(kind)
            versions.append(version)
            ends.append(expire_us)
            if kind == CellKind.NUMBER:
                numbers.append(number)
                text.append(-1)
            else:
                numbers.append(np.nan)
                text.append(len(texts))
                texts.append(record if kind == CellKind.RECORD else string.encode())
        if not keys:
            return None
        coded = Coded.of(names)
        return _fragments(
            key_columns(self._table.key, keys),
            np.array(which),
            np.array(versions, np.int64),
            np.array(ends, np.int64),
            coded,
            np.array(kinds, np.uint8),
            np.array(numbers, np.float64),
            Names.of_bytes(texts),
            np.array(text, np.int32),
        )


def _fragments(
    keys: dict[str, Any],
    which: Ints,
    version_us: Ints,
    expire_us: Ints,
    name: Coded,
    kind: Any,
    number: Any,
    texts: Names,
    text: Any,
) -> Rows:
    """Cells of logical rows, in order of rows, as fragments: newest version first within a row."""
    order = np.lexsort((expire_us, -version_us, which))
    which, version_us, expire_us = which[order], version_us[order], expire_us[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (which[1:] != which[:-1]) | (version_us[1:] != version_us[:-1]) | (expire_us[1:] != expire_us[:-1])
    starts = np.flatnonzero(first)
    offsets = np.append(starts, len(order))
    cells = Cells(offsets, name.names, name.codes[order], kind[order], number[order], texts, text[order])
    row = which[starts]
    columns = {n: c.take(row) for n, c in keys.items()}
    return Rows(columns, version_us[starts], expire_us[starts], cells)


def unpack_row(body: Any) -> dict[str, Value]:
    """A fixed row, from the driver's map of (number, text)."""
    return {name: text if number is None else number for name, (number, text) in body.items()}


def _expiry(expires_ms: int | None, version: int | None, of: int) -> int:
    """When a cell written with the timestamp `of` expires: what stands beside it counts only if it was written with it."""
    return int(NEVER) if expires_ms is None or version != of else expires_ms * MS
