"""Whose turn it is at the committer: live reports first, and backlog along with them, for a share of its time.

A commit costs a few milliseconds however small it is (a sync, or a trip to the store), and a live report that comes
meanwhile waits for it. So while live reports come, backlog has no commits of its own.
Rule 1: a commit of live reports takes a piece of backlog along (`PIECE_BYTES`, about a millisecond more), as long as backlog
has had no more than `share` of the committer's time; of a commit it is charged its part of the bytes.
Rule 2: when no live report came for `_GAP_S` backlog is committed alone, in small pieces, within the same share.
Rule 3: when none came for `_IDLE_S` it has all the time there is; after `_LONG_IDLE_S`, some pieces at once.
So a live report waits for one small commit of backlog at most, and where live reports are frequent, for none.
Rule 4: backlog is decoded a little ahead of the committer and no further (`await_room`): what waits, waits as it came.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from widerow.model.lane import Lane
from widerow.pipeline.job import Job
from widerow.pipeline.queue import FairQueue

Work = list[tuple[str, list[Job]]]

PIECE_BYTES = 32 << 10
"""What a body of backlog is cut into, about."""
_LIVE_BYTES = 16 << 20
_LIVE_QUANTUM_BYTES = 1 << 20
_BACKLOG_BYTES, _IDLE_BACKLOG_BYTES = 64 << 10, 256 << 10
_AHEAD_BYTES = 4 << 20
_SAVED_S = 0.02
"""How much of its share backlog can save up."""
_GAP_S, _IDLE_S, _LONG_IDLE_S = 0.05, 0.25, 1.0


class Lanes:
    """Decoded batches before the committer. One thread takes, any thread puts."""

    def __init__(self, *, max_tenant_bytes: int, share: float, clock_s: Callable[[], float] = time.perf_counter) -> None:
        lock = threading.RLock()
        self._ready, self._room = threading.Condition(lock), threading.Condition(lock)
        self._live: FairQueue[Job] = FairQueue(
            max_tenant_bytes=max_tenant_bytes, quantum_bytes=_LIVE_QUANTUM_BYTES, ready=self._ready
        )
        self._backlog: FairQueue[Job] = FairQueue(max_tenant_bytes=None, quantum_bytes=PIECE_BYTES, ready=self._ready)
        self._share, self._clock_s = share, clock_s
        self._credit_s = 0.0
        self._began_s = self._counted_s = self._live_s = clock_s()
        self._part = 0.0
        """Of the commit under way: how much of it is backlog."""

    def put(self, job: Job, *, wake: bool = True) -> None:
        """Raises TenantBusy, for live reports alone."""
        queue = self._live if job.lane is Lane.LIVE else self._backlog
        queue.put(job.tenant.name, job, job.size, wake=wake)

    def wake(self) -> None:
        self._live.wake()

    def release(self, job: Job) -> None:
        queue = self._live if job.lane is Lane.LIVE else self._backlog
        queue.release(job.tenant.name, job.size)

    def held(self) -> list[dict[str, int]]:
        """Bytes in flight, by tenant, of each lane."""
        return [self._live.held(), self._backlog.held()]

    def await_room(self) -> None:
        """Until the committer needs more backlog."""
        with self._room:
            self._room.wait_for(lambda: self._backlog.queued < _AHEAD_BYTES or self._backlog.closed)

    def close(self) -> None:
        self._live.close()
        self._backlog.close()
        with self._room:
            self._room.notify_all()

    # -- the committer's side

    def take(self) -> Work:
        """Wait for work. Empty: closed and drained. Whoever took calls `done` when it is committed."""
        with self._ready:
            while True:
                now_s = self._clock_s()
                self._save(now_s)
                self._began_s = now_s
                if self._live.queued:
                    return self._live_work()
                idle_s = now_s - self._live_s
                if self._backlog.queued and (idle_s >= self._wait_s() or self._live.closed):
                    self._part = 1.0
                    return self._backlog_work(_IDLE_BACKLOG_BYTES if idle_s >= _LONG_IDLE_S else _BACKLOG_BYTES)
                if self._live.closed:
                    return []
                self._ready.wait(self._until_due_s(idle_s) if self._backlog.queued else None)

    def done(self) -> None:
        """What was taken is committed, or has failed."""
        now_s = self._clock_s()
        # What it had while nobody else wanted anything is not held against it for long.
        self._credit_s = max(self._credit_s - self._part * (now_s - self._began_s), -_SAVED_S)
        if self._part < 1:
            self._live_s = now_s

    def _live_work(self) -> Work:
        work = self._live.take_now(_LIVE_BYTES)
        self._part = 0.0
        if not self._backlog.queued or self._credit_s <= 0:
            return work
        along = self._backlog_work(1)
        backlog, live = _bytes(along), _bytes(work)
        self._part = backlog / (backlog + live)
        merged = dict(work)
        for tenant, jobs in along:
            merged[tenant] = [*merged.get(tenant, []), *jobs]
        return list(merged.items())

    def _backlog_work(self, max_bytes: int) -> Work:
        work = self._backlog.take_now(max_bytes)
        self._room.notify()
        return work

    def _wait_s(self) -> float:
        """For how long no live report must have come before backlog is committed alone."""
        return _GAP_S if self._credit_s > 0 else _IDLE_S

    def _until_due_s(self, idle_s: float) -> float:
        paid_s = max(_GAP_S - idle_s, -self._credit_s / self._share)
        return max(1e-4, min(_IDLE_S - idle_s, paid_s + 1e-4))

    def _save(self, now_s: float) -> None:
        self._credit_s = min(self._credit_s + self._share * (now_s - self._counted_s), _SAVED_S)
        self._counted_s = now_s


def _bytes(work: Work) -> int:
    return sum(job.size for _, jobs in work for job in jobs)
