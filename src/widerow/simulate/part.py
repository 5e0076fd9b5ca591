"""Some devices of a fleet, as a fleet that can be driven.

Rule: what they report is what they report in the whole fleet.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from widerow.model.batch import Batch
from widerow.simulate.fleet import EVERYONE, Devices, Fleet


class Part:
    """At least one device. Immutable; safe to share between threads."""

    def __init__(self, fleet: Fleet, places: Sequence[int]) -> None:
        """`places`: the numbers of the devices in their fleet."""
        self._fleet, self._places = fleet, np.array(places, np.int64)
        self.devices, self.seed, self.names = len(places), fleet.seed, fleet.names.take(self._places)

    def batch(self, tick: int, devices: Devices = EVERYONE) -> Batch:
        return self._fleet.batch(tick, self._places[devices])

    def made(self, ticks: range, devices: Devices = EVERYONE) -> Batch:
        return self._fleet.made(ticks, self._places[devices])

    def types(self, devices: Devices = EVERYONE) -> list[str]:
        return self._fleet.types(self._places[devices])
