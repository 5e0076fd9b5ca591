"""The keys that were counted most in each of the last minutes, in bounded memory and with an error.

A minute keeps `MOST_KEYS` keys by the rule of Misra and Gries: when there are more, the count of the first one too many is
taken from all, and those with nothing left go. (Such summaries of several samples can be added up: Agarwal and others,
"Mergeable Summaries", 2012.)
Rule: of N rows counted in a minute, a key has at most `N / (MOST_KEYS + 1)` more than its count says. Half of that is added
to the count that is told, and half is part of its error. The rest of the error is three standard deviations of the sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import sqrt

MOST_KEYS = 256
SIGMAS = 3.0
"""Of 1,000 estimates, 997 are within so many standard deviations."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A key: its count is `count`, give or take `error`."""

    key: str
    count: float
    error: float


@dataclass(slots=True)
class _Minute:
    counts: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Weight and variance of each key."""
    slack: float = 0.0

    def add(self, found: Iterable[tuple[str, float, float]], most: int) -> None:
        counts = self.counts
        for key, weight, variance in found:
            known = counts.get(key, (0.0, 0.0))
            counts[key] = known[0] + weight, known[1] + variance
        if len(counts) > most:
            cut = sorted((weight for weight, _ in counts.values()), reverse=True)[most]
            self.counts = {key: (w - cut, variance) for key, (w, variance) in counts.items() if w > cut}
            self.slack += cut


class KeyCounts:
    """The keys with the most, by minute. One thread at a time."""

    def __init__(self, minutes: int, most: int = MOST_KEYS) -> None:
        self._minutes, self._most = minutes, most
        self._by_minute: dict[int, _Minute] = {}

    def add(self, minute: int, found: Iterable[tuple[str, float, float]]) -> None:
        """Keys with the sum of their weights and its variance. Minutes that are too old are forgotten."""
        self._by_minute.setdefault(minute, _Minute()).add(found, self._most)
        for old in [m for m in self._by_minute if m <= minute - self._minutes]:
            del self._by_minute[old]

    def heaviest(self, since: int, wanted: Callable[[str], bool], most: int) -> list[Counted]:
        """The keys with the most from a minute on, the heaviest first."""
        sums: dict[str, list[float]] = {}
        slack = 0.0
        for minute, one in self._by_minute.items():
            if minute < since:
                continue
            slack += one.slack
            for key, (weight, variance) in one.counts.items():
                if wanted(key):
                    total = sums.setdefault(key, [0.0, 0.0])
                    total[0] += weight
                    total[1] += variance
        found = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))[:most]
        return [Counted(key, w + slack / 2, slack / 2 + SIGMAS * sqrt(variance)) for key, (w, variance) in found]
