"""Answers as JSON, CSV and Arrow.

Rule 1: work per point happens in C: `tolist`, `zip`, the encoders. Python sees series, not points.
Rule 2: a number reads back equal in every form.
Rule 3: times are RFC 3339 in UTC unless epochs are asked for. One answer writes all its times with the same decimals.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from widerow.codec.arrow.columns import strings_of
from widerow.codec.instants import rfc3339, texts
from widerow.codec.points_json import encode_points_json
from widerow.model.arrays import Floats, Ints
from widerow.model.errors import Unsupported
from widerow.model.names import Coded
from widerow.model.points import Points
from widerow.model.times import PRECISION_US

JSON, CSV, ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"
MEDIA_TYPES = (JSON, CSV, ARROW)
"""What an answer can be, the preferred one first."""


def encode_points(points: Points, media_type: str, *, next_cursor: str | None = None, epoch: str | None = None) -> bytes:
    """By media type. CSV and Arrow have no room for the cursor: it goes into a header of the response."""
    if media_type == JSON:
        return encode_json(points, next_cursor=next_cursor, epoch=epoch)
    if media_type == CSV:
        return encode_csv(points, epoch=epoch)
    if media_type == ARROW:
        return encode_arrow_points(points)
    raise _unsupported(media_type)


def encode_json(points: Points, *, next_cursor: str | None = None, epoch: str | None = None) -> bytes:
    """By series, sorted as their names are in the dictionaries; the points of one keep their order."""
    key = points.device.codes.astype(np.int64) * (len(points.metric.names) + 1) + points.metric.codes
    if np.any(key[1:] < key[:-1]):
        # Narrow keys are sorted by radix.
        points = points.take(np.argsort(key.astype(np.uint16) if key.max() < 1 << 16 else key, kind="stable"))
    times = None if epoch is None else format_times(points.time_us, epoch)
    return encode_points_json(points, times, _values(points), next_cursor)


def encode_csv(points: Points, *, epoch: str | None = None) -> bytes:
    """RFC 4180, with a header: device, time, metric, value, text (one of these is empty); then tags, if asked for."""
    header = ["device", "time", "metric", "value", "text"]
    columns = [
        points.device.to_list(),
        format_times(points.time_us, epoch),
        points.metric.to_list(),
        *csv_values(points.number, points.text),
    ]
    if points.tags is not None:
        header.append("tags")
        columns.append(np.array([*points.tags.names, ""], object)[points.tags.codes].tolist())
    return csv_of(header, zip(*columns, strict=True))


def encode_arrow_points(points: Points) -> bytes:
    """An IPC stream of device, time, metric, value (null for texts) and text (null for numbers); then tags, if asked for."""
    is_text = np.zeros(len(points), np.bool_) if points.text is None else points.text.codes >= 0
    text = points.text or Coded(points.metric.names, np.full(len(points), -1, np.int32))
    columns = {
        "device": dictionary_of(points.device),
        "time": pa.array(points.time_us).cast(pa.timestamp("us", "UTC")),
        "metric": dictionary_of(points.metric),
        "value": pa.array(points.number, mask=is_text),
        "text": dictionary_of(text).cast(pa.string()),
    }
    if points.tags is not None:
        columns["tags"] = dictionary_of(points.tags).cast(pa.string())
    return stream_of(pa.table(columns))


def encode_records(records: Sequence[Mapping[str, Any]], media_type: str, columns: Sequence[str] = ()) -> bytes:
    """Plain records (devices, metrics, latest values): an array in JSON, else a column per key, nested values as JSON.

    `columns` come first, and are there even if no record has them.
    """
    if media_type == JSON:
        return msgspec.json.encode(records)
    if media_type not in MEDIA_TYPES:
        raise _unsupported(media_type)
    keys = list(dict.fromkeys([*columns, *(key for record in records for key in record)]))
    values = [[_flat(record.get(key)) for record in records] for key in keys]
    if media_type == CSV:
        return csv_of(keys, zip(*values, strict=True))
    return stream_of(pa.table([_column(column) for column in values], names=keys))


def format_times(time_us: Ints, epoch: str | None = None) -> list[Any]:
    """RFC 3339 texts, or epochs in s, ms, us or ns: integers, or floats where one of the times needs a fraction."""
    if epoch is None:
        return texts(rfc3339(time_us))
    if epoch == "ns":
        return list((time_us * 1_000).tolist())
    if epoch not in PRECISION_US:
        raise Unsupported(f"epoch {epoch[:20]!r}: give s, ms, us or ns")
    unit_us = PRECISION_US[epoch]
    return list((time_us / unit_us if np.any(time_us % unit_us) else time_us // unit_us).tolist())


def _values(points: Points) -> list[Any]:
    if points.text is None or not len(points.text.names):
        numbers: list[Any] = points.number.tolist()
        return numbers
    values = points.number.astype(object)
    is_text = points.text.codes >= 0
    values[is_text] = np.array(points.text.names.to_list(), object)[points.text.codes[is_text]]
    return list(values.tolist())


def dictionary_of(column: Coded) -> Any:
    codes = pa.array(column.codes, mask=column.codes < 0)
    return pa.DictionaryArray.from_arrays(codes, strings_of(column.names).cast(pa.string()))


def stream_of(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def csv_values(number: Floats, text: Coded | None) -> tuple[list[Any], list[Any]]:
    """A column of numbers and one of texts, so that readers find one type in each. What is not known is empty."""
    numbers: list[Any] = number.tolist()
    if not np.isfinite(number).all():
        numbers = np.where(np.isfinite(number), number.astype(object), "").tolist()
    return numbers, [""] * len(numbers) if text is None else np.array([*text.names, ""], object)[text.codes].tolist()


def csv_of(header: Sequence[str], rows: Any) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue().encode()


def _flat(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, (dict, list, tuple)) else value


def _column(values: list[Any]) -> Any:
    """A column of records; text when its values are of several types."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) > 1 and kinds != {int, float}:
        values = [
            value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode() for value in values
        ]
    return pa.array(values)


def _unsupported(media_type: str) -> Unsupported:
    return Unsupported(f"answers are {', '.join(MEDIA_TYPES)}; not {media_type[:80]!r}")
