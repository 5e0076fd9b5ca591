"""Cells of many rows by device, window and metric, and in order of time within these.

Rule 1: what comes out does not depend on the chunks and the order in which rows come in, but for the order of devices.
Rule 2: a pass over the cells is a kernel or a whole-column operation; Python runs once a chunk at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import TypeAlias

import numpy as np

from widerow.engine.rows import Rows
from widerow.model.arrays import Bytes, Codes, Flags, Floats, Ints, frozen, lengths
from widerow.model.combine import each_once, in_order, on_end
from widerow.model.kernel import kernel
from widerow.model.names import Coded, Names

Steps: TypeAlias = int | Callable[[Ints], Ints]
"""How time is cut: the width of windows that begin at its multiples; or, of times, where the window of each begins.

A function gives later times no earlier begin, and the begin of a window itself.
"""

_SPARSE = 8
"""Windows times metrics are counted in one table, unless that has so many times more places than there are cells."""


class Gathered:
    """Groups of cells: those of one metric of a device in a window. By device, then window, then name of the metric."""

    offsets: Ints
    """Group g has the cells `offsets[g]:offsets[g + 1]`, in order of time."""
    device: Coded
    start_us: Ints
    metric: Coded
    """Of each group; the dictionary of metrics is in order."""

    def __init__(self, chunks: Sequence[Rows], time: str, kinds: tuple[int, int], steps: Steps) -> None:
        """`time` is the key column that says when; cells are of the kinds from the first to the last of `kinds`."""
        chunks = [rows for rows in chunks if len(rows)]
        self._chunks = chunks
        device = devices_of(chunks)
        self._row_us = _column([np.asarray(rows.keys[time]) for rows in chunks], np.int64)
        begin_us = steps(self._row_us) if callable(steps) else self._row_us - self._row_us % steps
        # Windows of devices, in their order; each row is in one of them.
        row = in_order_of_time(device.codes, self._row_us)
        codes, begins = device.codes[row], begin_us[row]
        first = np.ones(len(row), np.bool_)
        first[1:] = (codes[1:] != codes[:-1]) | (begins[1:] != begins[:-1])
        window = np.empty(len(row), np.int64)
        window[row] = np.cumsum(first) - 1
        heads = row[first]
        # Rows are gone through in order of time, so that the cells of a group are, too.
        metrics, ids, base = _dictionary([rows.cells.names for rows in chunks])
        cuts = np.zeros(len(row) + 1, np.int64)
        np.cumsum(_column([lengths(rows.cells.offsets) for rows in chunks], np.int64), out=cuts[1:])
        per_row = np.repeat(base, [len(rows) for rows in chunks])
        name = _column([rows.cells.name for rows in chunks], np.int32)
        self._kinds = _column([rows.cells.kind for rows in chunks], np.uint8)
        cells = row, cuts, self._kinds, kinds[0], kinds[1], window, per_row, name, ids, len(metrics)
        group, self.offsets, self._cell, self._row = _grouped(len(heads), *cells)
        self._window = group // max(1, len(metrics))
        self.metric = Coded(metrics, (group - self._window * len(metrics)).astype(np.int32))
        self.start_us = begin_us[heads][self._window]
        self.device = device.take(heads[self._window])
        frozen(self.start_us)

    def __len__(self) -> int:
        return len(self.start_us)

    def keep(self, cells: Flags) -> tuple[Gathered, Ints]:
        """Only the marked cells, and the groups that have any; and which of the groups here these are."""
        if cells.all():
            return self, np.arange(len(self))
        kept = np.zeros(len(cells) + 1, np.int64)
        np.cumsum(cells, out=kept[1:])
        offsets = kept[self.offsets]
        groups = np.flatnonzero(lengths(offsets))
        out = copy(self)
        if "texts" in vars(self):
            out.texts = self.texts[0], self.texts[1][cells]
        out.offsets = np.append(offsets[groups], kept[-1])
        out.device, out.metric, out.start_us = self.device.take(groups), self.metric.take(groups), self.start_us[groups]
        out._window, out._cell, out._row = self._window[groups], self._cell[cells], self._row[cells]  # noqa: SLF001
        frozen(out.start_us)
        return out, groups

    def kinds(self) -> Bytes:
        """Of each cell."""
        return self._kinds[self._cell]

    def has(self, kind: int) -> bool:
        """Whether any cell of the rows is of that kind."""
        return bool((self._kinds == kind).any())

    def time_us(self) -> Ints:
        """Of each cell."""
        return self._row_us[self._row]

    def first_us(self) -> Ints:
        """Of each group."""
        return self._row_us[self._row[self.offsets[:-1]]]

    def last_us(self) -> Ints:
        return self._row_us[self._row[self.offsets[1:] - 1]]

    def numbers(self) -> Floats:
        """Of each cell."""
        return _column([rows.cells.number for rows in self._chunks], np.float64)[self._cell]

    @cached_property
    def texts(self) -> tuple[Names, Ints]:
        """A dictionary, in which a text may stand several times, and of each cell where its text is in it."""
        names, base = on_end([rows.cells.texts for rows in self._chunks])
        codes = _column([rows.cells.text for rows in self._chunks], np.int32)[self._cell].astype(np.int64)
        if base.any():
            codes += np.repeat(base, [len(rows) for rows in self._chunks])[self._row]
        return names, codes

    def windows(self) -> tuple[Coded, Ints, Ints]:
        """The windows of devices that have groups: the device and the begin of each, and where its groups begin."""
        first = np.ones(len(self), np.bool_)
        first[1:] = self._window[1:] != self._window[:-1]
        heads = np.flatnonzero(first)
        return self.device.take(heads), self.start_us[heads], np.append(heads, len(self))


def _names(rows: Rows) -> Coded:
    column = rows.keys["device_id"]
    assert isinstance(column, Coded)
    return column


def _column(parts: Sequence[np.ndarray], kind: type) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, kind)


def _dictionary(parts: Sequence[Names]) -> tuple[Names, Codes, Ints]:
    """All names in order, each once; and the place in it of name i of part p, at `base[p] + i`."""
    names, base = on_end(parts)
    every = in_order(Coded(*each_once(names)))
    return every.names, every.codes, base


def devices_of(chunks: Sequence[Rows]) -> Coded:
    """Of each row; equal codes mean equal devices."""
    columns = [_names(rows) for rows in chunks]
    if len(columns) == 1 and len(columns[0].names) == 1:  # as when one device is asked about
        return columns[0]
    names, base = on_end([column.names for column in columns])
    distinct, codes = each_once(names)
    of_row = _column([column.codes for column in columns], np.int32)
    return Coded(distinct, codes[of_row + np.repeat(base, [len(rows) for rows in chunks])])


def in_order_of_time(device: Codes, time_us: Ints) -> Ints:
    """Rows by device and time."""
    if len(device) == 0:
        return np.zeros(0, np.int64)
    low, high = int(time_us.min()), int(time_us.max())
    width = high - low + 1
    if (int(device.max()) + 1) * width >= 1 << 62:
        return np.lexsort((time_us, device))
    # One key, and a sort that is quick where whole stretches are in order, or in reverse: partitions come as such.
    return np.argsort(device * np.int64(width) + (time_us - low), kind="stable")


def _grouped(
    windows: int,
    row: Ints,
    cuts: Ints,
    kinds: Bytes,
    low: int,
    high: int,
    window: Ints,
    base: Ints,
    name: Codes,
    ids: Codes,
    metrics: int,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Which groups (window times metrics plus metric) have cells; where these begin; and of each the cell and its row."""
    if windows * metrics > _SPARSE * len(name) + 1024:
        cells = np.empty(len(name), np.int64), np.empty(len(name), np.int64), np.empty(len(name), np.int64)
        n = _list(row, cuts, kinds, low, high, window, base, name, ids, metrics, *cells)
        group, order, owner = (column[:n] for column in cells)
        sort = np.argsort(group, kind="stable")
        group, order, owner = group[sort], order[sort], owner[sort]
        first = np.ones(n, np.bool_)
        first[1:] = group[1:] != group[:-1]
        heads = np.flatnonzero(first)
        return group[heads], np.append(heads, n), order, owner
    counts = np.zeros(windows * metrics + 1, np.int64)
    _count(row, cuts, kinds, low, high, window, base, name, ids, metrics, counts)
    starts = np.cumsum(counts)
    order, owner = np.empty(int(starts[-1]), np.int64), np.empty(int(starts[-1]), np.int64)
    filled = np.flatnonzero(counts[1:])
    offsets = np.append(starts[filled], starts[-1])
    _place(row, cuts, kinds, low, high, window, base, name, ids, metrics, starts, order, owner)
    return filled, offsets, order, owner


@kernel
def _count(
    row: Ints,
    cuts: Ints,
    kinds: Bytes,
    low: int,
    high: int,
    window: Ints,
    base: Ints,
    name: Codes,
    ids: Codes,
    metrics: int,
    counts: Ints,
) -> None:
    """How many cells each window has of each metric; those of group g are counted at g + 1."""
    for r in row:
        group = window[r] * metrics + 1
        for c in range(cuts[r], cuts[r + 1]):
            if low <= kinds[c] <= high:
                counts[group + ids[base[r] + name[c]]] += 1


@kernel
def _place(
    row: Ints,
    cuts: Ints,
    kinds: Bytes,
    low: int,
    high: int,
    window: Ints,
    base: Ints,
    name: Codes,
    ids: Codes,
    metrics: int,
    starts: Ints,
    order: Ints,
    owner: Ints,
) -> None:
    """Where each group's cells are, and in which rows. `starts` is used up."""
    for r in row:
        group = window[r] * metrics
        for c in range(cuts[r], cuts[r + 1]):
            if low <= kinds[c] <= high:
                g = group + ids[base[r] + name[c]]
                p = starts[g]
                starts[g] = p + 1
                order[p] = c
                owner[p] = r


@kernel
def _list(
    row: Ints,
    cuts: Ints,
    kinds: Bytes,
    low: int,
    high: int,
    window: Ints,
    base: Ints,
    name: Codes,
    ids: Codes,
    metrics: int,
    groups: Ints,
    order: Ints,
    owner: Ints,
) -> int:
    """The cells in the order of rows, with their groups; how many there are."""
    n = 0
    for r in row:
        for c in range(cuts[r], cuts[r + 1]):
            if low <= kinds[c] <= high:
                groups[n], order[n], owner[n] = window[r] * metrics + ids[base[r] + name[c]], c, r
                n += 1
    return n
