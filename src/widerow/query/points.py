"""From rows of the telemetry table to points."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from widerow.engine.rows import Rows
from widerow.model.arrays import Flags, Ints
from widerow.model.batch import CellKind
from widerow.model.combine import stacked, united
from widerow.model.names import Coded, Names
from widerow.model.points import NO_POINTS, Points


def points_of(chunks: Sequence[Rows], *, tags: bool = False) -> Points:
    """Every value of the rows, in their order."""
    return joined([_points(rows, tags=tags) for rows in chunks if len(rows)])


def joined(parts: Sequence[Points]) -> Points:
    """All points in order, with shared dictionaries: equal codes mean equal names."""
    parts = [p for p in parts if len(p)]
    if not parts:
        return NO_POINTS
    if len(parts) == 1:
        return parts[0]
    lengths = [len(p) for p in parts]
    return Points(
        united([p.device for p in parts]),
        united([p.metric for p in parts]),
        np.concatenate([p.time_us for p in parts]),
        np.concatenate([p.number for p in parts]),
        np.concatenate([p.version_us for p in parts]),
        _optional([p.text for p in parts], lengths),
        _optional([p.tags for p in parts], lengths),
    )


def _optional(columns: Sequence[Coded | None], lengths: Sequence[int]) -> Coded | None:
    if all(c is None for c in columns):
        return None
    empty = [Coded(Names.of(()), np.full(n, -1, np.int32)) for n in lengths]
    return stacked([e if c is None else c for c, e in zip(columns, empty, strict=True)])


def _points(rows: Rows, *, tags: bool) -> Points:
    cells = rows.cells
    device, time_us = rows.keys["device_id"], rows.keys["event_us"]
    assert isinstance(device, Coded)
    assert isinstance(time_us, np.ndarray)
    row, name, number, text = cells.rows(), cells.name, cells.number, cells.text
    is_tag = cells.kind == CellKind.TAG
    if is_tag.any():
        row, name, number, text = row[~is_tag], name[~is_tag], number[~is_tag], text[~is_tag]
    return Points(
        device.take(row),
        Coded(cells.names, name),
        time_us[row],
        number,
        rows.version_us[row],
        Coded(cells.texts, text) if len(cells.texts) and (text >= 0).any() else None,
        _tags(rows, is_tag, device, time_us).take(row) if tags else None,
    )


def _tags(rows: Rows, is_tag: Flags, device: Coded, time_us: Ints) -> Coded:
    """The tags of each row as canonical JSON. Rows with equal tag cells, nearly all of them, are looked at once.

    Fragments of a row follow each other, and one may have the tags of them all.
    """
    cells = rows.cells.keep(is_tag)
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (device.codes[1:] != device.codes[:-1]) | (time_us[1:] != time_us[:-1])
    names, texts = cells.names.to_list(), cells.texts.to_list()
    pairs = np.stack([cells.name, cells.text], axis=1).astype(np.int32)
    cuts = cells.offsets[np.append(np.flatnonzero(begins), len(rows))].tolist()
    known: dict[bytes, int] = {}
    sets: list[str] = []
    codes = np.full(len(cuts) - 1, -1, np.int32)
    for i in range(len(codes)):
        if cuts[i] == cuts[i + 1]:
            continue
        key = pairs[cuts[i] : cuts[i + 1]].tobytes()
        code = known.get(key)
        if code is None:
            content = {names[n]: texts[t] for n, t in pairs[cuts[i] : cuts[i + 1]].tolist()}
            code = known[key] = len(sets)
            sets.append(msgspec.json.encode(dict(sorted(content.items()))).decode())
        codes[i] = code
    return Coded(Names.of(sets), codes[np.cumsum(begins) - 1])


def newest(points: Points) -> Points:
    """Of each device and metric the entry with the greatest time, sorted by device and metric."""
    order = np.lexsort((-points.time_us, points.metric.codes, points.device.codes))
    device, metric = points.device.codes[order], points.metric.codes[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (device[1:] != device[:-1]) | (metric[1:] != metric[:-1])
    return points.take(order[first])
