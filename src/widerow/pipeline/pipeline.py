"""The one path of a report: decode, check, hand to the sink that makes it durable, acknowledge.

Fronts hand over a `Job` and are called back with its `Outcome`; a report that is counted as accepted there is durable.
Two bounded fair queues, both by tenant: bodies waiting to be decoded, and decoded batches waiting to be written. Small
bodies are decoded at once by the caller, where a hand-over would cost more than the work.
Threads: a few decoders (kernels without the GIL) and one committer. A commit takes everything that is waiting: under load
commits grow by themselves, without load nobody lingers. A second committer gave no gain in the few
runs that compared them (docs/adr/0006-threads-and-cores.md).
What cannot be read or is refused goes to the dead letters. A job whose letters must be durable and are not has failed.
Where processes share a store, `may_write` is asked before a job is taken in.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from widerow.model.arrays import lengths
from widerow.model.batch import Batch
from widerow.model.errors import Refusal, WiderowError, unexpected
from widerow.model.times import Clock
from widerow.ops.cores import allowed_cores, shared_core, stay_on
from widerow.ops.counters import Counters
from widerow.pipeline.check import check
from widerow.pipeline.dead_letters import FILED_CODES, DeadLetters
from widerow.pipeline.job import Job, Outcome, Sink
from widerow.pipeline.queue import FairQueue

log = logging.getLogger(__name__)

INLINE_BYTES = 64 << 10
"""Bodies up to this size are decoded by the front itself."""
_COMMIT_BYTES = 16 << 20
_QUANTUM_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    max_future_us: int
    max_in_flight_bytes: int
    max_tenant_in_flight_bytes: int
    decoders: int = 2
    share_core: bool = False
    """Whether the committer stays on the core that the event loop stays on; see `ops.cores`."""


class Pipeline:
    """All stages of writing, running. `submit` from any thread."""

    def __init__(
        self,
        sink: Sink,
        clock: Clock,
        counters: Counters,
        settings: PipelineSettings,
        may_write: Callable[[], None] = lambda: None,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self._sink, self._may_write, self._dead_letters = sink, may_write, dead_letters
        self._clock, self._counters, self._settings = clock, counters, settings
        self._bodies: FairQueue[Job] = self._queue()
        self._batches: FairQueue[Job] = self._queue()
        self._decoders = [threading.Thread(target=self._decode_loop, name=f"decode-{i}") for i in range(settings.decoders)]
        self._committer = threading.Thread(target=self._commit_loop, name="commit")
        for thread in (*self._decoders, self._committer):
            thread.start()

    def _queue(self) -> FairQueue[Job]:
        return FairQueue(
            max_bytes=self._settings.max_in_flight_bytes,
            max_tenant_bytes=self._settings.max_tenant_in_flight_bytes,
            quantum_bytes=_QUANTUM_BYTES,
        )

    def submit(self, job: Job, *, wake: bool = True) -> None:
        """Take a job in, or raise `Overloaded`, `TenantBusy` or `NotTheWriter`.

        Its `done` is called exactly once if this returns.

        Without `wake` a small job may wait until `wake` is called: for fronts that have more to hand over.
        """
        self._may_write()
        if job.size <= INLINE_BYTES:
            self._decode(job, wake=wake)
        else:
            self._bodies.put(job.tenant.name, job, job.size)

    def wake(self) -> None:
        """Commit what was submitted quietly."""
        self._batches.wake()

    def in_flight(self) -> int:
        return self._bodies.in_flight() + self._batches.in_flight()

    def close(self) -> None:
        """Finish what was taken in, then stop."""
        self._bodies.close()
        for thread in self._decoders:
            thread.join()
        self._batches.close()
        self._committer.join()

    # -- decoding

    def _decode_loop(self) -> None:
        while work := self._bodies.take(1):
            for tenant, jobs in work:
                for job in jobs:
                    try:
                        self._decode(job)
                    except WiderowError as error:  # the second queue is full
                        job.done(Outcome(error=error))
                    finally:
                        self._bodies.release(tenant, job.size)

    def _decode(self, job: Job, *, wake: bool = True) -> None:
        try:
            decoded = job.decode()
            job.batch, refused = check(
                decoded.batch,
                job.tenant,
                now_us=self._clock.now_us(),
                max_future_us=self._settings.max_future_us,
                only_device=job.only_device,
                apart=decoded.apart,
            )
            job.refusals = [*decoded.refusals, *refused]
        except WiderowError as error:
            job.done(Outcome(error=self._filed(job, (), error) or error))
            return
        except Exception as error:
            log.exception("decoding failed")
            job.done(Outcome(error=unexpected(error)))
            return
        if len(job.batch):
            self._batches.put(job.tenant.name, job, job.size, wake=wake)
        else:
            self._finish(job, 0, [])

    # -- committing

    def _commit_loop(self) -> None:
        if self._settings.share_core:
            stay_on(shared_core(allowed_cores()))
        while work := self._batches.take(_COMMIT_BYTES):
            started = time.perf_counter()
            try:
                self._sink.commit(work, self._settled)
            except Exception:  # a sink answers for every job, whatever happens; the thread must go on
                log.exception("a commit failed without an answer")
            self._counters.commits.inc()
            self._counters.commit_seconds.observe(time.perf_counter() - started)

    def _settled(self, job: Job, refused: Sequence[Refusal], error: WiderowError | None) -> None:
        """What became of a job that was given to the sink."""
        assert job.batch is not None
        if error:
            job.done(Outcome(error=error))
        else:
            self._finish(job, len(job.batch), refused)
        self._batches.release(job.tenant.name, job.size)

    def _finish(self, job: Job, decoded: int, refused: Sequence[Refusal]) -> None:
        outcome = Outcome(decoded - sum(len(r) for r in refused), [*job.refusals, *refused])
        tenant = job.tenant.name
        self._counters.reports.labels(tenant).inc(outcome.accepted)
        if job.batch is not None and outcome.accepted:
            self._counters.values.labels(tenant).inc(_values(job.batch, refused))
        for refusal in outcome.refusals:
            self._counters.refused.labels(tenant, refusal.code).inc(len(refusal))
        failed = self._filed(job, outcome.refusals) if outcome.refusals else None
        job.done(Outcome(error=failed) if failed else outcome)

    def _filed(self, job: Job, refusals: Sequence[Refusal], error: WiderowError | None = None) -> WiderowError | None:
        """File what was refused, or the body that could not be read. An error: it should be durable, and is not."""
        letters, origin, tenant = self._dead_letters, job.origin, job.tenant.name
        if letters is None or origin is None:
            return None
        try:
            if error:
                letters.file_error(tenant, origin, error)
            for code in dict.fromkeys(refusal.code for refusal in refusals if refusal.code in FILED_CODES):
                several = [refusal for refusal in refusals if refusal.code == code]
                positions = several[0].positions
                if len(several) > 1:
                    positions = sorted(position for refusal in several for position in refusal.positions)
                letters.file(tenant, origin, code, several[0].reason, positions)
        except WiderowError as failure:
            return failure
        except Exception as failure:
            log.exception("filing dead letters failed")
            return unexpected(failure)
        return None


def _values(batch: Batch, refused: Sequence[Refusal]) -> int:
    """Cells of the reports that were kept."""
    if not refused:
        return len(batch.cells)
    gone = np.isin(batch.position, np.concatenate([np.asarray(r.positions) for r in refused]))
    return int(lengths(batch.cells.offsets)[~gone].sum())
