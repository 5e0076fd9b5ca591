"""Which series a tenant has: the metrics of each device, counted where `limits.series` says how many there may be.

Rule 1: a report passes with all its new series, or not at all. What it brings is written with it, so that it is known after
a restart; a report that was refused leaves nothing.
Rule 2: of a tenant that gets the limit while it has data, what is there is looked up first (`learn`). Until that is done all
pass, and what they bring is noted.
Rule 3: a series counts until its device, or the metric of its device or of all, is erased.
Rule 4: in memory a series is a hash of 8 bytes. Telling two apart by it fails once for some millions of millions.
Rule 5: what is being written counts, and nobody relies on it: whoever else brings it until then writes it as well.
Rule 6: the store is read without a lock, so nobody waits for what another tenant has. What other processes added is read
aside (`read_again`), while all go on with what was known before.
Tenants without the limit cost nothing, and leave nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from widerow.engine.port import ALL, Engine, Span
from widerow.engine.rows import NEVER, Column, Key, Rows, rows_of
from widerow.model.arrays import Bytes, Codes, Flags, Hashes, Ints, lengths
from widerow.model.batch import Batch, CellKind, Cells
from widerow.model.hashing import SEED, hash_names, mix
from widerow.model.kernel import inlined, kernel
from widerow.model.names import Coded
from widerow.model.tenant import LimitMode, Tenant
from widerow.model.times import Clock
from widerow.schema.shards import SHARDS, shard_of, shards_of
from widerow.schema.table import Table
from widerow.schema.usage import SERIES

MOST_SERIES = 1 << 24
"""That are known of a tenant whose data is still looked up. Further ones are noted when they come again."""
_FIRST_SLOTS = 1 << 12
_TAG = int(CellKind.TAG)
_MARK = "known"
"""A cell in the row of the device without a name, which none has: what the tenant had is looked up."""
_NO_LIMIT = -1


@dataclass(slots=True, eq=False)
class _Known:
    """Hashes of a tenant's series, in a table with gaps."""

    slots: Hashes = field(default_factory=lambda: np.zeros(_FIRST_SLOTS, np.uint64))
    used: int = 0
    learned: bool = False
    due_us: int = 0
    """When it is to be read again, where there are other processes."""
    is_due: bool = False

    def unknown(self, device: Coded, cells: Cells) -> Flags:
        """Which cells are of none of them."""
        unknown = np.zeros(len(cells), np.bool_)
        _unknown(*_columns(device, cells), self.slots, unknown)
        return unknown

    def take_in(self, device: Coded, cells: Cells, most: int) -> tuple[Flags, Flags]:
        """Add the series of rows as long as they fit: which rows did not, and which cells are new."""
        over, fresh = np.zeros(len(device), np.bool_), np.zeros(len(cells), np.bool_)
        needed = self.used + int(self.unknown(device, cells).sum())
        if needed == self.used:
            return over, fresh
        while 2 * needed > len(self.slots):
            slots = np.zeros(2 * len(self.slots), np.uint64)
            _move(self.slots, slots)
            self.slots = slots
        self.used = int(_take_in(*_columns(device, cells), self.slots, self.used, most, over, fresh))
        return over, fresh

    def take_rows(self, rows: Rows) -> None:
        """Add all series of rows as they are stored."""
        self.take_in(_device(rows), rows.cells, _NO_LIMIT)


@dataclass(slots=True, eq=False)
class _Reading:
    """Of what the store has of a tenant, and what it may not have had when it was read."""

    tenant: str
    meanwhile: list[Rows] = field(default_factory=list)
    is_outdated: bool = False


@dataclass(slots=True, eq=False)
class Fit:
    """Which reports bring more series than there may be, and what must be written with the others."""

    tenant: str
    over: Flags
    changes: Sequence[tuple[Table, Rows]]
    is_outdated: bool = False
    """Something was erased, or could not be written, meanwhile: whether these are stored in the end only the store knows."""


class Series:
    """Safe to share between threads."""

    def __init__(self, engine: Engine, clock: Clock, *, reload_us: int | None = None) -> None:
        """`reload_us`: after how long what other processes added is to be read again; None: there are none."""
        self._engine, self._clock, self._reload_us = engine, clock, reload_us
        self._known: dict[str, _Known] = {}
        self._open: dict[str, list[Fit]] = {}
        self._readings: list[_Reading] = []
        self._lock = threading.Lock()
        self.wake: Callable[[], None] = lambda: None
        """Called when there is something to `learn` or to `read_again`."""

    def admit(self, tenant: Tenant, batch: Batch) -> Fit | None:
        """None: the tenant has no such limit. Raises `Unavailable`. Settle it, whatever becomes of the write."""
        most, mode = tenant.limits.series, tenant.mode("series")
        if not is_counted(tenant):
            if tenant.name in self._known:
                self.forget(tenant.name)
            return None
        with self._of(tenant.name) as known:
            return self._enter(
                tenant.name,
                known,
                batch.device,
                batch.cells,
                most if known.learned else _NO_LIMIT,
                in_shadow=mode is LimitMode.SHADOW,
            )

    def settle(self, fit: Fit, *, written: bool) -> None:
        """What must be written is durable, or may not be: then it is looked up what there is."""
        if not fit.changes:
            return
        with self._lock:
            fits = self._open[fit.tenant]
            fits.remove(fit)
            if not fits:
                del self._open[fit.tenant]
            for reading in self._readings:
                if reading.tenant == fit.tenant:
                    reading.meanwhile += [rows for _, rows in fit.changes]
            if fit.is_outdated or not written:
                self._drop(fit.tenant)

    def count(self, tenant: Tenant) -> int | None:
        """How many there are; None: they are not counted."""
        if not is_counted(tenant):
            return None
        with self._of(tenant.name) as known:
            return known.used

    def read_again(self) -> None:
        """What other processes added, of tenants for which that is due. Raises `Unavailable`."""
        with self._lock:
            due = [name for name, known in self._known.items() if known.is_due]
        for tenant in due:
            self._read(tenant)

    @contextmanager
    def _of(self, tenant: str) -> Iterator[_Known]:
        """What is known, inside the lock; read before that, if nothing is."""
        while True:
            with self._lock:
                known = self._known.get(tenant)
                if known is not None:
                    self._ask_if_due(known)
                    yield known
                    return
            self._read(tenant)

    def _ask_if_due(self, known: _Known) -> None:
        """Once in a while: should it fail, it is asked for again."""
        now_us = self._clock.now_us()
        if self._reload_us is not None and known.due_us <= now_us:
            known.is_due, known.due_us = True, now_us + self._reload_us
            self.wake()

    def _read(self, tenant: str) -> None:
        """From the store. What was outdated meanwhile is of no use: whoever needs it reads it once more."""
        reading, known = _Reading(tenant), _Known(due_us=self._clock.now_us() + (self._reload_us or 0))
        with self._lock:
            self._readings.append(reading)
        is_whole = False
        try:
            for rows in self._engine.scan(SERIES, [(tenant, shard) for shard in range(SHARDS)]):
                device = _device(rows)
                real = np.array([bool(name) for name in device.names.to_list()], np.bool_)[device.codes]
                known.learned = known.learned or not real.all()
                known.take_rows(rows if real.all() else rows.take(real))
            is_whole = True
        finally:
            with self._lock:
                self._readings.remove(reading)
                if is_whole and not reading.is_outdated:
                    for rows in (*reading.meanwhile, *self._being_written(tenant)):
                        known.take_rows(rows)
                    self._known[tenant] = known
        if not known.learned:
            self.wake()

    def _enter(self, tenant: str, known: _Known, device: Coded, cells: Cells, most: int, *, in_shadow: bool = False) -> Fit:
        """Inside the lock."""
        over, fresh = known.take_in(device, cells, most)
        if in_shadow and over.any():  # noted all the same: they are accepted
            fresh |= known.take_in(device, cells, _NO_LIMIT)[1]
        if tenant in self._open:
            unsure = _Known()
            for rows in self._being_written(tenant):
                unsure.take_rows(rows)
            passing = ~over | in_shadow
            fresh |= ~unsure.unknown(device, cells) & (cells.kind != _TAG) & passing[cells.rows()]
        fit = Fit(tenant, over, [self._rows(tenant, device, cells, fresh)] if fresh.any() else [])
        if fit.changes:
            self._open.setdefault(tenant, []).append(fit)
        return fit

    def _being_written(self, tenant: str) -> list[Rows]:
        return [rows for fit in self._open.get(tenant, ()) for _, rows in fit.changes]

    def _rows(self, tenant: str, device: Coded, cells: Cells, fresh: Flags) -> tuple[Table, Rows]:
        """The new series as rows of their devices."""
        some = cells.keep(fresh)
        which = np.flatnonzero(lengths(some.offsets))
        named, some = device.take(which), some.take(which)
        now_us, n = self._clock.now_us(), len(some)
        noted = Cells.numbers(some.offsets, some.names, some.name, np.full(n, float(now_us)))
        keys: dict[str, Column] = {
            "tenant_id": Coded.constant(tenant, len(which)),
            "shard": shards_of(named.names)[named.codes],
            "device_id": named,
        }
        return SERIES, Rows(keys, np.full(len(which), self._clock.version_us()), np.full(len(which), NEVER), noted)

    # -- what was there before

    def unlearned(self) -> list[str]:
        """Tenants whose limit does not hold yet: what they have is to be looked up."""
        with self._lock:
            return [name for name, known in self._known.items() if not known.learned]

    def learn(self, tenant: str, chunks: Iterable[Rows]) -> None:
        """What a tenant has: rows with the names of metrics as cells. From here on its limit holds."""
        for rows in chunks:
            with self._of(tenant) as known:
                fit = self._enter(tenant, known, _device(rows), rows.cells, MOST_SERIES)
            if fit.changes:
                self._write(fit)
        noted = {_MARK: float(self._clock.now_us())}
        mark = rows_of(SERIES, [((tenant, 0, ""), noted)], version_us=self._clock.version_us())
        self._engine.write([(SERIES, mark)])
        with self._of(tenant) as known:
            known.learned = True
            self._outdate_readings(tenant)

    def _write(self, fit: Fit) -> None:
        written = False
        try:
            self._engine.write(fit.changes)
            written = True
        finally:
            self.settle(fit, written=written)

    def begin_anew(self, tenant: str) -> None:
        """A limit is to hold that did not before: nothing was noted meanwhile, so what there is must be looked up again."""
        version_us = self._clock.version_us()
        self._engine.delete(SERIES, [(tenant, 0)], Span("", "\0"), version_us=version_us, columns=[_MARK])
        self.forget(tenant)

    # -- erasing

    def forget(self, tenant: str) -> None:
        """What is known may not be so: it is read again when it is needed."""
        with self._lock:
            self._drop(tenant)

    def forget_all(self) -> None:
        with self._lock:
            for tenant in {*self._known, *self._open, *(reading.tenant for reading in self._readings)}:
                self._drop(tenant)

    def _drop(self, tenant: str) -> None:
        """Inside the lock."""
        self._known.pop(tenant, None)
        self._outdate_readings(tenant)
        for fit in self._open.get(tenant, ()):
            fit.is_outdated = True

    def _outdate_readings(self, tenant: str) -> None:
        """Inside the lock."""
        for reading in self._readings:
            if reading.tenant == tenant:
                reading.is_outdated = True

    def erase(self, tenant: str, *, device: str = "", metric: str = "", version_us: int) -> None:
        """What a device, a metric or all of the tenant had, up to that version. May be repeated."""
        columns = [metric] if metric else None
        if device:
            span = Span(device, device + "\0")
            self._engine.delete(SERIES, [(tenant, shard_of(device))], span, version_us=version_us, columns=columns)
        else:
            partitions: list[Key] = [(tenant, shard) for shard in range(SHARDS)]
            span = Span("\0") if metric else ALL  # a metric may have the mark's name
            self._engine.delete(SERIES, partitions, span, version_us=version_us, columns=columns)
        self.forget(tenant)


def series_in(chunks: Iterable[Rows]) -> int:
    """How many series there are in rows with the names of metrics as cells."""
    known = _Known()
    for rows in chunks:
        known.take_rows(rows)
    return known.used


def is_counted(tenant: Tenant) -> bool:
    """Whether its series are noted and counted."""
    return bool(tenant.limits.series) and tenant.mode("series") is not LimitMode.OFF


def _device(rows: Rows) -> Coded:
    device = rows.keys["device_id"]
    assert isinstance(device, Coded)
    return device


def _columns(device: Coded, cells: Cells) -> tuple[Hashes, Codes, Ints, Bytes, Codes, Hashes]:
    return hash_names(device.names), device.codes, cells.offsets, cells.kind, cells.name, hash_names(cells.names)


@inlined
def _place(h: Any, slots: Any) -> Any:
    """Where a hash is, or should be."""
    mask = np.uint64(len(slots) - 1)
    p = np.int64(h & mask)
    while slots[p] != np.uint64(0) and slots[p] != h:
        p = (p + 1) & np.int64(mask)
    return p


@inlined
def _pair(device: Any, metric: Any) -> Any:
    h = mix(mix(SEED, device), metric)  # stirred twice: which of the two is the device makes a difference
    return h if h != np.uint64(0) else np.uint64(1)


@kernel
def _unknown(
    device_hash: Hashes,
    device: Codes,
    offsets: Ints,
    kind: Bytes,
    name: Codes,
    name_hash: Hashes,
    slots: Hashes,
    unknown: Flags,
) -> None:
    for i in range(len(device)):
        h = device_hash[device[i]]
        for c in range(offsets[i], offsets[i + 1]):
            if kind[c] != _TAG and slots[_place(_pair(h, name_hash[name[c]]), slots)] == np.uint64(0):
                unknown[c] = True


@kernel
def _take_in(
    device_hash: Hashes,
    device: Codes,
    offsets: Ints,
    kind: Bytes,
    name: Codes,
    name_hash: Hashes,
    slots: Hashes,
    used: int,
    most: int,
    over: Flags,
    fresh: Flags,
) -> int:
    """How many there are then. There is room for all of them, `most` aside."""
    for i in range(len(device)):
        h = device_hash[device[i]]
        new = 0
        for c in range(offsets[i], offsets[i + 1]):
            if kind[c] != _TAG and slots[_place(_pair(h, name_hash[name[c]]), slots)] == np.uint64(0):
                new += 1
        if new == 0:
            continue
        if most >= 0 and used + new > most:
            over[i] = True
            continue
        for c in range(offsets[i], offsets[i + 1]):
            if kind[c] != _TAG:
                pair = _pair(h, name_hash[name[c]])
                p = _place(pair, slots)
                if slots[p] == np.uint64(0):
                    slots[p] = pair
                    fresh[c] = True
                    used += 1
    return used


@kernel
def _move(old: Hashes, new: Hashes) -> None:
    for h in old:
        if h != np.uint64(0):
            new[_place(h, new)] = h
