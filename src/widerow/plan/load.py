"""Reports of a described fleet, made up for a measurement: some of its devices, in the shares of their classes.

Rule 1: a report is a pure function of the fleet, the device and the tick. Names of metrics have 12 bytes.
Rule 2: values are those of the simulated factory and its trucks, rounded as sensors round them, one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from widerow.model.arrays import Ints
from widerow.model.batch import Batch, CellKind, Cells
from widerow.model.names import Coded, Names
from widerow.model.times import HOUR, SECOND
from widerow.plan.fleet import DeviceClass, Fleet
from widerow.simulate.chance import chance, stream_of, words
from widerow.simulate.kinds import KINDS, Counter, Draw, Flag, Gauge

_SEED = 1
_TEXTS = 8
_POOL = [metric for kind in KINDS.values() for metric in kind.metrics if isinstance(metric, Gauge | Counter | Flag)]


@dataclass(frozen=True, slots=True)
class Sample:
    """Devices of one class that stand for all of it."""

    kind: DeviceClass
    number: Ints
    """Their numbers within the class."""
    names: Names

    def others(self, generation: int) -> Sample:
        """As many other devices; generation 0 are these."""
        if not generation:
            return self
        number = self.number + generation * self.kind.devices
        return Sample(self.kind, number, names_of(self.kind, number))

    def batch(self, ticks: Sequence[int], start_us: int, version_us: int) -> Batch:
        """Their reports of some ticks; tick t of all devices begins at start + t * interval, spread over an hour at most."""
        devices = np.tile(np.arange(len(self.number)), len(ticks))
        tick = np.repeat(np.array(ticks, np.int64), len(self.number))
        phase_us = devices * min(self.kind.interval_us, HOUR) // max(1, len(self.number))
        time_us = start_us + tick * self.kind.interval_us + phase_us
        if self.kind.interval_us >= SECOND:
            time_us -= time_us % 1000
        return Batch(
            Coded(self.names, devices.astype(np.int32)),
            time_us,
            np.full(len(tick), version_us, np.int64),
            np.arange(len(tick), dtype=np.int32),
            self._cells(self.number[devices], tick, time_us),
        )

    def _cells(self, device: Ints, tick: Ints, time_us: Ints) -> Cells:
        draw = Draw(_SEED, device, tick, time_us, self.kind.interval_us, self.kind.interval_us)
        metrics, said = self.kind.metrics, bool(self.kind.text_bytes)
        width = metrics + said
        number = np.full((len(tick), width), np.nan)
        for m in range(metrics):
            number[:, m] = _POOL[m % len(_POOL)].values(stream_of(f"plan/{m}"), draw)
        names = [f"channel-{m:04d}" for m in range(metrics)] + ["message-text"] * said
        kind, text = np.full((len(tick), width), CellKind.NUMBER, np.uint8), np.full((len(tick), width), -1, np.int32)
        if said:
            kind[:, -1] = CellKind.TEXT
            text[:, -1] = (chance(_SEED, stream_of("text"), device, tick) * _TEXTS).astype(np.int32)
        long = self.kind.text_bytes
        texts = Names.of([f"{n} {'as it is said ' * long}"[:long] for n in range(_TEXTS * said)])
        offsets = np.arange(0, number.size + 1, width, dtype=np.int64)
        name = np.tile(np.arange(width, dtype=np.int32), len(tick))
        return Cells(offsets, Names.of(names), name, kind.ravel(), number.ravel(), texts, text.ravel())


def samples(fleet: Fleet, devices: int) -> list[Sample]:
    """About so many devices, at least one of each class."""
    found = []
    for kind in fleet.classes:
        count = min(kind.devices, max(1, round(devices * kind.devices / fleet.devices)))
        number = np.arange(count, dtype=np.int64) * kind.devices // count
        found.append(Sample(kind, number, names_of(kind, number)))
    return found


def names_of(kind: DeviceClass, number: Ints) -> Names:
    return Names.of([device_name(kind, n) for n in number.tolist()])


def device_name(kind: DeviceClass, number: int) -> str:
    """As the class writes it: `{n:06}` is the number, `{hex:8}` random digits that the number decides."""
    word = int(words(_SEED, stream_of(kind.name), np.array([number]), np.zeros(1, np.int64))[0])

    def filled(found: re.Match[str]) -> str:
        if found[2]:
            return f"{word:016x}{word:016x}{word:016x}{word:016x}"[: int(found[2])].rjust(int(found[2]), "0")
        return f"{number:0{found[1] or 1}d}"

    return re.sub(r"\{n(?::0?([1-9]))?\}|\{hex:([1-9][0-9]?)\}", filled, kind.id)
