"""How large partitions are, from a random sample of them.

Rule: a share has the error of a sample: two standard errors; where none or all of the sample is in a bin, three by the
size of the sample, which 95 of 100 such samples keep. Where the sample is everything, there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt

from widerow.plan.sampled import Estimate

BOUNDS = tuple(1 << shift for shift in range(10, 34, 2))
"""From 1 KiB to 4 GiB, each four times the one before."""


@dataclass(frozen=True, slots=True)
class Bin:
    """The partitions of up to so many bytes, and of more than the bin before."""

    up_to_bytes: int
    share: Estimate


def histogram(sizes: Sequence[float], of: float) -> list[Bin]:
    """From the first bin with a partition to the last. `of`: how many partitions there are in all."""
    counts = [0] * len(BOUNDS)
    for size in sizes:
        counts[next((i for i, bound in enumerate(BOUNDS) if size <= bound), len(BOUNDS) - 1)] += 1
    held = [i for i, count in enumerate(counts) if count]
    if not held:
        return []
    n = len(sizes)
    left_out = sqrt(max(0.0, 1 - n / of)) if of else 0.0
    return [Bin(BOUNDS[i], _share(counts[i], n, left_out)) for i in range(held[0], held[-1] + 1)]


def _share(count: int, n: int, left_out: float) -> Estimate:
    p = count / n
    error = 2 * sqrt(p * (1 - p) / n) if 0 < count < n else min(1.0, 3 / n)
    return Estimate(p, error * left_out)


def quantile(sizes: Sequence[float], q: float) -> float:
    """The size that a part `q` of the sample does not exceed; 0 of none."""
    return sorted(sizes)[max(0, ceil(q * len(sizes)) - 1)] if sizes else 0.0
