"""Facts about a tenant that are only ever added: where devices are placed, what was erased.

A `FactLog` is an insert-only log per tenant in the store, spread over shards by device. Processes follow it: what this
process adds is known at once, what others add within `refresh_us`. A process that cannot refresh in time says so
(`Unavailable`) instead of going on with old facts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from widerow.engine.port import Engine, Span
from widerow.engine.rows import Row
from widerow.model.times import Clock
from widerow.schema.shards import SHARDS, shard_of
from widerow.schema.table import Table

Fact: TypeAlias = Mapping[str, float | str]


class FactLog:
    """The facts of one table, tenant by tenant; each fact is handed once, in order of its shard, to `learn`."""

    def __init__(
        self, engine: Engine, table: Table, clock: Clock, *, refresh_us: int, learn: Callable[[str, Row], None]
    ) -> None:
        self._engine, self._table, self._clock = engine, table, clock
        self._refresh_us, self._learn = refresh_us, learn
        self._lock = threading.RLock()
        self._followed: dict[str, _Followed] = {}

    def follow(self, tenant: str, *, fresh: bool = False) -> None:
        """Make sure that what is known of a tenant is at most `refresh_us` old; `fresh`: that it is all there is now."""
        known = self._followed.get(tenant)
        now_us = self._clock.now_us()
        if fresh or known is None or now_us - known.read_us > self._refresh_us:
            with self._lock:
                known = self._followed.setdefault(tenant, _Followed())
                if fresh or now_us - known.read_us > self._refresh_us:
                    self._read_on(tenant, known, range(SHARDS))
                    known.read_us = now_us

    def _read_on(self, tenant: str, known: _Followed, shards: Iterable[int]) -> None:
        for shard in shards:
            for rows in self._engine.scan(self._table, [(tenant, shard)], Span(start=known.revision[shard] + 1)):
                for i in range(len(rows)):
                    known.revision[shard] = int(rows.key(self._table, i)[-1])
                    self._learn(tenant, rows.row(i))

    def add(self, tenant: str, device: str, fact: Fact) -> tuple[int, int]:
        """Record a fact; gives its (shard, revision). It is known here, and durable, on return."""
        added = self.decide(tenant, device, lambda: fact)
        assert added is not None
        return added

    def decide(self, tenant: str, device: str, choose: Callable[[], Fact | None]) -> tuple[int, int] | None:
        """Record what `choose` gives, if anything, as `add` does.

        It is asked when all facts of the device are known here, and asked again if another process added one of the same
        shard meanwhile: so of several that come to the same conclusion at once, one records it and the others see that.
        """
        shard = shard_of(device)
        with self._lock:
            while True:
                known = self._followed.setdefault(tenant, _Followed())
                self._read_on(tenant, known, [shard])
                fact = choose()
                if fact is None:
                    return None
                revision = known.revision[shard] + 1
                if self._engine.put_if(self._table, (tenant, shard, revision), fact, None):
                    self._read_on(tenant, known, [shard])
                    return shard, revision


class _Followed:
    def __init__(self) -> None:
        self.read_us = -(1 << 62)
        self.revision = [0] * SHARDS
