"""Stored reports, or rollups, of one tenant as columns, grouped by device.

Rule 1: devices stand in the order of their bytes, each once, with at least one row. The rows of a device stand in order of
time, those of one time in order of version. No two rows have the same device, time and version.
Rule 2: a `Head` is the values of one metric in one kind: which rows have one, and these values. Heads with values in the
same rows share the array of the rows, so that work on rows is done once for all of them.
Rule 3: columns are immutable, and a part of them is a view. Rows keep their numbers in it: `offsets[0]` is its first row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np

from widerow.model.arrays import Codes, Flags, Ints, frozen, lengths
from widerow.model.names import NO_NAMES, Names


class Kind(IntEnum):
    """What values are. Stored; never renumber."""

    NUMBER = 0
    INTEGER = 1
    FLAG = 2
    TEXT = 3
    TAG = 4
    BYTES = 5


KINDS = tuple(Kind)
CODED = (Kind.TEXT, Kind.TAG, Kind.BYTES)
"""Their values are codes into the texts."""
PLAIN = -1
"""The part of a head that is no part of a rollup."""


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """The values of one metric (or tag, or one part of a rollup, as `count`) in one kind."""

    name: int
    part: int
    """A code into the names, as `name` is; or `PLAIN`."""
    kind: Kind
    rows: Codes
    values: Ints
    """The bits of a double, an integer, 0 or 1, or a code into the texts."""

    def __post_init__(self) -> None:
        frozen(self.rows)
        frozen(self.values)

    @property
    def key(self) -> tuple[int, int, Kind]:
        return self.name, self.part, self.kind


Picked: TypeAlias = "tuple[Codes, slice | Flags | Ints]"


def picked(heads: Iterable[Head], pick: Callable[[Codes], Picked]) -> tuple[Head, ...]:
    """Heads with some of their values: `pick` gives, of the rows of a head, new rows and where their values are.

    It is asked once for each array of rows. A head without values is left out.
    """
    known: dict[int, Picked] = {}
    out = []
    for head in heads:
        if id(head.rows) not in known:
            known[id(head.rows)] = pick(head.rows)
        rows, where = known[id(head.rows)]
        if len(rows):
            out.append(Head(head.name, head.part, head.kind, rows, head.values[where]))
    return tuple(out)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """See the rules of the module. Heads stand in the order of (name, part, kind)."""

    devices: Names
    offsets: Ints
    time_us: Ints
    version_us: Ints
    names: Names
    heads: tuple[Head, ...]
    texts: Names

    def __post_init__(self) -> None:
        for column in (self.offsets, self.time_us, self.version_us):
            frozen(column)

    def __len__(self) -> int:
        return len(self.time_us)

    @property
    def first_row(self) -> int:
        return int(self.offsets[0])

    @property
    def count(self) -> int:
        """How many values there are."""
        return sum(len(head.rows) for head in self.heads)

    def device_rows(self) -> Codes:
        """For each row the code of its device."""
        return np.repeat(np.arange(len(self.devices), dtype=np.int32), lengths(self.offsets))

    def part(self, first: int, last: int) -> Columns:
        """Those of the devices `first` to `last - 1`, as a view."""
        return self.between(int(self.offsets[first]), int(self.offsets[last]))

    def between(self, first: int, last: int) -> Columns:
        """The rows `first` to `last - 1`, as a view."""
        base = self.first_row
        if first == base and last == base + len(self):
            return self
        if first == last:
            return NO_COLUMNS

        def pick(rows: Codes) -> Picked:
            a, b = np.searchsorted(rows, (first, last)).tolist()
            return rows[a:b], slice(a, b)

        a, b = int(np.searchsorted(self.offsets, first, "right")) - 1, int(np.searchsorted(self.offsets, last))
        devices, offsets, rows = self.devices.between(a, b), self.offsets[a : b + 1], slice(first - base, last - base)
        offsets, heads = offsets.clip(first, last), picked(self.heads, pick)
        return Columns(devices, offsets, self.time_us[rows], self.version_us[rows], self.names, heads, self.texts)

    def matching(self, wanted: Flags) -> Columns:
        """The marked rows, with numbers from 0. The dictionaries of names and texts stay whole."""
        if wanted.all():
            return self
        base, before = self.first_row, np.zeros(len(wanted) + 1, np.int64)
        np.cumsum(wanted, out=before[1:])

        def pick(rows: Codes) -> Picked:
            where = wanted[rows - base]
            return before[rows[where] - base].astype(np.int32), where

        offsets = before[self.offsets - base]
        some = np.flatnonzero(lengths(offsets))
        devices, offsets, heads = self.devices.take(some), np.append(offsets[some], before[-1]), picked(self.heads, pick)
        return Columns(devices, offsets, self.time_us[wanted], self.version_us[wanted], self.names, heads, self.texts)

    def compacted(self) -> Columns:
        """The same with rows from 0 on, and with the names and texts alone that occur."""
        base = self.first_row
        codes = {h.name for h in self.heads} | {h.part for h in self.heads}
        texts, text = _used(self.texts, [h.values for h in self.heads if h.kind in CODED])
        if base == 0 and len(codes - {PLAIN}) == len(self.names) and len(texts) == len(self.texts):
            return self
        names, name = _used(self.names, [np.array(sorted(codes), np.int64)])
        heads = picked(self.heads, lambda rows: (rows - np.int32(base), slice(None))) if base else self.heads
        heads = tuple(
            Head(int(name[h.name]), int(name[h.part]), h.kind, h.rows, text[h.values] if h.kind in CODED else h.values)
            for h in heads
        )
        return Columns(self.devices, self.offsets - base, self.time_us, self.version_us, names, heads, texts)


def _used(names: Names, codes: list[Ints]) -> tuple[Names, Ints]:
    """The names that have one of the codes, in their order, and for each old code the new one."""
    if not codes:
        return NO_NAMES, _NOTHING
    used = np.zeros(len(names) + 1, np.bool_)  # the last is that of `PLAIN`
    for some in codes:
        used[some] = True
    used = used[:-1]
    kept = names if used.all() else names.take(np.flatnonzero(used))
    return kept, np.append(np.cumsum(used) - 1, PLAIN)


_NOTHING = np.zeros(0, np.int64)
NO_COLUMNS = Columns(NO_NAMES, np.zeros(1, np.int64), _NOTHING, _NOTHING, NO_NAMES, (), NO_NAMES)
