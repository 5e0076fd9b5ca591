"""What reports take before anything is compressed: the measure that stored bytes are accounted by.

It is what the embedded engine would write for them, key and value (docs/format/rocksdb.md), and the same on every engine:
how much of it is left on a disk is another matter, and measured.
"""

from __future__ import annotations

import numpy as np

from widerow.model.arrays import Ints, lengths
from widerow.model.batch import Batch, CellKind, Cells
from widerow.model.names import Names

REPORT_BYTES = 41
"""Of a report, besides the names in its key and its values: the key's other parts, and what stands before the values."""
SHAPE_BYTES = 23
"""Of what a bucket says once about its reports, besides the names in its key and those of its metrics."""
_NUMBER, _TEXT, _TAG = int(CellKind.NUMBER), int(CellKind.TEXT), int(CellKind.TAG)
_NUMBER_BYTES, _LENGTH_BYTES = 8, 4


def payloads(cells: Cells) -> Ints:
    """Of each row: the bytes of its values. Tags take none: they are said once for many rows."""
    sums = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(cell_bytes(cells), out=sums[1:])
    return lengths(sums[cells.offsets])


def cell_bytes(cells: Cells) -> Ints:
    """Of each cell."""
    if not len(cells.texts):
        return np.where(cells.kind == _NUMBER, _NUMBER_BYTES, 0)
    long = lengths(cells.texts.offsets)
    texts = np.where(cells.kind == _TAG, 0, _LENGTH_BYTES + long[np.maximum(cells.text, 0)])
    return np.where(cells.kind == _NUMBER, _NUMBER_BYTES, texts)


def batch_bytes(tenant: str, batch: Batch) -> int:
    """Of all reports of a batch."""
    if not len(batch):
        return 0
    cells, names = batch.cells, name_bytes(batch.device.names)
    total = len(batch) * (REPORT_BYTES + len(tenant)) + int(names[batch.device.codes].sum())
    numbers = int(np.count_nonzero(cells.kind == _NUMBER))
    total += _NUMBER_BYTES * numbers
    if numbers < len(cells):  # few are texts: a look at these alone takes a tenth of the time
        text = cells.text[cells.kind == _TEXT]
        total += _LENGTH_BYTES * len(text) + int(lengths(cells.texts.offsets)[text].sum())
    return total


def name_bytes(names: Names) -> Ints:
    return lengths(names.offsets)
