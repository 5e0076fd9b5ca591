"""Statistics of devices over steps of time, from whichever levels know them, with no seam between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from widerow.codec.stats import Stats
from widerow.model.arrays import Floats
from widerow.model.tenant import Tenant
from widerow.model.times import SECOND, TimeSpan
from widerow.query.cover import cover
from widerow.rollup.aggregate import Summary, combined, summary_of_raw, summary_of_rollups
from widerow.rollup.dirt import CLEAN, Dirt
from widerow.rollup.store import Rollups
from widerow.telemetry.store import Telemetry

AGGREGATES: Mapping[str, Callable[[Stats, int], Floats]] = {
    "min": lambda s, _: s.min,
    "max": lambda s, _: s.max,
    "avg": lambda s, _: s.mean,
    "sum": lambda s, _: s.sum,
    "count": lambda s, _: s.count.astype(np.float64),
    "stddev": lambda s, _: s.stddev(),
    "p50": lambda s, _: s.p50,
    "p95": lambda s, _: s.p95,
    "p99": lambda s, _: s.p99,
    "first": lambda s, _: s.first,
    "last": lambda s, _: s.last,
    "increase": lambda s, _: s.increase,
    "rate": lambda s, step_us: s.increase / (step_us / SECOND),
}
"""What can be asked of a step: its statistics and its width -> a number. A rate is per second."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """Statistics by device, metric and step, and how many windows (or raw reports) of each level they come from."""

    steps: Summary
    step_us: int
    used: Mapping[str, int]

    def values(self, aggregate: str) -> Floats:
        return AGGREGATES[aggregate](self.steps.stats, self.step_us)


def stepped(
    telemetry: Telemetry,
    rollups: Rollups,
    tenant: Tenant,
    devices: Sequence[str],
    *,
    span: TimeSpan,
    step_us: int,
    metrics: Sequence[str] | None = None,
    dirt: Dirt = CLEAN,
) -> Stepped:
    """Numbers only. `dirt` is that of any of the devices."""
    found: list[Summary] = []
    used: dict[str, int] = {}
    for part in cover(span, step_us, dirt):
        if part.level is None:
            rows = telemetry.read_many(tenant, devices, part.span, metrics=metrics)
            found.append(summary_of_raw(rows, step_us))
        else:
            rows = rollups.read(tenant, devices, part.level, part.span, metrics=metrics)
            found.append(summary_of_rollups(rows, step_us))
        level = part.level.name if part.level else "raw"
        used[level] = used.get(level, 0) + sum(len(chunk) for chunk in rows)
    return Stepped(combined(found or [summary_of_raw([], step_us)]), step_us, used)
