"""When a device is hot, and what is done next about it. Pure: rates and what holds in, a verdict and a turn out.

Rule 1: a device is judged by what it declared: some times its profile's `reports_per_s`, or its `max_reports_per_s` where
that is more. One that declared nothing may send `hot.reports_per_s`. And whoever sends more than it declared may not be a
great share of all that a busy process takes.
Rule 2: one turn in an interval. The first says that it is hot; then come limit, spread and sample, but for those that are
forbidden; when it was calm for a while, sample, limit and spread are taken back the same way, and the last says that it has
cooled.
Rule 3: between hot and calm is a gap (half of what is hot) in which nothing changes.
Rule 4: what was taken back and had to be taken again is taken back after twice as long, up to an hour; a day without that,
and it is forgotten. So a device that comes and goes adds few facts a day, and fewer epochs: both are for ever.
Rule 5: what is left of a device that is not hot, because it was pinned until now, is taken back as if it were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from widerow.model.device import Profile
from widerow.model.figures import figure
from widerow.model.hot import Step, StepMode
from widerow.model.times import HOUR

CALM = 0.5
"""Of what would be too much: what a device may send and be called calm."""
MOST_SPREAD = 64
"""Sub-buckets that a hot device gets at most: whoever reads it looks into each."""


class Turn(StrEnum):
    """What happens to a device. Labels of a metric: a name never changes its meaning."""

    DETECTED = "detected"
    LIMITED = "limited"
    SPREAD = "spread"
    SAMPLED = "sampled"
    WHOLE = "whole"
    """It is no longer sampled."""
    UNLIMITED = "unlimited"
    GATHERED = "gathered"
    """It is no longer spread, from some minutes later on."""
    COOLED = "cooled"


_TAKEN = {Step.LIMIT: Turn.LIMITED, Step.SPREAD: Turn.SPREAD, Step.SAMPLE: Turn.SAMPLED}
TAKEN_BACK = {Step.SAMPLE: Turn.WHOLE, Step.LIMIT: Turn.UNLIMITED, Step.SPREAD: Turn.GATHERED}
"""In this order. A spread is last: it is an epoch, which begins minutes after it is called for and is never forgotten, and
until then it adds no more than looks when the device is read.
"""
_MOST_COOL_US = HOUR
"""Of calm before a turn back, however often one had to be taken again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotSettings:
    reports_per_s: float = 100.0
    """What a device that declared nothing may send."""
    declared_times: float = 10.0
    """How many times what it declared a device may send."""
    share: float = 0.25
    """Of all that the process takes."""
    share_from_per_s: float = 1000.0
    """How much that must be for shares to matter."""
    least_per_s: float = 10.0
    """Less than this is not hot, whatever was declared."""
    cool_intervals: int = 6
    """In a row, before each turn back, of a device that was not hot lately (Rule 4)."""
    sample: float = 0.1
    """The part that is kept."""


@dataclass(frozen=True, slots=True)
class Verdict:
    is_hot: bool
    is_calm: bool
    allowed_per_s: float
    """What it would be limited to."""
    why: str


def judged(rate: float, profile: Profile, all_per_s: float, settings: HotSettings) -> Verdict:
    """What to think of a device that sends so many reports a second, in a process that takes so many in all."""
    declared = max(settings.declared_times * profile.reports_per_s, profile.max_reports_per_s)
    allowed = declared or settings.reports_per_s
    why = f"{figure(rate)} reports/s, and {_allowance(profile, allowed)}"
    if all_per_s >= settings.share_from_per_s and rate > profile.reports_per_s:
        fair = max(settings.share * all_per_s, profile.reports_per_s)
        if fair < allowed:
            allowed = fair
            why = (
                f"{figure(rate)} of {figure(all_per_s)} reports/s in all, of which one device may send {settings.share:.0%}"
            )
    limit = max(allowed, settings.least_per_s)
    return Verdict(rate > limit, rate <= CALM * limit, allowed, why)


def _allowance(profile: Profile, allowed: float) -> str:
    if allowed == profile.max_reports_per_s:
        return f"its profile allows {figure(allowed)}"
    if profile.reports_per_s:
        return f"its profile's {figure(profile.reports_per_s)} allow {figure(allowed)}"
    return f"a device that declares no rate may send {figure(allowed)}"


@dataclass(frozen=True, slots=True)
class Held:
    """What holds for a device."""

    hot: bool
    steps: frozenset[Step]


def next_turn(held: Held, modes: Mapping[Step, StepMode], verdict: Verdict, calm_intervals: int, needed: int) -> Turn | None:
    """What happens now, at the end of an interval. `calm_intervals`: how many were calm in a row, this one included;
    `needed`: how many must have been for a turn back (`calm_needed`).
    """
    for step, turn in TAKEN_BACK.items():
        if step in held.steps and modes[step] is StepMode.FORBID:  # it was forbidden meanwhile
            return turn
    if verdict.is_hot:
        if not held.hot:
            return Turn.DETECTED
        missing = (step for step in Step if step not in held.steps and modes[step] is not StepMode.FORBID)
        return next((_TAKEN[step] for step in missing), None)
    if calm_intervals < needed:
        return None
    for step, turn in TAKEN_BACK.items():
        if step in held.steps and modes[step] is StepMode.AUTO:
            return turn
    return Turn.COOLED if held.hot else None


def calm_needed(relapses: int, interval_us: int, settings: HotSettings) -> int:
    """How many calm intervals in a row a turn back takes, for a device whose steps had to be taken again so often."""
    most = max(settings.cool_intervals, _MOST_COOL_US // interval_us)
    return min(settings.cool_intervals << min(relapses, 16), most)


def spread_for(rate: float, now: int, settings: HotSettings) -> int:
    """Over how many sub-buckets to spread a device that has so many: each is then written as often as a device may be that
    declares nothing, if that many are enough. A power of two, as all spreads are.
    """
    needed = max(2, int(-(-rate // settings.reports_per_s)))
    return max(now, min(1 << (needed - 1).bit_length(), MOST_SPREAD))
