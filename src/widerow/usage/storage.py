"""How many bytes a tenant has stored, by level: now, and at times before.

Rule 1: what is accounted follows from stored counts (`rollup.counts`), and so from what is there. Something counts until its
retention has passed or it is erased; that an engine keeps it a while longer is not the tenant's matter.
Rule 2: counts are of bytes before compression. What is left of them on disk is measured by table where the engine tells, and
set by `usage.disk_percent` where it does not.
Rule 3: what was accepted and is in no count yet is added as it was recorded, until its hour is rolled.
Rule 4: `bytes` never waits for the store. A thread reads it again every few seconds, for the tenants that are asked about.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic

import numpy as np

from widerow.engine.port import Engine, TableSize
from widerow.model.arrays import Flags, Ints
from widerow.model.errors import WiderowError
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, Clock, TimeSpan, bucket_start
from widerow.ops.recurring import Recurring
from widerow.rollup.counts import TOTAL_NAMES, Counts
from widerow.rollup.store import kept
from widerow.schema.rollups import DAYS, HOURS, MINUTES, Level, rollups
from widerow.schema.tables import telemetry
from widerow.telemetry.store import kept_us
from widerow.usage.record import Recorder
from widerow.usage.recorded import Recorded

log = logging.getLogger(__name__)

LEVEL_NAMES = ("raw", "minute", "hour", "day")
_TYPICAL = {"raw": 0.27, "minute": 0.45, "hour": 0.41, "day": 0.42}
"""What is left of bytes on disk, as long as there are no files to measure: of a fleet of machines, in RocksDB."""
_LEAST_BYTES = 64 << 10
"""Files of less than this say nothing about others."""
_RECENT_US = 2 * DAY
_UNROLLED_US = 3 * HOUR
_MEASURE_S = 60.0
_FORGET_US = 10 * MINUTE
"""After so long without being asked about, a tenant's figures are no longer followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    refresh_s: float = 5.0
    disk_ratio: float = 1.0
    """Where the engine does not tell: how much of what is counted is on disk."""


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """What all shards of a tenant have stored of hours, or of days: begins in order, and a row of `TOTAL_NAMES` for each."""

    start_us: Ints
    rows: Ints

    def of(self, name: str) -> Ints:
        return self.rows[:, TOTAL_NAMES.index(name)]


@dataclass(slots=True)
class _Followed:
    """What is known of a tenant by heart."""

    tenant: Tenant
    asked_us: int
    levels: dict[str, int] | None = None
    per_byte: float = 1.0
    """What a byte that is accepted counts for."""
    written: int = 0
    """What this process had written when it was last read."""


@dataclass(slots=True)
class _Read:
    hours: Windows
    days: Windows
    whole_s: float
    """When all of it was read, ..."""
    took_s: float
    """... and how long that took."""


@dataclass(slots=True)
class _Measured:
    at_s: float = -1e9
    sizes: Mapping[str, TableSize] = field(default_factory=dict)


class StorageUse:
    """Safe to share between threads."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        counts: Counts,
        recorder: Recorder,
        recorded: Recorded,
        settings: StorageSettings | None = None,
    ) -> None:
        self._engine, self._clock, self._counts = engine, clock, counts
        self._recorder, self._recorded, self._settings = recorder, recorded, settings or StorageSettings()
        self._followed: dict[str, _Followed] = {}
        self._read: dict[str, _Read] = {}
        self._forgotten = 0
        """How often something that was read was to be forgotten, of any tenant."""
        self._measured = _Measured()
        self._lock = threading.Lock()
        self._following = Recurring(
            "storage-use",
            self.refresh,
            self._settings.refresh_s,
            failing="the stored bytes and series of tenants are not up to date",
        )

    # -- asking

    def bytes(self, tenant: Tenant) -> int:
        """Accounted now, as was known a few seconds ago, with what this process accepted since. 0 until it is known."""
        followed = self._followed.get(tenant.name)
        if followed is None:
            followed = self._followed.setdefault(tenant.name, _Followed(tenant, self._clock.now_us()))
            self._following.wake()
        followed.tenant, followed.asked_us = tenant, self._clock.now_us()
        if followed.levels is None:
            return 0
        since = self._recorder.written(tenant.name) - followed.written
        return sum(followed.levels.values()) + int(since * followed.per_byte)

    def levels(self, tenant: Tenant) -> dict[str, int]:
        """Accounted now, by level. Reads the store."""
        read = self._again(tenant)
        now = self._at(tenant, read, self._clock.now_us())
        now["raw"] += self._unrolled(tenant, read)
        ratios = self.ratios(tenant)
        return {level: round(now[level] * ratios[level]) for level in LEVEL_NAMES}

    def at(self, tenant: Tenant, times_us: Ints) -> list[dict[str, int]]:
        """Accounted at times before now, of what is still there or has expired since. What was erased never was."""
        read, ratios = self._again(tenant), self.ratios(tenant)
        found = (self._at(tenant, read, time_us) for time_us in times_us.tolist())
        return [{level: round(one[level] * ratios[level]) for level in LEVEL_NAMES} for one in found]

    def hours(self, tenant: Tenant) -> Windows:
        """What is stored of each hour, before compression."""
        return self._again(tenant).hours

    def ratios(self, tenant: Tenant) -> dict[str, float]:
        """By level: how much of what is counted is on disk, in the tables that the tenant's data is in."""
        sizes = self._sizes()
        if not sizes:
            return dict.fromkeys(LEVEL_NAMES, self._settings.disk_ratio)
        raw = {telemetry(keep_us).name for keep_us in (tenant.retention.raw_us, *(e.raw_us for e in tenant.raw_epochs))}
        tables = {"raw": raw}
        for level in (MINUTES, HOURS, DAYS):
            tables[level.name] = {rollups(level, keep_us).name for keep_us, _ in kept(tenant, level)}
        found = {}
        for name, named in tables.items():
            known = [sizes[table] for table in named if table in sizes]
            plain = sum(size.plain_bytes for size in known)
            found[name] = sum(size.file_bytes for size in known) / plain if plain >= _LEAST_BYTES else _TYPICAL[name]
        return found

    def _sizes(self) -> Mapping[str, TableSize]:
        now_s = monotonic()
        with self._lock:
            if now_s - self._measured.at_s < _MEASURE_S:
                return self._measured.sizes
        sizes = self._engine.sizes()
        with self._lock:
            self._measured = _Measured(now_s, sizes)
        return sizes

    def _at(self, tenant: Tenant, read: _Read, time_us: int) -> dict[str, int]:
        """Before compression, of windows that had begun by then and were within their retention."""
        hours, days = read.hours, read.days
        raw_us = kept_us(tenant, hours.start_us)
        shown = _within(hours.start_us, raw_us, HOUR, time_us)
        return {
            "raw": int(hours.of("raw_bytes")[shown].sum()),
            "minute": int(hours.of("minute_bytes")[_kept(tenant, MINUTES, hours.start_us, HOUR, time_us)].sum()),
            "hour": int(hours.of("record_bytes")[_kept(tenant, HOURS, hours.start_us, HOUR, time_us)].sum()),
            "day": int(days.of("record_bytes")[_kept(tenant, DAYS, days.start_us, DAY, time_us)].sum()),
        }

    def _unrolled(self, tenant: Tenant, read: _Read) -> int:
        """Of live reports that were accepted within hours that are in no count yet, by any process."""
        now_us = self._clock.now_us()
        span = TimeSpan(max(0, bucket_start(now_us, HOUR) - _UNROLLED_US), now_us + HOUR)
        found = self._recorder.written_by_hour(tenant.name)
        for hour_us, numbers in self._recorded.hours(tenant.name, span, without=self._recorder.process).items():
            live = numbers.get("written_bytes", 0.0) - numbers.get("backlog_bytes", 0.0)
            found[hour_us] = found.get(hour_us, 0.0) + live
        counted = set(read.hours.start_us[-8:].tolist())
        return int(sum(live for hour_us, live in found.items() if hour_us not in counted and hour_us >= span.start_us))

    # -- reading

    def forget(self, tenant: str) -> None:
        """Something was erased: read all of it again when it is asked for next."""
        with self._lock:
            self._read.pop(tenant, None)
            self._forgotten += 1

    def _again(self, tenant: Tenant) -> _Read:
        """What is stored now. Most of it is long ago and seldom changes: that is read again at a hundredth of the time."""
        started_s, now_us = monotonic(), self._clock.now_us()
        with self._lock:
            had, forgotten = self._read.get(tenant.name), self._forgotten
        if had is not None and started_s - had.whole_s < max(_MEASURE_S, 100 * had.took_s):
            since_us = bucket_start(now_us - _RECENT_US, DAY)
            recent = TimeSpan(max(0, since_us), now_us + DAY)
            hours = _joined(had.hours, self._windows(tenant, HOURS, recent), since_us)
            days = _joined(had.days, self._windows(tenant, DAYS, recent), since_us)
            read = _Read(hours, days, had.whole_s, had.took_s)
        else:
            ever = TimeSpan(0, now_us + DAY)
            hours, days = self._windows(tenant, HOURS, ever), self._windows(tenant, DAYS, ever)
            read = _Read(hours, days, started_s, monotonic() - started_s)
        with self._lock:
            if self._forgotten == forgotten:  # otherwise it may be of before something was erased
                self._read[tenant.name] = read
        return read

    def _windows(self, tenant: Tenant, level: Level, span: TimeSpan) -> Windows:
        parts = list(self._counts.sums(tenant, level, span))
        if not parts:
            return Windows(np.zeros(0, np.int64), np.zeros((0, len(TOTAL_NAMES)), np.int64))
        starts, place = np.unique(np.concatenate([start_us for start_us, _ in parts]), return_inverse=True)
        rows = np.zeros((len(starts), len(TOTAL_NAMES)), np.int64)
        np.add.at(rows, place, np.concatenate([table for _, table in parts]))
        return Windows(starts, rows)

    # -- the thread

    def start(self) -> None:
        self._following.start()

    def stop(self) -> None:
        self._following.stop()

    def refresh(self) -> None:
        """Read again what is followed, and forget what nobody asks about."""
        with self._lock:
            for name in [n for n, read in self._read.items() if monotonic() - read.whole_s > _FORGET_US / SECOND]:
                if name not in self._followed:
                    del self._read[name]
        for name, followed in list(self._followed.items()):
            if followed.asked_us < self._clock.now_us() - _FORGET_US:
                self._followed.pop(name, None)
                self.forget(name)
                continue
            try:
                written = self._recorder.written(name)
                levels, ratio = self.levels(followed.tenant), self.ratios(followed.tenant)["raw"]
            except WiderowError as error:  # what was known goes on to hold
                log.warning("the stored bytes of %s could not be counted: %s", name, error)
            except Exception:
                log.exception("the stored bytes of %s could not be counted", name)
            else:
                followed.written, followed.per_byte, followed.levels = written, ratio, levels


def _joined(old: Windows, new: Windows, since_us: int) -> Windows:
    before = old.start_us < since_us
    return Windows(np.concatenate([old.start_us[before], new.start_us]), np.concatenate([old.rows[before], new.rows]))


def _within(start_us: Ints, keep_us: Ints | int, width_us: int, time_us: int) -> Flags:
    """Windows that had begun, and whose end was within the retention."""
    keep = np.broadcast_to(np.asarray(keep_us, np.int64), start_us.shape)
    shown: Flags = (start_us < time_us) & ((keep == 0) | (start_us + width_us > time_us - keep))
    return shown


def _kept(tenant: Tenant, level: Level, start_us: Ints, width_us: int, time_us: int) -> Flags:
    shown = np.zeros(len(start_us), np.bool_)
    for keep_us, held in kept(tenant, level):
        mine = (start_us >= held.start_us) & (start_us < held.stop_us)
        shown |= mine & _within(start_us, keep_us, width_us, time_us)
    return shown
