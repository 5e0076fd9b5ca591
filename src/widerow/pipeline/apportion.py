"""Jobs of a tenant that were merged into one batch: what of the refusals is whose, in the senders' own positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from widerow.model.arrays import Bytes, Flags, Ints
from widerow.model.batch import Batch
from widerow.model.errors import Refusal, Spent
from widerow.model.tenant import Tenant
from widerow.pipeline.job import Job

_UNREGISTERED = (
    ("unknown-device", "device {device!r} is not registered, and {tenant} does not register devices on their first report"),
    ("device-limit", "{tenant} has as many devices as limits.devices allows; {device!r} is one more"),
)
"""Why a device was not registered, by the catalog's code (1, 2)."""


def starts_of(jobs: Sequence[Job]) -> Ints:
    """Where the reports of each job begin in the merged batch, and where the last one's end."""
    return np.cumsum([0, *[len(job.batch) for job in jobs if job.batch is not None]])


def refusals_by_job(jobs: Sequence[Job], refusals: Sequence[Refusal]) -> list[list[Refusal]]:
    """Refusals of merged reports, given back to the jobs they came from, in the senders' positions."""
    out: list[list[Refusal]] = [[] for _ in jobs]
    if not refusals:
        return out
    starts = starts_of(jobs)
    for refusal in refusals:
        at = np.asarray(refusal.positions)
        owner = np.searchsorted(starts, at, side="right") - 1
        for j in np.unique(owner).tolist():
            batch = jobs[j].batch
            assert batch is not None
            positions = batch.position[at[owner == j] - starts[j]].tolist()
            out[j].append(replace(refusal, positions=positions))
    return out


def owners(jobs: Sequence[Job], reports: Flags) -> set[int]:
    """Which jobs have one of these merged reports."""
    return set((np.searchsorted(starts_of(jobs), np.flatnonzero(reports), side="right") - 1).tolist())


def without_unregistered(tenant: Tenant, batch: Batch, codes: Bytes) -> tuple[Batch, list[Refusal]]:
    """The reports of devices that are registered, and why the others are refused; `codes` are the catalog's, per name."""
    if not codes.any():
        return batch, []
    refusals = []
    per_report = codes[batch.device.codes]
    for number, (code, why) in enumerate(_UNREGISTERED, 1):
        bad = per_report == number
        if bad.any():
            first = batch.device[int(np.flatnonzero(bad)[0])]
            most = tenant.limits.devices
            spent = Spent("devices", most, most + 1) if code == "device-limit" else None
            reason = why.format(device=first, tenant=tenant.name)
            refusals.append(Refusal(code, reason, batch.position[bad].tolist(), spent))
    return batch.take(per_report == 0), refusals


def series_refusal(tenant: Tenant, batch: Batch, over: Flags) -> Refusal:
    """Why reports are refused that bring more series than there may be."""
    most = tenant.limits.series
    device = batch.device[int(np.flatnonzero(over)[0])]
    reason = (
        f"{tenant.name} has as many series (metrics of devices) as limits.series allows, {most:,}, and {device!r} brings a "
        f"new one: delete devices or metrics, or have the limit raised"
    )
    return Refusal("series-limit", reason, batch.position[over].tolist(), Spent("series", most, most + 1))
