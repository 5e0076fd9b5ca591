"""From rows to the rows of the next level: minutes from raw reports, hours from minutes, days from hours.

Rule 1: pure. What comes out is a function of the rows that go in (with the instant they were read, its version), whatever
chunks and partitions they came in: computing again gives the same bytes.
Rule 2: the rows given are all rows of their windows. Who has part of a window has nothing to say about it.
Text is not summed up yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from widerow.codec.record import decode, encode_stats, encode_values
from widerow.codec.stats import Stats
from widerow.codec.stats import stacked as stacked_stats
from widerow.engine.rows import NEVER, Rows
from widerow.model.arrays import Bytes, Codes, Floats, Ints, lengths
from widerow.model.batch import CellKind, Cells
from widerow.model.combine import stacked, united
from widerow.model.kernel import kernel
from widerow.model.names import Coded, Names
from widerow.schema.rollups import MINUTES, Level

_NUMBER, _RECORD = int(CellKind.NUMBER), int(CellKind.RECORD)


def minutes_of(tenant: str, raw: Sequence[Rows], *, version_us: int) -> Rows:
    """The minutes of raw reports: of any devices, in any order."""
    cells = _Gathered(raw, "event_us", _NUMBER, MINUTES.width_us)
    records = encode_values(cells.start_us, cells.time_us, cells.number, cells.offsets)
    return cells.rows(tenant, MINUTES, records, version_us=version_us)


def coarser_of(tenant: str, finer: Sequence[Rows], level: Level, *, version_us: int) -> Rows:
    """The windows of a level, from the rows of the level beneath it."""
    cells = _Gathered(finer, "start_us", _RECORD, level.width_us)
    stats = decode(cells.texts.take(cells.text), cells.time_us)
    records = encode_stats(cells.start_us, stats.merged(cells.offsets))
    return cells.rows(tenant, level, records, version_us=version_us)


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """Statistics by device, metric and window; each of these stands in it once, in that order."""

    device: Coded
    metric: Coded
    start_us: Ints
    stats: Stats

    def __len__(self) -> int:
        return len(self.start_us)


def summary_of_raw(raw: Sequence[Rows], width_us: int) -> Summary:
    """Of raw reports, over windows of any width."""
    cells = _Gathered(raw, "event_us", _NUMBER, width_us)
    return cells.summary(Stats.of(cells.time_us, cells.number, cells.offsets))


def summary_of_rollups(rows: Sequence[Rows], width_us: int) -> Summary:
    """Of the rows of one level, over windows that are whole windows of it."""
    cells = _Gathered(rows, "start_us", _RECORD, width_us)
    return cells.summary(decode(cells.texts.take(cells.text), cells.time_us).merged(cells.offsets))


def combined(parts: Sequence[Summary]) -> Summary:
    """Summaries of disjoint times, in order of time, as one. At least one."""
    if len(parts) == 1:
        return parts[0]
    device, metric = united([p.device for p in parts]), _by_name(united([p.metric for p in parts]))
    start_us = np.concatenate([p.start_us for p in parts])
    order = np.lexsort((start_us, metric.codes, device.codes))  # stable: parts of one window stay in order of time
    device, metric, start_us = device.take(order), metric.take(order), start_us[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (np.diff(device.codes) != 0) | (np.diff(metric.codes) != 0) | (np.diff(start_us) != 0)
    heads = np.flatnonzero(first)
    stats = stacked_stats([p.stats for p in parts]).take(order).merged(np.append(heads, len(order)))
    return Summary(device.take(heads), metric.take(heads), start_us[heads], stats)


class _Gathered:
    """The cells of one kind, by device, window and metric, and in order of time within these."""

    def __init__(self, chunks: Sequence[Rows], time: str, kind: int, width_us: int) -> None:
        chunks = [rows for rows in chunks if len(rows)]
        device = united([_names(rows) for rows in chunks]) if chunks else Coded.of(())
        at = [np.asarray(rows.keys[time]) for rows in chunks]
        time_us = np.concatenate(at) if at else np.zeros(0, np.int64)
        metric = _by_name(united([Coded(rows.cells.names, rows.cells.name) for rows in chunks])) if chunks else Coded.of(())
        text = stacked([Coded(rows.cells.texts, rows.cells.text) for rows in chunks]) if chunks else Coded.of(())
        number = np.concatenate([np.zeros(0), *(rows.cells.number for rows in chunks)])
        kinds = np.concatenate([np.zeros(0, np.uint8), *(rows.cells.kind for rows in chunks)])
        # Windows of devices, in their order; each row is in one of them.
        start_us = time_us - time_us % width_us
        row = np.lexsort((time_us, device.codes))
        first = np.ones(len(row), np.bool_)
        first[1:] = (np.diff(device.codes[row]) != 0) | (np.diff(start_us[row]) != 0)
        window = np.empty(len(row), np.int64)
        window[row] = np.cumsum(first) - 1
        heads = row[first]
        cuts = _offsets([rows.cells.offsets for rows in chunks])
        # Cells by window and metric. Rows are gone through in order of time, so that cells of one metric are, too.
        groups = len(heads) * len(metric.names)
        counts = np.zeros(groups + 1, np.int64)
        _count(row, cuts, kinds, kind, window, metric.codes, len(metric.names), counts)
        starts = np.cumsum(counts)
        order, owner = np.empty(int(starts[-1]), np.int64), np.empty(int(starts[-1]), np.int64)
        _place(row, cuts, kinds, kind, window, metric.codes, len(metric.names), starts[:-1].copy(), order, owner)
        filled = np.flatnonzero(counts[1:])
        self.offsets: Ints = np.append(starts[filled], starts[-1])
        self.time_us: Ints = time_us[owner]
        self.number: Floats = number[order]
        self.texts, self.text = text.names, text.codes[order]
        per_metric = max(1, len(metric.names))
        group_window = filled // per_metric
        self.metrics, self.metric = metric.names, (filled % per_metric).astype(np.int32)
        self.start_us: Ints = start_us[heads][group_window]
        self._device_of_group = device.take(heads[group_window])
        shown, self._row_of_group = np.unique(group_window, return_inverse=True)
        self._device, self._row_start_us = device.take(heads[shown]), start_us[heads[shown]]

    def summary(self, stats: Stats) -> Summary:
        device, metric = self._device_of_group, Coded(self.metrics, self.metric)
        order = np.lexsort((self.start_us, metric.codes, device.codes))
        return Summary(device.take(order), metric.take(order), self.start_us[order], stats.take(order))

    def rows(self, tenant: str, level: Level, records: Names, *, version_us: int) -> Rows:
        """The records as rows of the level's table. When they expire is for whoever knows how long they are kept."""
        n, start_us = len(self._row_start_us), self._row_start_us
        offsets = np.zeros(n + 1, np.int64)
        np.cumsum(np.bincount(self._row_of_group, minlength=n), out=offsets[1:])
        count = len(records)
        cells = Cells(
            offsets,
            self.metrics,
            self.metric,
            np.full(count, _RECORD, np.uint8),
            np.full(count, np.nan),
            records,
            np.arange(count, dtype=np.int32),
        )
        keys = {
            "tenant_id": Coded.constant(tenant, n),
            "device_id": self._device,
            "period": start_us - start_us % level.period_us,
            "start_us": start_us,
        }
        return Rows(keys, np.full(n, version_us), np.full(n, NEVER), cells)


def _names(rows: Rows) -> Coded:
    column = rows.keys["device_id"]
    assert isinstance(column, Coded)
    return column


def _by_name(column: Coded) -> Coded:
    """The same column with its dictionary in order, so that it does not matter which name came first."""
    names = column.names.to_bytes_list()
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), np.int32)
    rank[order] = np.arange(len(names), dtype=np.int32)
    return Coded(column.names.take(np.array(order, np.int64)), rank[column.codes])


def _offsets(parts: Sequence[Ints]) -> Ints:
    """Where the cells of each row begin, all chunks together."""
    out = np.zeros(sum(len(p) - 1 for p in parts) + 1, np.int64)
    if parts:
        np.cumsum(np.concatenate([lengths(p) for p in parts]), out=out[1:])
    return out


@kernel
def _count(row: Ints, cuts: Ints, kinds: Bytes, kind: int, window: Ints, metric: Codes, metrics: int, counts: Ints) -> None:
    """How many cells each window has of each metric; those of group g are counted at g + 1."""
    for r in row:
        base = window[r] * metrics + 1
        for c in range(cuts[r], cuts[r + 1]):
            if kinds[c] == kind:
                counts[base + metric[c]] += 1


@kernel
def _place(
    row: Ints,
    cuts: Ints,
    kinds: Bytes,
    kind: int,
    window: Ints,
    metric: Codes,
    metrics: int,
    starts: Ints,
    order: Ints,
    owner: Ints,
) -> None:
    """Where each group's cells are, and in which rows."""
    for r in row:
        base = window[r] * metrics
        for c in range(cuts[r], cuts[r + 1]):
            if kinds[c] == kind:
                p = starts[base + metric[c]]
                starts[base + metric[c]] = p + 1
                order[p] = c
                owner[p] = r
