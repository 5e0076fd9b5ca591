"""Which devices report: when each did last, and how fast.

Rule 1: times are event times, and none is later than the moment it is heard of: a backlog makes no device online, and a
clock that is ahead keeps none online. A rate is counted over `WINDOW_US` of event time, or from one report to the next.
Rule 2: the rate of a silent device falls: it is one report in the time that it has been silent, at most.
Rule 3: of what was reported before the process began, the store gives the newest bucket (`telemetry.presence_loading`).
Hearing takes one pass of a kernel over each batch, and memory 28 bytes a device beside its name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from widerow.model.arrays import Codes, Flags, Floats, Ints
from widerow.model.batch import Batch
from widerow.model.intern import NameTable
from widerow.model.kernel import kernel
from widerow.model.names import NO_NAMES, Names
from widerow.model.times import SECOND, Clock

WINDOW_US = 20 * SECOND
_CAPACITY = 1 << 24
"""Devices of a tenant; what is heard of more is not kept."""
_FEWEST_DEAD = 1024
_NEVER = -1
_MISSED = 3.0
"""Reports that a device must miss before it counts as silent."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Of one device."""

    last_us: int
    reports_per_s: float
    online: bool


class Heard:
    """The devices of a tenant, as arrays by id. An id stays what it is, as long as the arrays live."""

    def __init__(self) -> None:
        self.table = NameTable(_CAPACITY)
        self.last_us = np.zeros(0, np.int64)
        self.since_us = np.zeros(0, np.int64)
        self.count = np.zeros(0, np.int32)
        """Reports after `since_us`."""
        self.per_s = np.zeros(0, np.float64)
        """In the last window that is over."""
        self.dead = 0
        """About how many were deleted."""

    def ids(self, names: Names) -> Codes:
        """Of names that may be new."""
        ids = self.table.add(names)
        more = len(self.table) - len(self.last_us)
        if more > 0:
            more = max(more, len(self.last_us), 1024)
            self.since_us = np.concatenate([self.since_us, np.zeros(more, np.int64)])
            self.count = np.concatenate([self.count, np.zeros(more, np.int32)])
            self.per_s = np.concatenate([self.per_s, np.zeros(more, np.float64)])
            # Last: readers go by its length.
            self.last_us = np.concatenate([self.last_us, np.full(more, _NEVER, np.int64)])
        return ids

    def there(self) -> Flags:
        return self.last_us >= 0

    def rates(self, ids: Ints | slice, now_us: int) -> Floats:
        """Reports a second, of devices with these ids."""
        last_us, since_us, count = self.last_us[ids], self.since_us[ids], self.count[ids]
        running = count * (SECOND / WINDOW_US)
        first = count * SECOND / np.maximum(last_us - since_us, SECOND)
        per_s = np.maximum(np.where(self.per_s[ids] > 0, self.per_s[ids], first), running)
        silent_us = now_us - last_us
        slowed: Floats = np.where(silent_us > WINDOW_US, np.minimum(per_s, SECOND / np.maximum(silent_us, 1)), per_s)
        return slowed

    def compacted(self) -> Heard:
        alive = np.flatnonzero(self.there())
        new = Heard()
        to = new.ids(self.table.at(alive))
        for name in ("last_us", "since_us", "count", "per_s"):
            getattr(new, name)[to] = getattr(self, name)[alive]
        return new


class Presence:
    """Of all tenants. Safe to share between threads."""

    def __init__(self, clock: Clock, online_us: int) -> None:
        self.online_us = online_us
        """A device is online when it reported within this time."""
        self._clock, self._lock = clock, threading.Lock()
        self._heard: dict[str, Heard] = {}

    def heard(self, tenant: str, batch: Batch) -> None:
        """Reports that were written."""
        names, codes = batch.device.names, batch.device.codes
        used = np.zeros(len(names), np.bool_)
        if not _all_used(codes, used):  # the others are names of reports that were refused
            where = np.cumsum(used) - 1
            names, codes = names.take(np.flatnonzero(used)), where[codes].astype(np.int32)
        now_us = self._clock.now_us()
        with self._lock:
            of = self._heard.setdefault(tenant, Heard())
            ids = of.ids(names)
            _note(ids, codes, batch.time_us, now_us, WINDOW_US, of.last_us, of.since_us, of.count, of.per_s)

    def load(self, tenant: str, names: Names, last_us: Ints) -> None:
        """What the store knows of devices. Reports that were heard since then count, where they are later."""
        with self._lock:
            of = self._heard.setdefault(tenant, Heard())
            ids = of.ids(names)
            ids, last_us = ids[ids >= 0], last_us[ids >= 0]
            later = last_us > of.last_us[ids]
            of.last_us[ids[later]] = of.since_us[ids[later]] = last_us[later]
            of.count[ids[later]] = 0

    def forget(self, tenant: str, device: str) -> None:
        """The device was deleted."""
        self._forget(tenant, Names.of((device,)))

    def forget_others(self, tenant: str, registered: Callable[[Names], Flags]) -> None:
        """Keep the devices that are registered: another process may have deleted the others."""
        names, _ = self.last_seen(tenant)
        gone = np.flatnonzero(~registered(names))
        if len(gone):
            self._forget(tenant, names.take(gone))

    def _forget(self, tenant: str, names: Names) -> None:
        with self._lock:
            of = self._heard.get(tenant)
            if of is None:
                return
            ids = of.table.find(names).astype(np.int64)
            ids = ids[ids >= 0]
            of.dead += int(np.count_nonzero(of.last_us[ids] >= 0))
            of.last_us[ids], of.count[ids], of.per_s[ids] = _NEVER, 0, 0.0
            if of.dead > max(_FEWEST_DEAD, len(of.table) // 2):
                self._heard[tenant] = of.compacted()

    def forget_all(self, tenant: str) -> None:
        with self._lock:
            self._heard.pop(tenant, None)

    # -- what is known

    def tenants(self) -> list[str]:
        return list(self._heard)

    def arrays(self, tenant: str) -> Heard:
        """To be read only, and not kept: they go on changing."""
        return self._heard.get(tenant) or Heard()

    def last_seen(self, tenant: str) -> tuple[Names, Ints]:
        """The devices that ever reported, and when they did last."""
        of = self._heard.get(tenant)
        if of is None:
            return NO_NAMES, np.zeros(0, np.int64)
        last_us = of.last_us
        alive = np.flatnonzero(last_us >= 0)
        return of.table.at(alive), last_us[alive]

    def online(self, tenant: str, now_us: int) -> int:
        return int(np.count_nonzero(self.arrays(tenant).last_us > max(now_us - self.online_us, _NEVER)))

    def silent(self, tenant: str, now_us: int, within_us: int) -> tuple[int, str, int]:
        """How many devices went silent within that time; the one that did last, and when it reported last.

        Devices that report seldom are not silent before they miss three reports, and of those whose rate is not known yet
        nothing is said.
        """
        of = self.arrays(tenant)
        last_us = of.last_us
        stale = np.flatnonzero((last_us >= 0) & (last_us <= now_us - self.online_us))
        stale = stale[of.per_s[stale] > 0]
        silent_us = now_us - last_us[stale] - np.maximum(_MISSED * SECOND / of.per_s[stale], self.online_us)
        gone = stale[(silent_us >= 0) & (silent_us < within_us)]
        if not len(gone):
            return 0, "", 0
        i = gone[np.argmax(last_us[gone])]
        return len(gone), of.table.at(np.array([i]))[0], int(last_us[i])

    def of(self, tenant: str, devices: Sequence[str], now_us: int) -> list[Activity | None]:
        """None: the device never reported."""
        of = self.arrays(tenant)
        ids = of.table.find(Names.of(devices)).astype(np.int64)
        ids[ids >= len(of.last_us)] = -1
        known = ids >= 0
        last_us, per_s = np.full(len(ids), _NEVER, np.int64), np.zeros(len(ids))
        last_us[known], per_s[known] = of.last_us[ids[known]], of.rates(ids[known], now_us)
        return [
            None if last < 0 else Activity(last, rate, last > now_us - self.online_us)
            for last, rate in zip(last_us.tolist(), per_s.tolist(), strict=True)
        ]

    def held(self) -> dict[str, int]:
        """Bytes by tenant."""
        return {tenant: of.table.bytes + 28 * len(of.last_us) for tenant, of in list(self._heard.items())}


@kernel
def _all_used(codes: Codes, used: Flags) -> bool:
    """Marks names that have a report."""
    count = 0
    for i in range(len(codes)):
        if not used[codes[i]]:
            used[codes[i]] = True
            count += 1
    return count == len(used)


@kernel
def _note(
    ids: Codes,
    codes: Codes,
    time_us: Ints,
    now_us: int,
    window_us: int,
    last_us: Ints,
    since_us: Ints,
    count: Codes,
    per_s: Floats,
) -> None:
    for i in range(len(codes)):
        d = ids[codes[i]]
        if d < 0:
            continue
        at_us = min(time_us[i], now_us)
        if last_us[d] < 0:
            last_us[d] = since_us[d] = at_us
            count[d] = 0
            continue
        if at_us > last_us[d]:
            last_us[d] = at_us
        elif time_us[i] <= now_us:  # out of order, or the same again; a clock that is ahead counts all the same
            continue
        count[d] += 1
        passed_us = last_us[d] - since_us[d]
        if passed_us >= window_us:
            per_s[d] = count[d] * SECOND / passed_us
            since_us[d] = last_us[d]
            count[d] = 0
