"""The answer to a raw query: one entry per (device, time, metric), as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from widerow.model.arrays import Floats, Ints, frozen
from widerow.model.batch import Rowset
from widerow.model.names import Coded


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Values of many series. An entry is a text where `text` has one, and the number otherwise.

    No order is promised here: whoever makes points says how they are sorted.
    """

    device: Coded
    metric: Coded
    time_us: Ints
    number: Floats
    """NaN where the entry is a text; never NaN otherwise."""
    version_us: Ints
    text: Coded | None = None
    """None when every entry is a number; else code -1 where it is."""
    tags: Coded | None = None
    """The tags of the report an entry came in, as canonical JSON (keys sorted); code -1 for none. None: not asked for."""

    def __post_init__(self) -> None:
        n = len(self.time_us)
        columns: Sequence[object | None] = (self.device, self.metric, self.number, self.version_us, self.text, self.tags)
        if any(column is not None and len(column) != n for column in columns):  # type: ignore[arg-type]
            raise ValueError("the columns of Points differ in length")
        for column in (self.time_us, self.number, self.version_us):
            frozen(column)

    def __len__(self) -> int:
        return len(self.time_us)

    def take(self, rows: Rowset) -> Points:
        """The given entries (a mask or indices), in that order. The dictionaries stay whole."""
        return Points(
            self.device.take(rows),
            self.metric.take(rows),
            self.time_us[rows],
            self.number[rows],
            self.version_us[rows],
            None if self.text is None else self.text.take(rows),
            None if self.tags is None else self.tags.take(rows),
        )


NO_POINTS = Points(Coded.of(()), Coded.of(()), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))
