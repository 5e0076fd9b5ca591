"""What a process holds while its store stands still: looked at again and again, and judged.

Rule 1: flat means that later samples are no larger than earlier ones, but for a stated little. One sample says nothing.
Rule 2: only samples since it called itself degraded are compared: until then it fills up to what it may hold.
Rule 3: from then on it is degraded for as long as the store stands still, and says why.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

EVERY_S = 0.25
LEAST = 12
"""Samples to compare: three seconds."""
NEVER_S = 30.0
MOST_GROWTH_KIB = 4 << 10
"""From the first half of the samples to the second."""


@dataclass(frozen=True, slots=True)
class Sample:
    """`held`: bytes in flight."""

    status: str
    reasons: Sequence[str]
    held: float
    resident_kib: float


def watch(look: Callable[[], Sample], for_s: float) -> list[Sample]:
    """Samples from the moment it says that it is degraded; for so long, counted from now, and until there are enough."""
    began_s, degraded = time.monotonic(), list[Sample]()
    while time.monotonic() < began_s + for_s or len(degraded) < LEAST:
        assert time.monotonic() < began_s + for_s + NEVER_S, "it never says that it is degraded"
        sample = look()
        if degraded or sample.status == "degraded":
            degraded.append(sample)
        time.sleep(EVERY_S)
    return degraded


def judge(samples: Sequence[Sample], *, most: float, one: float) -> None:
    """`most` bytes may be in flight; `one` is the size of the largest thing that is taken in whole."""
    assert len(samples) >= LEAST
    said = Counter(sample.status for sample in samples)
    assert set(said) == {"degraded"}, f"it is not always degraded: {said}"
    assert all(sample.reasons for sample in samples), "it does not say why"
    half = len(samples) // 2
    earlier, later = samples[:half], samples[half:]
    held, resident_kib = ([max(each(s) for s in part) for part in (earlier, later)] for each in (_held, _resident_kib))
    shown = (
        f"from {held[0]:,.0f} to {held[1]:,.0f} bytes in flight, from {resident_kib[0]:,.0f} to {resident_kib[1]:,.0f} KiB"
    )
    print(f"{dict(said)}: {shown}")
    assert max(held) <= most, f"more than {most:,.0f} bytes are held: {shown}"
    assert held[1] <= held[0] + one, f"what is in flight grows: {shown}"
    assert resident_kib[1] <= resident_kib[0] + MOST_GROWTH_KIB, f"memory grows: {shown}"


def _held(sample: Sample) -> float:
    return sample.held


def _resident_kib(sample: Sample) -> float:
    return sample.resident_kib
