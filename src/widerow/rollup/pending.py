"""The units that wait to be rolled, as one process knows them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from widerow.rollup.unit import Unit
from widerow.schema.shards import SHARDS


class Pending:
    """Units, and when each was last marked. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._units: dict[Unit, int] = {}
        self._starts: dict[tuple[str, int], set[int]] = {}
        """The same by tenant and shard, which is how questions ask."""

    def note(self, units: Iterable[Unit], at_us: int) -> None:
        with self._lock:
            for unit in units:
                self._units[unit] = max(at_us, self._units.get(unit, 0))
                self._starts.setdefault((unit.tenant, unit.shard), set()).add(unit.start_us)

    def replace(self, units: Mapping[Unit, int]) -> None:
        """These wait, and no others."""
        with self._lock:
            self._units.clear()
            self._starts.clear()
        for unit, at_us in units.items():
            self.note((unit,), at_us)

    def done(self, units: Iterable[Unit], version_us: int) -> None:
        """Those that were not marked again after that version wait no more."""
        with self._lock:
            for unit in units:
                if self._units.get(unit, version_us + 1) > version_us:
                    continue
                del self._units[unit]
                starts = self._starts[unit.tenant, unit.shard]
                starts.discard(unit.start_us)
                if not starts:
                    del self._starts[unit.tenant, unit.shard]

    def all(self) -> dict[Unit, int]:
        with self._lock:
            return dict(self._units)

    def of(self, tenant: str) -> list[tuple[int, int]]:
        """Start and shard of what waits of a tenant."""
        with self._lock:
            return [(start, shard) for shard in range(SHARDS) for start in self._starts.get((tenant, shard), ())]

    def starts(self, tenant: str, shards: AbstractSet[int]) -> set[int]:
        """Of the windows that wait of any of the shards."""
        with self._lock:
            return set().union(*(self._starts.get((tenant, shard), ()) for shard in shards))
