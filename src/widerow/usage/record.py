"""What a process did for each tenant, hour by hour, and how that gets into the store.

Rule 1: a row is of one tenant, hour and process, and its values are whole: writing it again changes nothing, and a crash
loses what came since the last flush. A process that starts again has a name of its own, so it continues nobody's row.
Rule 2: recording is a few additions under a lock, once for a request or message however many reports it has.
Rule 3: what was offered is counted by the second in which it was looked at, live reports and backlog apart: that is what
proposed limits are tried on.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from widerow.codec.seconds import SECONDS, encode_seconds
from widerow.engine.port import Engine
from widerow.engine.rows import Rows, key_columns
from widerow.model.arrays import Ints
from widerow.model.batch import CellKind, Cells
from widerow.model.errors import WiderowError
from widerow.model.lane import Lane
from widerow.model.names import Coded, Names
from widerow.model.times import DAY, HOUR, MS, SECOND, Clock, bucket_start
from widerow.ops.recurring import Recurring
from widerow.schema.table import Table
from widerow.schema.usage import USAGE

log = logging.getLogger(__name__)

LIVE, BACKLOG = "live", "backlog"
"""The cells with the counts of seconds."""
REFUSED, LIMITED = "refused:", "limit:"
"""What the cells begin with that count refused reports: by code, and by the limit they were over."""

_MOST_CODES = 64
"""Codes and limits that are told apart within an hour. There are not so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSettings:
    flush_s: float = 10.0
    keep_us: int = 400 * DAY
    detail_us: int = 35 * DAY
    """How long the counts of seconds are kept."""


@dataclass(slots=True)
class _Hour:
    numbers: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    seconds: dict[str, Ints] = field(default_factory=dict)
    changed: bool = False
    offered: bool = False
    """Whether the seconds changed."""

    def add_seconds(self, cell: str, second: int, count: int) -> None:
        counts = self.seconds.get(cell)
        if counts is None:
            counts = self.seconds[cell] = np.zeros(SECONDS, np.int64)
        counts[second] += count
        self.offered = True


class Recorder:
    """Safe to share between threads. A thread flushes now and then, once started."""

    def __init__(self, engine: Engine, clock: Clock, process: str, settings: UsageSettings | None = None) -> None:
        self._engine, self._clock, self.process = engine, clock, process
        self._settings = settings or UsageSettings()
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._hours: dict[tuple[str, int], _Hour] = {}
        self._written: defaultdict[str, int] = defaultdict(int)
        self._last_us = 0
        self._flushes = Recurring(
            "usage", self.flush, self._settings.flush_s, failing="usage is not written, and will be with the next flush"
        )

    # -- recording

    def offered(
        self,
        tenant: str,
        lane: Lane,
        offered: int,
        accepted: int,
        values: int,
        received_bytes: int,
        refusals: Mapping[str, int],
        *,
        limits: Mapping[str, int] | None = None,
        written_bytes: int = 0,
        failed: int = 0,
        weighed: int | None = None,
        at_us: int = 0,
    ) -> None:
        """What became of reports that came together. `limits`: those that were over one, by its name; `weighed`: how many of
        them limits were asked about (all, unless it is said; 0, where `weigh` is told); `at_us`: when, if not now.
        """
        with self._lock:
            hour, second = self._now(tenant, at_us)
            numbers = hour.numbers
            numbers["offered"] += offered
            numbers["accepted"] += accepted
            numbers["values"] += values
            numbers["received_bytes"] += received_bytes
            numbers["written_bytes"] += written_bytes
            if failed:
                numbers["failed"] += failed
            if lane is Lane.LIVE:
                self._written[tenant] += written_bytes
            elif written_bytes:
                numbers["backlog_bytes"] += written_bytes
            for prefix, counted in ((REFUSED, refusals), (LIMITED, limits or {})):
                for name, count in counted.items():
                    if prefix + name in numbers or len(numbers) < _MOST_CODES:
                        numbers[prefix + name] += count
            count = offered if weighed is None else weighed
            if count:
                hour.add_seconds(LIVE if lane is Lane.LIVE else BACKLOG, second, count)

    def weigh(self, tenant: str, lane: Lane, count: int) -> None:
        """So many reports came as far as the tenant's limit."""
        with self._lock:
            hour, second = self._now(tenant, 0)
            hour.add_seconds(LIVE if lane is Lane.LIVE else BACKLOG, second, count)

    def refused_later(self, tenant: str, refusals: Mapping[str, int]) -> None:
        """Reports that another process took in were refused by this one."""
        if not refusals:
            return
        with self._lock:
            hour, _ = self._now(tenant, 0)
            for code, count in refusals.items():
                hour.numbers["accepted"] -= count
                hour.numbers[REFUSED + code] += count

    def asked(self, tenant: str, rows_read: int, answered_bytes: int, seconds: float) -> None:
        """A question was answered, or refused."""
        with self._lock:
            hour, _ = self._now(tenant, 0)
            numbers = hour.numbers
            numbers["questions"] += 1
            numbers["rows_read"] += rows_read
            numbers["answered_bytes"] += answered_bytes
            numbers["question_seconds"] += seconds

    def _now(self, tenant: str, at_us: int) -> tuple[_Hour, int]:
        """Inside the lock. What was begun long ago counts for an hour ago: older hours are written and gone."""
        now_us = self._clock.now_us()
        at_us = min(max(at_us, bucket_start(now_us, HOUR) - HOUR), now_us) if at_us else now_us
        hour = self._hours.setdefault((tenant, bucket_start(at_us, HOUR)), _Hour())
        hour.changed = True
        return hour, at_us % HOUR // SECOND

    def written(self, tenant: str) -> int:
        """Bytes of live reports that were accepted since this process started."""
        with self._lock:
            return self._written.get(tenant, 0)

    def forget(self, tenant: str) -> None:
        """It is deleted: what it did is not that of another one of its name."""
        with self._flushing, self._lock:
            for at in [at for at in self._hours if at[0] == tenant]:
                del self._hours[at]
            self._written.pop(tenant, None)

    def written_by_hour(self, tenant: str) -> dict[int, float]:
        """The same of the last hours, by the hour in which they came."""
        with self._lock:
            return {
                hour_us: hour.numbers.get("written_bytes", 0.0) - hour.numbers.get("backlog_bytes", 0.0)
                for (name, hour_us), hour in self._hours.items()
                if name == tenant
            }

    # -- flushing

    def flush(self) -> None:
        """Make durable what was recorded. Raises `Unavailable`: it is tried again with the next flush."""
        with self._flushing:
            now_us = self._clock.now_us()
            with self._lock:
                changed = [
                    (tenant, hour_us, dict(hour.numbers), {k: c.copy() for k, c in hour.seconds.items() if hour.offered})
                    for (tenant, hour_us), hour in self._hours.items()
                    if hour.changed
                ]
                for hour in self._hours.values():
                    hour.changed = hour.offered = False
                self._last_us = version_us = max(self._last_us + MS, self._clock.version_us())
                self._clock.cover(version_us)
            if not changed:
                self._let_go(now_us)
                return
            try:
                self._engine.write(self._changes(changed, version_us))
            except BaseException:
                with self._lock:
                    for tenant, hour_us, _, seconds in changed:
                        hour = self._hours[tenant, hour_us]
                        hour.changed, hour.offered = True, hour.offered or bool(seconds)
                raise
            self._let_go(now_us)

    def _changes(
        self, changed: Sequence[tuple[str, int, dict[str, float], dict[str, Ints]]], version_us: int
    ) -> list[tuple[Table, Rows]]:
        detailed = [(tenant, hour_us, seconds) for tenant, hour_us, _, seconds in changed if seconds]
        out = [(USAGE, self._numbers([(t, h, numbers) for t, h, numbers, _ in changed], version_us))]
        if detailed:
            out.append((USAGE, self._seconds(detailed, version_us)))
        return out

    def _numbers(self, hours: Sequence[tuple[str, int, dict[str, float]]], version_us: int) -> Rows:
        names = Coded.of([name for _, _, numbers in hours for name in numbers])
        offsets = np.zeros(len(hours) + 1, np.int64)
        np.cumsum([len(numbers) for _, _, numbers in hours], out=offsets[1:])
        values = np.array([value for _, _, numbers in hours for value in numbers.values()], np.float64)
        cells = Cells.numbers(offsets, names.names, names.codes, values)
        return self._rows([(t, h) for t, h, _ in hours], cells, version_us, self._settings.keep_us)

    def _seconds(self, hours: Sequence[tuple[str, int, dict[str, Ints]]], version_us: int) -> Rows:
        names = Coded.of([name for _, _, seconds in hours for name in seconds])
        records = [encode_seconds(counts) for _, _, seconds in hours for counts in seconds.values()]
        offsets = np.zeros(len(hours) + 1, np.int64)
        np.cumsum([len(seconds) for _, _, seconds in hours], out=offsets[1:])
        n = len(records)
        cells = Cells(
            offsets,
            names.names,
            names.codes,
            np.full(n, CellKind.RECORD, np.uint8),
            np.full(n, np.nan),
            Names.of_bytes(records),
            np.arange(n, dtype=np.int32),
        )
        keep_us = min(self._settings.detail_us, self._settings.keep_us)
        return self._rows([(t, h) for t, h, _ in hours], cells, version_us, keep_us)

    def _rows(self, hours: Sequence[tuple[str, int]], cells: Cells, version_us: int, keep_us: int) -> Rows:
        keys = [(tenant, bucket_start(hour_us, DAY), hour_us, self.process) for tenant, hour_us in hours]
        expire_us = np.array([hour_us + HOUR + keep_us for _, hour_us in hours], np.int64)
        return Rows(key_columns(USAGE.key, keys), np.full(len(hours), version_us), expire_us, cells)

    def _let_go(self, now_us: int) -> None:
        """Hours that nothing can be added to any more, and that are written."""
        oldest_us = bucket_start(now_us, HOUR) - HOUR
        with self._lock:
            for at in [at for at, hour in self._hours.items() if at[1] < oldest_us and not hour.changed]:
                del self._hours[at]

    # -- the thread

    def start(self) -> None:
        self._flushes.start()

    def close(self) -> None:
        """Flush for the last time, and stop."""
        self._flushes.stop()
        try:
            self.flush()
        except WiderowError as error:
            log.warning("the last seconds of usage are lost: %s", error)
        except Exception:
            log.exception("the last seconds of usage are lost")
