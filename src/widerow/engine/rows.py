"""Rows of one table as columns: what an engine takes and gives.

A `Rows` holds fragments. A logical row may stand in it as several adjacent fragments, one per version it has live cells of;
each live cell is in exactly one of them. So what a scan gives can be written elsewhere as it is, versions and all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from widerow.model.arrays import Ints, frozen
from widerow.model.batch import CellKind, Cells, Rowset, Value
from widerow.model.combine import joined_cells, stacked
from widerow.model.names import Coded
from widerow.schema.table import KeyColumn, Table

Column: TypeAlias = Ints | Coded
"""A key column: ints, or text."""

Key: TypeAlias = tuple[str | int, ...]
"""The values of key columns, in the table's order: of a partition, or of a whole row."""

Row: TypeAlias = Mapping[str, Value]
"""One row of a fixed table. Numbers are floats; a column that is absent was never set."""

Cursor: TypeAlias = bytes
"""Where a scan stopped. Opaque, and good for the same scan only: the same table, partitions, span, limit and columns."""

NEVER = np.iinfo(np.int64).max
"""The `expire_us` of what does not expire."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Fragments of rows. `version_us` are whole milliseconds; `expire_us` is kept to the second, rounded up.

    What expires at 0 or before has expired; what lies too far ahead to be stored never does.
    """

    keys: Mapping[str, Column]
    version_us: Ints
    expire_us: Ints
    cells: Cells
    cursor: Cursor | None = field(default=None)
    """Resume `after` this to get what follows the last row here."""

    def __post_init__(self) -> None:
        frozen(self.version_us)
        frozen(self.expire_us)

    def __len__(self) -> int:
        return len(self.version_us)

    def take(self, rows: Rowset) -> Rows:
        keys = {n: c.take(rows) if isinstance(c, Coded) else c[rows] for n, c in self.keys.items()}
        return Rows(keys, self.version_us[rows], self.expire_us[rows], self.cells.take(rows))

    def key(self, table: Table, i: int) -> Key:
        """The whole key of fragment i."""
        return tuple(c[i] if isinstance(c := self.keys[k.name], Coded) else int(c[i]) for k in table.key)

    def row(self, i: int) -> Row:
        """The cells of fragment i, for tables small enough to look at one by one."""
        cells = self.cells
        return {
            cells.names[int(cells.name[c])]: (
                float(cells.number[c]) if cells.kind[c] == CellKind.NUMBER else cells.texts[int(cells.text[c])]
            )
            for c in range(int(cells.offsets[i]), int(cells.offsets[i + 1]))
        }


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of one part after the other, of one table. Names in keys may stand in their dictionary several times."""
    if len(parts) == 1:
        return parts[0]
    return Rows(
        {name: _column([part.keys[name] for part in parts]) for name in parts[0].keys},
        np.concatenate([part.version_us for part in parts]),
        np.concatenate([part.expire_us for part in parts]),
        joined_cells([part.cells for part in parts]),
    )


def _column(parts: Sequence[Column]) -> Column:
    texts = [part for part in parts if isinstance(part, Coded)]
    return stacked(texts) if texts else np.concatenate([np.asarray(part) for part in parts])


def key_columns(columns: Sequence[KeyColumn], keys: Sequence[Key]) -> dict[str, Column]:
    """Keys, or the starts of keys, as columns."""
    out: dict[str, Column] = {}
    for k, column in enumerate(columns):
        values = [key[k] for key in keys]
        out[column.name] = Coded.of([str(v) for v in values]) if column.type == "text" else np.array(values, np.int64)
    return out


def rows_of(table: Table, rows: Sequence[tuple[Key, Row]], *, version_us: int, expire_us: int = NEVER) -> Rows:
    """A few plain rows as columns."""
    keys = key_columns(table.key, [key for key, _ in rows])
    n = len(rows)
    return Rows(keys, np.full(n, version_us), np.full(n, expire_us), cells_of([row for _, row in rows]))


def cells_of(rows: Sequence[Row]) -> Cells:
    """Cells of plain rows: numbers and texts."""
    flat = [(name, value) for row in rows for name, value in row.items()]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    name = Coded.of([n for n, _ in flat])
    is_text = np.array([isinstance(v, str) for _, v in flat], np.bool_)
    text = np.full(len(flat), -1, np.int32)
    texts = Coded.of([v for _, v in flat if isinstance(v, str)])
    text[is_text] = texts.codes
    number = np.array([np.nan if isinstance(v, str) else float(v) for _, v in flat], np.float64)
    return Cells(offsets, name.names, name.codes, is_text.astype(np.uint8), number, texts.names, text)
