"""Counts a described fleet through a design: who writes where, minute by minute, and what each question touches.

Rule 1: reports are counted per atom and minute, never one by one, so a million devices take seconds.
Rule 2: shares are means over the simulated minutes, weighted by load: a hot spot that moves to another node every hour is
still hot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import cos, pi

import numpy as np

from widerow.keylab.atoms import Atoms, atoms_of
from widerow.keylab.design import Design
from widerow.keylab.facts import Facts
from widerow.keylab.reads import Answer, Reads
from widerow.keylab.size import growth
from widerow.keylab.tablets import BUSY_PER_S, tablets_for
from widerow.model.arrays import Floats, Ints
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, about_duration
from widerow.plan.fleet import DeviceClass, Fleet

_WARM_UP_US = HOUR
"""Tablets have split and moved for so long before anything is counted."""
_ADAPT_US = 10 * MINUTE
_MOST_COLUMNS = 144
_MOST_ROWS = 96
_NOON_US = 15 * HOUR
_FAR_TOO_MANY = 1_000


@dataclass(frozen=True)
class HeatMap:
    """Key ranges by time: writes and reads a second. The first row holds the lowest keys."""

    first_keys: tuple[str, ...]
    times_us: Ints
    writes: Floats
    reads: Floats


@dataclass(frozen=True)
class Simulation:
    design: Design
    nodes: int
    write_share: tuple[float, ...]
    """Of each node, the busiest first."""
    read_share: tuple[float, ...]
    hottest_share: float
    """Of all writes, those to the hottest tablet."""
    hottest_key: str
    gini: float
    """Of the tablets' writes; 0: all alike, 1: one takes all."""
    tablets: int
    splits: int
    rows_per_s: float
    bytes_per_row: float
    questions: Mapping[str, Answer]
    heat: HeatMap
    diagnostics: tuple[str, ...] = field(default=())

    @property
    def skew(self) -> float:
        """The busiest node's writes against the mean."""
        return self.write_share[0] * self.nodes


def simulate(
    design: Design,
    fleet: Fleet,
    *,
    nodes: int,
    hours: int,
    start_us: int,
    step: Callable[[float], None] = lambda _hours: None,
) -> Simulation:
    """Run one design. `step` is called with each hour that is done."""
    run = _Run(design, fleet, nodes, start_us, start_us + hours * HOUR)
    for minute_us in range(start_us - _WARM_UP_US, start_us + hours * HOUR, MINUTE):
        run.minute(minute_us)
        if (minute_us + MINUTE - start_us) % HOUR == 0 and minute_us >= start_us:
            step(1.0)
    return run.result()


def daily(kind: DeviceClass, time_us: int) -> float:
    """The rate at a moment as a share of that of 15:00 UTC."""
    by_day = (1 + cos(2 * pi * (time_us % DAY - _NOON_US) / DAY)) / 2
    return kind.at_night + (1 - kind.at_night) * by_day


class _Run:
    """The state of a simulation."""

    def __init__(self, design: Design, fleet: Fleet, nodes: int, start_us: int, stop_us: int) -> None:
        self.facts = Facts(design, fleet, start_us)
        self.start_us, self.stop_us, self.nodes = start_us, stop_us, nodes
        self.atoms = atoms_of(design, fleet, start_us - _WARM_UP_US, stop_us)
        n = len(self.atoms.keys)
        self.rates = np.array([self.facts.rows_per_s(kind) for kind in fleet.classes])
        names = [kind.name for kind in fleet.classes]
        self.class_of_hot = [names.index(spell.kind) for spell in fleet.hot]
        self.row_bytes = np.array([self.facts.report_bytes(kind) for kind in fleet.classes])
        self.tablets = tablets_for(design, self.atoms.keys, self._stored(), nodes)
        self.reads = Reads(self.facts, self.atoms)
        self.load, self.written = np.zeros(n), np.zeros(n)
        self.of_node, self.reads_of_node = np.zeros(nodes), np.zeros(nodes)
        self.hottest, self.total = 0.0, 0.0
        self.hot_key: dict[int, float] = {}
        self.ginis: list[float] = []
        self.painter = _Painter(self.atoms, start_us, stop_us)

    def _stored(self) -> Floats:
        """Bytes of the history that stands when the simulation begins, by atom."""
        atoms, fleet = self.atoms, self.facts.fleet
        stored = np.zeros(len(atoms.keys))
        mean = np.array([(1 + kind.at_night) / 2 for kind in fleet.classes])
        per_s = atoms.weights @ (self.rates * mean * self.row_bytes)
        begin_us = self.start_us - _WARM_UP_US
        kept_us = fleet.retention_us or 365 * DAY
        if atoms.place.shape[1] == 1:
            stored[atoms.place[:, 0]] = per_s * kept_us / SECOND
            return stored
        for j in range(atoms.place.shape[1]):
            span_us = min(int(atoms.slices[j + 1]), begin_us) - int(atoms.slices[j])
            if span_us > 0:
                stored[atoms.place[:, j]] = per_s * span_us / SECOND
        return stored

    def minute(self, time_us: int) -> None:
        atoms, fleet = self.atoms, self.facts.fleet
        cycle = np.array([daily(kind, time_us) for kind in fleet.classes])
        per_s = atoms.weights @ (self.rates * cycle)
        for h, spell in enumerate(fleet.hot):
            if spell.from_us <= time_us - self.start_us < spell.from_us + spell.for_us:
                k = self.class_of_hot[h]
                per_s += atoms.hot[:, h] * (spell.factor - 1) * self.rates[k] * cycle[k]
        where = atoms.place[:, atoms.slice_at(time_us)]
        self.load[where] += per_s * 60
        self.written[where] += per_s * 60 * float(self.row_bytes.mean())
        read_at, read_per_s = self.reads.at(time_us)
        if time_us >= self.start_us:
            self._count(where, per_s, read_at, read_per_s)
            self.painter.paint(time_us, where, per_s, read_at, read_per_s)
        if (time_us + MINUTE) % _ADAPT_US == 0:
            if time_us >= self.start_us:
                self.ginis.append(gini(np.add.reduceat(self.load, np.minimum(self.tablets.starts, len(self.load) - 1))))
            self.load[read_at] += read_per_s * 600
            self.tablets.adapt(self.load, self.written, _ADAPT_US / SECOND)
            self.load[:] = 0
            self.written[:] = 0

    def _count(self, where: Ints, per_s: Floats, read_at: Ints, read_per_s: Floats) -> None:
        tablet = self.tablets.tablet_of(where)
        by_tablet = np.bincount(tablet, per_s)
        self.of_node += np.sort(np.bincount(self.tablets.node[tablet], per_s, self.nodes))[::-1]
        read_tablet = self.tablets.tablet_of(read_at)
        self.reads_of_node += np.sort(np.bincount(self.tablets.node[read_tablet], read_per_s, self.nodes))[::-1]
        hottest = int(by_tablet.argmax())
        self.hottest += float(by_tablet[hottest])
        self.total += float(per_s.sum())
        start = int(self.tablets.starts[hottest])
        self.hot_key[start] = self.hot_key.get(start, 0.0) + float(by_tablet[hottest])

    def result(self) -> Simulation:
        minutes = (self.stop_us - self.start_us) / MINUTE
        reads = self.reads_of_node.sum()
        heat = self.painter.heat_map()
        hottest_share = self.hottest / self.total
        hot_key = shown_key(self.atoms.keys[max(self.hot_key, key=lambda start: self.hot_key[start])])
        fleet = self.facts.fleet
        rows = np.array([kind.devices * self.facts.rows_per_s(kind) for kind in fleet.classes])
        simulation = Simulation(
            design=self.facts.design,
            nodes=self.nodes,
            write_share=tuple((self.of_node / self.of_node.sum()).tolist()),
            read_share=tuple((self.reads_of_node / reads).tolist()) if reads else (),
            hottest_share=hottest_share,
            hottest_key=hot_key,
            gini=float(np.mean(self.ginis)) if self.ginis else 0.0,
            tablets=len(self.tablets.starts),
            splits=self.tablets.splits,
            rows_per_s=self.total / minutes,
            bytes_per_row=float(rows @ np.array([self.facts.row_bytes(kind) for kind in fleet.classes]) / rows.sum()),
            questions=self.reads.answers(self.tablets, self.stop_us - MINUTE),
            heat=heat,
        )
        return replace(simulation, diagnostics=tuple(_diagnostics(simulation, self.atoms, self.facts)))


def _diagnostics(simulation: Simulation, atoms: Atoms, facts: Facts) -> Iterator[str]:
    """What stands out, in the words of heat maps."""
    fair = 1 / simulation.nodes
    rows_per_s = simulation.hottest_share * simulation.rows_per_s
    if simulation.nodes > 1 and simulation.hottest_share > 0.8 * fair and rows_per_s > BUSY_PER_S:
        share = f"{simulation.hottest_share:.0%} of all writes, {rows_per_s:,.0f} rows/s"
        yield f"high write pressure: one tablet takes {share}, at {simulation.hottest_key}"
    if simulation.nodes > 1 and simulation.read_share and simulation.read_share[0] > 1.5 * fair:
        yield f"high read pressure: one node serves {simulation.read_share[0]:.0%} of the reads"
    grown = growth(facts)
    if grown is not None:
        full = f"passes {grown.limit} after {about_duration(grown.full_us)}"
        yield f"large rows: a {grown.holder} of {grown.kind} {full}"
    peak = simulation.heat.writes.max(axis=1)
    alone = atoms.has_one_device & (atoms.hot > 0).any(axis=1)
    typical = np.median(peak[peak > 0]) if (peak > 0).any() else 0.0
    if alone.any() and peak.max() > 4 * typical > 0:
        key = shown_key(atoms.keys[atoms.place[alone, -1].min()])
        yield f"single hot row: one device sends many times its share, at {key}"
    for name, answer in simulation.questions.items():
        if answer.is_full_scan:
            yield f"full scan: {name} reads all rows"
        elif answer.rows > _FAR_TOO_MANY * max(1.0, answer.wanted):
            yield f"wide scan: {name} reads {answer.rows:,.0f} rows for {answer.wanted:,.0f}"


def gini(values: Floats) -> float:
    """How unequal values are."""
    ordered = np.sort(values)
    total = ordered.sum()
    n = len(ordered)
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * total)) if total else 0.0


def shown_key(key: bytes) -> str:
    text = key.decode(errors="replace")
    return text if len(text) <= 48 else text[:45] + "..."


class _Painter:
    """Collects the heat map: atoms in at most 96 rows, minutes in at most 144 columns."""

    def __init__(self, atoms: Atoms, start_us: int, stop_us: int) -> None:
        self._atoms, self._start_us = atoms, start_us
        minutes = (stop_us - start_us) // MINUTE
        self._per_column = -(-minutes // _MOST_COLUMNS)
        self._columns = -(-minutes // self._per_column)
        self._row = self._rows(start_us)
        shape = (int(self._row.max()) + 1, self._columns)
        self.writes, self.reads = np.zeros(shape), np.zeros(shape)

    def _rows(self, start_us: int) -> Ints:
        """The row of each atom. What is written while we look has most of them; history before it a few."""
        atoms = self._atoms
        live = np.zeros(len(atoms.keys), bool)
        live[atoms.place[:, atoms.slice_at(start_us) :]] = True
        weight = np.where(live, 1.0, 0.15 * live.sum() / max(1, (~live).sum()))
        if len(weight) <= _MOST_ROWS:
            return np.arange(len(weight))
        row = np.minimum((np.cumsum(weight) - weight) / weight.sum() * _MOST_ROWS, _MOST_ROWS - 1).astype(np.int64)
        return np.unique(row, return_inverse=True)[1].astype(np.int64)

    def paint(self, time_us: int, where: Ints, per_s: Floats, read_at: Ints, read_per_s: Floats) -> None:
        column = (time_us - self._start_us) // MINUTE // self._per_column
        np.add.at(self.writes[:, column], self._row[where], per_s / self._per_column)
        np.add.at(self.reads[:, column], self._row[read_at], read_per_s / self._per_column)

    def heat_map(self) -> HeatMap:
        first = np.searchsorted(self._row, np.arange(len(self.writes)))
        return HeatMap(
            tuple(shown_key(self._atoms.keys[i]) for i in first.tolist()),
            self._start_us + np.arange(self._columns) * self._per_column * MINUTE,
            self.writes,
            self.reads,
        )
