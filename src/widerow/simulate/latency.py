"""How long things took: a histogram whose size does not depend on how many it has seen.

Buckets grow by 1%, so a quantile is within 1% of the true one; the greatest value is kept as it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from widerow.model.arrays import Ints

_FLOOR_S = 1e-6
_STEP = math.log(1.01)
_BUCKETS = 2300
"""Up to 2.4 hours."""


@dataclass(eq=False)
class Latencies:
    """Counts by duration. One thread adds; merge those of several when they are done."""

    counts: Ints = field(default_factory=lambda: np.zeros(_BUCKETS, np.int64))
    max_s: float = 0.0

    def __len__(self) -> int:
        return int(self.counts.sum())

    def add(self, seconds: float) -> None:
        bucket = math.ceil(math.log(seconds / _FLOOR_S) / _STEP) if seconds > _FLOOR_S else 0
        self.counts[min(bucket, _BUCKETS - 1)] += 1
        self.max_s = max(self.max_s, seconds)

    def merge(self, other: Latencies) -> None:
        self.counts += other.counts
        self.max_s = max(self.max_s, other.max_s)

    def quantile(self, q: float) -> float:
        """The least duration, in seconds, that a share q of all did not exceed; 0 if there were none."""
        total = len(self)
        if not total:
            return 0.0
        bucket = int(np.searchsorted(np.cumsum(self.counts), max(1, math.ceil(q * total))))
        return min(_FLOOR_S * math.exp(bucket * _STEP), self.max_s)
