"""The placement of every device of every tenant: epochs as arrays, so that a batch is placed in one pass.

Also remembers the newest bucket written of each device, so that `last_seen` is written once per bucket, not per report.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from widerow.engine.port import Engine
from widerow.engine.rows import NEVER, Row, Rows, rows_of
from widerow.model.arrays import Codes, Flags, Ints
from widerow.model.batch import Batch, Cells
from widerow.model.errors import Rejected, Unavailable
from widerow.model.intern import NameTable
from widerow.model.kernel import kernel
from widerow.model.names import Coded, Names
from widerow.model.times import Clock, format_time
from widerow.schema.shards import shards_of
from widerow.schema.tables import LAST_SEEN, PLACEMENTS
from widerow.telemetry.facts import Fact, FactLog
from widerow.telemetry.observed import Observed, ObservedSettings, Rate
from widerow.telemetry.placement import FIRST_EPOCH, Epoch, place_all

_MAX_DEVICES = 1 << 24
_LAST_SEEN_COLUMNS = Names.of(LAST_SEEN.columns)


_NOBODY = rows_of(LAST_SEEN, [], version_us=0)
_NO_IDS = np.zeros(0, np.int64)


class DeviceStates:
    """What one tenant's writer knows of its devices, by id. Columns grow as devices come."""

    def __init__(self, observed: ObservedSettings) -> None:
        self.table = NameTable(_MAX_DEVICES)
        self.newest = np.zeros(0, np.int32)
        """The newest epoch, as a row of the four columns below."""
        self.seen_us = np.zeros(0, np.int64)
        """The version of the `last_seen` row that is durable; -1: not known."""
        self.forgotten = 0
        """How often that was forgotten of a device: what was planned before says nothing about it."""
        self.epochs: dict[int, list[Epoch]] = {}
        self.count = 1
        """Epochs in the columns, of all devices. The first is what holds before any was recorded."""
        self.from_us, self.width_us = np.array([FIRST_EPOCH.from_us]), np.array([FIRST_EPOCH.width_us])
        self.subs, self.before = np.array([FIRST_EPOCH.sub_buckets]), np.zeros(1, np.int32)
        self.observed = Observed(observed)
        self.lock = threading.Lock()

    def ids(self, names: Names) -> Codes:
        ids = self.table.add(names)
        if len(ids) and ids.min() < 0:
            raise Unavailable(f"more than {_MAX_DEVICES} devices of one tenant in one process: use more processes")
        if len(self.table) > len(self.newest):
            with self.lock:
                self._grow(max(1024, 2 * len(self.table)))
        return ids

    def _grow(self, size: int) -> None:
        if size > len(self.newest):
            self.seen_us = np.concatenate([self.seen_us, np.full(size - len(self.seen_us), -1, np.int64)])
            # Last: its length says that all have grown.
            self.newest = np.concatenate([self.newest, np.zeros(size - len(self.newest), np.int32)])

    @property
    def bytes(self) -> int:
        columns = (self.from_us, self.width_us, self.subs, self.seen_us)
        return self.table.bytes + sum(column.nbytes for column in columns)

    def id_of(self, device: str) -> int:
        return int(self.ids(Names.of((device,)))[0])

    def forget_seen(self, device: int | slice = slice(None)) -> None:
        """What is in the store of a device, or of all, may have changed. By who holds the lock."""
        self.seen_us[device] = -1
        self.forgotten += 1

    def add_epoch(self, device: str, epoch: Epoch) -> None:
        d = self.id_of(device)
        with self.lock:
            epochs = self.epochs[d] = sorted([*self.epochs.get(d, []), epoch])
            later = len(epochs) - 1 - epochs.index(epoch)
            if self.count == len(self.from_us):
                self.from_us, self.width_us, self.subs, self.before = (
                    np.concatenate([column, column]) for column in (self.from_us, self.width_us, self.subs, self.before)
                )
            e, self.count = self.count, self.count + 1
            self.from_us[e], self.width_us[e], self.subs[e] = epoch.from_us, epoch.width_us, epoch.sub_buckets
            follower = self.newest[d] if later else 0
            for _ in range(later - 1):
                follower = self.before[follower]
            if later:
                self.before[e], self.before[follower] = self.before[follower], e
            else:
                self.before[e], self.newest[d] = self.newest[d], e

    def rate(self, device: str, now_us: int) -> Rate | None:
        """What the device was seen to send, by this process; None if it did not see it for long enough."""
        d = int(self.table.find(Names.of((device,)))[0])
        return self.observed.rate(d, now_us) if d >= 0 else None


class Places:
    """Epochs of all tenants, and the placing of batches by them."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        *,
        refresh_us: int,
        max_future_us: int,
        observed: ObservedSettings | None = None,
    ) -> None:
        self._clock = clock
        self.observed = observed or ObservedSettings()
        self._lead_us = max_future_us + 2 * refresh_us
        self._states: dict[str, DeviceStates] = {}
        self._log = FactLog(engine, PLACEMENTS, clock, refresh_us=refresh_us, learn=self._learn)

    def state(self, tenant: str) -> DeviceStates:
        """With all epochs that are known anywhere `refresh_us` ago."""
        self._log.follow(tenant)
        return self.known_state(tenant)

    def known_state(self, tenant: str) -> DeviceStates:
        """As it is known here, without asking the store."""
        state = self._states.get(tenant)
        return state if state is not None else self._states.setdefault(tenant, DeviceStates(self.observed))

    def states(self) -> list[tuple[str, DeviceStates]]:
        """Of all tenants that this process has to do with."""
        return list(self._states.items())

    def held(self) -> dict[str, int]:
        """What is held in memory for each tenant, in bytes."""
        return {tenant: state.bytes for tenant, state in list(self._states.items())}

    def forget(self) -> None:
        """Another process has written to the store: every device is seen anew. Epochs are followed as always."""
        for state in list(self._states.values()):
            with state.lock:
                state.forget_seen()

    def epochs(self, tenant: str, device: str) -> list[Epoch]:
        """The recorded epochs of a device, oldest first."""
        self._log.follow(tenant)
        return self._known_epochs(tenant, device)

    def by_epochs(self, tenant: str, devices: Sequence[str]) -> dict[tuple[Epoch, ...], list[str]]:
        """Devices that have the same epochs, nearly always none, together."""
        state = self.state(tenant)
        found: dict[tuple[Epoch, ...], list[str]] = {}
        for device, d in zip(devices, state.table.find(Names.of(devices)).tolist(), strict=True):
            found.setdefault(tuple(state.epochs.get(d, ())), []).append(device)
        return found

    def earliest_epoch_us(self) -> int:
        """Where the next epoch may start: ahead of every report that a writer with older knowledge could still accept."""
        earliest = self._clock.now_us() + self._lead_us
        return earliest - earliest % -1_000

    def add_epoch(self, tenant: str, device: str, epoch: Epoch) -> None:
        self._check(epoch)
        self._log.add(tenant, device, self._fact(device, epoch))

    def decide(self, tenant: str, device: str, choose: Callable[[Sequence[Epoch]], Epoch | None]) -> Epoch | None:
        """Add the epoch that `choose` makes of those there are, if any. Of several processes that choose at once, each
        sees what the others chose before it: so one decision is one epoch.
        """
        chosen: list[Epoch] = []

        def fact() -> Fact | None:
            chosen[:] = filter(None, [choose(self._known_epochs(tenant, device))])
            if not chosen:
                return None
            self._check(chosen[0])
            return self._fact(device, chosen[0])

        return chosen[0] if self._log.decide(tenant, device, fact) else None

    def _known_epochs(self, tenant: str, device: str) -> list[Epoch]:
        state = self.known_state(tenant)
        return list(state.epochs.get(int(state.table.find(Names.of((device,)))[0]), []))

    def _check(self, epoch: Epoch) -> None:
        earliest = self.earliest_epoch_us()
        if epoch.from_us < earliest:
            raise Rejected(f"an epoch may start at {format_time(earliest)} at the earliest", code="epoch")

    def _fact(self, device: str, epoch: Epoch) -> Fact:
        return {
            "device_id": device,
            "from_us": epoch.from_us,
            "width_us": epoch.width_us,
            "sub_buckets": epoch.sub_buckets,
            "reason": epoch.reason,
            "created_us": self._clock.now_us(),
        }

    def _learn(self, tenant: str, fact: Row) -> None:
        epoch = Epoch(int(fact["from_us"]), int(fact["width_us"]), int(fact["sub_buckets"]), str(fact["reason"]))
        self.known_state(tenant).add_epoch(str(fact["device_id"]), epoch)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the reports of a batch belong."""

    bucket: Ints
    sub_bucket: Ints
    epoch: Codes
    """Rows of the columns of epochs. Those never change, but for `before`."""


def place_batch(state: DeviceStates, device: Codes, time_us: Ints) -> Placed:
    """Given the id of each report's device."""
    n = len(time_us)
    bucket, sub_bucket, epoch = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int32)
    with state.lock:  # the columns change together
        place_all(
            device,
            time_us,
            state.newest,
            state.from_us,
            state.width_us,
            state.subs,
            state.before,
            bucket,
            sub_bucket,
            epoch,
        )
    return Placed(bucket, sub_bucket, epoch)


@dataclass(frozen=True, slots=True)
class Seen:
    """`last_seen` rows of a plan: the devices, the versions, and how often something was forgotten until then."""

    ids: Ints
    version_us: Ints
    forgotten: int


def newly_seen(
    state: DeviceStates, tenant: str, batch: Batch, device: Codes, placed: Placed, keep_us: Ints, since_us: Ints
) -> tuple[Rows, Seen]:
    """`last_seen` rows for the devices that entered a newer bucket, and what `seen` is told when they are durable.

    `keep_us`: the retention of each report; `since_us`: from which event time on it holds. A bucket's version is its start,
    or the start of its epoch or its retention where that is later: so the newest event wins across both. All three grow
    with the time of the event and are not after it, so reports that differ in any of them never have one version.
    """
    version = np.maximum(np.maximum(placed.bucket, state.from_us[placed.epoch]), since_us)
    newest = np.zeros(len(device), np.bool_)
    with state.lock:
        forgotten, before = state.forgotten, state.seen_us[device]
        _mark_newer(device, version, state.seen_us, newest)
        state.seen_us[device] = before  # nobody may rely on rows that are not written yet
    if not newest.any():
        return _NOBODY, Seen(_NO_IDS, _NO_IDS, forgotten)
    rows = np.flatnonzero(newest)
    # A device may enter two buckets in one batch; the engine keeps the row with the greater version.
    codes = batch.device.codes[rows]
    shard = shards_of(batch.device.names)
    n = len(rows)
    epoch = placed.epoch[rows]
    facts = [placed.bucket[rows], state.width_us[epoch], state.subs[epoch], keep_us[rows]]
    number = np.stack(facts, axis=1).astype(np.float64)
    k = len(_LAST_SEEN_COLUMNS)
    cells = Cells.numbers(
        np.arange(0, n * k + 1, k), _LAST_SEEN_COLUMNS, np.tile(np.arange(k, dtype=np.int32), n), number.reshape(-1)
    )
    seen = Rows(
        {"tenant_id": Coded.constant(tenant, n), "shard": shard[codes], "device_id": Coded(batch.device.names, codes)},
        version[rows],
        np.full(n, NEVER),
        cells,
    )
    return seen, Seen(device[rows].astype(np.int64), version[rows], forgotten)


def note_seen(state: DeviceStates, seen: Seen) -> None:
    """These rows are durable."""
    if len(seen.ids):
        with state.lock:
            if seen.forgotten == state.forgotten:
                np.maximum.at(state.seen_us, seen.ids, seen.version_us)


@kernel
def _mark_newer(device: Codes, version: Ints, seen_us: Ints, newest: Flags) -> None:
    for i in range(len(device)):
        if version[i] > seen_us[device[i]]:
            seen_us[device[i]] = version[i]
            newest[i] = True
