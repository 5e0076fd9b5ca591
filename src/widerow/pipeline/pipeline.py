"""The one path of a report: decode, check, register, place, write, acknowledge.

Fronts hand over a `Job` and are called back with its `Outcome`; a report that is counted as accepted there is durable.
Two bounded fair queues, both by tenant: bodies waiting to be decoded, and decoded batches waiting to be written. Small
bodies are decoded at once by the caller, where a hand-over would cost more than the work.
Threads: a few decoders (kernels without the GIL) and one committer. A commit takes everything that is waiting: under load
commits grow by themselves, without load nobody lingers. A second committer gave no gain in the few
runs that compared them (docs/adr/0006-threads-and-cores.md).
Where processes share a store, `may_write` is asked before a job is taken in and again before it is committed: what waits
when the writer's lease runs out is refused, what is being written ends as it will (see `catalog.lease`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from widerow.catalog.catalog import Catalog
from widerow.codec.decoded import Decoded
from widerow.engine.port import Engine
from widerow.engine.rows import Rows
from widerow.model.arrays import lengths
from widerow.model.batch import Batch
from widerow.model.errors import NotFound, Refusal, Unavailable, WiderowError
from widerow.model.merge import merge
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.model.times import Clock
from widerow.ops.cores import allowed_cores, shared_core, stay_on
from widerow.ops.counters import Counters
from widerow.pipeline.attach import attached
from widerow.pipeline.check import check
from widerow.pipeline.queue import FairQueue
from widerow.rollup.marks import MarkPlan
from widerow.rollup.pyramid import Pyramid
from widerow.schema.table import Table
from widerow.telemetry.store import Plan, Telemetry

log = logging.getLogger(__name__)

INLINE_BYTES = 64 << 10
"""Bodies up to this size are decoded by the front itself."""
_UNREGISTERED = (
    ("unknown-device", "device {device!r} is not registered, and {tenant} does not register devices on their first report"),
    ("device-limit", "{tenant} has as many devices as limits.devices allows; {device!r} is one more"),
)
"""Why a device was not registered, by the catalog's code (1, 2)."""
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job. With an error nothing of it is acknowledged."""

    accepted: int = 0
    refusals: Sequence[Refusal] = ()
    error: WiderowError | None = None

    @property
    def refused(self) -> int:
        return sum(len(r) for r in self.refusals)


@dataclass(slots=True)
class Job:
    """A body on its way. `decode` is called once, in any thread; `done` too."""

    tenant: Tenant
    size: int
    decode: Callable[[], Decoded]
    done: Callable[[Outcome], None]
    only_device: str | None = None
    batch: Batch | None = None
    refusals: list[Refusal] = field(default_factory=list)


class Pipeline:
    """All stages of writing, running. `submit` from any thread."""

    def __init__(
        self,
        engine: Engine,
        telemetry: Telemetry,
        catalog: Catalog,
        clock: Clock,
        counters: Counters,
        settings: PipelineSettings,
        may_write: Callable[[], None] = lambda: None,
        pyramid: Pyramid | None = None,
    ) -> None:
        self._engine, self._telemetry, self._catalog = engine, telemetry, catalog
        self._clock, self._counters, self._settings = clock, counters, settings
        self._may_write, self._pyramid = may_write, pyramid
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
            )
            job.refusals = [*decoded.refusals, *refused]
        except WiderowError as error:
            job.done(Outcome(error=error))
            return
        except Exception as error:
            log.exception("decoding failed")
            job.done(Outcome(error=_unexpected(error)))
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
            groups = [self._prepare(tenant, jobs) for tenant, jobs in work]
            changes: list[tuple[Table, Rows]] = [change for group in groups for change in group.changes()]
            error: WiderowError | None = None
            try:
                self._engine.write(changes)
            except WiderowError as failure:
                error = failure
            except Exception as failure:
                log.exception("commit failed")
                error = _unexpected(failure)
            self._counters.commits.inc()
            self._counters.commit_seconds.observe(time.perf_counter() - started)
            if error:
                self._counters.commit_failures.labels(error.code).inc()
            for group in groups:
                self._acknowledge(group, error)

    def _prepare(self, tenant_name: str, jobs: list[Job]) -> _Group:
        """Everything that must be known before the write. A tenant that fails here fails alone."""
        group = _Group(tenant_name, jobs)
        try:
            self._may_write()
            tenant = self._catalog.tenants.current(tenant_name, self._clock.now_us())
            batch = merge([job.batch for job in jobs if job.batch is not None])
            batch, refused, group.fresh = self._register(tenant, batch)
            group.refusals += refused
            if tenant.row_attributes:
                batch = attached(batch, self._catalog.attributes.of(tenant_name, batch.device.names, tenant.row_attributes))
            self._catalog.metrics.observe(tenant_name, batch.cells, self._clock.now_us())
            group.plan = self._telemetry.plan(tenant, batch)
            group.refusals += group.plan.refusals
            if self._pyramid:
                group.marks = self._pyramid.plan(tenant_name, batch)
        except NotFound:
            group.error = NotFound(f"tenant {tenant_name!r} was deleted")
        except WiderowError as error:
            group.error = error
        except Exception as error:
            log.exception("preparing a commit failed")
            group.error = _unexpected(error)
        return group

    def _register(self, tenant: Tenant, batch: Batch) -> tuple[Batch, list[Refusal], Names]:
        used = np.zeros(len(batch.device.names), np.bool_)
        used[batch.device.codes] = True  # a name whose reports were all refused is no device
        registered = self._catalog.devices.register(tenant, batch.device.names, used)
        codes, added = registered.codes, registered.added
        if not codes.any():
            return batch, [], added
        refusals = []
        per_report = codes[batch.device.codes]
        for number, (code, why) in enumerate(_UNREGISTERED, 1):
            bad = per_report == number
            if bad.any():
                first = batch.device[int(np.flatnonzero(bad)[0])]
                refusals.append(Refusal(code, why.format(device=first, tenant=tenant.name), batch.position[bad].tolist()))
        return batch.take(per_report == 0), refusals, added

    def _acknowledge(self, group: _Group, error: WiderowError | None) -> None:
        error = group.error or error
        if group.plan and group.marks and self._pyramid:
            self._pyramid.settle(group.marks, group.plan, fresh=group.fresh, written=error is None)
        if group.plan and error:
            self._take_back(group.plan)
        parts = group.refusals_by_job()
        for job, refused in zip(group.jobs, parts, strict=True):
            assert job.batch is not None
            if error:
                job.done(Outcome(error=error))
            else:
                self._finish(job, len(job.batch), refused)
            self._batches.release(group.tenant, job.size)

    def _take_back(self, plan: Plan) -> None:
        try:
            self._telemetry.failed(plan)
        except Exception:  # the store does not answer at all; the senders must hear of it, and the thread go on
            log.exception("a failed plan could not be taken back")

    def _finish(self, job: Job, decoded: int, refused: list[Refusal]) -> None:
        outcome = Outcome(decoded - sum(len(r) for r in refused), [*job.refusals, *refused])
        tenant = job.tenant.name
        self._counters.reports.labels(tenant).inc(outcome.accepted)
        if job.batch is not None and outcome.accepted:
            self._counters.values.labels(tenant).inc(_values(job.batch, refused))
        for refusal in outcome.refusals:
            self._counters.refused.labels(tenant, refusal.code).inc(len(refusal))
        job.done(outcome)


@dataclass(slots=True)
class _Group:
    """The jobs of one tenant in one commit."""

    tenant: str
    jobs: list[Job]
    plan: Plan | None = None
    marks: MarkPlan | None = None
    fresh: Names | None = None
    """Devices that were registered for it."""
    refusals: list[Refusal] = field(default_factory=list)
    error: WiderowError | None = None

    def changes(self) -> list[tuple[Table, Rows]]:
        """What is to be written, marks in front of the reports they stand for."""
        return [*(self.marks.changes if self.marks else ()), *(self.plan.changes if self.plan else ())]

    def refusals_by_job(self) -> list[list[Refusal]]:
        """Refusals of merged reports, given back to the jobs they came from, in the senders' positions."""
        out: list[list[Refusal]] = [[] for _ in self.jobs]
        if not self.refusals:
            return out
        starts = np.cumsum([0, *[len(job.batch) for job in self.jobs if job.batch is not None]])
        for refusal in self.refusals:
            at = np.asarray(refusal.positions)
            owner = np.searchsorted(starts, at, side="right") - 1
            for j in np.unique(owner).tolist():
                batch = self.jobs[j].batch
                assert batch is not None
                positions = batch.position[at[owner == j] - starts[j]].tolist()
                out[j].append(Refusal(refusal.code, refusal.reason, positions))
        return out


def _values(batch: Batch, refused: list[Refusal]) -> int:
    """Cells of the reports that were kept."""
    if not refused:
        return len(batch.cells)
    gone = np.isin(batch.position, np.concatenate([np.asarray(r.positions) for r in refused]))
    return int(lengths(batch.cells.offsets)[~gone].sum())


def _unexpected(error: Exception) -> WiderowError:
    return Unavailable(f"internal error: {type(error).__name__}; the server's log has the details")
