"""Judges a design: all findings, worst first, each with the design that mends it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from widerow.keylab.around import around_findings
from widerow.keylab.design import Design
from widerow.keylab.facts import Facts
from widerow.keylab.finding import ADVICE, ERROR, WARNING, Finding
from widerow.keylab.order import order_findings
from widerow.keylab.read import read_design
from widerow.keylab.size import size_findings
from widerow.keylab.suggest import suggestion_for
from widerow.plan.fleet import Fleet

_ORDER = (ERROR, WARNING, ADVICE)


@dataclass(frozen=True, slots=True)
class Verdict:
    design: Design
    findings: tuple[Finding, ...]
    suggestion: str
    """Empty: nothing above advice was found, or no better design is known."""

    @property
    def is_good(self) -> bool:
        return not any(finding.severity == ERROR for finding in self.findings)


def _findings(facts: Facts) -> list[Finding]:
    return [*order_findings(facts), *size_findings(facts), *around_findings(facts)]


def _mended(facts: Facts) -> str:
    """A better design; empty: none is known that has no faults of its own."""
    suggestion = suggestion_for(facts)
    again = _findings(replace(facts, design=read_design(suggestion, "the suggestion")))
    return "" if any(finding.severity != ADVICE for finding in again) else suggestion


def lint(design: Design, fleet: Fleet, now_us: int) -> Verdict:
    facts = Facts(design, fleet, now_us)
    found = _findings(facts)
    found.sort(key=lambda finding: _ORDER.index(finding.severity))
    suggestion = _mended(facts) if any(finding.severity != ADVICE for finding in found) else ""
    mended = (replace(one, suggestion=suggestion if one.severity != ADVICE else "") for one in found)
    return Verdict(design, tuple(mended), suggestion)
