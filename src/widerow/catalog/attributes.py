"""What the catalog says of the devices of a batch, as columns: for tenants that want it stored with each report.

What was read of a device is used for `keep_us`; then it is read again with all others of its batch that have grown old. So a
change shows in reports that arrive `keep_us` later at the latest, whichever process made it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from widerow.engine.port import Engine
from widerow.engine.rows import Key
from widerow.model.arrays import Ints
from widerow.model.intern import NameTable
from widerow.model.names import Coded, Names
from widerow.model.tenant import ROW_ATTRIBUTES
from widerow.model.times import MINUTE, Clock
from widerow.schema.shards import shards_of
from widerow.schema.tables import DEVICES

_MAX_DEVICES = 1 << 24
_MAX_TEXTS = 1 << 24


class _Body(msgspec.Struct):
    """The part of a device's body that may be asked for."""

    type: str = ""
    location: str = ""


class Attributes:
    """Of all tenants. Safe to share between threads."""

    def __init__(self, engine: Engine, clock: Clock, keep_us: int = MINUTE) -> None:
        self._engine, self._clock, self._keep_us = engine, clock, keep_us
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
            texts = known.texts.names()
            return {name: Coded(texts, known.codes[name][ids]) for name in wanted}

    def _read(self, tenant: str, known: _Known, devices: Names, now_us: int) -> None:
        names = list(dict.fromkeys(devices.to_list()))
        shards = shards_of(Names.of(names)).tolist()
        keys: list[Key] = [(tenant, shard, name) for shard, name in zip(shards, names, strict=True)]
        known.learn(Names.of(names), [_Body()] * len(names), now_us)
        for rows in self._engine.scan(DEVICES, keys, columns=["body"]):
            found = rows.keys["device_id"]
            assert isinstance(found, Coded)
            bodies = rows.cells.texts.to_list()
            decoded = [_BODY.decode(bodies[code]) for code in rows.cells.text.tolist()]
            known.learn(Names.of(found.to_list()), decoded, now_us)


_BODY = msgspec.json.Decoder(_Body)


class _Known:
    """What was read of one tenant's devices, and when."""

    def __init__(self) -> None:
        self.table, self.texts = NameTable(_MAX_DEVICES), NameTable(_MAX_TEXTS)
        self.read_us: Ints = np.zeros(0, np.int64)
        self.codes = {name: np.zeros(0, np.int32) for name in ROW_ATTRIBUTES}

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

    def learn(self, devices: Names, bodies: Sequence[_Body], now_us: int) -> None:
        ids = self.ids(devices)
        self.read_us[ids] = now_us
        for name, column in self.codes.items():
            values = [getattr(body, name) for body in bodies]
            codes = self.texts.add(Names.of(values))
            column[ids] = np.where([bool(value) for value in values], codes, -1)
