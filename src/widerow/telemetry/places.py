"""The placement of every device of every tenant: epochs as arrays, so that a batch is placed in one pass.

Also remembers the newest bucket written of each device, so that `last_seen` is written once per bucket, not per report.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from widerow.engine.port import Engine
from widerow.engine.rows import NEVER, Row, Rows, rows_of
from widerow.model.arrays import Codes, Flags, Ints
from widerow.model.batch import Batch, Cells
from widerow.model.errors import Rejected, Unavailable
from widerow.model.intern import NameTable
from widerow.model.kernel import kernel
from widerow.model.names import Coded, Names
from widerow.model.times import HOUR, Clock, format_time
from widerow.schema.shards import shards_of
from widerow.schema.tables import LAST_SEEN, PLACEMENTS
from widerow.telemetry.facts import FactLog
from widerow.telemetry.placement import FIRST_EPOCH, Epoch, place, place_all

_MAX_DEVICES = 1 << 24
_LAST_SEEN_COLUMNS = Names.of(LAST_SEEN.columns)


_NOBODY = rows_of(LAST_SEEN, [], version_us=0)
_NO_IDS = np.zeros(0, np.int64)


class DeviceStates:
    """What one tenant's writer knows of its devices, by id. Columns grow as devices come."""

    def __init__(self) -> None:
        self.table = NameTable(_MAX_DEVICES)
        self.from_us = np.zeros(0, np.int64)
        self.width_us = np.zeros(0, np.int64)
        self.subs = np.zeros(0, np.int64)
        self.seen_us = np.zeros(0, np.int64)
        """The version of the `last_seen` row written last; -1: not known."""
        self.epochs: dict[int, list[Epoch]] = {}
        self.lock = threading.Lock()

    def ids(self, names: Names) -> Codes:
        ids = self.table.add(names)
        if len(ids) and ids.min() < 0:
            raise Unavailable(f"more than {_MAX_DEVICES} devices of one tenant in one process: use more processes")
        if len(self.table) > len(self.from_us):
            with self.lock:
                self._grow(max(1024, 2 * len(self.table)))
        return ids

    def _grow(self, size: int) -> None:
        def grown(column: Ints, fill: int) -> Ints:
            return np.concatenate([column, np.full(size - len(column), fill, np.int64)])

        if size > len(self.from_us):
            self.width_us = grown(self.width_us, HOUR)
            self.subs = grown(self.subs, 1)
            self.seen_us = grown(self.seen_us, -1)
            self.from_us = grown(self.from_us, 0)  # last: its length says that all have grown

    def id_of(self, device: str) -> int:
        return int(self.ids(Names.of((device,)))[0])

    def add_epoch(self, device: str, epoch: Epoch) -> None:
        d = self.id_of(device)
        with self.lock:
            epochs = sorted([*self.epochs.get(d, []), epoch])
            self.epochs[d] = epochs
            newest = epochs[-1]
            self.from_us[d], self.width_us[d], self.subs[d] = newest.from_us, newest.width_us, newest.sub_buckets


class Places:
    """Epochs of all tenants, and the placing of batches by them."""

    def __init__(self, engine: Engine, clock: Clock, *, refresh_us: int, max_future_us: int) -> None:
        self._clock = clock
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
        return state if state is not None else self._states.setdefault(tenant, DeviceStates())

    def forget(self) -> None:
        """Another process has written to the store: every device is seen anew. Epochs are followed as always."""
        for state in list(self._states.values()):
            with state.lock:
                state.seen_us[:] = -1

    def epochs(self, tenant: str, device: str) -> list[Epoch]:
        """The recorded epochs of a device, oldest first."""
        state = self.state(tenant)
        found = state.table.find(Names.of((device,)))[0]
        return list(state.epochs.get(int(found), []))

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
        earliest = self.earliest_epoch_us()
        if epoch.from_us < earliest:
            raise Rejected(f"an epoch may start at {format_time(earliest)} at the earliest", code="epoch")
        self._log.add(
            tenant,
            device,
            {
                "device_id": device,
                "from_us": epoch.from_us,
                "width_us": epoch.width_us,
                "sub_buckets": epoch.sub_buckets,
                "reason": epoch.reason,
                "created_us": self._clock.now_us(),
            },
        )

    def _learn(self, tenant: str, fact: Row) -> None:
        epoch = Epoch(int(fact["from_us"]), int(fact["width_us"]), int(fact["sub_buckets"]), str(fact["reason"]))
        self.known_state(tenant).add_epoch(str(fact["device_id"]), epoch)


def place_batch(state: DeviceStates, device: Codes, time_us: Ints) -> tuple[Ints, Ints]:
    """Bucket and sub-bucket of each report, given its device's id."""
    n = len(time_us)
    bucket, sub_bucket, older = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n, np.bool_)
    with state.lock:  # an epoch's columns change together
        strays = place_all(device, time_us, state.from_us, state.width_us, state.subs, bucket, sub_bucket, older)
    if strays:
        for i in np.flatnonzero(older).tolist():
            with state.lock:
                epochs = state.epochs[int(device[i])]
            where = place(epochs, int(time_us[i]))
            bucket[i], sub_bucket[i] = where.bucket, where.sub_bucket
    return bucket, sub_bucket


def newly_seen(
    state: DeviceStates, tenant: str, batch: Batch, device: Codes, bucket: Ints, keep_us: Ints
) -> tuple[Rows, Ints]:
    """`last_seen` rows for the devices that entered a newer bucket, and their ids (to forget, should the write fail).

    A bucket's version is its start, or the start of its epoch where that is later: so the newest event wins across epochs.
    """
    version = np.maximum(bucket, np.where(batch.time_us >= state.from_us[device], state.from_us[device], 0))
    newest = np.zeros(len(device), np.bool_)
    with state.lock:
        _mark_newer(device, version, state.seen_us, newest)
    if not newest.any():
        return _NOBODY, _NO_IDS
    rows = np.flatnonzero(newest)
    # A device may enter two buckets in one batch; the engine keeps the row with the greater version.
    codes = batch.device.codes[rows]
    shard = shards_of(batch.device.names)
    n = len(rows)
    ids = device[rows]
    subs = state.subs[ids]
    for i in np.flatnonzero(batch.time_us[rows] < state.from_us[ids]).tolist():
        # Placed by an older epoch than the newest: name as many sub-buckets as any had. Too many cost a look, too few data.
        subs[i] = max(e.sub_buckets for e in (FIRST_EPOCH, *state.epochs[int(ids[i])]))
    number = np.stack([bucket[rows], state.width_us[ids], subs, keep_us[rows]], axis=1).astype(np.float64)
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
    return seen, ids.astype(np.int64)


@kernel
def _mark_newer(device: Codes, version: Ints, seen_us: Ints, newest: Flags) -> None:
    for i in range(len(device)):
        if version[i] > seen_us[device[i]]:
            seen_us[device[i]] = version[i]
            newest[i] = True
