"""Many blocks as one sequence of columns: every device once, in order, and of each cell the value that wins.

Rule 1: the result does not depend on the order of the inputs, nor on how often one is among them: see `arrange`.
Rule 2: what is erased is left out, and so are rows without values.
Rule 3: inputs are read some devices at a time. The widest device bounds the memory that this takes, not the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from widerow.blocks.arrange import Loose, Strand, arranged
from widerow.blocks.block import Block
from widerow.blocks.columns import CODED, PLAIN, Columns, Kind, Picked, picked
from widerow.model.arrays import Codes, Flags, lengths
from widerow.model.combine import byte_order, concatenated, united
from widerow.model.names import NO_NAMES, Coded, Names
from widerow.model.times import TimeSpan

ROWS_AT_ONCE = 1 << 17
"""Fewer repeat the work that each window costs, more do not fit into the caches of a core."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """What was written up to `version_us` of a device, of a metric, within a span: each of them all if it is not given."""

    version_us: int
    device: str | None = None
    metric: str | None = None
    span: TimeSpan | None = None


def merge(
    inputs: Sequence[Block | Columns], erased: Sequence[Erasure] = (), *, rows_at_once: int = ROWS_AT_ONCE
) -> Iterator[Columns]:
    """The inputs as columns of whole devices, in order; some devices at a time."""
    if not inputs:
        return
    every = united([Coded(one.devices, np.arange(len(one.devices), dtype=np.int32)) for one in inputs])
    order, rank = byte_order(every.names)
    ends = np.cumsum([len(one.devices) for one in inputs])
    places = np.split(rank[every.codes], ends[:-1])
    rows = np.zeros(len(order) + 1, np.int64)
    for one, mine in zip(inputs, places, strict=True):
        rows[mine + 1] += lengths(one.offsets)
    before, first = np.cumsum(rows), 0
    while first < len(order):
        last = max(first + 1, int(before.searchsorted(before[first] + rows_at_once, "right")) - 1)
        parts, devices = [], []
        for one, mine in zip(inputs, places, strict=True):
            a, b = np.searchsorted(mine, (first, last)).tolist()
            if a < b:
                parts.append(one.part(a, b).compacted())
                devices.append(np.repeat(mine[a:b] - np.int32(first), lengths(one.offsets[a : b + 1])))
        columns = _without(arranged(_together(parts, every.names.take(order[first:last]), devices)), erased)
        if len(columns):
            yield columns
        first = last


def _together(parts: Sequence[Columns], devices: Names, device: Sequence[Codes]) -> Loose:
    """The rows of one part after the other; `device` has the devices of their rows."""
    names: dict[bytes, int] = {}
    strands: dict[tuple[int, int, Kind], Strand] = {}
    base = text = 0
    for part in parts:
        code = [names.setdefault(name, len(names)) for name in part.names.to_bytes_list()]
        moved: dict[int, Codes] = {}
        for head in part.heads:
            if id(head.rows) not in moved:
                moved[id(head.rows)] = head.rows + np.int32(base)
            key = code[head.name], PLAIN if head.part == PLAIN else code[head.part], head.kind
            values = head.values + text if head.kind in CODED and text else head.values
            strands.setdefault(key, []).append((moved[id(head.rows)], values))
        base += len(part)
        text += len(part.texts)
    times, versions = (np.concatenate([getattr(part, name) for part in parts]) for name in ("time_us", "version_us"))
    texts = concatenated([part.texts for part in parts]) if text else NO_NAMES
    return Loose(devices, np.concatenate(device), times, versions, Names.of_bytes(list(names)), strands, texts)


def _without(columns: Columns, erased: Sequence[Erasure]) -> Columns:
    """The columns without what is erased, and without rows that have no values."""
    heads, names = columns.heads, columns.names.to_list()
    for mark in erased:
        gone = _rows_of(mark, columns)
        if gone.any():

            def pick(rows: Codes, gone: Flags = gone) -> Picked:
                stays = ~gone[rows]
                return rows[stays], stays

            hit = [mark.metric is None or (names[head.name] == mark.metric and head.kind != Kind.TAG) for head in heads]
            rest = picked([head for head, is_hit in zip(heads, hit, strict=True) if is_hit], pick)
            others = [head for head, is_hit in zip(heads, hit, strict=True) if not is_hit]
            heads = tuple(sorted([*rest, *others], key=lambda head: head.key))
    used = np.zeros(len(columns), np.bool_)
    for rows in {id(head.rows): head.rows for head in heads}.values():
        used[rows] = True
    return replace(columns, heads=heads).matching(used)


def _rows_of(mark: Erasure, columns: Columns) -> Flags:
    rows: Flags = columns.version_us <= mark.version_us
    if mark.span is not None:
        rows &= (columns.time_us >= mark.span.start_us) & (columns.time_us < mark.span.stop_us)
    if mark.device is not None:
        known = np.array([name == mark.device.encode() for name in columns.devices.to_bytes_list()], np.bool_)
        rows &= known[columns.device_rows()]
    return rows
