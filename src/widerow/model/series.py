"""The answer to a question about steps of time: one entry per series and step, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from widerow.model.arrays import Flags, Floats, Ints, frozen
from widerow.model.names import Coded
from widerow.model.times import TimeSpan

NUMBER, TEXT = "number", "text"
"""The kinds of series: of a metric's numbers, and of its texts."""
SERIES_LABELS = ("metric", "agg", "kind")


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Entries of one series stand together, oldest first."""

    labels: Mapping[str, Coded]
    """What a series is of, by name: `device`, or what devices were grouped by; then `metric`, `agg`, and `kind`: of a metric
    that holds numbers and texts there is a series of each."""
    time_us: Ints
    """When the step begins."""
    number: Floats
    """NaN: nothing is known, or it is a text."""
    text: Coded | None = None
    """None when every entry is a number; else code -1 where it is. What `states` says is JSON."""
    grouped: bool = False
    """Whether the first labels are those of groups of devices."""

    def __post_init__(self) -> None:
        frozen(self.time_us)
        frozen(self.number)

    def __len__(self) -> int:
        return len(self.time_us)

    def cuts(self) -> Ints:
        """Where the series begin, and the end of the last one."""
        first = np.ones(len(self) + 1, np.bool_)
        first[1:-1] = False
        for column in self.labels.values():
            first[1:-1] |= column.codes[1:] != column.codes[:-1]
        return np.flatnonzero(first) if len(self) else np.zeros(1, np.int64)

    def owners(self) -> dict[str, Coded]:
        """The labels that say whose values they are."""
        return dict(islice(self.labels.items(), len(self.labels) - len(SERIES_LABELS)))

    def has_aggregate(self, *names: str) -> bool:
        """Whether any entry can be one of these's."""
        return not set(names).isdisjoint(self.labels["agg"].names)

    def of_aggregate(self, name: str) -> Flags:
        """Which entries are that aggregate's."""
        column = self.labels["agg"]
        flags: Flags = np.array([agg == name for agg in column.names], np.bool_)[column.codes]
        return flags


@dataclass(frozen=True, slots=True)
class Reply:
    """Series, and how they came about."""

    series: Series
    step: str
    """Empty: the whole span is one step."""
    tz: str
    used: Mapping[str, int]
    """How many rows of which level were read."""
    missing: Sequence[TimeSpan] = ()
    """What can no longer be answered."""
    top: Sequence[tuple[str, float]] = field(default=())
    """The devices that were looked for, in order, with the value that put them there."""
