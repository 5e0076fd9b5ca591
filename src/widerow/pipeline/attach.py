"""Attributes of devices as tags of their reports, for those who read the store with other tools than ours."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from widerow.model.arrays import Flags, Ints
from widerow.model.batch import Batch, CellKind, Cells
from widerow.model.combine import stacked
from widerow.model.names import Coded, Names


def attached(batch: Batch, attributes: Mapping[str, Coded]) -> Batch:
    """The batch with a tag for each attribute that its device has; a tag that the report brought itself stays.

    `attributes` has a text, or none, for each name of `batch.device.names`.
    """
    for name, column in attributes.items():
        per_report = column.take(batch.device.codes)
        new = (per_report.codes >= 0) & ~_has_tag(batch.cells, name)
        if new.any():
            batch = batch.with_cells(_with_tags(batch.cells, name, np.flatnonzero(new), per_report.take(new)))
    return batch


def _has_tag(cells: Cells, name: str) -> Flags:
    """Which rows have a tag of that name."""
    has = np.zeros(len(cells.offsets) - 1, np.bool_)
    if not (cells.kind == CellKind.TAG).any():
        return has
    same = np.array([known == name.encode() for known in cells.names.to_bytes_list()], np.bool_)
    has[cells.rows()[same[cells.name] & (cells.kind == CellKind.TAG)]] = True
    return has


def _with_tags(cells: Cells, name: str, rows: Ints, values: Coded) -> Cells:
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
