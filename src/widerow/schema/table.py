"""What a table is, said once for every engine.

A table has partition columns (what is stored together), clustering columns (the order within a partition) and cells.
Two kinds, by how their cells are given:
- sparse: any named cells; each cell lives by itself, the greatest version of each wins.
- fixed: the declared columns, always written as a whole row; the greatest version of the row wins.
A conditional table is fixed and is written by `put_if` and `insert` alone. A windowed table expires by whole windows of
one of its partition columns. Columns may be appended to a fixed table, never removed, renamed or reordered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KeyType = Literal["text", "int"]


@dataclass(frozen=True, slots=True)
class KeyColumn:
    name: str
    type: KeyType = "text"
    descending: bool = False
    """Newest first: greater values come earlier."""


@dataclass(frozen=True, slots=True)
class Window:
    """Rows expire together, window by window: `column`, a partition column in microseconds, divided by `width_us`."""

    column: str
    width_us: int
    keep_us: int
    """After its end a window stays readable for this long at the most; then it is dropped whole."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A key column that is a point in time: microseconds since 1970, always a multiple of `multiple_us`.

    An engine that has types for days or milliseconds may use one, under the name by which people know the column.
    """

    column: str
    multiple_us: int
    known_as: str


@dataclass(frozen=True, slots=True)
class Summaries:
    """The records are rollups. They are written again when reports come late, and say things that people like to see.

    An engine that has columns shows `columns`: pairs of a column's name and the statistic of the record that stands in it.
    They are for people alone. What is read back is the record.
    """

    begin: str
    """The key column with the begin of a record's window."""
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    partition: tuple[KeyColumn, ...]
    clustering: tuple[KeyColumn, ...] = ()
    columns: tuple[str, ...] = ()
    """Of a fixed table; empty for sparse cells."""
    conditional: bool = False
    window: Window | None = None
    prefix: str = ""
    """What its keys begin with where a key is one readable string: parts joined by `#`, such as `agg#hour`."""
    moments: tuple[Moment, ...] = ()
    summaries: Summaries | None = None
    """Of sparse tables whose records are rollups."""
    by_column: bool = False
    """Cells of one name lie together within a partition: for tables that are asked for a few columns over long spans.

    For engines that read a row as a whole otherwise. What is written and read is the same.
    """

    def __post_init__(self) -> None:
        if any(c.descending for c in self.partition):
            raise ValueError(f"{self.name}: partition columns have no order")
        if self.conditional and not self.columns:
            raise ValueError(f"{self.name}: a conditional table has fixed columns")
        if self.window and self.window.column not in [c.name for c in self.partition if c.type == "int"]:
            raise ValueError(f"{self.name}: the window's column must be an int of the partition key")
        ints = [c.name for c in self.key if c.type == "int"]
        if self.summaries and (self.columns or self.summaries.begin not in ints):
            raise ValueError(f"{self.name}: rollups are in sparse tables, with an int of the key for when each begins")
        if self.moments and (self.columns or any(m.column not in ints or m.multiple_us < 1 for m in self.moments)):
            raise ValueError(f"{self.name}: moments are ints of the key of a sparse table")
        if self.by_column and self.columns:
            raise ValueError(f"{self.name}: only cells of sparse tables lie by column")
        if len(self.columns) > 32:
            raise ValueError(f"{self.name}: at most 32 fixed columns")

    @property
    def sparse(self) -> bool:
        return not self.columns

    @property
    def key(self) -> tuple[KeyColumn, ...]:
        return self.partition + self.clustering
