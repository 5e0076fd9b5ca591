"""Whose turn it is at the committer: live reports first, and backlog in small pieces, for a share of its time.

Rule 1: a commit of backlog is small (`_BACKLOG_BYTES`, a few milliseconds), and no two follow each other while live reports
wait: a live report waits for one of them at most.
Rule 2: while live reports come, backlog is given `share` of the committer's time, in the gaps they leave. It saves up what
it was not given; once that is `_SAVED_S` it has its turn in front of live reports: it moves even where they leave no gap.
Rule 3: when no live report came for `_IDLE_S` backlog has all the time there is; after `_LONG_IDLE_S`, some pieces at once.
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

PIECE_BYTES = 64 << 10
"""What a body of backlog is cut into, about."""
_LIVE_BYTES = 16 << 20
_LIVE_QUANTUM_BYTES = 1 << 20
_BACKLOG_BYTES, _IDLE_BACKLOG_BYTES = 64 << 10, 256 << 10
_AHEAD_BYTES = 4 << 20
_SAVED_S = 0.02
_IDLE_S, _LONG_IDLE_S = 0.25, 1.0


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
        self._served = Lane.LIVE

    def put(self, job: Job, *, wake: bool = True) -> None:
        """Raises TenantBusy, for live reports alone."""
        queue = self._live if job.lane is Lane.LIVE else self._backlog
        queue.put(job.tenant.name, job, job.size, wake=wake)

    def wake(self) -> None:
        self._live.wake()

    def release(self, job: Job) -> None:
        queue = self._live if job.lane is Lane.LIVE else self._backlog
        queue.release(job.tenant.name, job.size)

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
                lane, wait_s = self._turn(now_s)
                if lane is not None:
                    self._served, self._began_s = lane, now_s
                    if lane is Lane.LIVE:
                        return self._live.take_now(_LIVE_BYTES)
                    idle = now_s - self._live_s >= _LONG_IDLE_S
                    work = self._backlog.take_now(_IDLE_BACKLOG_BYTES if idle else _BACKLOG_BYTES)
                    self._room.notify()
                    return work
                if self._live.closed:
                    return []
                self._ready.wait(wait_s)

    def done(self) -> None:
        """What was taken is committed, or has failed."""
        now_s = self._clock_s()
        if self._served is Lane.LIVE:
            self._live_s = now_s
        else:
            self._credit_s -= now_s - self._began_s

    def _turn(self, now_s: float) -> tuple[Lane | None, float | None]:
        """Who is served now; or, if nobody is, for how long to wait."""
        live, backlog = self._live.queued > 0, self._backlog.queued > 0
        if live and backlog and self._served is Lane.LIVE and self._credit_s >= _SAVED_S:
            return Lane.BACKFILL, None
        if live:
            return Lane.LIVE, None
        if not backlog:
            return None, None
        idle_s = now_s - self._live_s
        if self._credit_s > 0 or idle_s >= _IDLE_S or self._live.closed:
            return Lane.BACKFILL, None
        return None, min(_IDLE_S - idle_s, -self._credit_s / self._share + 1e-4)

    def _save(self, now_s: float) -> None:
        self._credit_s = min(self._credit_s + self._share * (now_s - self._counted_s), _SAVED_S)
        self._counted_s = now_s
