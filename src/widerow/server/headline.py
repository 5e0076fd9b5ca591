"""Troubles and news in a few lines of plain words: the top of the dashboard.

Pure: facts in, lines out, the worst first. Nothing wrong gives no line at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from widerow.model.figures import figure
from widerow.model.times import HOUR, about_duration
from widerow.ops.hour import Refused
from widerow.rollup.guard import LATE_US

MOST_LINES = 5
CRITICAL, WARNING, INFO = "critical", "warning", "info"
SEVERITIES = (CRITICAL, WARNING, INFO)
SILENT_WITHIN_US = HOUR
"""A device that went silent is news for so long."""
_MANY_REFUSED = 0.01
"""The part of all reports from which on refusals are a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    severity: str
    text: str
    since_us: int | None = None
    view: str = "system"
    """The part of the dashboard that shows more: `device`, `devices`, `alerts`, `tenant`, `dead-letters`, `system`."""
    tenant: str = ""
    device: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    """A device that sends far too much."""

    tenant: str
    device: str
    reports_per_s: float
    since_us: int
    steps: Sequence[str]
    """What is done about it, as words: `limited`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """Devices of a tenant that went silent lately, and the last of them."""

    tenant: str
    count: int
    device: str
    last_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    alerts: Sequence[Line] = ()
    """Alerts that fire."""
    troubles: Sequence[str] = ()
    """Why the process does not keep up, or takes no reports."""
    damage: Sequence[str] = ()
    """What of the store cannot be read."""
    writes_fail: bool = False
    behind_us: int = 0
    """Of the rollups."""
    hot: Sequence[Hot] = ()
    refusals: Sequence[Refused] = ()
    """Of the last minutes."""
    refused_per_s: float = 0.0
    reports_per_s: float = 0.0
    silent: Sequence[Silent] = ()


def headline(facts: Facts) -> list[Line]:
    lines = [*facts.alerts, *_of_process(facts), *_of_hot(facts.hot), *_of_refusals(facts), *_of_silent(facts.silent)]
    lines.sort(key=lambda line: SEVERITIES.index(line.severity))  # stable: of equals the first stays first
    return lines[:MOST_LINES]


def _of_process(facts: Facts) -> Iterator[Line]:
    for trouble in facts.troubles:
        yield Line(severity=CRITICAL, text=trouble)
    if facts.writes_fail:
        yield Line(severity=CRITICAL, text="no write to the store works")
    if facts.damage:
        parts = "1 part" if len(facts.damage) == 1 else f"{len(facts.damage)} parts"
        yield Line(severity=CRITICAL, text=f"the store is damaged: {parts} of it cannot be read")
    if facts.behind_us > LATE_US:
        yield Line(severity=WARNING, text=f"rollups are {about_duration(facts.behind_us)} behind")


def _of_hot(hot: Sequence[Hot]) -> Iterator[Line]:
    for one in sorted(hot, key=lambda one: -one.reports_per_s):
        done = f"; it is {' and '.join(one.steps)}" if one.steps else ""
        yield Line(
            severity=WARNING,
            text=f"{one.device} sends {_about(one.reports_per_s)} reports/s{done}",
            since_us=one.since_us,
            view="device",
            tenant=one.tenant,
            device=one.device,
        )


def _of_refusals(facts: Facts) -> Iterator[Line]:
    if facts.refused_per_s <= 0 or not facts.refusals:
        return
    came = facts.refused_per_s + facts.reports_per_s
    most = facts.refusals[0].code
    yield Line(
        severity=WARNING if facts.refused_per_s >= _MANY_REFUSED * came else INFO,
        text=f"{_about(facts.refused_per_s)} of {_about(came)} reports/s are refused, most for {most}",
        view="dead-letters",
    )


def _of_silent(silent: Sequence[Silent]) -> Iterator[Line]:
    for one in sorted(silent, key=lambda one: -one.last_us):
        yield Line(
            severity=WARNING,
            text=f"{one.device} went silent" if one.count == 1 else f"{one.count:,} devices went silent, {one.device} last",
            since_us=one.last_us,
            view="device" if one.count == 1 else "devices",
            tenant=one.tenant,
            device=one.device if one.count == 1 else "",
        )


def _about(per_s: float) -> str:
    """A rate in a sentence: digits behind the point say something of small ones only."""
    return figure(round(per_s) if per_s >= 10 else round(per_s, 1))
