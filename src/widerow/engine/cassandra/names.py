"""The names of the cells in a partition: which are stored there already, so that a write adds only new ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from widerow.engine.rows import NEVER
from widerow.model.times import DAY

Partition = tuple[bytes, ...]
"""A partition's key, packed, with the table's name before it."""

_MOST = 200_000
MARGIN_US = 2 * DAY
"""Names outlive the rows they were written with, so that the next rows of the partition need not name them again."""


class KnownNames:
    """What this process has named, and until when that holds. Forgetting costs a write, nothing else.

    Safe to share between threads: an entry is replaced, never changed.
    """

    def __init__(self) -> None:
        self._known: dict[Partition, dict[bytes, int]] = {}

    def missing(self, partition: Partition, names: set[bytes], until_us: int) -> set[bytes]:
        """Which of the names are to be written so that all of them hold until then."""
        known = self._known.get(partition)
        return names if known is None else {name for name in names if known.get(name, -1) < until_us}

    def learn(self, partition: Partition, names: set[bytes], until_us: int) -> None:
        if len(self._known) >= _MOST:
            self._known = {}
        self._known[partition] = {**self._known.get(partition, {}), **dict.fromkeys(names, until_us)}


@dataclass(slots=True)
class Naming:
    """What one write adds. It counts once the write is durable: then call `learn`."""

    known: KnownNames
    _added: list[tuple[Partition, set[bytes], int]] = field(default_factory=list)

    def add(self, partition: Partition, names: set[bytes], expire_us: int) -> tuple[set[bytes], int]:
        """The names to write with a partition's rows, and when these names expire."""
        missing = self.known.missing(partition, names, expire_us)
        until_us = NEVER if expire_us > NEVER - MARGIN_US else expire_us + MARGIN_US
        if missing:
            self._added.append((partition, missing, until_us))
        return missing, int(until_us)

    def learn(self) -> None:
        for added in self._added:
            self.known.learn(*added)
