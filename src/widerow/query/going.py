"""What a shorter retention takes away, told before it does.

Rule: telling is cheap. A few devices are asked, by day, and stand for all of them; where even that takes too long, or would
be too large a question, only the times are told. So the numbers are about right, and the times exact to the day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from widerow.catalog.devices import Devices
from widerow.model.arrays import Ints
from widerow.model.combine import united
from widerow.model.errors import QueryLimit
from widerow.model.tenant import FOREVER, MAX_RETENTION_US, Retention, Tenant
from widerow.model.times import DAY, TimeSpan
from widerow.query.budget import Budget, QuerySettings
from widerow.query.stepped import Sources, Stepped, stepped
from widerow.query.steps import steps_of
from widerow.schema.rollups import LEVELS

_ASKED = 32
"""Devices that stand for all: of the first shards, which are drawn by a hash of their names."""
_COST = QuerySettings(max_rows=2_000_000, timeout_s=5.0)
_WINDOWS_A_DAY = {level.name: DAY // level.width_us for level in LEVELS}


@dataclass(frozen=True, slots=True)
class Going:
    """Of one level: how long it is kept and would be, and what that takes away. Numbers are None where nobody knows."""

    level: str
    keep_us: int
    becomes_us: int
    span: TimeSpan
    """What goes: from the oldest that there is, or could be, to the oldest that stays."""
    certain: bool
    """Whether all devices were asked."""
    devices: int | None = None
    days: int | None = None
    """Days that some device has data of."""
    rows: int | None = None


def shortened(before: Retention, after: Retention) -> list[str]:
    """The levels that are kept for a shorter time afterwards."""
    levels = ("raw", *(level.name for level in LEVELS))
    pairs = [(level, getattr(before, f"{level}_us"), getattr(after, f"{level}_us")) for level in levels]
    return [level for level, old_us, new_us in pairs if new_us != FOREVER and (old_us == FOREVER or new_us < old_us)]


def going(sources: Sources, devices: Devices, tenant: Tenant, after: Retention) -> list[Going]:
    """What goes if the tenant's retention becomes that; only levels of which something may."""
    now_us = sources.clock.now_us()
    spans = {level: _span(tenant, after, level, now_us) for level in shortened(tenant.retention, after)}
    spans = {level: span for level, span in spans.items() if span.start_us < span.stop_us}
    if not spans:
        return []
    names = [device.name for device in devices.list(tenant.name, limit=_ASKED).devices]
    if not names:
        return []
    found = _days(sources, tenant, names, spans)
    scale = max(1.0, devices.count(tenant.name) / max(1, len(names)))
    return [_going(tenant, after, level, span, found, scale) for level, span in spans.items()]


def _span(tenant: Tenant, after: Retention, level: str, now_us: int) -> TimeSpan:
    held = tenant.raw_held() if level == "raw" else tenant.rollups_held(level)
    # The oldest that any epoch still shows.
    starts = [max(h.start_us, now_us - (h.shown_us or MAX_RETENTION_US), 0) for h in held]
    oldest_us = min((start for start, h in zip(starts, held, strict=True) if start < h.stop_us), default=now_us)
    return TimeSpan(oldest_us, max(oldest_us, now_us - getattr(after, f"{level}_us")))


def _days(sources: Sources, tenant: Tenant, names: Sequence[str], spans: dict[str, TimeSpan]) -> Stepped | None:
    """What the devices have, by day; None: that is not to be known cheaply."""
    span = TimeSpan(min(s.start_us for s in spans.values()), max(s.stop_us for s in spans.values()))
    try:
        return stepped(
            sources,
            tenant,
            names,
            span=span,
            steps=steps_of("1d", span),
            budget=Budget(_COST, tenant),
            quantiles=False,
            texts=True,
            sketches=False,
        )
    except QueryLimit:
        return None


def _going(tenant: Tenant, after: Retention, level: str, span: TimeSpan, found: Stepped | None, scale: float) -> Going:
    keep_us, becomes_us = (getattr(retention, f"{level}_us") for retention in (tenant.retention, after))
    if found is None:
        return Going(level, keep_us, becomes_us, span, certain=False)
    certain = scale == 1
    device, day_us, reports = _reports(found)
    within = (day_us < span.stop_us) & (day_us + DAY > span.start_us)
    device, day_us, reports = device[within], day_us[within], reports[within]
    if not len(device):
        return Going(level, keep_us, becomes_us, TimeSpan(span.stop_us, span.stop_us), certain, 0, 0, 0)
    each = reports if level == "raw" else np.minimum(reports, _WINDOWS_A_DAY[level])
    rows, many = round(int(each.sum()) * scale), round(len(np.unique(device)) * scale)
    oldest = TimeSpan(max(span.start_us, int(day_us.min())), span.stop_us)
    return Going(level, keep_us, becomes_us, oldest, certain, many, len(np.unique(day_us)), rows)


def _reports(found: Stepped) -> tuple[Ints, Ints, Ints]:
    """Device, day and about how many reports: as many as the metric has values that has most."""
    summary, said = found.summary, found.texts
    device, day_us, count = summary.device, summary.start_us, summary.stats.count
    if said is not None:
        device = united([device, said.device])
        day_us, count = np.concatenate([day_us, said.start_us]), np.concatenate([count, said.states.count])
    return _most(device.codes.astype(np.int64), day_us, count)


def _most(device: Ints, day_us: Ints, count: Ints) -> tuple[Ints, Ints, Ints]:
    """The largest count of each device and day."""
    order = np.lexsort((day_us, device))
    device, day_us, count = device[order], day_us[order], count[order].astype(np.int64)
    first = np.ones(len(order), np.bool_)
    first[1:] = (device[1:] != device[:-1]) | (day_us[1:] != day_us[:-1])
    heads = np.flatnonzero(first)
    return device[heads], day_us[heads], np.maximum.reduceat(count, heads) if len(heads) else count
