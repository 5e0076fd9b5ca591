"""Judges a design: all findings, worst first, each with the design that mends it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from widerow.keylab.around import around_findings
from widerow.keylab.design import Design
from widerow.keylab.facts import Facts
from widerow.keylab.finding import ADVICE, ERROR, WARNING, Finding
from widerow.keylab.order import order_findings
from widerow.keylab.size import size_findings
from widerow.keylab.suggest import suggestion_for
from widerow.plan.fleet import Fleet

_ORDER = (ERROR, WARNING, ADVICE)


@dataclass(frozen=True, slots=True)
class Verdict:
    design: Design
    findings: tuple[Finding, ...]
    suggestion: str
    """Empty: nothing above advice was found."""

    @property
    def is_good(self) -> bool:
        return not any(finding.severity == ERROR for finding in self.findings)


def lint(design: Design, fleet: Fleet, now_us: int) -> Verdict:
    facts = Facts(design, fleet, now_us)
    found = [*order_findings(facts), *size_findings(facts), *around_findings(facts)]
    found.sort(key=lambda finding: _ORDER.index(finding.severity))
    suggestion = suggestion_for(facts) if any(finding.severity != ADVICE for finding in found) else ""
    mended = (replace(one, suggestion=suggestion if one.severity != ADVICE else "") for one in found)
    return Verdict(design, tuple(mended), suggestion)
