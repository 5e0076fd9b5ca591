"""How many reports a body has, by its size: what a tenant's last bodies had.

It is for refusing a body that is surely too much without decoding it: a tenant that sends ten times what it may would cost
its neighbours the decoding of nine bodies out of ten otherwise.
Rule: a guess is on the low side. `at_least` goes by the emptiest body of late, so one that has fewer reports than all those
before it is the only kind that is taken for too much when it is not; its sender is told to wait for a moment longer.
"""

from __future__ import annotations

from dataclasses import dataclass

_WEIGHT = 1 / 16
"""Of the last body, in what is usual, and in forgetting one that had few."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A body nobody has looked into."""

    size: int
    packed: bool
    """Compressed: it has more in it."""


class Density:
    """Of one tenant's bodies of one kind. For several threads: if two learn at once, one of them is not heard."""

    __slots__ = ("_fewest", "_usual")

    def __init__(self) -> None:
        self._fewest: float | None = None
        self._usual = 0.0
        """Reports a byte; of the emptiest None: nobody knows."""

    def learn(self, size: int, reports: int) -> None:
        """A body of that size had so many."""
        found = reports / max(size, 1)
        if self._fewest is None:
            self._fewest = self._usual = found
            return
        self._usual += _WEIGHT * (found - self._usual)
        self._fewest = min(found, self._fewest + _WEIGHT * (found - self._fewest))

    def at_least(self, size: int) -> int:
        """How many a body of that size has if it is like the emptiest; 0: it may have none."""
        return int((self._fewest or 0.0) * size)

    def about(self, size: int) -> int:
        return round(self._usual * size)
