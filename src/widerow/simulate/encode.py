"""Batches as request bodies: line protocol, JSON, NDJSON, Arrow.

Rule 1: what a decoder reads from a body is what the batch held: floats with all their digits, names and texts escaped.
Rule 2: no Python runs per value. Columns of text are put together by Arrow's compute functions.
Rule 3: what a format cannot say is an error here, never a body that means something else.

This package stands beside `codec` and does not import it: what one writes and the other reads is checked by tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widerow.model.arrays import Codes, Flags, Floats, Ints
from widerow.model.batch import Batch, CellKind, Cells
from widerow.model.names import Coded, Names


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write a batch, and where a server takes it."""

    name: str
    path: str
    content_type: str
    encode: Callable[[Batch, Sequence[str]], bytes]
    """From a batch and the type of each device in its dictionary."""


def encode_line(batch: Batch, types: Sequence[str]) -> bytes:
    """A line a report: the measurement is the device's type, tags follow the device, times are nanoseconds."""
    tags, values = _split(batch.cells)
    tag_text = pc.binary_join_element_wise(
        _escaped(Coded(tags.names, tags.name), "tag"), _escaped(Coded(tags.texts, tags.text), "tag's text"), "="
    )
    field_text = pc.binary_join_element_wise(
        _escaped(Coded(values.names, values.name), "metric"), _value_text(values, _quoted(values.texts)), "="
    )
    series = pc.binary_join_element_wise(
        pc.take(_escape_line(pa.array(types, pa.utf8())), batch.device.codes), _escaped(batch.device, "device"), ",device="
    )
    tagged = _joined(tags, tag_text, ",")
    # A report without tags needs no comma after its device.
    head = pc.binary_join_element_wise(series, pc.if_else(pc.equal(tagged, ""), "", ","), tagged, "")
    time_ns = pc.cast(pa.array(batch.time_us), pa.utf8())
    return _concatenated(pc.binary_join_element_wise(head, " ", _joined(values, field_text, ","), " ", time_ns, "000\n", ""))


def encode_ndjson(batch: Batch, _types: Sequence[str] = ()) -> bytes:
    """An object a line; times are microseconds."""
    return _concatenated(pc.binary_join_element_wise(_objects(batch), "\n", ""))


def encode_json(batch: Batch, _types: Sequence[str] = ()) -> bytes:
    """One array of objects; times are microseconds."""
    body = _concatenated(pc.binary_join_element_wise(_objects(batch), ",\n", ""))
    return b"[" + body[:-2] + b"]"


def encode_arrow_wide(batch: Batch, _types: Sequence[str] = ()) -> bytes:
    """An IPC stream of one record batch with a column per metric, null where a report has none."""
    tags, values = _split(batch.cells)
    columns = _head(batch, tags, np.arange(len(batch)))
    for code in np.unique(values.name).tolist():
        name = values.names[code]
        if name in _OWN_COLUMNS or name.startswith(_TAG):
            raise ValueError(f"the metric {name!r} has the name of a column of its own: use long Arrow")
        mine = values.name == code
        number = values.kind[mine] == CellKind.NUMBER
        if number.all():
            columns[name] = _spread(len(batch), values.rows()[mine], values.number[mine])
        elif not number.any():
            columns[name] = _dictionary(values.texts, _spread(len(batch), values.rows()[mine], values.text[mine]))
        else:
            raise ValueError(f"the metric {name!r} holds numbers and texts: use long Arrow")
    return _stream(columns)


def encode_arrow_long(batch: Batch, _types: Sequence[str] = ()) -> bytes:
    """An IPC stream of one record batch with a row per value: `value` for numbers, `text` for texts."""
    tags, values = _split(batch.cells)
    number = values.kind == CellKind.NUMBER
    columns = _head(batch, tags, values.rows())
    columns["metric"] = _dictionary(values.names, pa.array(values.name))
    columns["value"] = pa.array(values.number, mask=~number)
    columns["text"] = _dictionary(values.texts, pa.array(np.where(number, 0, values.text).astype(np.int32), mask=number))
    return _stream(columns)


_TAG = "tag:"
_OWN_COLUMNS = ("device", "time", "version_us", "metric", "cells")
"""Columns of Arrow bodies that mean something other than a metric of that name."""
_JSON_PATH = "/v1/write?precision=us"
_ARROW = "application/vnd.apache.arrow.stream"
FORMATS = {
    f.name: f
    for f in (
        Format("line", "/write", "text/plain; charset=utf-8", encode_line),
        Format("json", _JSON_PATH, "application/json", encode_json),
        Format("ndjson", _JSON_PATH, "application/x-ndjson", encode_ndjson),
        Format("arrow", "/v1/write", _ARROW, encode_arrow_wide),
        Format("arrow-long", "/v1/write", _ARROW, encode_arrow_long),
    )
}
"""Every format there is, by name."""


def strings(names: Names) -> Any:
    """Names as an Arrow array of text, sharing the bytes."""
    return pa.StringArray.from_buffers(len(names), pa.py_buffer(names.offsets.astype(np.int32)), pa.py_buffer(names.data))


def float_text(numbers: Any) -> Any:
    """Numbers as the shortest text that reads back as the same float. Arrow's own cast has that property."""
    if not np.isfinite(numbers).all():
        raise ValueError("NaN and infinity have no form in text formats")
    return pc.cast(pa.array(numbers), pa.utf8())


def _split(cells: Cells) -> tuple[Cells, Cells]:
    """The tags, and the values."""
    if (cells.kind == CellKind.RECORD).any():
        raise ValueError("a record has no form in this format")
    tag: Flags = cells.kind == CellKind.TAG
    return cells.keep(tag), cells.keep(~tag)


def _value_text(values: Cells, texts: Any) -> Any:
    """Each value as text: a number with all its digits, or one of `texts`."""
    number = values.kind == CellKind.NUMBER
    numbers = float_text(np.where(number, values.number, 0.0))
    if number.all():
        return numbers
    code = pa.array(np.where(number, 0, values.text).astype(np.int32))
    return pc.if_else(pa.array(number), numbers, pc.take(texts, code))


def _joined(cells: Cells, text: Any, separator: str) -> Any:
    """For each report the text of its cells, joined."""
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(cells.offsets.astype(np.int32)), text), separator)


def _concatenated(texts: Any) -> bytes:
    """All strings of an array in a row: their buffer is already that."""
    if not len(texts):
        return b""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return bytes(texts.buffers()[2][int(offsets[0]) : int(offsets[-1])])


def _escaped(column: Coded, what: str) -> Any:
    """A column of names as they stand outside of quotes."""
    used = strings(column.names.take(np.unique(column.codes)))
    if pc.any(pc.match_substring_regex(used, r"\\([,= ]|$)")).as_py():
        # The protocol escapes with a backslash but has no way to escape the backslash itself outside of quotes.
        raise ValueError(
            f"a {what} with a backslash before a comma, equals sign, space or its end has no line protocol form"
        )
    return pc.take(pc.replace_substring(_escape_line(strings(column.names)), "=", "\\="), column.codes)


def _escape_line(text: Any) -> Any:
    return pc.replace_substring(pc.replace_substring(text, ",", "\\,"), " ", "\\ ")


def _quoted(texts: Names) -> Any:
    return pa.array(['"' + t.replace("\\", "\\\\").replace('"', '\\"') + '"' for t in texts], pa.utf8())


def _json_strings(names: Names) -> Any:
    encode = msgspec.json.Encoder().encode
    return pa.array([encode(name).decode() for name in names], pa.utf8())


def _objects(batch: Batch) -> Any:
    tags, values = _split(batch.cells)
    members = pc.binary_join_element_wise(
        pc.take(_json_strings(values.names), values.name), _value_text(values, _json_strings(values.texts)), ":"
    )
    labels = pc.binary_join_element_wise(
        pc.take(_json_strings(tags.names), tags.name), pc.take(_json_strings(tags.texts), tags.text), ":"
    )
    labels = _joined(tags, labels, ",")
    none = pc.equal(labels, "")
    return pc.binary_join_element_wise(
        '{"device":',
        pc.take(_json_strings(batch.device.names), batch.device.codes),
        ',"time":',
        pc.cast(pa.array(batch.time_us), pa.utf8()),
        ',"values":{',
        _joined(values, members, ","),
        pc.if_else(none, "}}", '},"tags":{'),
        labels,
        pc.if_else(none, "", "}}"),
        "",
    )


def _head(batch: Batch, tags: Cells, rows: Ints) -> dict[str, Any]:
    """The columns every Arrow body has, for the given reports: device, time, and one for each tag."""
    times = pa.array(batch.time_us[rows], pa.timestamp("us", tz="UTC"))
    columns = {"device": _dictionary(batch.device.names, pa.array(batch.device.codes[rows])), "time": times}
    for code in np.unique(tags.name).tolist():
        mine = tags.name == code
        texts = _spread(len(batch), tags.rows()[mine], tags.text[mine])
        columns[_TAG + tags.names[code]] = _dictionary(tags.texts, pc.take(texts, rows))
    return columns


def _spread(n: int, rows: Ints, values: Codes | Floats) -> Any:
    """A column of n rows with values at the given ones, null elsewhere."""
    if np.any(np.diff(rows) == 0):
        raise ValueError("a report has two values of one name: no column can hold both")
    column, absent = np.zeros(n, values.dtype), np.ones(n, np.bool_)
    column[rows], absent[rows] = values, False
    return pa.array(column, mask=absent)


def _dictionary(names: Names, codes: Any) -> Any:
    return pa.DictionaryArray.from_arrays(codes, strings(names))


def _stream(columns: dict[str, Any]) -> bytes:
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())
