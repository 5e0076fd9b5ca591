"""Text columns of several makers as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from widerow.model.arrays import PAD, Ints
from widerow.model.intern import NameTable
from widerow.model.names import Coded, Names


def stacked(columns: Sequence[Coded]) -> Coded:
    """All rows in order, the dictionaries one behind the other. Cheap, but a name may stand in it several times."""
    if len(columns) == 1:
        return columns[0]
    sizes = [len(c.names) for c in columns]
    bases = np.cumsum([0, *sizes[:-1]])
    codes = [np.where(c.codes < 0, -1, c.codes + base) for c, base in zip(columns, bases, strict=True)]
    return Coded(concatenated([c.names for c in columns]), np.concatenate(codes).astype(np.int32))


def united(columns: Sequence[Coded]) -> Coded:
    """All rows in order, with one dictionary in which each name stands once: equal codes mean equal names."""
    stack = stacked(columns)
    table = NameTable(max(1, len(stack.names)))
    ids = table.add(stack.names)
    return Coded(
        table.names(), np.where(stack.codes < 0, -1, ids[stack.codes]).astype(np.int32) if len(ids) else stack.codes
    )


def in_order(column: Coded) -> Coded:
    """The same column with its dictionary in the order of bytes, so that it does not matter which name came first."""
    names = column.names.to_bytes_list()
    order = sorted(range(len(names)), key=names.__getitem__)
    if order == [*range(len(names))]:
        return column
    rank = np.empty(len(names), np.int32)
    rank[order] = np.arange(len(names), dtype=np.int32)
    codes = np.where(column.codes < 0, -1, rank[column.codes]).astype(np.int32) if len(names) else column.codes
    return Coded(column.names.take(np.array(order, np.int64)), codes)


def concatenated(parts: Sequence[Names]) -> Names:
    """One list after the other."""
    if len(parts) == 1:
        return parts[0]
    texts = [p.data[: p.offsets[-1]] for p in parts]
    starts: Ints = np.cumsum([0, *[len(t) for t in texts]])
    offsets = np.concatenate([*[p.offsets[:-1] + start for p, start in zip(parts, starts, strict=False)], starts[-1:]])
    return Names(np.concatenate([*texts, np.zeros(PAD, np.uint8)]), offsets)
