"""Reports on their way out: dicts as JSON, tables as Arrow, in requests of a size that servers take.

Rule 1: a refusal names the place in what the caller gave, however it was cut.
Rule 2: a request that a server finds too large is cut in two: nothing of it was stored, and servers differ in their limits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa

from widerow.client.answers import ARROW, Refused, Written
from widerow.client.connection import Connection, json_object
from widerow.model.errors import Rejected, TooLarge

Reports: TypeAlias = Mapping[str, Any] | Iterable[Mapping[str, Any]] | Any
"""Dicts; or a table, which is whatever has `__arrow_c_stream__` or `to_arrow`."""

_DICTS = 5_000
_ROWS, _BYTES = 200_000, 8 << 20
"""What one request has at most."""
_PATH = "/v1/write"
_REFUSED = (422,)


def send_reports(connection: Connection, reports: Reports) -> Written:
    """Store them; see `Client.write`."""
    if isinstance(reports, Mapping):
        reports = [reports]
    if isinstance(reports, pa.RecordBatch):
        reports = pa.Table.from_batches([reports])
    elif not isinstance(reports, pa.Table) and hasattr(reports, "to_arrow"):
        reports = reports.to_arrow()
    elif hasattr(reports, "__arrow_c_stream__"):
        reports = pa.table(reports)
    parts, encode, media_type = (
        (_tables(reports), _arrow, ARROW) if isinstance(reports, pa.Table) else (_dicts(reports), _json, "application/json")
    )
    done, at = Written(0, 0), 0
    for part in parts:
        done += _send(connection, part, at, encode, media_type)
        at += len(part)
    return done


def _send(connection: Connection, part: Any, at: int, encode: Callable[[Any], bytes], media_type: str) -> Written:
    """Store the reports from the place `at` on."""
    try:
        response = connection.send(
            "POST",
            _PATH,
            content=encode(part),
            headers={"Content-Type": media_type},
            also=_REFUSED,
            timeout_s=connection.write_timeout_s,
        )
    except TooLarge:
        half = len(part) // 2
        if not half:
            raise
        first = _send(connection, part[:half], at, encode, media_type)
        return first + _send(connection, part[half:], at + half, encode, media_type)
    if response.status_code == 204:
        return Written(len(part), 0)
    said = json_object(response, connection.where)
    refusals = [Refused(one["index"] + at, one["code"], one["reason"]) for one in said["refusals"]]
    return Written(said["accepted"], said["refused"], refusals)


def _dicts(reports: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    rest = iter(reports)
    while part := list(islice(rest, _DICTS)):
        yield part


def _tables(table: pa.Table) -> Iterator[pa.Table]:
    kind = table.schema.field("time").type if "time" in table.schema.names else None
    if kind is not None and pa.types.is_timestamp(kind) and kind.tz is None:
        raise Rejected(
            "column 'time' has no zone: say which it is in, in Polars by dt.replace_time_zone('UTC')", code="time"
        )
    rows = min(_ROWS, max(1, _BYTES * table.num_rows // max(table.nbytes, 1)))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def _json(part: list[Mapping[str, Any]]) -> bytes:
    # NaN is written as such: the server refuses that report by name. A datetime without zone it refuses, too.
    try:
        return json.dumps(part, default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Rejected(f"the reports cannot be written as JSON: {error}", code="syntax") from None


def _plain(value: Any) -> Any:
    """Times as RFC 3339; numbers of NumPy as Python's."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no value of a report")


def _arrow(part: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, part.schema) as writer:
        writer.write_table(part)
    body: bytes = sink.getvalue().to_pybytes()
    return body
