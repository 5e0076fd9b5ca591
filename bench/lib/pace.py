"""How fast the machine was while something was measured.

A shared one is slower by half for minutes at a time: others use the other half of its cores, or take them away. A figure in
milliseconds means what it says only together with that.
"""

from __future__ import annotations

import time
from pathlib import Path

_STEPS = 100_000
_TRIES = 5
_MUCH = 0.02


class Pace:
    """From when it is made on."""

    def __init__(self) -> None:
        self._loop_ms, self._taken = loop_ms(), Taken()

    def said(self) -> dict[str, float]:
        """What a loop took then and takes now, and the share of the processors' time that was taken away meanwhile."""
        return {"loop_ms_before": self._loop_ms, "loop_ms_after": loop_ms(), "stolen": self._taken.share()}


class Taken:
    """Whether the processors were taken away from when it is made on, so that what is measured meanwhile means little."""

    def __init__(self) -> None:
        self._ticks = _ticks()

    def share(self) -> float:
        stolen, ticks = (now - then for now, then in zip(_ticks(), self._ticks, strict=True))
        return stolen / ticks if ticks else 0.0

    def is_much(self) -> bool:
        return self.share() > _MUCH


def loop_ms() -> float:
    """The least time that a loop of 100,000 additions takes, of a few."""
    taken = []
    for _ in range(_TRIES):
        began_s, total = time.perf_counter(), 0
        for step in range(_STEPS):
            total += step
        taken.append(1e3 * (time.perf_counter() - began_s))
    return min(taken)


def _ticks() -> tuple[int, int]:
    """Of all processors: taken away by the host, and in all. Where the kernel does not say: none."""
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text().partition("\n")[0].split()[1:]]
    except (OSError, ValueError):
        return 0, 0
    return (ticks[7] if len(ticks) > 7 else 0), sum(ticks[:8])
