"""What of each level can still be read: its retention, as stretches of event time.

A window of a level can be read as long as any of its time is within the retention, as the store of rollups shows it.
A retention that was shortened holds for what is stored already, too (`model.tenant.Held`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import TimeSpan
from widerow.schema.rollups import LEVELS, Level

_EVER = TimeSpan(0, 1 << 62)


@dataclass(frozen=True, slots=True)
class Kept:
    """For each level, raw reports first, the stretches that can be read, in order."""

    levels: tuple[tuple[TimeSpan, ...], ...]
    late: tuple[tuple[TimeSpan, ...], ...]
    """The same with all that is on disk: beyond what is shown, and beyond the retention, for rolls that come late. What is
    not rolled yet is read from it: its rollups, which are shown longer, would say no more than these reports."""

    @classmethod
    def of(cls, tenant: Tenant, now_us: int) -> Kept:
        return cls(_stretches(tenant, now_us, shown=True), _stretches(tenant, now_us - GUARD_US, shown=False))


EVERYTHING = Kept(((_EVER,),) * 4, ((_EVER,),) * 4)


def _stretches(tenant: Tenant, now_us: int, *, shown: bool) -> tuple[tuple[TimeSpan, ...], ...]:
    raw = _joined(_raw(tenant, now_us, shown=shown))
    return (raw, *(_joined(_rollups(tenant, level, now_us, shown=shown)) for level in LEVELS))


def _raw(tenant: Tenant, now_us: int, *, shown: bool) -> Iterator[tuple[int, int]]:
    for held in tenant.raw_held():
        keep_us = held.shown_us if shown else held.keep_us
        yield max(held.start_us, now_us - keep_us if keep_us else 0), held.stop_us


def _rollups(tenant: Tenant, level: Level, now_us: int, *, shown: bool) -> Iterator[tuple[int, int]]:
    for held in tenant.rollups_held(level.name):
        keep_us = held.shown_us if shown else held.keep_us
        oldest = now_us - keep_us if keep_us else 0
        start, stop = max(held.start_us, oldest - oldest % level.width_us), held.stop_us
        # A window has the retention that holds where it begins.
        yield start + -start % level.width_us, stop + -stop % level.width_us if stop < _EVER.stop_us else stop


def _joined(stretches: Iterator[tuple[int, int]]) -> tuple[TimeSpan, ...]:
    out: list[TimeSpan] = []
    for start, stop in stretches:
        if start >= stop:
            continue
        if out and out[-1].stop_us >= start:
            out[-1] = TimeSpan(out[-1].start_us, max(stop, out[-1].stop_us))
        else:
            out.append(TimeSpan(start, stop))
    return tuple(out)


def parted(span: TimeSpan, stretches: Sequence[TimeSpan]) -> Iterator[tuple[TimeSpan, bool]]:
    """The parts of a span, in order, and whether each lies within one of the stretches."""
    at = span.start_us
    for stretch in stretches:
        start, stop = max(stretch.start_us, at), min(stretch.stop_us, span.stop_us)
        if start >= stop:
            continue
        if at < start:
            yield TimeSpan(at, start), False
        yield TimeSpan(start, stop), True
        at = stop
    if at < span.stop_us:
        yield TimeSpan(at, span.stop_us), False


def holds(stretches: Sequence[TimeSpan], span: TimeSpan) -> bool:
    return any(stretch.start_us <= span.start_us and span.stop_us <= stretch.stop_us for stretch in stretches)
