"""What a decoder gives: the reports it could read, and why it could not read the others."""

from __future__ import annotations

from dataclasses import dataclass

from widerow.model.batch import Batch
from widerow.model.errors import Refusal


@dataclass(frozen=True, slots=True)
class Decoded:
    """Every report of the body is in `batch` or in exactly one refusal."""

    batch: Batch
    refusals: tuple[Refusal, ...] = ()
    apart: bool = False
    """Reports of different positions were sent apart, or were looked at together before: they do not contradict each other,
    and the later one holds.
    """

    def refused(self) -> int:
        return sum(len(r) for r in self.refusals)
