"""From rows to the rows of the next level: minutes from raw reports, hours from minutes, days from hours.

Rule 1: pure. What comes out is a function of the rows that go in (with the instant they were read, its version), whatever
chunks and partitions they came in: computing again gives the same bytes.
Rule 2: the rows given are all rows of their windows. Who has part of a window has nothing to say about it.
Rule 3: a metric's numbers and its texts are summed up apart, and stand together in one record. Where there are no texts,
nothing is done about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from widerow.codec.record import encode_stats, encode_values, forms_of, has_numbers, has_texts, merged
from widerow.codec.states import States
from widerow.codec.states import stacked as stacked_states
from widerow.codec.stats import Stats
from widerow.codec.stats import stacked as stacked_stats
from widerow.codec.text_record import decode_states, encode_states, together
from widerow.engine.rows import NEVER, Column, Rows
from widerow.model.arrays import Ints, lengths
from widerow.model.batch import CellKind, Cells
from widerow.model.combine import in_order, united
from widerow.model.names import Coded, Names
from widerow.rollup.gather import Gathered, Steps
from widerow.schema.rollups import MINUTES, Level

_Keys: TypeAlias = tuple[Coded, Coded, Ints]
"""Devices, metrics, and where windows begin."""

_NUMBER, _TEXT, _RECORD = int(CellKind.NUMBER), int(CellKind.TEXT), int(CellKind.RECORD)


def minutes_of(tenant: str, raw: Sequence[Rows], *, version_us: int) -> Rows:
    """The minutes of raw reports: of any devices, in any order."""
    cells = Gathered(raw, "event_us", (_NUMBER, _TEXT), MINUTES.width_us)
    if not cells.has(_TEXT):
        return _rows(tenant, MINUTES, cells, _of_numbers(cells), version_us=version_us)
    kinds = cells.kinds()
    (numbers, of_numbers), (texts, of_texts) = cells.keep(kinds == _NUMBER), cells.keep(kinds == _TEXT)
    of_states = encode_states(texts.start_us, _states(texts))
    records = together(len(cells), _of_numbers(numbers), of_numbers, of_states, of_texts)
    return _rows(tenant, MINUTES, cells, records, version_us=version_us)


def coarser_of(tenant: str, finer: Sequence[Rows], level: Level, *, version_us: int) -> Rows:
    """The windows of a level, from the rows of the level beneath it."""
    cells = Gathered(finer, "start_us", (_RECORD, _RECORD), level.width_us)
    forms = forms_of(*cells.texts)
    if not has_texts(forms).any():
        return _rows(tenant, level, cells, encode_stats(cells.start_us, _merged(cells)), version_us=version_us)
    (numbers, of_numbers), (texts, of_texts) = cells.keep(has_numbers(forms)), cells.keep(has_texts(forms))
    of_stats = encode_stats(numbers.start_us, _merged(numbers))
    of_states = encode_states(texts.start_us, _merged_states(texts))
    records = together(len(cells), of_stats, of_numbers, of_states, of_texts)
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


@dataclass(frozen=True, slots=True, eq=False)
class TextSummary:
    """The same for texts."""

    device: Coded
    metric: Coded
    start_us: Ints
    states: States

    def __len__(self) -> int:
        return len(self.start_us)


def summary_of_raw(raw: Sequence[Rows], steps: Steps, *, quantiles: bool = True) -> Summary:
    """Of raw reports, over any windows. Without quantiles, these and the sketches are left out, at a third of the time."""
    cells = Gathered(raw, "event_us", (_NUMBER, _NUMBER), steps)
    stats = Stats.between(cells.first_us(), cells.last_us(), cells.numbers(), cells.offsets, quantiles=quantiles)
    keys, order = _keys(cells)
    return Summary(*keys, stats if order is None else stats.take(order))


def summary_of_rollups(rows: Sequence[Rows], steps: Steps, *, quantiles: bool = True, sketches: bool = True) -> Summary:
    """Of the rows of one level, over windows that are whole windows of it. Quantiles as above.

    Without sketches: for windows of the level itself, which are merged with nothing. Their quantiles are read as stored.
    """
    cells = Gathered(rows, "start_us", (_RECORD, _RECORD), steps)
    numbers, _ = cells.keep(has_numbers(forms_of(*cells.texts)))
    stats = _merged(numbers, quantiles=quantiles, sketches=sketches)
    keys, order = _keys(numbers)
    return Summary(*keys, stats if order is None else stats.take(order))


def states_of_raw(raw: Sequence[Rows], steps: Steps) -> TextSummary:
    """Of the texts in raw reports, over any windows."""
    cells = Gathered(raw, "event_us", (_TEXT, _TEXT), steps)
    states = _states(cells)
    keys, order = _keys(cells)
    return TextSummary(*keys, states if order is None else states.take(order))


def states_of_rollups(rows: Sequence[Rows], steps: Steps) -> TextSummary:
    """Of the texts in the rows of one level, over windows that are whole windows of it."""
    cells = Gathered(rows, "start_us", (_RECORD, _RECORD), steps)
    texts, _ = cells.keep(has_texts(forms_of(*cells.texts)))
    states = _merged_states(texts)
    keys, order = _keys(texts)
    return TextSummary(*keys, states if order is None else states.take(order))


def combined(parts: Sequence[Summary]) -> Summary:
    """Summaries of disjoint times, in order of time, as one. At least one."""
    parts = [p for p in parts if len(p)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    keys, order, offsets = _joined(parts)
    return Summary(*keys, stacked_stats([p.stats for p in parts]).take(order).merged(offsets))


def combined_states(parts: Sequence[TextSummary]) -> TextSummary:
    """The same for texts."""
    parts = [p for p in parts if len(p)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    keys, order, offsets = _joined(parts)
    return TextSummary(*keys, stacked_states([p.states for p in parts]).take(order).merged(offsets))


def _joined(parts: Sequence[Summary] | Sequence[TextSummary]) -> tuple[_Keys, Ints, Ints]:
    """The device, metric and begin of each window of any part, once; the order of all, and where in it those of each are."""
    device, metric = united([p.device for p in parts]), in_order(united([p.metric for p in parts]))
    start_us = np.concatenate([p.start_us for p in parts])
    order = np.lexsort((start_us, metric.codes, device.codes))  # stable: parts of one window stay in order of time
    device, metric, start_us = device.take(order), metric.take(order), start_us[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (np.diff(device.codes) != 0) | (np.diff(metric.codes) != 0) | (np.diff(start_us) != 0)
    heads = np.flatnonzero(first)
    return (device.take(heads), metric.take(heads), start_us[heads]), order, np.append(heads, len(order))


def _keys(cells: Gathered) -> tuple[_Keys, Ints | None]:
    """The device, metric and begin of each group in the order of a summary, and that order; None: as it was."""
    device, metric, start_us = cells.device, cells.metric, cells.start_us
    order = np.lexsort((start_us, metric.codes, device.codes))
    if (lengths(order) == 1).all():
        return (device, metric, start_us), None
    return (device.take(order), metric.take(order), start_us[order]), order


def _of_numbers(cells: Gathered) -> Names:
    return encode_values(cells.start_us, cells.first_us(), cells.last_us(), cells.numbers(), cells.offsets)


def _merged(cells: Gathered, *, quantiles: bool = True, sketches: bool = True) -> Stats:
    return merged(*cells.texts, cells.time_us(), cells.offsets, quantiles=quantiles, sketches=sketches)


def _states(cells: Gathered) -> States:
    names, codes = cells.texts
    return States.of(cells.time_us(), Coded(names, codes.astype(np.int32)), cells.offsets)


def _merged_states(cells: Gathered) -> States:
    return decode_states(*cells.texts, cells.time_us()).merged(cells.offsets)


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
