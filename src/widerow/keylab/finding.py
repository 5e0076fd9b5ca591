"""What the lab finds in a design. Codes never change; `explain.py` tells each at length."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from widerow.model.times import DAY, SECOND

Severity: TypeAlias = Literal["error", "warning", "advice"]
ERROR: Severity = "error"
WARNING: Severity = "warning"
ADVICE: Severity = "advice"


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    severity: Severity
    message: str
    examples: tuple[str, ...] = ()
    """Two keys, or two lines of the schema, that show it."""
    suggestion: str = ""


def date_of(time_us: float) -> str:
    """The day of a moment; far ones as the year."""
    if time_us >= 253_402_300_800 * SECOND:
        return f"the year {1970 + int(time_us / (365.2425 * DAY)):,}"
    return datetime.fromtimestamp(time_us / SECOND, UTC).strftime("%Y-%m-%d")
