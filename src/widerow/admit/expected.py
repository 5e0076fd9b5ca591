"""How many reports lines of a tenant are, as others of the last minutes were.

It is for refusing a body that is surely too much without decoding it: a tenant that sends ten times what it may would cost
its neighbours the decoding of nine bodies out of ten otherwise.
A line is a report, but for those that are empty, comments, repeated or refused, for backlog, and for what devices' limits
take away: what counts is what of a body its tenant's limit of live reports was asked about.
Rule: `at_least` goes by the body that had the fewest reports for its lines, of those decoded in the last one to two minutes.
A body that has fewer than all of them is the only kind that is taken for too much when it is not.
"""

from __future__ import annotations

from widerow.model.times import MINUTE

_WEIGHT = 1 / 16
"""Of the last body, in what is usual."""


class Expected:
    """Of one tenant. By who has its turn."""

    __slots__ = ("_before", "_fewest", "_since_us", "_usual")

    def __init__(self, now_us: int) -> None:
        self._since_us = now_us
        self._before: float | None = None
        self._fewest: float | None = None
        """Reports a line, in the minute before and in this one; None: nobody knows."""
        self._usual = 0.0

    def learn(self, lines: int, reports: int, now_us: int) -> None:
        """So many lines were so many reports."""
        self._turn(now_us)
        found = reports / max(lines, 1)
        self._usual += (_WEIGHT if self._usual else 1) * (found - self._usual)
        self._fewest = found if self._fewest is None else min(found, self._fewest)

    def at_least(self, lines: int, now_us: int) -> int:
        """How many reports so many lines are, if they are like the emptiest; 0: maybe none."""
        self._turn(now_us)
        fewest = min((known for known in (self._before, self._fewest) if known is not None), default=0.0)
        return max(1, int(fewest * lines)) if fewest else 0

    def about(self, lines: int) -> int:
        return round(self._usual * lines)

    def _turn(self, now_us: int) -> None:
        minutes = (now_us - self._since_us) // MINUTE
        if minutes > 0:
            self._before, self._fewest = self._fewest if minutes == 1 else None, None
            self._since_us += minutes * MINUTE
