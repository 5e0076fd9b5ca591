"""A deterministic fleet: the sensors of a factory, or a haulier's trucks.

Rule 1: a report is a pure function of (seed, device, tick). Batches may be asked for in any order and any slices, and the
reports of two slices together are those of the whole.
Rule 2: a report of tick t carries a time within [start + t * interval, start + (t + 1) * interval), in whole milliseconds
unless the interval is shorter than a second. Devices report in rotation, so a sender that works through the devices at
devices / interval sends each report at about its own time.
Rule 3: networks misbehave on purpose: a report can be lost (`gaps`), come twice in its batch (`duplicates`), or come up to
`MAX_DELAY` ticks later with the time it was made at (`out_of_order`). What is late at the last tick asked for is not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from widerow.model.arrays import Codes, Flags, Floats, Ints
from widerow.model.batch import Batch, CellKind, Cells
from widerow.model.device import Device, Metric, MetricKind, Profile
from widerow.model.errors import Rejected
from widerow.model.figures import figure
from widerow.model.names import Coded, Names
from widerow.model.times import MS, SECOND
from widerow.simulate.chance import chance, stream_of, words
from widerow.simulate.kinds import FLEETS, KINDS, TRUCK, Draw, Kind
from widerow.simulate.trucks import truck_name, truck_record

MAX_DELAY = 5
"""How many ticks late a report can be."""
EVERYONE = slice(None)
Devices = slice | Ints
"""Some devices of a fleet, by their numbers."""

_HALLS = 7


class Fleet:
    """`devices` sensors that report each `interval_us` from `start_us` on. Immutable; safe to share between threads."""

    def __init__(
        self,
        seed: int,
        devices: int,
        *,
        start_us: int,
        kinds: tuple[str, ...] | None = None,
        interval_us: int = 10 * SECOND,
        gaps: float = 0.01,
        duplicates: float = 0.005,
        out_of_order: float = 0.02,
        pace_us: int = 0,
    ) -> None:
        """`pace_us`: the time in which values wander by a step; 0: an interval. Fleets that share it, their seed and their
        start go on where one another stop, however often they report.
        """
        unknown = sorted(set(kinds or ()) - set(KINDS))
        if unknown:
            raise Rejected(f"no kind of device is called {unknown[0]!r}: choose from {', '.join(KINDS)}", code="simulate")
        if devices < 1 or interval_us < MS:
            raise Rejected("a fleet needs at least one device and an interval of at least 1 ms", code="simulate")
        for name, share in (("gaps", gaps), ("duplicates", duplicates), ("out_of_order", out_of_order)):
            if not 0 <= share <= 1:
                raise Rejected(f"{name} is {figure(share)}: give a share from 0 to 1", code="simulate")
        # Sensors stamp whole milliseconds; with intervals below a second that could give two reports one time.
        self._stamp_us = MS if interval_us >= SECOND else 1
        self.seed, self.devices, self.interval_us = seed, devices, interval_us
        self.pace_us = pace_us or interval_us
        self.start_us = start_us - start_us % self._stamp_us
        self.gaps, self.duplicates, self.out_of_order = gaps, duplicates, out_of_order
        self.kinds = tuple(KINDS[name] for name in kinds or FLEETS["factory"])
        self.names = Names.of(device_name(self._kind(i), i) for i in range(devices))
        self._metrics = {name: i for i, name in enumerate(dict.fromkeys(_cell_names(self.kinds)))}
        self._metric_names = Names.of(self._metrics)
        fitted = [text for kind in self.kinds if kind.fitting for text in kind.fitting.texts]
        said = [text for kind in self.kinds if kind.condition for text in kind.condition.texts]
        self._text_codes = {text: code for code, text in enumerate(dict.fromkeys([*said, *fitted]))}
        self._texts = Names.of(self._text_codes)

    def batch(self, tick: int, devices: Devices = EVERYONE) -> Batch:
        """What arrives during that tick from those devices, late reports last. Nobody has received it: versions are 0."""
        chosen = np.arange(self.devices)[devices]
        return self._batch(chosen, *self._arrivals(tick, chosen))

    def made(self, ticks: range, devices: Devices = EVERYONE) -> Batch:
        """What those devices report in those ticks, each report once, in order of the ticks: no network is between.

        Lost reports (`gaps`) are lost here, too.
        """
        chosen = np.arange(self.devices)[devices]
        tick, place = np.repeat(np.array(ticks, np.int64), len(chosen)), np.tile(np.arange(len(chosen)), len(ticks))
        kept = _bits(words(self.seed, stream_of("fate"), chosen[place], tick), 0) >= self.gaps
        return self._batch(chosen, place[kept], tick[kept])

    def _batch(self, chosen: Ints, place: Ints, made: Ints) -> Batch:
        device = chosen[place]
        time_us = self.time_us(device, made)
        return Batch(
            Coded(self.names.take(chosen), place.astype(np.int32)),
            time_us,
            np.zeros(len(place), np.int64),
            np.arange(len(place), dtype=np.int32),
            self._cells(device, made, time_us),
        )

    def time_us(self, device: Ints, tick: Ints) -> Ints:
        """The event times of those reports."""
        wobble_us = self.interval_us // 100
        phase_us = device * (self.interval_us - wobble_us) // self.devices
        wobble = chance(self.seed, stream_of("time"), device, tick) * wobble_us
        time_us = self.start_us + tick * self.interval_us + phase_us + wobble.astype(np.int64)
        out: Ints = time_us - time_us % self._stamp_us
        return out

    def types(self, devices: Devices = EVERYONE) -> list[str]:
        """The type of each of those devices, in the order of their batch's device dictionary."""
        return [self._kind(i).name for i in np.arange(self.devices)[devices].tolist()]

    def device_records(self, devices: slice = EVERYONE) -> list[Device]:
        """The devices as a catalog would know them."""
        profile = Profile(reports_per_s=min(SECOND / self.interval_us, 1_000_000))
        return [self._record(i, profile) for i in range(self.devices)[devices]]

    def metric_records(self) -> list[Metric]:
        """The metrics the devices report, each name once."""
        found: dict[str, Metric] = {}
        for kind in self.kinds:
            for metric in kind.metrics:
                found.setdefault(metric.name, Metric(name=metric.name, kind=metric.kind, unit=metric.unit))
            if kind.condition:
                found.setdefault(kind.condition.name, Metric(name=kind.condition.name, kind=MetricKind.TEXT))
        return list(found.values())

    def _kind(self, device: int) -> Kind:
        """Kinds take turns, so that even the smallest slice is a mixture."""
        return self.kinds[device % len(self.kinds)]

    def _record(self, device: int, profile: Profile) -> Device:
        kind = self._kind(device)
        if kind is TRUCK:
            return truck_record(self.seed, device, self.names[device], profile)
        hall = _hall(device)
        return Device(
            name=self.names[device],
            display_name=f"{kind.german} {device}",
            type=kind.name,
            location=f"Werk {1 + hall // 4}/Halle {hall}",
            tags={"line": f"L{1 + device // 12 % 5}", "vendor": ("Acme", "Börgmann & Söhne", "Iwata")[device % 3]},
            profile=profile,
        )

    def _arrivals(self, tick: int, chosen: Ints) -> tuple[Ints, Ints]:
        """What arrives in a tick: for each report its device's place among the chosen, and the tick it was made in."""
        late = np.arange(MAX_DELAY + 1)[:, None]
        made = tick - late
        # One word decides a report's fate: 20 bits for each question, which is a millionth of resolution.
        fate = words(self.seed, stream_of("fate"), chosen[None, :], made)
        share = [_bits(fate, shift) for shift in (0, 20, 40)]
        delay = np.where(share[1] < self.out_of_order, 1 + (fate >> np.uint64(60)).astype(np.int64) % MAX_DELAY, 0)
        arrives = (share[0] >= self.gaps) & (delay == late) & (made >= 0)
        row, place = np.nonzero(arrives)
        times = 1 + (share[2][row, place] < self.duplicates)
        return np.repeat(place, times), tick - np.repeat(row, times)

    def _cells(self, device: Ints, made: Ints, time_us: Ints) -> Cells:
        which = device % len(self.kinds)
        blocks = []
        counts = np.zeros(len(device), np.int64)
        for k, kind in enumerate(self.kinds):
            rows = np.flatnonzero(which == k)
            if len(rows):
                draw = Draw(self.seed, device[rows], made[rows], time_us[rows], self.interval_us, self.pace_us)
                block = self._block(kind, draw)
                counts[rows] = block.told.sum(axis=1)
                blocks.append((rows, block))
        offsets = np.zeros(len(device) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        n = int(offsets[-1])
        name, number = np.empty(n, np.int32), np.empty(n, np.float64)
        cell_kind, text = np.empty(n, np.uint8), np.empty(n, np.int32)
        for rows, block in blocks:
            where = (offsets[rows][:, None] + np.cumsum(block.told, axis=1) - 1)[block.told]
            for column, values in ((name, block.name), (cell_kind, block.kind), (number, block.number), (text, block.text)):
                column[where] = np.broadcast_to(values, block.told.shape)[block.told]
        return Cells(offsets, self._metric_names, name, cell_kind, number, self._texts, text)

    def _block(self, kind: Kind, draw: Draw) -> _Block:
        """The cells of reports of one kind: numbers first, then the state or status, then the tag of what it carries."""
        names = [name for name, _ in _cells_of(kind)]
        shape = (len(draw.tick), len(names))
        number, text, told = np.full(shape, np.nan), np.full(shape, -1, np.int32), np.ones(shape, np.bool_)
        for m, metric in enumerate(kind.metrics):
            number[:, m] = metric.values(stream_of(f"{kind.name}/{metric.name}"), draw)
        column = len(kind.metrics)
        if kind.condition:
            text[:, column] = self._text_codes[kind.condition.texts[0]] + kind.condition.code(draw)
            told[:, column] = kind.condition.told(draw)
            column += 1
        if kind.fitting:
            text[:, column] = self._text_codes[kind.fitting.texts[0]] + kind.fitting.code(draw)
        kinds = np.array([cell for _, cell in _cells_of(kind)], np.uint8)
        return _Block(np.array([self._metrics[n] for n in names], np.int32), kinds, number, text, told)


@dataclass(frozen=True, slots=True)
class _Block:
    """Cells as a matrix, a row per report; `name` and `kind` are the same for every row, `told` says which cells exist."""

    name: Codes
    kind: npt.NDArray[np.uint8]
    number: Floats
    text: Codes
    told: Flags


def device_name(kind: Kind, device: int) -> str:
    """Names as plants give them. Most are tame; one in seven is what a file system, a URL or a key would choke on."""
    if kind is TRUCK:
        return truck_name(device)
    hall = _hall(device)
    if device % 7 != 6:
        return f"{kind.name}-{device:06d}"
    shapes = (
        f"Halle {hall}/{kind.german} #{device}",
        f"ns=2;s=Line{hall}.{kind.name}.{device}",
        f"{kind.german} {device}, Straße {hall}",
        f"plc:{hall:02d}/{kind.name}%{device}",
    )
    return shapes[device // 7 % len(shapes)]


def _hall(device: int) -> int:
    return 1 + device // 3 % _HALLS


def _bits(words_: npt.NDArray[np.uint64], shift: int) -> Floats:
    out: Floats = ((words_ >> np.uint64(shift)) & np.uint64(0xFFFFF)).astype(np.float64) * 2.0**-20
    return out


def _cells_of(kind: Kind) -> list[tuple[str, CellKind]]:
    """The names a report of that kind can hold, in the order of its block."""
    cells = [(metric.name, CellKind.NUMBER) for metric in kind.metrics]
    if kind.condition:
        cells.append((kind.condition.name, CellKind.TEXT))
    if kind.fitting:
        cells.append((kind.fitting.tag, CellKind.TAG))
    return cells


def _cell_names(kinds: tuple[Kind, ...]) -> list[str]:
    return [name for kind in kinds for name, _ in _cells_of(kind)]
