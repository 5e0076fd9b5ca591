"""A batch as an Arrow IPC stream: the cells form, one row a report, exact in every respect.

Rule: only the names in use travel; a batch that was cut from a larger one still holds that one's dictionaries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from widerow.codec.arrow.columns import strings_of
from widerow.model.arrays import Codes
from widerow.model.batch import Batch, CellKind
from widerow.model.names import Names

FORMAT_KEY, CELLS_FORMAT = b"widerow.cells", b"1"
"""Schema metadata. A reader refuses a version it does not know."""


def encode_arrow(batch: Batch) -> bytes:
    """`decode_arrow` gives the same reports back, with versions and tags. Positions are counted anew."""
    cells = batch.cells
    first, last = int(cells.offsets[0]), int(cells.offsets[-1])
    kind = cells.kind[first:last]
    items = pa.StructArray.from_arrays(
        [
            _dictionary(cells.names, cells.name[first:last]),
            pa.array(kind),
            pa.array(cells.number[first:last], mask=kind != CellKind.NUMBER),
            _dictionary(cells.texts, cells.text[first:last]),
        ],
        ["name", "kind", "number", "text"],
    )
    columns = {
        "device": _dictionary(batch.device.names, batch.device.codes),
        "time": pa.array(batch.time_us).cast(pa.timestamp("us", "UTC")),
        "version_us": pa.array(batch.version_us),
        "cells": pa.ListArray.from_arrays(pa.array((cells.offsets - first).astype(np.int32)), items),
    }
    record_batch = pa.RecordBatch.from_pydict(columns, metadata={FORMAT_KEY: CELLS_FORMAT})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, record_batch.schema) as writer:
        writer.write_batch(record_batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _dictionary(names: Names, codes: Codes) -> Any:
    """A dictionary column of the names in use; code -1 is null."""
    used = np.zeros(len(names) + 1, np.bool_)  # the last for code -1
    used[codes] = True
    used[-1] = False
    mapping = np.cumsum(used, dtype=np.int32) - 1
    indices = pa.array(mapping[codes], mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, strings_of(names.take(np.flatnonzero(used))))
