"""Rows of fixed tables: one cell a row, `meta:row`, which holds the whole of it as JSON.

So a row is replaced as a whole, the columns that a newer one lacks are gone, and no row is ever mixed from two.
The JSON is canonical: names sorted, no spaces, numbers as the shortest digits that give the same double. Conditional rows
have a second cell, `meta:sha256` of it, for `put_if` to compare: a filter may hold 20 KB, and a row may be longer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import isfinite
from typing import Any

import numpy as np

from widerow.engine.bigtable.answers import Page
from widerow.engine.bigtable.cells import Found
from widerow.engine.bigtable.expiry import expire_us, stored_s, window_open
from widerow.engine.bigtable.families import EXPIRES, META, META_CODE
from widerow.engine.bigtable.keys import TableKeys
from widerow.engine.bigtable.mutations import (
    DEFAULT_S,
    delete_column,
    delete_family,
    elsewhere,
    entry,
    expiry_text,
    set_cell,
)
from widerow.engine.port import Columns
from widerow.engine.rows import Column, Row, Rows, cells_of
from widerow.model.batch import CellKind, Value
from widerow.model.errors import Corrupt
from widerow.model.names import Names
from widerow.schema.table import Table

ROW, DIGEST = b"row", b"sha256"


def to_json(table: Table, row: Row) -> bytes:
    """The canonical form of a row. What is not finite has no JSON number and is written as {"number": "inf"}."""
    if not row or any(name not in table.columns for name in row):
        raise ValueError(f"{table.name}: a row has at least one of {', '.join(table.columns)} and nothing else")
    plain = {name: value if isinstance(value, str) else _number(float(value)) for name, value in row.items()}
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _number(value: float) -> float | dict[str, str]:
    return value if isfinite(value) else {"number": repr(value)}


def from_json(stored: bytes) -> dict[str, Value]:
    try:
        row: Mapping[str, Any] = json.loads(stored)
        return {name: _value(value) for name, value in row.items()}
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise Corrupt(f"a stored row cannot be read: {error}: {stored[:80]!r}") from None


def _value(value: Any) -> Value:
    return value if isinstance(value, str) else float(value["number"] if isinstance(value, dict) else value)


def digest(row: bytes) -> bytes:
    return sha256(row).hexdigest().encode()


def plain_rows(table: Table, rows: Rows) -> list[bytes]:
    """Each row as JSON."""
    if len(rows.cells) and (rows.cells.kind > CellKind.TEXT).any():
        raise ValueError(f"{table.name}: columns of a fixed table hold numbers and texts")
    return [to_json(table, rows.row(i)) for i in range(len(rows))]


def encode(keys: TableKeys, rows: Rows) -> Names:
    """An entry for each row."""
    expires = stored_s(keys.table, rows.keys, rows.expire_us).tolist()
    row_keys = keys.spec.encode(rows.keys, len(rows)).to_bytes_list()
    beside = elsewhere(META, ROW)
    entries = []
    for key, version_us, expire_s, row in zip(
        row_keys, rows.version_us.tolist(), expires, plain_rows(keys.table, rows), strict=True
    ):
        cells = [set_cell(META, ROW, version_us, row)]
        if expire_s != DEFAULT_S:
            cells.append(set_cell(EXPIRES, beside, version_us, expiry_text(expire_s)))
        entries.append(entry(key, cells))
    return Names.of_bytes(entries)


def encode_deletions(row_keys: Sequence[bytes], stop_us: int) -> Names:
    """For each row an entry that deletes it, up to a version."""
    columns = [delete_column(META, ROW, stop_us), delete_column(EXPIRES, elsewhere(META, ROW), stop_us)]
    return Names.of_bytes([entry(key, columns) for key in row_keys])


def replacement(row: bytes, now_us: int) -> list[bytes]:
    """What makes a conditional row this one. Its timestamp tells a reader with `cbt` when that was; nothing else uses it."""
    return [delete_family(META), set_cell(META, ROW, now_us, row), set_cell(META, DIGEST, now_us, digest(row))]


def decode(keys: TableKeys, page: Page, *, now_us: int, columns: Columns | None) -> Found:
    columns_of_key = keys.spec.decode(page.keys)
    until_us = expire_us(keys.table, columns_of_key, page)
    is_row = np.array([name == ROW for name in page.qualifiers.to_bytes_list()], np.bool_)
    opened = window_open(keys.table, columns_of_key, np.full(len(page), now_us))
    at = np.repeat(np.arange(len(page)), page.offsets[1:] - page.offsets[:-1])
    cells = np.flatnonzero((page.family == META_CODE) & is_row[page.qualifier] & (until_us > now_us) & opened[at])
    shown = [name for name in keys.table.columns if columns is None or name in columns]
    stored = [from_json(row) for row in page.values(cells)]
    rows = [{name: row[name] for name in shown if name in row} for row in stored]
    cells = cells[np.array([bool(row) for row in rows], np.bool_)]
    rows = [row for row in rows if row]
    row_of = at[cells]
    taken: dict[str, Column] = {name: column.take(row_of) for name, column in columns_of_key.items()}
    return Found(Rows(taken, page.timestamp_us[cells], until_us[cells], cells_of(rows)), row_of)
