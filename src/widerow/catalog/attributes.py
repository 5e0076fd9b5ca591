"""What the catalog says of the devices of a batch, as columns: for tenants that want it stored with each report.

What was read of a device is used for `keep_us`; then it is read again with all others of its batch that have grown old. So a
change shows in reports that arrive `keep_us` later at the latest, whichever process made it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from widerow.catalog.records import Records
from widerow.engine.port import Engine
from widerow.model.arrays import Ints
from widerow.model.device import Device
from widerow.model.intern import NameTable
from widerow.model.names import Coded, Names
from widerow.model.tenant import ROW_ATTRIBUTES
from widerow.model.times import MINUTE, Clock
from widerow.schema.tables import DEVICES

_MAX_DEVICES = 1 << 24
_MAX_TEXTS = 1 << 24


class Attributes:
    """Of all tenants. Safe to share between threads."""

    def __init__(self, engine: Engine, clock: Clock, keep_us: int = MINUTE) -> None:
        self._records = Records(engine, DEVICES, Device, "device")
        self._clock, self._keep_us = clock, keep_us
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def of(self, tenant: str, devices: Names, wanted: Sequence[str]) -> Mapping[str, Coded]:
        """For each wanted attribute a text, or none, for each device."""
        now_us = self._clock.now_us()
        with self._lock:
            known = self._known.get(tenant)
            if known is None or known.is_full(len(devices)):
                known = self._known[tenant] = _Known()
            ids = known.ids(devices)
            old = abs(now_us - known.read_us[ids]) >= self._keep_us
            if old.any():
                self._read(tenant, known, devices.take(np.flatnonzero(old)), now_us)
            return {name: known.column(name, ids) for name in wanted}

    def held(self) -> dict[str, int]:
        """What is held in memory for each tenant, in bytes."""
        return {tenant: known.bytes for tenant, known in list(self._known.items())}

    def _read(self, tenant: str, known: _Known, devices: Names, now_us: int) -> None:
        names = list(dict.fromkeys(devices.to_list()))
        found = {stored.name: stored.value for stored in self._records.find_all((tenant,), names)}
        known.learn([found.get(name, Device(name=name)) for name in names], now_us)


class _Known:
    """What was read of one tenant's devices, and when."""

    def __init__(self) -> None:
        self.table, self.texts = NameTable(_MAX_DEVICES), NameTable(_MAX_TEXTS)
        self.read_us: Ints = np.zeros(0, np.int64)
        self.codes = {name: np.zeros(0, np.int32) for name in ROW_ATTRIBUTES}
        self._all_texts = self.texts.names()

    @property
    def bytes(self) -> int:
        columns = self.read_us.nbytes + sum(column.nbytes for column in self.codes.values())
        return self.table.bytes + self.texts.bytes + columns

    def column(self, name: str, ids: Ints) -> Coded:
        """An attribute of some devices, with only the texts that they have: the batch is to carry them."""
        codes = self.codes[name][ids]
        used = np.unique(codes[codes >= 0])
        return Coded(self._all_texts.take(used), np.where(codes < 0, -1, np.searchsorted(used, codes)).astype(np.int32))

    def is_full(self, more: int) -> bool:
        return len(self.table) + more > _MAX_DEVICES or len(self.texts) + more * len(ROW_ATTRIBUTES) > _MAX_TEXTS

    def ids(self, devices: Names) -> Ints:
        ids = self.table.add(devices)
        missing = len(self.table) - len(self.read_us)
        if missing > 0:
            room = max(missing, len(self.read_us), 1024)
            self.read_us = np.concatenate([self.read_us, np.full(room, np.iinfo(np.int64).min // 2)])
            self.codes = {name: np.concatenate([c, np.full(room, -1, np.int32)]) for name, c in self.codes.items()}
        return ids.astype(np.int64)

    def learn(self, devices: Sequence[Device], now_us: int) -> None:
        ids = self.ids(Names.of([device.name for device in devices]))
        self.read_us[ids] = now_us
        for name, column in self.codes.items():
            values = [getattr(device, name) for device in devices]
            column[ids] = np.where([bool(value) for value in values], self.texts.add(Names.of(values)), -1)
        self._all_texts = self.texts.names()
