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

from widerow.codec.record import encode_stats, encode_values, merged
from widerow.codec.stats import Stats
from widerow.codec.stats import stacked as stacked_stats
from widerow.engine.rows import NEVER, Column, Rows
from widerow.model.arrays import Ints, lengths
from widerow.model.batch import CellKind, Cells
from widerow.model.combine import united
from widerow.model.names import Coded, Names
from widerow.rollup.gather import Gathered, Steps, by_name
from widerow.schema.rollups import MINUTES, Level

_RECORD = int(CellKind.RECORD)
_NUMBERS, _RECORDS = (int(CellKind.NUMBER),) * 2, (_RECORD,) * 2


def minutes_of(tenant: str, raw: Sequence[Rows], *, version_us: int) -> Rows:
    """The minutes of raw reports: of any devices, in any order."""
    cells = Gathered(raw, "event_us", _NUMBERS, MINUTES.width_us)
    records = encode_values(cells.start_us, cells.first_us(), cells.last_us(), cells.numbers(), cells.offsets)
    return _rows(tenant, MINUTES, cells, records, version_us=version_us)


def coarser_of(tenant: str, finer: Sequence[Rows], level: Level, *, version_us: int) -> Rows:
    """The windows of a level, from the rows of the level beneath it."""
    cells = Gathered(finer, "start_us", _RECORDS, level.width_us)
    records = encode_stats(cells.start_us, _merged(cells))
    return _rows(tenant, level, cells, records, version_us=version_us)


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """Statistics by device, metric and window; each of these stands in it once, in that order."""

    device: Coded
    metric: Coded
    start_us: Ints
    stats: Stats

    def __len__(self) -> int:
        return len(self.start_us)


def summary_of_raw(raw: Sequence[Rows], steps: Steps, *, quantiles: bool = True) -> Summary:
    """Of raw reports, over any windows. Without quantiles, these and the sketches are left out, at a third of the time."""
    cells = Gathered(raw, "event_us", _NUMBERS, steps)
    stats = Stats.between(cells.first_us(), cells.last_us(), cells.numbers(), cells.offsets, quantiles=quantiles)
    return _summary(cells, stats)


def summary_of_rollups(rows: Sequence[Rows], steps: Steps, *, quantiles: bool = True) -> Summary:
    """Of the rows of one level, over windows that are whole windows of it. Quantiles as above."""
    cells = Gathered(rows, "start_us", _RECORDS, steps)
    return _summary(cells, _merged(cells, quantiles=quantiles))


def _merged(cells: Gathered, *, quantiles: bool = True) -> Stats:
    records, which = cells.texts()
    return merged(records, which, cells.time_us(), cells.offsets, quantiles=quantiles)


def combined(parts: Sequence[Summary]) -> Summary:
    """Summaries of disjoint times, in order of time, as one. At least one."""
    parts = [p for p in parts if len(p)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    device, metric = united([p.device for p in parts]), by_name(united([p.metric for p in parts]))
    start_us = np.concatenate([p.start_us for p in parts])
    order = np.lexsort((start_us, metric.codes, device.codes))  # stable: parts of one window stay in order of time
    device, metric, start_us = device.take(order), metric.take(order), start_us[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (np.diff(device.codes) != 0) | (np.diff(metric.codes) != 0) | (np.diff(start_us) != 0)
    heads = np.flatnonzero(first)
    stats = stacked_stats([p.stats for p in parts]).take(order).merged(np.append(heads, len(order)))
    return Summary(device.take(heads), metric.take(heads), start_us[heads], stats)


def _summary(cells: Gathered, stats: Stats) -> Summary:
    device, metric, start_us = cells.device, cells.metric, cells.start_us
    order = np.lexsort((start_us, metric.codes, device.codes))
    if (lengths(order) == 1).all():
        return Summary(device, metric, start_us, stats)
    return Summary(device.take(order), metric.take(order), start_us[order], stats.take(order))


def _rows(tenant: str, level: Level, cells: Gathered, records: Names, *, version_us: int) -> Rows:
    """The records, one for each group, as rows. When they expire is for whoever knows how long they are kept."""
    device, start_us, offsets = cells.windows()
    n, count = len(start_us), len(records)
    content = Cells(
        offsets,
        cells.metric.names,
        cells.metric.codes,
        np.full(count, _RECORD, np.uint8),
        np.full(count, np.nan),
        records,
        np.arange(count, dtype=np.int32),
    )
    keys: dict[str, Column] = {
        "tenant_id": Coded.constant(tenant, n),
        "device_id": device,
        "period": start_us - start_us % level.period_us,
        "start_us": start_us,
    }
    return Rows(keys, np.full(n, version_us), np.full(n, NEVER), content)
