"""Which column family a partition lies in: the table's own, or one per window, so that expiry is dropping files."""

from __future__ import annotations

from widerow.engine.rows import Key
from widerow.schema.table import Table


def is_windowed(family: str) -> bool:
    """Whether a column family holds one window of a table, rather than a table."""
    return "@" in family


class Families:
    """The column families of one table."""

    def __init__(self, table: Table) -> None:
        self._table = table.name
        self._width_us = table.window.width_us if table.window else 0
        self._at = [c.name for c in table.partition].index(table.window.column) if table.window else 0
        self._names: dict[int, str] = {}

    @property
    def name(self) -> str:
        return self._table

    def of_window(self, window: int) -> str:
        return f"{self._table}@{window}"

    def of(self, partition: Key) -> str:
        if not self._width_us:
            return self._table
        window = int(partition[self._at]) // self._width_us
        name = self._names.get(window)
        if name is None:
            name = self._names[window] = self.of_window(window)
        return name

    def has(self, family: str) -> bool:
        return family == self._table or family.startswith(f"{self._table}@")
