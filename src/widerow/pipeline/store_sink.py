"""The store as the end of the pipeline: batches of tenants are registered, placed, marked and written, in one write.

A tenant that fails before the write fails alone; so does a job with a new device for which other processes have the last
places in hand (`catalog.seats`): it is to come again, and nobody waits for it.
Where processes share a store, `may_write` is asked once more before each commit: what waits when the writer's lease runs out
is refused, what is being written ends as it will (see `catalog.lease`). So is what was prepared before another process
wrote, also if this one is the writer again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from widerow.catalog.catalog import Catalog
from widerow.catalog.registration import SEATS_TAKEN, seats_taken
from widerow.catalog.series import Fit
from widerow.engine.port import Engine
from widerow.engine.rows import Rows
from widerow.model.batch import Batch
from widerow.model.errors import NotFound, NotTheWriter, Refusal, WiderowError, unexpected
from widerow.model.merge import merge
from widerow.model.names import Names
from widerow.model.tenant import LimitMode, Tenant
from widerow.model.times import Clock
from widerow.ops.counters import Counters
from widerow.pipeline.apportion import owners, refusals_by_job, series_refusal, without_unregistered
from widerow.pipeline.attach import attached
from widerow.pipeline.job import Job, Settle
from widerow.pipeline.lanes import PIECE_BYTES
from widerow.rollup.marks import MarkPlan
from widerow.rollup.pyramid import Pyramid
from widerow.schema.table import Table
from widerow.telemetry.store import Plan, Telemetry

log = logging.getLogger(__name__)


class StoreSink:
    """Writes to a store, and tells the pyramid what it wrote."""

    backlog_bytes = PIECE_BYTES // 2
    """One piece, since all but the smallest have more: joining two takes as long as planning for them."""

    def __init__(
        self,
        engine: Engine,
        telemetry: Telemetry,
        catalog: Catalog,
        clock: Clock,
        counters: Counters,
        *,
        pyramid: Pyramid | None = None,
        may_write: Callable[[], object] = lambda: None,
        heard: Callable[[str, Batch], None] = lambda _tenant, _batch: None,
    ) -> None:
        """`may_write` raises while others write. It gives the same as before if none has written since. `heard` is told of
        what was written.
        """
        self._engine, self._telemetry, self._catalog = engine, telemetry, catalog
        self._clock, self._counters = clock, counters
        self._pyramid, self._may_write, self._heard = pyramid, may_write, heard

    def commit(self, work: Sequence[tuple[str, list[Job]]], settle: Settle) -> None:
        groups = [self._prepare(tenant, jobs) for tenant, jobs in work]
        error: WiderowError | None = None
        try:
            self._refuse_outdated(groups)
            changes = [change for group in groups for change in group.changes()]
            self._engine.write(changes)
        except WiderowError as failure:
            error = failure
        except Exception as failure:
            log.exception("commit failed")
            error = unexpected(failure)
        if error:
            self._counters.commit_failures.labels(error.code).inc()
        for group in groups:
            self._acknowledge(group, error, settle)

    def _prepare(self, tenant_name: str, jobs: list[Job]) -> _Group:
        """Everything that must be known before the write. A tenant that fails here fails alone."""
        group = _Group(tenant_name, jobs)
        try:
            group.term = self._may_write()
            tenant = self._catalog.tenants.current(tenant_name, self._clock.now_us())
            batch = merge([job.batch for job in jobs if job.batch is not None])
            batch = self._register(tenant, batch, group)
            batch = self._within_series(tenant, batch, group)
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
            group.error = unexpected(error)
        return group

    def _refuse_outdated(self, groups: Sequence[_Group]) -> None:
        """Others had their turn meanwhile, perhaps another process: then what was planned may miss what that one wrote."""
        term = self._may_write()
        for group in groups:
            if group.error is None and group.term != term:
                group.error = NotTheWriter("another process wrote to the store before this was written", retry_after_s=1.0)

    def _register(self, tenant: Tenant, batch: Batch, group: _Group) -> Batch:
        """Without reports of devices that are not registered."""
        used = np.zeros(len(batch.device.names), np.bool_)
        used[batch.device.codes] = True  # a name whose reports were all refused is no device
        registered = self._catalog.devices.register(tenant, batch.device.names, used, in_haste=True)
        if registered.beyond is not None:
            self._counters.shadowed.labels(tenant.name, "devices").inc(int(registered.beyond[batch.device.codes].sum()))
        group.fresh = registered.added
        early = registered.codes == SEATS_TAKEN
        if early.any():
            group.early = owners(group.jobs, early[batch.device.codes])
        batch, refusals = without_unregistered(tenant, batch, registered.codes)
        group.refusals += refusals
        return batch

    def _within_series(self, tenant: Tenant, batch: Batch, group: _Group) -> Batch:
        """Without reports that bring more series than the tenant may have."""
        fit = self._catalog.series.admit(tenant, batch)
        if fit is None:
            return batch
        group.series = fit
        count = int(fit.over.sum())
        if count and tenant.mode("series") is LimitMode.SHADOW:
            self._counters.shadowed.labels(tenant.name, "series").inc(count)
        elif count:
            group.refusals.append(series_refusal(tenant, batch, fit.over))
            batch = batch.take(~fit.over)
        return batch

    def _acknowledge(self, group: _Group, error: WiderowError | None, settle: Settle) -> None:
        error = group.error or error
        if group.plan and group.marks and self._pyramid:
            try:
                self._pyramid.settle(group.marks, group.plan, fresh=group.fresh, written=error is None)
            except WiderowError as failure:  # the reports are durable, but what makes sure that they are rolled is not
                error = failure
            except Exception as failure:
                log.exception("the written reports could not be noted for rolling")
                error = unexpected(failure)
        if group.series:
            self._catalog.series.settle(group.series, written=error is None)
        if group.plan and not error:
            self._observe(group.plan)
        for number, (job, refused) in enumerate(zip(group.jobs, refusals_by_job(group.jobs, group.refusals), strict=True)):
            try:
                settle(job, refused, error or (seats_taken(group.tenant) if number in group.early else None))
            except Exception:  # the others want their answers
                log.exception("an answer could not be given")

    def _observe(self, plan: Plan) -> None:
        try:
            self._telemetry.written(plan)
            self._heard(plan.tenant, plan.batch)
        except Exception:  # the reports are durable all the same
            log.exception("the rates of the written reports could not be observed")


@dataclass(slots=True)
class _Group:
    """The jobs of one tenant in one commit."""

    tenant: str
    jobs: list[Job]
    term: object = None
    """What `may_write` gave when it was prepared."""
    plan: Plan | None = None
    marks: MarkPlan | None = None
    fresh: Names | None = None
    """Devices that were registered for it."""
    early: set[int] = field(default_factory=set)
    """Jobs that are to come again, by number: their other reports are written, which does no harm."""
    series: Fit | None = None
    """With what is to be known of new series."""
    refusals: list[Refusal] = field(default_factory=list)
    error: WiderowError | None = None

    def changes(self) -> list[tuple[Table, Rows]]:
        """What is to be written, marks in front of the reports they stand for. Nothing, if not all of it was planned."""
        if self.error:
            return []
        series = self.series.changes if self.series else ()
        return [*series, *(self.marks.changes if self.marks else ()), *(self.plan.changes if self.plan else ())]
