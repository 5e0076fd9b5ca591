"""Some rows of an Arrow IPC stream as a stream of their own: for keeping those that were refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widerow.codec.arrow.stream import MAX_BYTES, MAX_REPORTS, read_table
from widerow.model.arrays import Ints

_OF_A_CELL = ("metric", "value", "text")


def open_rows(body: bytes) -> Any:
    """The stream as a table, for `encode_rows`. Raises Rejected and TooLarge, as decoding does."""
    return read_table(body, MAX_REPORTS, MAX_BYTES)


def encode_rows(table: Any, reports: Ints) -> bytes:
    """The reports at these rows as a stream. Dictionaries are given up, for one may be larger than what is taken."""
    taken = table.take(pa.array(_rows_of(table, reports)))
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            taken = taken.set_column(i, field.name, taken.column(i).cast(field.type.value_type))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, taken.schema) as writer:
        writer.write_table(taken)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _rows_of(table: Any, reports: Ints) -> Ints:
    """In the long form a report is the rows of one device, time and tags behind each other; it is known by the first."""
    names = table.schema.names
    if "metric" not in names or not {"value", "text"} & set(names) or "cells" in names:
        return reports
    begins = np.zeros(table.num_rows, np.bool_)
    begins[:1] = True
    for name, column in zip(names, table.columns, strict=True):
        if name not in _OF_A_CELL:
            codes = pc.dictionary_encode(column, null_encoding="encode").combine_chunks().indices
            distinct = codes.fill_null(-1).to_numpy(zero_copy_only=False)
            begins[1:] |= distinct[1:] != distinct[:-1]
    report = np.cumsum(begins)
    return np.flatnonzero(np.isin(report, report[reports]))
