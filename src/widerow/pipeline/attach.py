"""Attributes of devices as tags of their reports, for those who read the store with other tools than ours."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from widerow.model.batch import Batch
from widerow.model.names import Coded
from widerow.model.tags import has_tag, with_tags


def attached(batch: Batch, attributes: Mapping[str, Coded]) -> Batch:
    """The batch with a tag for each attribute that its device has; a tag that the report brought itself stays.

    `attributes` has a text, or none, for each name of `batch.device.names`.
    """
    for name, column in attributes.items():
        per_report = column.take(batch.device.codes)
        new = (per_report.codes >= 0) & ~has_tag(batch.cells, name)
        if new.any():
            batch = batch.with_cells(with_tags(batch.cells, name, np.flatnonzero(new), per_report.take(new)))
    return batch
