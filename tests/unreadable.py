"""An engine of which some rows cannot be read, as if the blocks they are in were damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from widerow.engine.memory import MemoryEngine
from widerow.engine.rows import Key, Rows
from widerow.model.errors import Corrupt
from widerow.schema.table import Table


class DamagedEngine(MemoryEngine):
    """`damaged` says of a table's name and a partition whether a scan that touches it raises `Corrupt`."""

    damaged: Callable[[str, Key], bool] = staticmethod(lambda _table, _partition: False)

    def scan(self, table: Table, partitions: Sequence[Key] | None, *given: Any, **more: Any) -> Iterator[Rows]:
        for key in partitions or ():
            if self.damaged(table.name, key):
                raise Corrupt(f"a block of {table.name} cannot be read")
        return super().scan(table, partitions, *given, **more)


def raw_of(*devices: str) -> Callable[[str, Key], bool]:
    """All raw reports of these devices."""
    return lambda table, key: table == "telemetry_30d" and key[1] in devices
