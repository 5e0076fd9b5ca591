"""Which version messages get that contradict others of their device, so that the later one wins.

Rule 1: what was received together has one version. Of a device with messages that contradict earlier ones, each of those is
written once more, a millisecond later than the one before it; and so are the others behind them, together where they follow
each other, since one of them may say again what was contradicted.
Rule 2: these versions may be later than those of messages that were received after them. Of such a device they are written
once more, too, behind the last version that was given.
Rule 3: only what is known by then is in order: what came by another process, or was stored before its forerunners were
looked at (because those had to be tried again), is not.
"""

from __future__ import annotations

import threading

import numpy as np

from widerow.model.arrays import Ints
from widerow.model.names import Coded
from widerow.model.times import MS

_MOST_DEVICES = 10_000


class Order:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given: dict[tuple[str, str], tuple[int, int]] = {}
        """By device: the version of the last messages that were given others, and the greatest that was given."""
        self._greatest_us = 0
        self._expected = 0

    def expect(self) -> None:
        """Messages were found that contradict others; `again` is called for them some time."""
        with self._lock:
            self._expected += 1

    def is_ahead(self, version_us: int) -> bool:
        """Whether messages that came before those of this version were given a greater one, or may be."""
        return version_us <= self._greatest_us or self._expected > 0

    def again(
        self, tenant: str, devices: Coded, version_us: int, good: Ints, contradicting: Ints, *, expected: bool = False
    ) -> list[tuple[Ints, int, bool]]:
        """What is to be written once more: positions, their version, and whether they are good ones, in order of versions.

        `good` were written with `version_us`, and `contradicting` were not. `expected`: that was announced.
        """
        positions = np.union1d(good, contradicting)
        codes, is_new = devices.codes[positions], np.isin(positions, contradicting)
        contradicted = set(codes[is_new].tolist())
        out: list[tuple[Ints, int, bool]] = []
        with self._lock:
            self._expected = max(0, self._expected - expected)
            suspects = np.unique(codes).tolist() if version_us <= self._greatest_us else sorted(contradicted)
            for code in suspects:
                key = (tenant, devices.names[code])
                came_us, last_us = self._given.get(key, (0, 0))
                is_behind = came_us < version_us <= last_us
                if not is_behind and code not in contradicted:
                    continue
                own, new = positions[codes == code], is_new[codes == code]
                if not is_behind:
                    first = int(np.argmax(new))
                    own, new, last_us = own[first:], new[first:], version_us
                starts = new.copy()
                starts[0] = True
                starts[1:] |= new[:-1]
                bounds = np.flatnonzero(starts)
                for i, part in enumerate(np.split(own, bounds[1:])):
                    out.append((part, last_us + (i + 1) * MS, not new[bounds[i]]))
                self._give(key, version_us, last_us + len(bounds) * MS)
        return sorted(out, key=lambda one: one[1])

    def _give(self, key: tuple[str, str], came_us: int, version_us: int) -> None:
        before_us, last_us = self._given.pop(key, (0, 0))
        if len(self._given) >= _MOST_DEVICES:
            self._given.pop(next(iter(self._given)))  # the one that was given something the longest ago
        self._given[key] = max(before_us, came_us), max(last_us, version_us)
        self._greatest_us = max(self._greatest_us, version_us)
