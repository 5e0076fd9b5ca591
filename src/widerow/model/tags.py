"""Tags of rows of cells: which rows have one, and the cells with one more."""

from __future__ import annotations

import numpy as np

from widerow.model.arrays import Flags, Ints
from widerow.model.batch import CellKind, Cells
from widerow.model.combine import stacked
from widerow.model.names import Coded, Names


def has_tag(cells: Cells, name: str) -> Flags:
    """Which rows have a tag of that name."""
    has = np.zeros(len(cells.offsets) - 1, np.bool_)
    has[cells.rows()[tags(cells, name)]] = True
    return has


def tags(cells: Cells, name: str) -> Flags:
    """Which cells are tags of that name."""
    is_tag: Flags = cells.kind == CellKind.TAG
    if is_tag.any():
        same = np.array([known == name.encode() for known in cells.names.to_bytes_list()], np.bool_)
        is_tag &= same[cells.name]
    return is_tag


def with_tags(cells: Cells, name: str, rows: Ints, values: Coded) -> Cells:
    """The cells with a tag more in each of the rows."""
    count = len(rows)
    where = cells.offsets[rows + 1]  # behind the others of its row
    known = cells.names.to_bytes_list()
    code = known.index(name.encode()) if name.encode() in known else len(known)
    names = cells.names if code < len(known) else Names.of_bytes([*known, name.encode()])
    texts = stacked([Coded(cells.texts, cells.text), values])
    old, added = texts.codes[: len(cells)], texts.codes[len(cells) :]
    offsets = cells.offsets.copy()
    offsets[1:] += np.cumsum(np.bincount(rows, minlength=len(offsets) - 1))
    return Cells(
        offsets,
        names,
        np.insert(cells.name, where, np.full(count, code, np.int32)),
        np.insert(cells.kind, where, np.full(count, int(CellKind.TAG), np.uint8)),
        np.insert(cells.number, where, np.full(count, np.nan)),
        texts.names,
        np.insert(old, where, added),
    )
