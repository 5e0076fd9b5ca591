"""What is done for a store now and then: what has expired and what was erased goes, and counts that were asked for are made.

Rule 1: what fails does not keep the rest from being done, and is tried again.
Rule 2: what one process can do for all that share a store is done by the one that leads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import numpy as np

from widerow.admit.hot import HotDevices
from widerow.catalog.catalog import Catalog
from widerow.catalog.series import series_in
from widerow.engine.port import Engine
from widerow.engine.rows import Rows
from widerow.model.names import Coded
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, Clock, TimeSpan
from widerow.ops.counters import Counters
from widerow.ops.recurring import Recurring, tried
from widerow.pipeline.dead_letters import DeadLetters
from widerow.rollup.pyramid import Pyramid
from widerow.schema.rollups import DAYS, DIRTY, DIRTY_DAYS, HOURS
from widerow.schema.shards import SHARDS
from widerow.schema.table import Table
from widerow.telemetry.erasure import EVER, Mark
from widerow.telemetry.store import Telemetry
from widerow.usage.record import Recorder
from widerow.usage.recorded import Recorded
from widerow.usage.storage import StorageUse

log = logging.getLogger(__name__)

_LEARN_AT_ONCE, _SILENT_AT_ONCE = 512, 16
"""Devices whose rollups of a month are in memory at a time; and of those that sent nothing for a month, all of theirs."""
_LATELY_US = 32 * DAY
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
        """Look up what tenants have stored whose series are limited from now on."""
        for name in self._catalog.series.unlearned():
            tenant = self._catalog.tenants.find(name)
            if tenant is not None:
                self._catalog.series.learn(name, self._stored(tenant))

    def count_series(self, tenant: Tenant) -> int:
        """How many series a tenant has. Where nobody counts them, what is stored is read for it."""
        counted = self._catalog.series.count(tenant)
        return series_in(self._stored(tenant)) if counted is None else counted

    def _stored(self, tenant: Tenant) -> Iterator[Rows]:
        """Rows with the metrics of devices as cells: of reports that are not rolled, of hours that no day has yet, of the
        days of the last month; and of a device that has none of these, of all its days.

        In this order: what is rolled meanwhile is found further up.
        """
        read, now_us = self._pyramid.rollups.read, self._clock.now_us()
        for shard in range(SHARDS):
            there: set[str] = set()
            for hour_us, some in self._marked(tenant, DIRTY, shard):
                there.update(some)
                yield from self._telemetry.read_many(tenant, some, TimeSpan(hour_us, hour_us + HOUR), first=True)
            for day_us, some in self._marked(tenant, DIRTY_DAYS, shard):
                there.update(some)
                yield from read(tenant, some, HOURS, TimeSpan(day_us, day_us + DAY))
            for chunk in self._catalog.devices.names_of_shard(tenant.name, shard):
                for some in _some(chunk.to_list()):
                    for rows in read(tenant, some, DAYS, TimeSpan(now_us - _LATELY_US, now_us + DAY)):
                        there.update(_devices(rows).to_list())
                        yield rows
                    for silent in _some([name for name in some if name not in there], _SILENT_AT_ONCE):
                        yield from read(tenant, silent, DAYS, TimeSpan(0, now_us + DAY))

    def _marked(self, tenant: Tenant, table: Table, shard: int) -> Iterator[tuple[int, list[str]]]:
        """The windows that are to be rolled, with their devices, some of these at a time."""
        found: dict[int, list[str]] = {}
        for rows in self._engine.scan(table, [(tenant.name, shard)]):
            start_us = np.asarray(rows.keys[table.clustering[0].name]).tolist()
            for name, at_us in zip(_devices(rows).to_list(), start_us, strict=True):
                found.setdefault(at_us, []).append(name)
        for at_us, names in found.items():
            for some in _some(names):
                yield at_us, some


def _devices(rows: Rows) -> Coded:
    device = rows.keys["device_id"]
    assert isinstance(device, Coded)
    return device


def _some(names: list[str], most: int = _LEARN_AT_ONCE) -> Iterator[list[str]]:
    yield from (names[start : start + most] for start in range(0, len(names), most))
