"""Loads from the store when devices reported last, for processes that did not hear it.

Rule 1: the store keeps the newest bucket of a device, not its newest time. Of up to `MOST_EXACT` devices of a tenant the
newest report is read, and of those that an alert is about. The others count as seen at the end of their bucket, or now if
that is not over: a restart makes no device silent that was not, and ends no alert.
Rule 2: a pass begins a minute after the one before, and never before twenty times of what that one took.
Rule 3: a pass forgets tenants and devices that other processes have deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from widerow.engine.port import Engine
from widerow.model.arrays import Codes, Flags, Ints
from widerow.model.names import NO_NAMES, Coded, Names
from widerow.model.times import Clock
from widerow.schema.shards import SHARDS
from widerow.schema.tables import LAST_SEEN, telemetry
from widerow.telemetry.presence import Presence

MOST_EXACT = 20_000
EVERY_S = 60.0
_RESTS = 20.0


@dataclass(frozen=True, slots=True)
class _Found:
    """Devices of one chunk, and their newest buckets."""

    names: Names
    bucket_us: Ints
    width_us: Ints
    subs: Ints
    keep_us: Ints


class PresenceLoading:
    """`load` is called each minute, by one thread."""

    def __init__(
        self,
        engine: Engine,
        presence: Presence,
        clock: Clock,
        tenants: Callable[[], Iterable[str]],
        registered: Callable[[str, Names], Flags],
        *,
        again: bool,
        shared: bool = False,
    ) -> None:
        """`registered`: which of a tenant's devices there are. `again`: other processes write to the store, so each pass
        reads all tenants; otherwise those that were not read yet. `shared`: other processes may delete devices.
        """
        self._engine, self._presence, self._clock = engine, presence, clock
        self._tenants, self._registered, self._again = tenants, registered, again
        self._shared = shared
        self.exactly: Callable[[str], Collection[str]] = lambda _tenant: ()
        """The devices of a tenant whose newest report is read in any case."""
        self._loaded: set[str] = set()
        self._due_s = 0.0
        self.complete_us = 0 if again else None
        """When the last pass that read all tenants began; 0: there was none. None: this process hears each report itself."""

    def load(self, stopping: Callable[[], bool] = lambda: False) -> None:
        started_s, started_us = time.monotonic(), self._clock.now_us()
        if started_s < self._due_s:
            return
        heard = self._presence.tenants()  # first: what is heard of a tenant that is made meanwhile stays
        tenants = list(self._tenants())
        for tenant in set(heard).difference(tenants):
            self._presence.forget_all(tenant)
        for tenant in tenants:
            if stopping():
                return
            if self._shared:
                self._presence.forget_others(tenant, partial(self._registered, tenant))
            if self._again or tenant not in self._loaded:
                self.load_tenant(tenant)
                self._loaded.add(tenant)
        self._loaded &= set(tenants)
        self.complete_us = started_us if self._again else None
        took_s = time.monotonic() - started_s
        self._due_s = started_s + _RESTS * took_s

    def load_tenant(self, tenant: str) -> None:
        now_us, exact, always = self._clock.now_us(), MOST_EXACT, frozenset(self.exactly(tenant))
        self._registered(tenant, NO_NAMES)  # so that the number of devices is known, also if none ever reported
        for found in self._newest_buckets(tenant):
            last_us = np.minimum(found.bucket_us + found.width_us, now_us)
            if exact > 0 or always:
                some = None if exact > 0 else always
                exact -= len(found.names)
                self._read_exactly(tenant, found, last_us, some)
            there = np.flatnonzero(self._registered(tenant, found.names))  # the others are being deleted
            self._presence.load(tenant, found.names.take(there), last_us[there])

    def _newest_buckets(self, tenant: str) -> Iterator[_Found]:
        for rows in self._engine.scan(LAST_SEEN, [(tenant, shard) for shard in range(SHARDS)], may_lag=True):
            column = rows.keys["device_id"]
            assert isinstance(column, Coded)
            facts = rows.cells.number.reshape(len(rows), len(LAST_SEEN.columns)).astype(np.int64)
            yield _Found(column.names.take(column.codes), *facts.T)

    def _read_exactly(self, tenant: str, found: _Found, last_us: Ints, only: frozenset[str] | None) -> None:
        """The event time of each device's newest report, into `last_us`. `only`: of these alone."""
        names = found.names.to_list()
        wanted = range(len(names)) if only is None else [i for i, name in enumerate(names) if name in only]
        places: Codes = np.array(wanted, np.int32)
        for keep_us in np.unique(found.keep_us[places]).tolist():
            some = places[found.keep_us == keep_us].tolist()
            keys = [
                (tenant, names[i], bucket, sub)
                for i in some
                for bucket, subs in [(int(found.bucket_us[i]), int(found.subs[i]))]
                for sub in range(subs)
            ]
            newest: dict[str, int] = {}
            for rows in self._engine.scan(telemetry(keep_us), keys, limit=1, may_lag=True):
                column = rows.keys["device_id"]
                assert isinstance(column, Coded)
                for name, at_us in zip(column.to_list(), np.asarray(rows.keys["event_us"]).tolist(), strict=True):
                    newest[name] = max(newest.get(name, 0), at_us)
            for i in some:
                last_us[i] = min(newest.get(names[i], int(last_us[i])), int(last_us[i]))
