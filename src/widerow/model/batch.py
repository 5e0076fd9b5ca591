"""Reports as columns: what every stage takes and gives.

Rule 1: a batch stands alone. Its codes point into its own dictionaries, so it can be queued, sent and replayed.
Rule 2: a batch is immutable. A stage that changes something makes a new one, sharing the columns it left alone.
Rule 3: decoders may leave a cell twice in a batch; `pipeline.check` refuses what contradicts itself before anything is kept.
The tenant is not part of a batch: it is the first argument of whatever takes one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from widerow.model.arrays import Bytes, Codes, Flags, Floats, Ints, frozen, lengths, picked
from widerow.model.names import NO_NAMES, Coded, Names

Value: TypeAlias = float | str
Rowset: TypeAlias = Flags | npt.NDArray[np.integer]


class CellKind(IntEnum):
    """What a cell holds. Stored; never renumber."""

    NUMBER = 0
    TEXT = 1
    TAG = 2
    RECORD = 3


RECEIVED_TAG = ("widerow_time", "received")
"""The tag of a report that came without a time and was given the time of receipt."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Named values of many rows; row i has the cells `offsets[i]:offsets[i + 1]`.

    `number` is meaningful for NUMBER cells, `text` (a code into `texts`) for all others.
    """

    offsets: Ints
    names: Names
    name: Codes
    kind: Bytes
    number: Floats
    texts: Names
    text: Codes

    def __post_init__(self) -> None:
        for column in (self.offsets, self.name, self.kind, self.number, self.text):
            frozen(column)

    def __len__(self) -> int:
        return len(self.name)

    @classmethod
    def numbers(cls, offsets: Ints, names: Names, name: Codes, number: Floats) -> Cells:
        """Cells that are all numbers."""
        n = len(name)
        return cls(offsets, names, name, np.zeros(n, np.uint8), number, NO_NAMES, np.full(n, -1, np.int32))

    def rows(self) -> Ints:
        """For each cell the row it belongs to."""
        return np.repeat(np.arange(len(self.offsets) - 1), lengths(self.offsets))

    def keep(self, cells: Flags) -> Cells:
        """Only the marked cells; every row stays, some perhaps empty."""
        kept = np.zeros(len(cells) + 1, np.int64)
        np.cumsum(cells, out=kept[1:])
        return Cells(
            kept[self.offsets],
            self.names,
            self.name[cells],
            self.kind[cells],
            self.number[cells],
            self.texts,
            self.text[cells],
        )

    def take(self, rows: Rowset) -> Cells:
        """The cells of the given rows (a mask or indices), in that order."""
        offsets, where = picked(
            self.offsets, np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64, copy=False)
        )
        return Cells(
            offsets,
            self.names,
            self.name[where],
            self.kind[where],
            self.number[where],
            self.texts,
            self.text[where],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Reports of one tenant. `position` is a report's place in what the sender sent, for refusals to point at."""

    device: Coded
    time_us: Ints
    version_us: Ints
    position: Codes
    cells: Cells

    def __post_init__(self) -> None:
        for column in (self.time_us, self.version_us, self.position):
            frozen(column)

    def __len__(self) -> int:
        return len(self.time_us)

    def take(self, rows: Rowset) -> Batch:
        """The given reports (a mask or indices), in that order. The dictionaries stay whole."""
        return Batch(
            self.device.take(rows),
            self.time_us[rows],
            self.version_us[rows],
            self.position[rows],
            self.cells.take(rows),
        )

    def with_cells(self, cells: Cells) -> Batch:
        return replace(self, cells=cells)


@dataclass(frozen=True, slots=True)
class Report:
    """One report as Python objects: for tests, examples and slow paths. Batches are what moves."""

    device: str
    time_us: int
    values: dict[str, Value]
    tags: dict[str, str]
    version_us: int = 0


def batch_of(reports: list[Report]) -> Batch:
    """A batch of plain reports, in order."""
    texts: dict[str, int] = {}
    names: dict[str, int] = {}
    name, kind, number, text, counts = [], [], [], [], [0]
    for report in reports:
        for metric, value in report.values.items():
            name.append(names.setdefault(metric, len(names)))
            if isinstance(value, str):
                kind.append(CellKind.TEXT)
                number.append(np.nan)
                text.append(texts.setdefault(value, len(texts)))
            else:
                kind.append(CellKind.NUMBER)
                number.append(float(value))
                text.append(-1)
        for tag, content in report.tags.items():
            name.append(names.setdefault(tag, len(names)))
            kind.append(CellKind.TAG)
            number.append(np.nan)
            text.append(texts.setdefault(content, len(texts)))
        counts.append(len(name))
    cells = Cells(
        np.array(counts, np.int64),
        Names.of(names),
        np.array(name, np.int32),
        np.array(kind, np.uint8),
        np.array(number, np.float64),
        Names.of(texts),
        np.array(text, np.int32),
    )
    return Batch(
        Coded.of([r.device for r in reports]),
        np.array([r.time_us for r in reports], np.int64),
        np.array([r.version_us for r in reports], np.int64),
        np.arange(len(reports), dtype=np.int32),
        cells,
    )


def reports_of(batch: Batch) -> list[Report]:
    """The batch as plain reports, in order."""
    cells = batch.cells
    names, texts = cells.names.to_list(), cells.texts.to_list()
    devices, cuts = batch.device.to_list(), cells.offsets.tolist()
    name, kind, number, text = cells.name.tolist(), cells.kind.tolist(), cells.number.tolist(), cells.text.tolist()
    out = []
    for i, device in enumerate(devices):
        values: dict[str, Value] = {}
        tags: dict[str, str] = {}
        for c in range(cuts[i], cuts[i + 1]):
            if kind[c] == CellKind.NUMBER:
                values[names[name[c]]] = number[c]
            elif kind[c] == CellKind.TAG:
                tags[names[name[c]]] = texts[text[c]]
            else:
                values[names[name[c]]] = texts[text[c]]
        out.append(Report(device, int(batch.time_us[i]), values, tags, int(batch.version_us[i])))
    return out
