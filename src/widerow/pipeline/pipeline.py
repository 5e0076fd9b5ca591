"""The one path of a report: decode, check, hand to the sink that makes it durable, acknowledge.

Fronts hand over a `Job` and are called back with its `Outcome`; a report that is counted as accepted there is durable.
What is taken in holds a permit (`admit.pressure`) until it is answered. Fair queues, by tenant: bodies waiting to be
decoded, and decoded batches waiting to be written. Small bodies are decoded at once by the caller, where a hand-over would
cost more than the work.
A job with a report older than `backfill.after_s` is backlog and takes a lane of its own: its own room, its own decoder where
the front knew, and a share of the committer's time (`pipeline.lanes`).
Threads: a few decoders (kernels without the GIL), one for backlog, and one committer. A commit of live
reports takes everything that is waiting: under load commits grow by themselves, without load nobody lingers. A second
committer gave no gain in the few runs that compared them (docs/adr/0006-threads-and-cores.md).
What cannot be read or is refused goes to the dead letters. A job whose letters must be durable and are not has failed.
What its tenant's limits do not let pass is refused before it waits for anything (`admit.admission`); behind Kafka, where
reports have been acknowledged, nothing is.
Where processes share a store, `may_write` is asked before a job is taken in.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from widerow.admit.admission import Admission
from widerow.admit.pressure import Pressure, PressureSettings
from widerow.model.arrays import Flags, lengths
from widerow.model.batch import Batch
from widerow.model.errors import NotTheWriter, QuotaExceeded, Refusal, TenantBusy, Unavailable, WiderowError, unexpected
from widerow.model.lane import Lane
from widerow.model.merge import joined
from widerow.model.sizes import batch_bytes
from widerow.model.times import HOUR, Clock
from widerow.ops.counters import Counters
from widerow.pipeline.check import check
from widerow.pipeline.dead_letters import FILED_CODES, DeadLetters
from widerow.pipeline.job import Job, Outcome, Sink
from widerow.pipeline.lanes import Lanes, Work
from widerow.pipeline.pieces import pieces
from widerow.pipeline.queue import FairQueue
from widerow.usage.record import Recorder

log = logging.getLogger(__name__)

INLINE_BYTES = 64 << 10
"""Bodies up to this size are decoded by the front itself, unless they are backlog."""
_QUANTUM_BYTES = 1 << 20
_NEVER_US = -(1 << 63)
"""Before any time: where nothing is backlog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    max_future_us: int
    max_in_flight_bytes: int
    max_tenant_in_flight_bytes: int
    decoders: int = 2
    backfill_after_us: int = HOUR
    """How old a report makes its job one of backlog; 0: none is."""
    max_backfill_bytes: int = 64 << 20
    backfill_share: float = 0.06
    """Of the committer's time, while live reports come."""


@dataclass(slots=True)
class _Told:
    """What was told of a commit: whether something was made durable, or could not be."""

    worked: bool = False
    failed: bool = False


class Pipeline:
    """All stages of writing, running. `submit` from any thread."""

    def __init__(
        self,
        sink: Sink,
        clock: Clock,
        counters: Counters,
        settings: PipelineSettings,
        may_write: Callable[[], object] = lambda: None,
        dead_letters: DeadLetters | None = None,
        pressure: Pressure | None = None,
        admission: Admission | None = None,
        usage: Recorder | None = None,
    ) -> None:
        self._sink, self._may_write, self._dead_letters, self._admission = sink, may_write, dead_letters, admission
        self._usage = usage
        self._clock, self._counters, self._settings = clock, counters, settings
        self.pressure = pressure or Pressure(
            PressureSettings(max_bytes=settings.max_in_flight_bytes, max_backfill_bytes=settings.max_backfill_bytes),
            counters,
        )
        self._bodies: FairQueue[Job] = FairQueue(
            max_tenant_bytes=settings.max_tenant_in_flight_bytes, quantum_bytes=_QUANTUM_BYTES
        )
        self._old_bodies: FairQueue[Job] = FairQueue(max_tenant_bytes=None, quantum_bytes=_QUANTUM_BYTES)
        self._batches = Lanes(
            max_tenant_bytes=settings.max_tenant_in_flight_bytes,
            share=settings.backfill_share,
            backlog_bytes=sink.backlog_bytes,
        )
        self._decoders = [threading.Thread(target=self._decode_loop, name=f"decode-{i}") for i in range(settings.decoders)]
        self._decoders.append(threading.Thread(target=self._decode_backlog_loop, name="decode-backlog"))
        self._committer = threading.Thread(target=self._commit_loop, name="commit")
        for thread in (*self._decoders, self._committer):
            thread.start()

    def submit(self, job: Job, *, wake: bool = True) -> None:
        """Take a job in, or raise `Overloaded`, `TenantBusy` or `NotTheWriter`.

        Its `done` is called exactly once if this returns.

        Without `wake` a small job may wait until `wake` is called: for fronts that have more to hand over.
        """
        self._may_write()
        job.permit = self.pressure.admit(job.size, job.lane, job.tenant.name)
        try:
            if job.lane is Lane.BACKFILL:
                self._old_bodies.put(job.tenant.name, job, job.size)
            elif job.size <= INLINE_BYTES:
                self._decode(job, wake=wake)
            else:
                self._bodies.put(job.tenant.name, job, job.size)
        except WiderowError:
            self.pressure.release(job.permit)
            raise

    def lane_of(self, time_us: int) -> Lane:
        """Where a body belongs that has a report of that time."""
        return Lane.BACKFILL if time_us < self._live_from_us() else Lane.LIVE

    def is_live(self, batch: Batch) -> Flags:
        """Which reports are not backlog."""
        live: Flags = batch.time_us >= self._live_from_us()
        return live

    def _live_from_us(self) -> int:
        """Reports of what time are not backlog."""
        after_us = self._settings.backfill_after_us
        return self._clock.now_us() - after_us if after_us else _NEVER_US

    def wake(self) -> None:
        """Commit what was submitted quietly."""
        self._batches.wake()

    def in_flight(self) -> int:
        """Bytes that were taken in and not answered."""
        return self.pressure.bytes()

    def held(self) -> dict[str, int]:
        """The same by tenant. What is being decoded counts twice: as a body and as a batch."""
        total: Counter[str] = Counter()
        for queue in (self._bodies.held(), self._old_bodies.held(), *self._batches.held()):
            total.update(queue)
        return dict(total)

    def close(self) -> None:
        """Finish what was taken in, then stop."""
        for bodies in (self._bodies, self._old_bodies):
            bodies.close()
        for thread in self._decoders:
            thread.join()
        self._batches.close()
        self._committer.join()

    # -- decoding

    def _decode_loop(self) -> None:
        while work := self._bodies.take(1):
            self._decode_all(work, self._bodies)

    def _decode_backlog_loop(self) -> None:
        while work := self._old_bodies.take(1):
            self._batches.await_room()
            self._decode_all(work, self._old_bodies)

    def _decode_all(self, work: Sequence[tuple[str, list[Job]]], bodies: FairQueue[Job]) -> None:
        for tenant, jobs in work:
            for job in jobs:
                try:
                    self._decode(job)
                except WiderowError as error:  # there is no room behind
                    self._answer(job, Outcome(error=error))
                except Exception:  # nobody knows whether it was answered; the others want to be
                    log.exception("a body could not be answered")
                finally:
                    bodies.release(tenant, job.size)

    def _decode(self, job: Job, *, wake: bool = True) -> None:
        try:
            decoded = job.decode()
            job.seen_us = self._clock.now_us()
            job.batch, refused = check(
                decoded.batch,
                job.tenant,
                now_us=job.seen_us,
                max_future_us=self._settings.max_future_us,
                only_device=job.only_device,
                apart=decoded.apart,
            )
            job.refusals = [*decoded.refusals, *refused]
        except WiderowError as error:
            self._record(job, Outcome(error=error))
            self._answer(job, Outcome(error=self._filed(job, (), error) or error))
            return
        except Exception as error:
            log.exception("decoding failed")
            self._answer(job, Outcome(error=unexpected(error)))
            return
        if not len(job.batch):
            self._finish(job, 0, [])
            return
        # Messages of many devices may come as one job: those that are live do not wait for one that was away.
        live: Flags | None = None
        if job.lane is Lane.LIVE and self.lane_of(int(job.batch.time_us.min())) is Lane.BACKFILL:
            assert job.permit is not None
            self.pressure.move(job.permit, Lane.BACKFILL)
            job.lane, live = Lane.BACKFILL, self.is_live(job.batch)
        elif job.lane is Lane.BACKFILL and self.lane_of(int(job.batch.time_us.max())) is Lane.LIVE and self._admission:
            live = self.is_live(job.batch)  # a front that looked at the first report knows nothing of the others
        if self._admission and not job.admitted:
            passed = self._admitted(self._admission, job, live)
            if passed is None:
                return
            job.batch, live = passed
            job.admitted = True
        try:
            self._hand_on(job, live, wake=wake)
        except WiderowError:  # there is no room behind
            raise
        except Exception as error:
            log.exception("handing on failed")
            self._answer(job, Outcome(error=unexpected(error)))

    def _hand_on(self, job: Job, live: Flags | None, *, wake: bool) -> None:
        """To the committer. What fails here leaves pieces behind that are committed and that nobody is told of."""
        if job.lane is Lane.LIVE:
            self._batches.put(job, wake=wake)
        else:
            for piece in pieces(job, self._answer, live):
                self._batches.put(piece)

    def _admitted(self, admission: Admission, job: Job, live: Flags | None) -> tuple[Batch, Flags | None] | None:
        """What its limits let pass, and which of that is `live`. None: nothing, and it is answered."""
        batch = job.batch
        assert batch is not None
        try:
            if live is None:
                batch, refused = admission.admit(job.tenant, batch, job.lane, whole=job.whole)
            elif job.whole:
                live_from_us = self._live_from_us()
                batch, refused = admission.admit(job.tenant, batch, job.lane, whole=True, live_from_us=live_from_us)
                live = batch.time_us >= live_from_us
            else:  # neither spends what the other may send
                new, refused = admission.admit(job.tenant, batch.take(live), Lane.LIVE)
                old, others = admission.admit(job.tenant, batch.take(~live), Lane.BACKFILL)
                batch, refused = joined([new, old]), [*refused, *others]
                live = np.arange(len(batch)) < len(new)
        except WiderowError as error:
            self._record(job, Outcome(error=error))
            self._answer(job, Outcome(error=error))
            return None
        except Exception as error:  # as in decoding: the thread goes on, and the permit is given back
            log.exception("asking limits failed")
            self._answer(job, Outcome(error=unexpected(error)))
            return None
        job.batch, job.refusals = batch, [*job.refusals, *refused]
        if not len(batch):
            self._finish(job, 0, [])
            return None
        return batch, live

    # -- committing

    def _commit_loop(self) -> None:
        while work := self._batches.take():
            self._commit(work)
            self._batches.done()

    def _commit(self, work: Work) -> None:
        started, told = time.perf_counter(), _Told()
        try:
            self._sink.commit(work, partial(self._settled, told))
        except Exception:  # a sink answers for every job, whatever happens; the thread must go on
            log.exception("a commit failed without an answer")
        if told.worked:
            self.pressure.worked()
        elif told.failed:
            self.pressure.failed()
        self._counters.commits.inc()
        self._counters.commit_reports.observe(
            sum(len(job.batch) for _, jobs in work for job in jobs if job.batch is not None)
        )
        self._counters.commit_seconds.observe(time.perf_counter() - started)

    def _settled(self, told: _Told, job: Job, refused: Sequence[Refusal], error: WiderowError | None) -> None:
        """What became of a job that was given to the sink."""
        assert job.batch is not None
        self._batches.release(job)
        if error:
            # Not being the writer is no fault of the store, nor is what a tenant sent, or what its other writers are at.
            told.failed |= isinstance(error, Unavailable) and not isinstance(error, NotTheWriter | TenantBusy)
            self._record(job, Outcome(error=error))
            self._answer(job, Outcome(error=error))
        else:
            told.worked = True
            self._finish(job, len(job.batch), refused)

    def _finish(self, job: Job, decoded: int, refused: Sequence[Refusal]) -> None:
        outcome = Outcome(decoded - sum(len(r) for r in refused), [*job.refusals, *refused])
        tenant = job.tenant.name
        self._counters.reports.labels(tenant).inc(outcome.accepted)
        values = _values(job.batch, refused) if job.batch is not None and outcome.accepted else 0
        if values:
            self._counters.values.labels(tenant).inc(values)
        for refusal in outcome.refusals:
            self._counters.refused.labels(tenant, refusal.code).inc(len(refusal))
        self._record(job, outcome, values)
        failed = self._filed(job, outcome.refusals) if outcome.refusals else None
        self._answer(job, Outcome(error=failed) if failed else outcome)

    def _record(self, job: Job, outcome: Outcome, values: int = 0) -> None:
        """What became of a job, for who asks what a tenant used."""
        if self._usage is None:
            return
        received_bytes = job.size if job.received_bytes is None else job.received_bytes
        if job.batch is None:  # nobody knows what is in it
            if not job.counted:
                self._usage.offered(job.tenant.name, job.lane, 0, 0, 0, received_bytes, {})
            return
        count, error = len(job.batch), outcome.error
        offered = count + sum(len(refusal) for refusal in job.refusals)
        failed = offered if isinstance(error, Unavailable) else 0
        refusals, limits = Counter[str](), Counter[str]()
        for refusal in () if failed else job.refusals if error else outcome.refusals:
            refusals[refusal.code] += len(refusal)
            if refusal.spent:
                limits[refusal.spent.limit] += len(refusal)
        if job.counted:  # there is nothing new in it, but what this process refuses of it
            self._usage.refused_later(job.tenant.name, refusals)
            return
        if isinstance(error, QuotaExceeded):  # all of it
            refusals[error.reports_code] += count
            limits[error.limit] += count
        self._usage.offered(
            job.tenant.name,
            job.lane,
            offered,
            outcome.accepted,
            values,
            received_bytes,
            refusals,
            limits=limits,
            written_bytes=batch_bytes(job.tenant.name, job.batch) * outcome.accepted // count if outcome.accepted else 0,
            failed=failed,
            weighed=0 if self._admission else count,  # admission has told
            at_us=job.seen_us,
        )

    def _answer(self, job: Job, outcome: Outcome) -> None:
        if job.permit is not None:
            self.pressure.release(job.permit)
        if outcome.error:
            outcome.error.forget_where()
        job.done(outcome)

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
