"""Statistics of devices over steps of time, from whichever levels know them, with no seam between them.

Rule 1: an answer does not depend on what has been rolled: counts, extremes, first and last are equal, sums and what follows
from them to the last bits, quantiles to within the error of the sketch.
Rule 2: what a counter gained in a step is what it gained within it, and from its last value before, in an earlier step of
the same answer, to its first value in it. So the steps of an answer add up to what one step over all of them says.
Rule 3: reading goes in stretches that fit into memory; what is read is spent piece by piece, so limits hold within them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from widerow.engine.port import Columns
from widerow.engine.rows import Rows
from widerow.model.arrays import Flags, Floats, Ints
from widerow.model.names import Coded
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import HOUR, SECOND, Clock, TimeSpan
from widerow.query.budget import ENTRY_BYTES, Budget, held_bytes
from widerow.query.cover import Part, Plan, plan
from widerow.query.kept import Kept
from widerow.query.steps import Steps, whole_span
from widerow.query.texts import before
from widerow.rollup.aggregate import (
    Summary,
    TextSummary,
    combined,
    combined_states,
    states_of_raw,
    states_of_rollups,
    summary_of_raw,
    summary_of_rollups,
)
from widerow.rollup.dirt import Dirt, DirtOf
from widerow.rollup.store import Rollups
from widerow.telemetry.store import Telemetry

AGGREGATES = (
    "min",
    "max",
    "avg",
    "sum",
    "count",
    "stddev",
    "p50",
    "p95",
    "p99",
    "first",
    "last",
    "increase",
    "rate",
)
"""What can be asked of a step of numbers. A rate is per second."""

QUANTILES = frozenset(("p50", "p95", "p99"))

_HOURS_AT_ONCE = 256
"""Hours of raw reports, of all devices together, that are read in one go: 100,000 reports, at a report each 10 s."""
_WINDOWS_AT_ONCE, _FIRST_PART = 131_072, 16
"""The same of windows of rollups; a sixteenth of that at first, ..."""
_BYTES_AT_ONCE = 256 << 20
"""... and then as many as take this, by what the ones before did."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where answers come from."""

    telemetry: Telemetry
    rollups: Rollups
    dirt_of: DirtOf
    clock: Clock


@dataclass(frozen=True, slots=True)
class Stepped:
    """Statistics by device, metric and step, and how many rows of each level they come from."""

    summary: Summary
    steps: Steps
    span: TimeSpan
    used: Mapping[str, int]
    missing: Sequence[TimeSpan] = ()
    """Steps that can no longer be answered."""
    texts: TextSummary | None = None
    """What texts said, if that was asked for."""
    earlier: TextSummary | None = None
    """What they said before the span, if their states were asked for."""

    def __len__(self) -> int:
        return len(self.summary)

    def values(self, aggregate: str) -> Floats:
        stats = self.summary.stats
        if aggregate == "avg":
            return stats.mean
        if aggregate == "stddev":
            return stats.stddev()
        if aggregate == "increase":
            return self.increase()
        if aggregate == "rate":
            return self.increase() / self.seconds()
        column: Floats | Ints = getattr(stats, aggregate)
        return column.astype(np.float64)

    def increase(self) -> Floats:
        """See rule 2."""
        stats = self.summary.stats
        gained = stats.increase.copy()
        before, after = stats.last[:-1], stats.first[1:]
        with np.errstate(over="ignore"):  # more than a number can say is infinite
            gained[1:] += np.where(follows(self.summary), np.where(after >= before, after - before, after), 0.0)
        return gained

    def seconds(self) -> Floats:
        """How long each step is, as far as it lies within the span."""
        return seconds_of(self.summary.start_us, self.steps, self.span)


def seconds_of(start_us: Ints, steps: Steps, span: TimeSpan) -> Floats:
    stop_us = np.minimum(steps.ends(start_us), span.stop_us)
    return (stop_us - np.maximum(start_us, span.start_us)) / SECOND


def follows(summary: Summary) -> Flags:
    """Which entries, from the second on, are of the same series as the one before."""
    device, metric = summary.device.codes, summary.metric.codes
    same: Flags = (device[1:] == device[:-1]) & (metric[1:] == metric[:-1])
    return same


def stepped(
    sources: Sources,
    tenant: Tenant,
    devices: Sequence[str],
    *,
    span: TimeSpan,
    steps: Steps,
    budget: Budget,
    metrics: Columns | None = None,
    quantiles: bool = True,
    texts: bool = False,
    states: bool = False,
    sketches: bool = True,
) -> Stepped:
    """Devices come in the order given; those without values are not there. Without `quantiles` these are not numbers, and
    all else takes a third of the time. `texts`: of these as well; `states`: and what lasts into the span. `sketches`: the
    statistics will be merged further.
    """
    earlier: TextSummary | None = None
    used: dict[str, int] = {}
    texts = texts or states
    if states:
        earlier = _earlier(sources, tenant, devices, before(span), budget, metrics, used)
    planned = planned_for(sources, tenant, devices, span=span, steps=steps, budget=budget)
    budget.expect(planned.rows(len(devices)))
    found: list[Summary] = []
    said: list[TextSummary] = []
    for part in planned.parts:
        for rows in _rows(sources, tenant, devices, part, steps, metrics, budget, used):
            if not rows:  # as often at the edges of a span
                continue
            if part.level is None:
                found.append(summary_of_raw(rows, steps, quantiles=quantiles))
            else:
                merging = sketches or not steps.are_windows(part.level.width_us)
                found.append(summary_of_rollups(rows, steps, quantiles=quantiles, sketches=merging))
            budget.hold(ENTRY_BYTES * sum(map(len, found)))
            if texts:
                said.append((states_of_raw if part.level is None else states_of_rollups)(rows, steps))
    summary = _in_order_of(devices, combined(found or [summary_of_raw([], steps)]))
    texts_of_all = combined_states(said or [states_of_raw([], steps)]) if texts else None
    return Stepped(summary, steps, span, used, planned.missing, texts_of_all, earlier)


def _earlier(
    sources: Sources,
    tenant: Tenant,
    devices: Sequence[str],
    span: TimeSpan,
    budget: Budget,
    metrics: Columns | None,
    used: dict[str, int],
) -> TextSummary | None:
    """What texts said before a question's span."""
    if span.start_us == span.stop_us:
        return None
    found = stepped(
        sources,
        tenant,
        devices,
        span=span,
        steps=whole_span(span),
        budget=budget,
        metrics=metrics,
        quantiles=False,
        texts=True,
        sketches=False,
    )
    used.update(found.used)
    return found.texts


def planned_for(
    sources: Sources, tenant: Tenant, devices: Sequence[str], *, span: TimeSpan, steps: Steps, budget: Budget
) -> Plan:
    """Dirt first: what is marked after that is newer than the question."""
    dirt: Dirt = sources.dirt_of(tenant, devices)
    return plan(span, steps, dirt, Kept.of(tenant, budget.asked_us(sources.clock)))


def _rows(
    sources: Sources,
    tenant: Tenant,
    devices: Sequence[str],
    part: Part,
    steps: Steps,
    metrics: Columns | None,
    budget: Budget,
    used: dict[str, int],
) -> Iterator[list[Rows]]:
    """The rows of a part of a plan, a stretch at a time. Raw reports of a step come all at once: its quantiles are exact."""
    level = part.level
    width_us, most = (HOUR, _HOURS_AT_ONCE) if level is None else (level.width_us, _WINDOWS_AT_ONCE)
    name = level.name if level else "raw"
    gathered: list[Rows] = []
    held = 0

    def spend(rows: Rows) -> None:
        nonlocal held
        held += held_bytes([rows])
        used[name] = used.get(name, 0) + len(rows)
        budget.spend(len(rows), held_bytes=held)

    used.setdefault(name, 0)
    most_us = width_us * max(1, most // len(devices))
    at_once_us = most_us if level is None else max(width_us, most_us // _FIRST_PART)
    at_us = part.span.start_us
    while at_us < part.span.stop_us:
        stretch, ends = _stretch(TimeSpan(at_us, part.span.stop_us), steps, at_once_us)
        at_us = stretch.stop_us
        budget.check()
        # What may be read was settled by the plan; the clock goes on meanwhile.
        if level is None:
            gathered += sources.telemetry.read_many(
                tenant, devices, stretch, metrics=metrics, beyond_us=GUARD_US, between=spend
            )
        else:
            gathered += sources.rollups.read(
                tenant, devices, level, stretch, metrics=metrics, beyond_us=GUARD_US, between=spend
            )
        if level is not None:  # rows may have ten cells or ten thousand
            fits_us = (stretch.stop_us - stretch.start_us) * _BYTES_AT_ONCE // max(held, 1)
            at_once_us = max(width_us, min(fits_us, most_us))
        if ends or level is not None:
            yield gathered
            gathered, held = [], 0


def _stretch(span: TimeSpan, steps: Steps, most_us: int) -> tuple[TimeSpan, bool]:
    """The first part of a span, and whether it ends a step (or the span). It ends where a step does, if that is possible."""
    stop = min(span.start_us + most_us, span.stop_us)
    ends = stop == span.stop_us
    if not ends:
        edge = int(steps(np.array([stop]))[0])
        if edge > span.start_us:
            stop, ends = edge, True
    return TimeSpan(span.start_us, stop), ends


def _in_order_of(devices: Sequence[str], summary: Summary) -> Summary:
    if len(devices) == 1 or not len(summary):
        return summary
    place = {device: i for i, device in enumerate(devices)}
    rank = np.array([place[name] for name in summary.device.names], np.int32)[summary.device.codes]
    if (rank[1:] >= rank[:-1]).all():
        return summary
    order = np.argsort(rank, kind="stable")
    device = Coded(summary.device.names, summary.device.codes[order])
    return Summary(device, summary.metric.take(order), summary.start_us[order], summary.stats.take(order))
