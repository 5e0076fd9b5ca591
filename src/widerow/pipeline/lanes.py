"""Whose turn it is at the committer: live reports first, backlog for a share of its time, a piece at a time.

Rule 1: what is live and waits is committed at once, all of it. Backlog is committed when nothing live waits, in small pieces
(`PIECE_BYTES`), and has no more than `share` of the committer's time.
Rule 2: where live reports never pause, backlog begins a commit after one of theirs as soon as it has saved up for it.
Rule 3: when no live report came for `_IDLE_S` backlog has all the time there is; after `_LONG_IDLE_S`, many pieces at once.
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
"""What a body of backlog is cut into, about. With a quarter of that a report takes twice the time: most of what a commit
takes does not depend on how much it writes."""
_LIVE_BYTES = 16 << 20
_LIVE_QUANTUM_BYTES = 1 << 20
_IDLE_BYTES, _LONG_IDLE_BYTES = 64 << 10, 256 << 10
_AHEAD_BYTES = 4 << 20
_SAVED_S = 0.005
"""How much of its share backlog can save up."""
_IDLE_S, _LONG_IDLE_S = 0.25, 1.0


class Lanes:
    """Decoded batches before the committer. One thread takes, any thread puts."""

    def __init__(
        self,
        *,
        max_tenant_bytes: int,
        share: float,
        backlog_bytes: int = PIECE_BYTES,
        clock_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`backlog_bytes`: how much of it is committed at once while live reports come, in whole pieces."""
        lock = threading.RLock()
        self._ready, self._room = threading.Condition(lock), threading.Condition(lock)
        self._live: FairQueue[Job] = FairQueue(
            max_tenant_bytes=max_tenant_bytes, quantum_bytes=_LIVE_QUANTUM_BYTES, ready=self._ready
        )
        self._backlog: FairQueue[Job] = FairQueue(max_tenant_bytes=None, quantum_bytes=PIECE_BYTES, ready=self._ready)
        self._share, self._backlog_bytes, self._clock_s = share, backlog_bytes, clock_s
        self._credit_s = 0.0
        self._began_s = self._counted_s = self._live_s = clock_s()
        self.is_backlog = False
        """Of the commit under way, or the last one."""

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
                idle_s = now_s - self._live_s
                if self._backlog.queued and self._may_begin(idle_s):
                    return self._begin(is_backlog=True, size=self._backlog_size(idle_s))
                if self._live.queued:
                    return self._begin(is_backlog=False, size=_LIVE_BYTES)
                if self._live.closed and not self._backlog.queued:
                    return []
                self._ready.wait(self._until_due_s(idle_s) if self._backlog.queued else None)

    def done(self) -> None:
        """What was taken is committed, or has failed."""
        now_s = self._clock_s()
        if self.is_backlog:
            took_s = now_s - self._began_s
            # What it had before, while nobody else wanted anything, is not held against it.
            self._credit_s = max(self._credit_s - took_s, -max(took_s, _SAVED_S))
        else:
            self._live_s = now_s

    def _begin(self, *, is_backlog: bool, size: int) -> Work:
        self.is_backlog, self._began_s = is_backlog, self._clock_s()
        work = (self._backlog if is_backlog else self._live).take_now(size)
        if is_backlog:
            self._room.notify()
        return work

    def _may_begin(self, idle_s: float) -> bool:
        """Whether it is backlog's turn."""
        if self._live.queued:
            return self._credit_s > 0 and not self.is_backlog and not self._live.closed
        return idle_s >= _IDLE_S or self._live.closed or self._credit_s > 0

    def _backlog_size(self, idle_s: float) -> int:
        return _LONG_IDLE_BYTES if idle_s >= _LONG_IDLE_S else _IDLE_BYTES if idle_s >= _IDLE_S else self._backlog_bytes

    def _until_due_s(self, idle_s: float) -> float:
        return max(1e-4, min(_IDLE_S - idle_s, -self._credit_s / self._share + 1e-4))

    def _save(self, now_s: float) -> None:
        self._credit_s = min(self._credit_s + self._share * (now_s - self._counted_s), _SAVED_S)
        self._counted_s = now_s
