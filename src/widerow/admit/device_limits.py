"""How many reports single devices of a tenant may send. Of those that may send any number nothing is kept."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from widerow.admit.bucket import DeviceBuckets
from widerow.model.arrays import Codes, Flags
from widerow.model.batch import Batch
from widerow.model.intern import NameTable
from widerow.model.names import Names

_MOST_DEVICES = 1 << 20
_BURST_S = 10
_LEAST_BURST = 10
"""Reports that any device may send at once: what it kept while it was out of reach for a moment."""
_NOBODY = Names.of(("",))
"""No device has this name: all that nothing was said of have its id, 0."""


@dataclass(frozen=True, slots=True)
class Over:
    """Reports that are too many, and of the first of them what its sender needs to know."""

    reports: Flags
    count: int
    device: str
    allowed: float
    seen: int
    wait_s: float


@dataclass(slots=True)
class DeviceLimits:
    """Safe to share between threads; `set` by one at a time."""

    table: NameTable = field(default_factory=lambda: NameTable(_MOST_DEVICES))
    rates: dict[str, float] = field(default_factory=dict)
    """Reports a second, of the devices that have a limit."""
    _buckets: DeviceBuckets = field(default_factory=DeviceBuckets)

    def __post_init__(self) -> None:
        self.table.add(_NOBODY)

    def set(self, device: str, per_s: float, now_us: int, *, afresh: bool = False) -> None:
        """What a device may send from now on; 0: any number. `afresh`: it begins with a burst, if it may send more now."""
        code = self.id_of(device)
        if code < 0:
            return
        if afresh and per_s > self.rates.get(device, 0.0):
            self._buckets.set(code, 0.0, _LEAST_BURST, now_us)
        self._buckets.set(code, per_s, max(_LEAST_BURST, per_s * _BURST_S), now_us)
        if per_s:
            self.rates[device] = per_s
        else:
            self.rates.pop(device, None)

    def take(self, batch: Batch, now_us: int) -> Over | None:
        """What of a batch is too many; None: nothing."""
        if not self.rates or not len(batch):
            return None
        over, devices = np.zeros(len(batch), np.bool_), self.ids(batch)
        count, wait_s = self._buckets.take(devices, now_us, over)
        if not count:
            return None
        first = int(np.flatnonzero(over)[0])
        device, seen = batch.device[first], int((devices == devices[first]).sum())
        return Over(over, count, device, self.rates.get(device, 0.0), seen, wait_s)

    def give_back(self, batch: Batch | None) -> None:
        """Reports that were not too many did not pass after all, for another reason."""
        if batch is not None and self.rates and len(batch):
            self._buckets.give_back(self.ids(batch))

    def ids(self, batch: Batch) -> Codes:
        """The id of each report's device; 0 of those that nothing was said of."""
        ids: Codes = np.maximum(self.table.find(batch.device.names), 0)[batch.device.codes]
        return ids

    def id_of(self, device: str) -> int:
        """Its id from now on; -1: there are too many."""
        return int(self.table.add(Names.of((device,)))[0])
