"""Which level answers which part of a span: the coarsest that serves the steps, and finer ones at the edges.

Rule 1: the parts are disjoint and in order; with what is missing they are the span: every report counts exactly once.
Rule 2: a part of a level is whole windows of it, none of which two steps share; what is left over is covered by the level
beneath, raw reports at last.
Rule 3: hours that are dirty are read from raw reports, after the minutes of them that are known to be right; dirty days from
hours. So an answer is right before its rollups are.
Rule 4: what no level that is fine enough keeps any more is missing, and with it the whole step: half of a step is not passed
off as all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from widerow.model.times import DAY, HOUR, TimeSpan
from widerow.query.kept import EVERYTHING, Kept, holds, parted
from widerow.query.steps import Steps
from widerow.rollup.dirt import Dirt
from widerow.schema.rollups import LEVELS, MINUTES, Level

_OF_MINUTES = 1 + LEVELS.index(MINUTES)
"""Levels up to that of minutes."""
_WORTH = 12
"""Windows that a step must have room for, so that it is looked for whole ones inside of it that its edges do not meet."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some time, and the level that is asked about it; None: raw reports."""

    level: Level | None
    span: TimeSpan


@dataclass(frozen=True, slots=True)
class Plan:
    parts: list[Part]
    missing: list[TimeSpan]
    """Of the span, as whole steps: what can no longer be answered."""

    def rows(self, devices: int) -> int:
        """The most rows of rollups it reads. How many raw reports there are nobody knows."""
        return devices * sum(
            (part.span.stop_us - part.span.start_us) // part.level.width_us for part in self.parts if part.level
        )


def plan(span: TimeSpan, steps: Steps, dirt: Dirt, kept: Kept = EVERYTHING) -> Plan:
    """The parts of a span that the steps touch."""
    cover = _Cover(dirt, kept)
    found = _joined(cover.of(part, levels) for part, levels in _pieces(span, steps))
    missing = [part.span for part in found if part.level is _MISSING]
    parts = [part for part in found if part.level is not _MISSING]
    if not missing:
        return Plan(parts, [])
    missing = _whole_steps(missing, span, steps)
    left = [Part(part.level, inside) for part in parts for inside, gone in parted(part.span, missing) if not gone]
    return Plan(left, missing)


def _pieces(span: TimeSpan, steps: Steps) -> Iterator[tuple[TimeSpan, int]]:
    """Stretches to cover, and how many levels, from the finest on, may be used in each.

    Where edges of steps are edges of windows, all steps are one stretch. A level whose windows are cut by edges, but which
    has many of them in a step, is used inside of each step.
    """
    fit = sum(steps.whole(level.width_us) for level in LEVELS)
    inside = sum(steps.shortest_us() >= _WORTH * level.width_us for level in LEVELS)
    if inside <= fit:
        yield span, fit
        return
    edges = steps.edges[(steps.edges > span.start_us) & (steps.edges < span.stop_us)].tolist()
    for start, stop in zip([span.start_us, *edges], [*edges, span.stop_us], strict=True):
        yield TimeSpan(start, stop), inside


_MISSING = replace(MINUTES, name="missing")


class _Cover:
    """`late`: beneath what is dirty, also what is kept beyond the retention counts."""

    def __init__(self, dirt: Dirt, kept: Kept) -> None:
        # What is dirty and has nothing beneath it any more stays as it is: nobody can roll it.
        self._hours = [h for h in sorted(dirt.hours) if holds(kept.late[0], TimeSpan(h, h + HOUR))]
        self._minutes = dirt.minutes
        self._days = [d for d in sorted(dirt.days) if holds(kept.late[2], TimeSpan(d, d + DAY))]
        self._kept = kept

    def of(self, span: TimeSpan, levels: int, *, late: bool = False) -> Iterator[Part]:
        if span.start_us >= span.stop_us:
            return
        stretches = (self._kept.late if late else self._kept.levels)[levels]
        if not levels:
            for part, there in parted(span, stretches):
                yield Part(None if there else _MISSING, part)
            return
        level = LEVELS[levels - 1]
        first, last = -(-span.start_us // level.width_us) * level.width_us, span.stop_us // level.width_us * level.width_us
        if first >= last:
            yield from self.of(span, levels - 1, late=late)
            return
        yield from self.of(TimeSpan(span.start_us, first), levels - 1, late=late)
        at = first
        for dirty in self._dirty(TimeSpan(first, last), level):
            yield from self._clean(TimeSpan(at, dirty.start_us), levels, stretches, late=late)
            for part, there in parted(dirty, stretches):
                if not there:  # nor would it be if it were rolled
                    yield from self.of(part, levels - 1, late=late)
                else:
                    yield from self.of(part, levels - 1, late=True) if level.width_us > HOUR else self._dirty_hour(part)
            at = dirty.stop_us
        yield from self._clean(TimeSpan(at, last), levels, stretches, late=late)
        yield from self.of(TimeSpan(last, span.stop_us), levels - 1, late=late)

    def _dirty_hour(self, span: TimeSpan) -> Iterator[Part]:
        """Whole minutes of an hour that is dirty."""
        until = self._minutes.get(span.start_us - span.start_us % HOUR, span.start_us)
        until = min(max(until, span.start_us), span.stop_us)
        yield from self._clean(TimeSpan(span.start_us, until), _OF_MINUTES, self._kept.late[_OF_MINUTES], late=True)
        yield from self.of(TimeSpan(until, span.stop_us), 0, late=True)

    def _clean(self, span: TimeSpan, levels: int, stretches: Iterable[TimeSpan], *, late: bool) -> Iterator[Part]:
        """Whole windows of a level that are not dirty: where it does not keep them, the level beneath may."""
        for part, there in parted(span, tuple(stretches)):
            if there:
                yield Part(LEVELS[levels - 1], part)
            else:
                yield from self.of(part, levels - 1, late=late)

    def _dirty(self, span: TimeSpan, level: Level) -> list[TimeSpan]:
        """The parts of a span that the level cannot answer: its dirty windows, or the dirty hours that hold windows."""
        dirty, unit_us = (self._days, DAY) if level.width_us == DAY else (self._hours, HOUR)
        return [
            TimeSpan(max(start, span.start_us), min(start + unit_us, span.stop_us))
            for start in dirty
            if start < span.stop_us and start + unit_us > span.start_us
        ]


def _whole_steps(missing: list[TimeSpan], span: TimeSpan, steps: Steps) -> list[TimeSpan]:
    """What is missing, as all of the steps it is in, within the span."""
    starts = steps(np.array([part.start_us for part in missing])).tolist()
    ends = steps.ends(steps(np.array([part.stop_us - 1 for part in missing]))).tolist()
    out: list[TimeSpan] = []
    for start, stop in zip(starts, ends, strict=True):
        start, stop = max(start, span.start_us), min(stop, span.stop_us)  # noqa: PLW2901
        if out and out[-1].stop_us >= start:
            start = out.pop().start_us  # noqa: PLW2901
        out.append(TimeSpan(start, stop))
    return out


def _joined(pieces: Iterable[Iterator[Part]]) -> list[Part]:
    """Without empty parts; neighbours of one level as one."""
    out: list[Part] = []
    for piece in pieces:
        for part in piece:
            if part.span.start_us == part.span.stop_us:
                continue
            if out and out[-1].level is part.level:
                part = Part(part.level, TimeSpan(out.pop().span.start_us, part.span.stop_us))  # noqa: PLW2901
            out.append(part)
    return out
