"""Who sends how much: reports counted by device in each interval, in memory that does not grow with the number of devices.

A partition is a device's share of a stretch of event time. So none is written more often than its device reports, and
devices are what is counted; and one that catches up sends many reports about a long time, to partitions that it would have
filled anyway. Hence a device's rate is what it sent by the time it is about, which is the interval at least. But one that
goes on like that for long does not catch up, its clock jitters: from then on its rate is what it sent by the interval.
(A device that is spread has partitions cooler than it is; what is done about a mad one is done about all of them.)
`HeavyKeys` is the sketch of Misra and Gries, with the whole table purged at its median when it is full (Anderson and others,
"A High-Performance Algorithm for Identifying Frequent Items in Data Streams", 2017): adding costs one look-up.
Rule 1: of N reports counted, every key with more than N / k of them is in the table.
Rule 2: a key has at least the count it is given, and at most that and `error`; `error` is N / k at most, and 0 until 2 k
keys were counted.
Rule 3: a tenant that sends less in all than would make a device hot costs an addition.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from widerow.model.arrays import PAD, Bytes, Codes, Hashes, Ints
from widerow.model.batch import Batch
from widerow.model.check import MAX_NAME_BYTES
from widerow.model.hashing import hash_at, mix, same_at
from widerow.model.kernel import inlined, kernel
from widerow.model.names import Names
from widerow.model.times import HOUR, SECOND

_STRIDE = MAX_NAME_BYTES + PAD
_LIVE, _TOTAL, _ERROR = range(3)
_SLOT_MASK = 63
"""Stretches of event time that are told apart, as bits of a word; a longer time begins again at the first."""
EVER_US = -(1 << 62)
CATCH_UP_INTERVALS = 6
"""In a row, in which a device may catch up: a minute, usually. What is counted is an hour old at most (`backlog_us`), so
that is enough for whoever sends what it has at sixty times its rate or faster. One that is slower is limited, at worst, to
ten times what it declared, and catches up all the same; and one that only seems to catch up is found a minute late.
"""


@dataclass(frozen=True, slots=True)
class Heavy:
    """A key that was counted often: at least `count` times, and at most `error` more."""

    owner: int
    name: str
    count: int
    slots: int
    """How many stretches of event time they lie in, as far as can be told."""


class HeavyKeys:
    """Counts of (owner, name); an owner is a small number. One thread at a time."""

    def __init__(self, k: int, shift: int = 25) -> None:
        """`shift`: a stretch of event time is 2 to this power, in microseconds."""
        self._shift = shift
        self._slots = np.full(1 << (4 * k - 1).bit_length(), -1, np.int32)
        self._hashes = np.zeros(2 * k, np.uint64)
        self._owners = np.zeros(2 * k, np.int32)
        self._sizes = np.zeros(2 * k, np.int32)
        self._counts = np.zeros(2 * k, np.int64)
        self._bits = np.zeros(2 * k, np.uint64)
        self._texts = np.zeros(2 * k * _STRIDE, np.uint8)
        self._state = np.zeros(3, np.int64)

    @property
    def total(self) -> int:
        return int(self._state[_TOTAL])

    @property
    def error(self) -> int:
        return int(self._state[_ERROR])

    def add(self, owner: int, names: Names, codes: Codes, time_us: Ints, since_us: int = EVER_US) -> None:
        """Count rows by their name, those from before `since_us` left out. Names have 256 bytes at most."""
        _add(
            names.data,
            names.offsets,
            codes,
            time_us,
            since_us,
            self._shift,
            owner,
            self._slots,
            self._hashes,
            self._owners,
            self._sizes,
            self._counts,
            self._bits,
            self._texts,
            self._state,
        )

    def heaviest(self, least: float) -> list[Heavy]:
        """The keys that were counted more often than `least` times for sure, the heaviest first."""
        counts = self._counts[: self._state[_LIVE]]
        found = np.flatnonzero(counts > least)
        found = found[np.argsort(-counts[found], kind="stable")]
        return [
            Heavy(int(self._owners[e]), self._text(e), int(counts[e]), int(self._bits[e]).bit_count())
            for e in found.tolist()
        ]

    def clear(self) -> None:
        self._slots.fill(-1)
        self._state.fill(0)

    def _text(self, entry: int) -> str:
        start = entry * _STRIDE
        return self._texts[start : start + self._sizes[entry]].tobytes().decode()


@dataclass(frozen=True, slots=True)
class Interval:
    """What was counted between two turns."""

    seconds: float
    reports: int
    by_tenant: Mapping[str, int]
    heavy: Mapping[str, Mapping[str, float]]
    """Reports a second of the time they are about, by tenant and device, of those that sent many."""


@dataclass(slots=True)
class _Offered:
    """Of a tenant."""

    code: int
    count: int = 0
    watched: bool = False
    """It sent enough that one of its devices might be hot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatSettings:
    tracked: int = 4096
    least_per_s: float = 10.0
    """Devices that send less are of no interest."""
    interval_us: int = 10 * SECOND
    backlog_us: int = HOUR
    """Reports older than this are not counted: a device that was away may send what it has. 0: all are."""


@dataclass(slots=True)
class Heat:
    """The count of a process, all tenants together. Safe to share between threads."""

    settings: HeatSettings
    began_us: int
    _keys: HeavyKeys = field(init=False)
    _shift: int = field(init=False)
    _offered: dict[str, _Offered] = field(default_factory=dict)
    _catching_up: dict[tuple[str, str], int] = field(default_factory=dict)
    """For how many intervals in a row devices have sent much about a long time: those of the last one, at most 2 k."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        # An interval lies in two stretches at most, and what is sent at ten times its usual rate in three or more.
        self._shift = int(3 * self.settings.interval_us - 1).bit_length()
        self._keys = HeavyKeys(self.settings.tracked, self._shift)

    def count(self, tenant: str, batch: Batch, now_us: int) -> None:
        """Reports that were sent, whether they are kept or not."""
        settings = self.settings
        with self._lock:
            offered = self._of(tenant)
            offered.count += len(batch)
            if not offered.watched:
                if offered.count * SECOND < settings.least_per_s * settings.interval_us:
                    return
                offered.watched = True
            since_us = now_us - settings.backlog_us if settings.backlog_us else EVER_US
            self._keys.add(offered.code, batch.device.names, batch.device.codes, batch.time_us, since_us)

    def _of(self, tenant: str) -> _Offered:
        offered = self._offered.get(tenant)
        if offered is None:
            offered = self._offered[tenant] = _Offered(len(self._offered))
        return offered

    def turn(self, now_us: int) -> Interval:
        """What was counted since the last turn. Counting begins anew."""
        settings = self.settings
        with self._lock:
            seconds = max(now_us - self.began_us, 1) / SECOND
            tenants = list(self._offered)
            # Half of it: who sends less than that is calm, whatever would be too much for it.
            least = settings.least_per_s * seconds / 2
            found = self._keys.heaviest(least)
            counts = {name: offered.count for name, offered in self._offered.items()}
            came = sum(counts.values())
            enough = settings.least_per_s * seconds
            busy = [name for name, count in counts.items() if count]
            self._offered = {name: _Offered(code, 0, counts[name] >= enough) for code, name in enumerate(busy)}
            self._keys.clear()
            self.began_us = now_us
        heavy: dict[str, dict[str, float]] = {}
        before, self._catching_up = self._catching_up, {}
        for one in found:
            if one.count <= least:
                continue
            tenant, about_s = tenants[one.owner], (one.slots - 2) * (1 << self._shift) / SECOND
            if about_s > seconds:
                run = self._catching_up[tenant, one.name] = before.get((tenant, one.name), 0) + 1
                about_s = about_s if run <= CATCH_UP_INTERVALS else seconds
            heavy.setdefault(tenant, {})[one.name] = one.count / max(seconds, about_s)
        return Interval(seconds, came, counts, heavy)


@kernel
def _add(
    data: Bytes,
    starts: Ints,
    codes: Codes,
    time_us: Ints,
    since_us: int,
    shift: int,
    owner: int,
    slots: Codes,
    hashes: Hashes,
    owners: Codes,
    sizes: Codes,
    counts: Ints,
    bits: Hashes,
    texts: Bytes,
    state: Ints,
) -> None:
    weights, about = np.zeros(len(starts) - 1, np.int64), np.zeros(len(starts) - 1, np.uint64)
    for i in range(len(codes)):
        if time_us[i] >= since_us:
            weights[codes[i]] += 1
            about[codes[i]] |= np.uint64(1) << np.uint64((time_us[i] >> shift) & _SLOT_MASK)
    mask = len(slots) - 1
    base, ours = data.ctypes.data, texts.ctypes.data
    for n in range(len(weights)):
        if weights[n] == 0:
            continue
        state[_TOTAL] += weights[n]
        size = starts[n + 1] - starts[n]
        h = mix(hash_at(base + starts[n], size), np.uint64(owner))
        p = np.int64(h & np.uint64(mask))
        e = np.int64(slots[p])
        while e >= 0:
            same = hashes[e] == h and owners[e] == owner and sizes[e] == size
            if same and same_at(base + starts[n], ours + e * _STRIDE, size):
                break
            p = (p + 1) & mask
            e = np.int64(slots[p])
        if e >= 0:
            counts[e] += weights[n]
            bits[e] |= about[n]
            continue
        if state[_LIVE] == len(counts):
            _purge(slots, hashes, owners, sizes, counts, bits, texts, state)
            p = np.int64(h & np.uint64(mask))
            while slots[p] >= 0:
                p = (p + 1) & mask
        e = state[_LIVE]
        slots[p], hashes[e], owners[e], sizes[e], counts[e], bits[e] = e, h, owner, size, weights[n], about[n]
        for b in range(size):
            texts[e * _STRIDE + b] = data[starts[n] + b]
        state[_LIVE] = e + 1


@inlined
def _purge(
    slots: Codes, hashes: Hashes, owners: Codes, sizes: Codes, counts: Ints, bits: Hashes, texts: Bytes, state: Ints
) -> None:
    """Take the median from every count, and drop what has none left: at least half of the keys.

    As many keys have no less than the median, so each purge takes k times what it adds to the error: hence N / k.
    """
    live = state[_LIVE]
    cut = np.sort(counts[:live])[live // 2]
    kept = 0
    for e in range(live):
        if counts[e] > cut:
            counts[kept] = counts[e] - cut
            hashes[kept], owners[kept], sizes[kept], bits[kept] = hashes[e], owners[e], sizes[e], bits[e]
            if kept != e:
                texts[kept * _STRIDE : kept * _STRIDE + sizes[e]] = texts[e * _STRIDE : e * _STRIDE + sizes[e]]
            kept += 1
    state[_LIVE] = kept
    state[_ERROR] += cut
    slots[:] = -1
    mask = len(slots) - 1
    for e in range(kept):
        p = np.int64(hashes[e] & np.uint64(mask))
        while slots[p] >= 0:
            p = (p + 1) & mask
        slots[p] = e
