"""Which devices a tenant has, as one process knows it: the fast answer to "is this device registered?".

Rule 1: looking up takes no lock and no Python per name; every change is made holding `lock`.
Rule 2: `count` is the number of live names. A name that was removed is unknown again; its id is not reused.
Rule 3: memory follows the number of live devices: when most ids are dead, the table is built afresh.
Rule 4: when the outcome of a write is not known the roster is unloaded, and read from the store before it is used again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import numpy as np

from widerow.model.arrays import Flags
from widerow.model.intern import NameTable
from widerow.model.names import Names

CAPACITY = 1 << 26
"""Ids of one tenant, live and dead: more than anyone has, so that `count` is exact. The table grows as it fills."""

_ABSENT_CAPACITY = 1 << 16
_FEWEST_DEAD = 1024


class Roster:
    """The devices of one tenant."""

    def __init__(self, absent_keep_us: int) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.loaded_us = 0
        self._known: _Known | None = None
        self._absent_keep_us = absent_keep_us
        self._absent: NameTable | None = None
        self._absent_since_us = 0

    @property
    def loaded(self) -> bool:
        return self._known is not None

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        known, absent = self._known, self._absent
        return (known.table.bytes + known.alive.nbytes if known else 0) + (absent.bytes if absent else 0)

    def known(self, names: Names) -> Flags:
        """Which of the names are devices; none, while nothing is loaded. Lock-free."""
        known = self._known
        return np.zeros(len(names), np.bool_) if known is None else known.has(names)

    def load(self, chunks: Iterable[Names], now_us: int) -> None:
        """Start afresh with what the store has. Lookups see the old roster until the new one is whole."""
        known = _Known()
        self.count = sum(known.add(names) for names in chunks)
        self._known, self.loaded_us = known, now_us

    def unload(self) -> None:
        self._known, self._absent, self.count = None, None, 0

    def add(self, names: Names) -> None:
        """Names that are in the store now. Those that are known already change nothing."""
        if self._known is not None:
            self.count += self._known.add(names)

    def remove(self, name: str) -> None:
        """A name that is no longer in the store."""
        known = self._known
        if known is None:
            return
        self.count -= known.remove(Names.of((name,)))
        if len(known.table) - self.count > max(_FEWEST_DEAD, self.count):
            self._known = known.compacted()

    def lately_absent(self, names: Names, now_us: int) -> Flags:
        """Which names were looked for in the store a moment ago, in vain: a broken sender must not cost a read each time."""
        if self._absent is None or abs(now_us - self._absent_since_us) >= self._absent_keep_us:
            return np.zeros(len(names), np.bool_)
        return self._absent.find(names) >= 0

    def note_absent(self, names: Names, now_us: int) -> None:
        stale = abs(now_us - self._absent_since_us) >= self._absent_keep_us
        if self._absent is None or stale or len(self._absent) + len(names) > _ABSENT_CAPACITY:
            self._absent, self._absent_since_us = NameTable(_ABSENT_CAPACITY), now_us
        self._absent.add(names)


class _Known:
    """Names, and for each id whether it is alive."""

    def __init__(self) -> None:
        self.table = NameTable(CAPACITY)
        self.alive = np.zeros(0, np.bool_)

    def has(self, names: Names) -> Flags:
        ids = self.table.find(names)
        alive = self.alive  # after `find`: `add` makes room here before it gives out ids
        found = ids >= 0
        found[found] = alive[ids[found]]
        return found

    def add(self, names: Names) -> int:
        """How many were not alive before."""
        self._make_room(len(self.table) + len(names))
        ids = np.unique(self.table.add(names))
        fresh = ids[~self.alive[ids]]
        self.alive[fresh] = True
        return len(fresh)

    def remove(self, names: Names) -> int:
        ids = self.table.find(names)[self.has(names)]
        self.alive[ids] = False
        return len(ids)

    def compacted(self) -> _Known:
        new = _Known()
        new.add(self.table.names().take(np.flatnonzero(self.alive[: len(self.table)])))
        return new

    def _make_room(self, ids: int) -> None:
        if ids > len(self.alive):
            grown = np.zeros(max(1024, 2 * ids), np.bool_)
            grown[: len(self.alive)] = self.alive
            self.alive = grown
