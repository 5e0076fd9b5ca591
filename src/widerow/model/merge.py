"""Many small batches as one large one, so that the fixed cost of a commit is paid once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from widerow.model.arrays import lengths
from widerow.model.batch import Batch, Cells
from widerow.model.combine import stacked, united
from widerow.model.names import Coded


def merge(batches: Sequence[Batch]) -> Batch:
    """All reports in order; `position` counts them from 0. A device may stand in its dictionary several times."""
    position = np.arange(sum(len(b) for b in batches), dtype=np.int32)
    if len(batches) == 1:
        only = batches[0]
        return Batch(only.device, only.time_us, only.version_us, position, only.cells)
    return Batch(
        stacked([b.device for b in batches]),
        np.concatenate([b.time_us for b in batches]),
        np.concatenate([b.version_us for b in batches]),
        position,
        _merged([b.cells for b in batches]),
    )


def joined(batches: Sequence[Batch]) -> Batch:
    """The same for parts of one body: reports keep their places in it."""
    batches = [batch for batch in batches if len(batch)] or list(batches[:1])
    if len(batches) == 1:
        return batches[0]
    return replace(merge(batches), position=np.concatenate([b.position for b in batches]))


def _merged(parts: Sequence[Cells]) -> Cells:
    # Metric names are few, and later stages look at each: they share one dictionary.
    name = united([Coded(p.names, p.name) for p in parts])
    text = stacked([Coded(p.texts, p.text) for p in parts])
    offsets = np.zeros(sum(len(p.offsets) - 1 for p in parts) + 1, np.int64)
    np.cumsum(np.concatenate([lengths(p.offsets) for p in parts]), out=offsets[1:])
    return Cells(
        offsets,
        name.names,
        name.codes,
        np.concatenate([p.kind for p in parts]),
        np.concatenate([p.number for p in parts]),
        text.names,
        text.codes,
    )
