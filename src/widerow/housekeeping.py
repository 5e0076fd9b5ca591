"""What is done for a store now and then: what has expired and what was erased goes, and counts that were asked for are made.

Rule 1: what fails does not keep the rest from being done, and is tried again.
Rule 2: what one process can do for all that share a store is done by the one that leads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

from widerow.admit.hot import HotDevices
from widerow.catalog.catalog import Catalog
from widerow.catalog.series import series_in
from widerow.engine.port import Engine
from widerow.engine.rows import Rows
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, Clock, TimeSpan
from widerow.ops.counters import Counters
from widerow.ops.recurring import Recurring, tried
from widerow.pipeline.dead_letters import DeadLetters
from widerow.rollup.pyramid import Pyramid
from widerow.schema.rollups import DAYS, HOURS
from widerow.schema.shards import SHARDS
from widerow.telemetry.erasure import EVER, Mark
from widerow.telemetry.store import Telemetry
from widerow.usage.record import Recorder
from widerow.usage.recorded import Recorded
from widerow.usage.storage import StorageUse

log = logging.getLogger(__name__)

_LEARN_AT_ONCE = 512
_NOT_KEPT = "housekeeping failed, and is tried again"


class Housekeeping:
    """Of one process. A thread does it every so often, and when it is woken."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        counters: Counters,
        catalog: Catalog,
        telemetry: Telemetry,
        pyramid: Pyramid,
        dead_letters: DeadLetters,
        usage: Recorder,
        recorded: Recorded,
        storage: StorageUse,
        hot: HotDevices,
        every_s: float,
        trusts: Callable[[], bool] = lambda: True,
    ) -> None:
        """`trusts`: whether the clock may be trusted with what is thrown away."""
        self._engine, self._clock, self._counters = engine, clock, counters
        self._catalog, self._telemetry, self._pyramid, self._dead_letters = catalog, telemetry, pyramid, dead_letters
        self._trusts = trusts
        self._usage, self._recorded, self._storage, self._hot = usage, recorded, storage, hot
        self._purging = threading.Lock()
        self._thread = Recurring("housekeeping", self.keep, every_s, failing=_NOT_KEPT, at_once=True)
        catalog.series.wake = self.wake

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There is something to do."""
        self._thread.wake()

    def stop(self) -> None:
        self._thread.stop()

    def keep(self) -> None:
        """All of it, once."""
        for work in (
            self._expire,
            self._purge_if_leading,
            self._catalog.series.read_again,
            self.learn_series,
            self._pyramid.guard.look,
        ):
            tried(work, _NOT_KEPT, log)

    def _leads(self) -> bool:
        """Whether this process does what is done once for a store: of a crew one does."""
        return self._pyramid.crew is None or self._pyramid.crew.leads()

    def _expire(self) -> None:
        if self._leads() and self._trusts():
            expired = self._engine.expire(self._clock.now_us())
            self._counters.dropped_windows.inc(expired.windows)

    # -- what was erased

    def _purge_if_leading(self) -> None:
        if self._leads():
            self.purge()

    def purge(self) -> int:
        """Take everything that was erased off the disk; gives the number of marks worked off. One at a time.

        Not while the clock is not trusted: it says what can be rolled again without what is gone.
        """
        with self._purging:
            if not self._trusts():
                return 0
            version_us = self._clock.version_us()
            erasure = self._telemetry.erasure
            unfinished = [found for found in erasure.unfinished() if found[1].version_us <= version_us]
            for tenant, mark, place in unfinished:
                self._purge(tenant, mark)
                erasure.finish(tenant, mark, place)
                self._storage.forget(tenant)
            return len(unfinished)

    def _purge(self, tenant: str, mark: Mark) -> None:
        catalog = self._catalog
        devices = [mark.device] if mark.device else [device.name for device in catalog.devices.list(tenant).devices]
        self._telemetry.purge(tenant, mark, devices)
        self._pyramid.purge(catalog.tenants.find(tenant), mark, devices, tenant)
        if mark.span == EVER:
            catalog.series.erase(tenant, device=mark.device, metric=mark.metric, version_us=mark.version_us)
        if mark.whole and mark.device:
            catalog.devices.forget_predecessors(tenant, mark.device)
            catalog.online.forget(tenant, [mark.device], mark.version_us)
            self._dead_letters.forget(tenant, device=mark.device)
        elif mark.whole:
            self._dead_letters.forget(tenant)
            self._usage.forget(tenant)
            self._recorded.forget(tenant)
            self._hot.forget_all(tenant)
            catalog.devices.delete_all(tenant)
            catalog.online.forget_all(tenant, mark.version_us)
            catalog.metrics.delete_all(tenant)

    # -- series

    def learn_series(self) -> None:
        """Look up what tenants have whose series are limited from now on: of the last month, and of what is rolled today."""
        for name in self._catalog.series.unlearned():
            tenant = self._catalog.tenants.find(name)
            if tenant is not None:
                self._catalog.series.learn(name, self._rolled_lately(tenant))

    def count_series(self, tenant: Tenant) -> int:
        """How many series a tenant has. Where nobody counts them, all that was rolled lately is read for it."""
        counted = self._catalog.series.count(tenant)
        return series_in(self._rolled_lately(tenant)) if counted is None else counted

    def _rolled_lately(self, tenant: Tenant) -> Iterator[Rows]:
        now_us = self._clock.now_us()
        for shard in range(SHARDS):
            for chunk in self._catalog.devices.names_of_shard(tenant.name, shard):
                names = chunk.to_list()
                for start in range(0, len(names), _LEARN_AT_ONCE):
                    some = names[start : start + _LEARN_AT_ONCE]
                    for level, back_us in ((DAYS, 32 * DAY), (HOURS, 2 * DAY)):
                        yield from self._pyramid.rollups.read(tenant, some, level, TimeSpan(now_us - back_us, now_us + DAY))
