"""Which level answers which part of a span: the coarsest that serves the step, and finer ones at the edges.

Rule 1: the parts are disjoint, in order, and together the span: every report counts exactly once.
Rule 2: a part of a level is whole windows of it; what is left over is covered by the level beneath, raw reports at last.
Rule 3: hours that are dirty are read from raw reports, dirty days from hours, so an answer is right before its rollups are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from widerow.model.times import DAY, HOUR, TimeSpan
from widerow.rollup.dirt import Dirt
from widerow.schema.rollups import LEVELS, Level


@dataclass(frozen=True, slots=True)
class Part:
    """Some time, and the level that is asked about it; None: raw reports."""

    level: Level | None
    span: TimeSpan


def coarsest(step_us: int) -> int:
    """How many levels, from the finest on, have windows that fit into steps of that width."""
    return sum(step_us % level.width_us == 0 for level in LEVELS)


def cover(span: TimeSpan, step_us: int, dirt: Dirt) -> list[Part]:
    """The parts of a span, for steps that begin at multiples of `step_us`."""
    return _joined(_cover(span, coarsest(step_us), dirt))


def _cover(span: TimeSpan, levels: int, dirt: Dirt) -> Iterator[Part]:
    if span.start_us >= span.stop_us:
        return
    if not levels:
        yield Part(None, span)
        return
    level = LEVELS[levels - 1]
    first, last = -(-span.start_us // level.width_us) * level.width_us, span.stop_us // level.width_us * level.width_us
    if first >= last:
        yield from _cover(span, levels - 1, dirt)
        return
    yield from _cover(TimeSpan(span.start_us, first), levels - 1, dirt)
    at = first
    for part in _dirty_parts(TimeSpan(first, last), level, dirt):
        yield Part(level, TimeSpan(at, part.start_us))
        yield from _cover(part, levels - 1 if level.width_us > HOUR else 0, dirt)
        at = part.stop_us
    yield Part(level, TimeSpan(at, last))
    yield from _cover(TimeSpan(last, span.stop_us), levels - 1, dirt)


def _dirty_parts(span: TimeSpan, level: Level, dirt: Dirt) -> list[TimeSpan]:
    """The parts of a span that the level cannot answer: windows that hold a dirty hour, or dirty hours that hold windows."""
    width_us = max(level.width_us, HOUR)
    dirty, unit_us = (dirt.days, DAY) if level.width_us == DAY else (dirt.hours, HOUR)
    starts = {start - start % width_us for start in dirty if start < span.stop_us and start + unit_us > span.start_us}
    return [TimeSpan(max(start, span.start_us), min(start + width_us, span.stop_us)) for start in sorted(starts)]


def _joined(parts: Iterator[Part]) -> list[Part]:
    """Without empty parts; neighbours of one level as one."""
    out: list[Part] = []
    for part in parts:
        if part.span.start_us == part.span.stop_us:
            continue
        if out and out[-1].level is part.level:
            part = Part(part.level, TimeSpan(out.pop().span.start_us, part.span.stop_us))  # noqa: PLW2901
        out.append(part)
    return out
