"""Arrow IPC streams into batches, column by column.

Rule 1: a row is kept whole or refused whole; its position is its index in the stream. The first fault found is the reason.
Rule 2: null means "not there". A null time is the time of receipt, and the report is tagged so.
Rule 3: in the long form a row is a report of one cell; neighbours of one device, time, version and tags are then joined.
Rule 4: versions are brought in whole milliseconds (others are rounded down) and never from the future.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from widerow.codec.arrow.columns import (
    Column,
    Faults,
    coded,
    is_number,
    is_text,
    is_time,
    mark_names,
    merged,
    numbers,
    rows_with,
    times,
)
from widerow.codec.arrow.encode import CELLS_FORMAT, FORMAT_KEY
from widerow.codec.arrow.stream import MAX_BYTES, MAX_REPORTS, read_table
from widerow.codec.decoded import Decoded
from widerow.model.arrays import Codes, Flags, Floats, Ints
from widerow.model.batch import RECEIVED_TAG, Batch, CellKind, Cells
from widerow.model.check import MAX_TEXT_BYTES, metric_fault, name_fault
from widerow.model.errors import Rejected, TooLarge, Unsupported
from widerow.model.names import Coded, Names
from widerow.model.times import MS, NOT_AN_EVENT, PRECISION_US

MAX_CELLS = 20_000_000
"""What a stream may hold in all. Bits, nulls and dictionaries make cells cheap to send and dear to keep."""

TAG_PREFIX = "tag:"
_HEAD = ("device", "time", "version_us")


def decode_arrow(
    body: bytes,
    *,
    precision: str = "ms",
    now_us: int,
    version_us: int,
    may_bring_versions: bool = True,
    latest_us: int | None = None,
    max_reports: int = MAX_REPORTS,
    max_bytes: int = MAX_BYTES,
) -> Decoded:
    """Thread-safe. `latest_us`: no version may be later; `version_us`, which those without one get, if it is not given.

    Raises Rejected (`syntax`, `device-missing`, `precision`), TooLarge and Unsupported.
    """
    if precision not in PRECISION_US and precision != "ns":
        raise Rejected(f"precision {precision[:20]!r}: give s, ms, us or ns", code="precision")
    return decode_table(
        read_table(body, max_reports, max_bytes),
        precision=precision,
        now_us=now_us,
        version_us=version_us,
        latest_us=version_us if latest_us is None else latest_us,
        may_bring_versions=may_bring_versions,
    )


def decode_table(
    table: Any,
    *,
    precision: str = "ms",
    now_us: int,
    version_us: int,
    latest_us: int,
    may_bring_versions: bool = True,
) -> Decoded:
    """The reports of what `read_table` read."""
    faults = Faults(table.num_rows)
    try:
        columns = _by_name(table)
        head = _head(columns, faults, precision, now_us, version_us, latest_us, may_bring_versions)
        if "cells" in columns and pa.types.is_list(columns["cells"][0].type):
            batch = _read_cells(table, columns, head, faults)
        elif "metric" in columns and ("value" in columns or "text" in columns):
            batch = _read_long(columns, head, faults)
        else:
            batch = _read_wide(columns, head, faults)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise Rejected(f"the stream cannot be read: {str(error)[:200]}", code="syntax") from None
    return Decoded(batch, tuple(faults.refusals))


@dataclass(frozen=True, slots=True)
class _Head:
    """What every form has."""

    device: Coded
    time_us: Ints
    received: Flags
    version_us: Ints

    def batch(self, cells: Cells) -> Batch:
        return Batch(self.device, self.time_us, self.version_us, np.arange(len(self.time_us), dtype=np.int32), cells)


@dataclass(frozen=True, slots=True)
class _Part:
    """Cells of one kind and, at most, one per row: a column, as a rule."""

    rows: Ints
    name: Codes | int
    kind: CellKind
    number: Floats | None = None
    text: Coded | None = None


def _by_name(table: Any) -> dict[str, list[Column]]:
    columns: dict[str, list[Column]] = {}
    cells = 0
    for field, column in zip(table.schema, table.columns, strict=True):
        columns.setdefault(field.name, []).append(column)
        cells += len(column) - column.null_count
    if cells > MAX_CELLS:
        raise TooLarge(f"the stream has {cells} values; send several with up to {MAX_CELLS}")
    for name in (*_HEAD, "cells"):
        if len(columns.get(name, ())) > 1:
            raise Rejected(f"column {name!r} is given twice", code="syntax")
    return columns


def _head(
    columns: dict[str, list[Column]],
    faults: Faults,
    precision: str,
    now_us: int,
    version_us: int,
    latest_us: int,
    may_bring_versions: bool,
) -> _Head:
    n = len(faults.refused)
    if "device" not in columns:
        raise Rejected("the stream has no column 'device'", code="device-missing")
    (column,) = columns["device"]
    if not is_text(column.type):
        raise Rejected(f"column 'device' is {column.type}; it must be text", code="syntax")
    device = coded(column)
    faults.mark(device.codes < 0, "device-missing", "the report names no device")
    mark_names(faults, "device", device)

    time_us, received = np.full(n, now_us, np.int64), np.ones(n, np.bool_)
    if "time" in columns and not pa.types.is_null(columns["time"][0].type):
        (column,) = columns["time"]
        if not is_time(column.type):
            raise Rejected(f"column 'time' is {column.type}; it must be a timestamp or a number", code="syntax")
        given_us, received, bad = times(column, precision)
        faults.mark(bad & ~received, "time", f"the time {NOT_AN_EVENT}")
        time_us = np.where(received, now_us, given_us)

    versions = np.full(n, version_us, np.int64)
    if "version_us" in columns:
        (column,) = columns["version_us"]
        if not may_bring_versions:
            raise Rejected("column 'version_us' may not be brought here: versions are given on receipt", code="syntax")
        if not pa.types.is_integer(column.type):
            raise Rejected(f"column 'version_us' is {column.type}; it must be int64", code="syntax")
        brought_us, absent, bad = times(column, "us")
        faults.mark((bad | (brought_us > latest_us)) & ~absent, "time", "version_us is from the future, or before 1970")
        versions = np.where(absent, version_us, brought_us - brought_us % MS)
    return _Head(device, time_us, received, versions)


def _read_wide(columns: dict[str, list[Column]], head: _Head, faults: Faults) -> Batch:
    parts: list[_Part] = []
    names: dict[str, int] = {}
    valued = np.zeros(len(faults.refused), np.bool_)
    for name, several in columns.items():
        for column in several:
            if name in _HEAD or pa.types.is_null(column.type) or column.null_count == len(column):
                continue
            part = (
                _tag_part(name, column, names, faults)
                if name.startswith(TAG_PREFIX)
                else _metric_part(name, column, names, faults)
            )
            if part is not None:
                parts.append(part)
                if part.kind != CellKind.TAG:
                    valued[part.rows] = True
    faults.mark(~valued, "no-values", "the report has no value")
    return head.batch(_joined(parts, names, head)).take(~faults.refused)


def _metric_part(name: str, column: Column, names: dict[str, int], faults: Faults) -> _Part | None:
    if not _good_name("metric", name, column, faults):
        return None
    code = names.setdefault(name, len(names))
    if is_text(column.type):
        return _text_part(name, column, code, CellKind.TEXT, faults)
    if not is_number(column.type):
        faults.mark(
            _valid(column), "value-type", f"column {name[:80]!a} is {column.type}; a value is a number, a text or a boolean"
        )
        return None
    return _number_part(name, column, code, faults)


def _number_part(name: str, column: Column, code: Codes | int, faults: Faults) -> _Part:
    found = numbers(column)
    n = len(faults.refused)
    if found.infinite.any():
        faults.mark(rows_with(found.infinite, found.rows, n), "not-finite", f"{name[:80]!a} is NaN or infinite")
    if found.too_big.any():
        faults.mark(rows_with(found.too_big, found.rows, n), "integer-range", f"{name[:80]!a} is an integer beyond 2^53")
    return _Part(found.rows, code, CellKind.NUMBER, number=found.number)


def _tag_part(name: str, column: Column, names: dict[str, int], faults: Faults) -> _Part | None:
    tag = name.removeprefix(TAG_PREFIX)
    if not _good_name("tag", tag, column, faults):
        return None
    if not is_text(column.type):
        faults.mark(_valid(column), "value-type", f"column {name[:80]!a} is {column.type}; a tag is a text")
        return None
    return _text_part(name, column, names.setdefault(tag, len(names)), CellKind.TAG, faults)


def _text_part(name: str, column: Column, code: Codes | int, kind: CellKind, faults: Faults) -> _Part:
    text = coded(column)
    _mark_long_texts(faults, name, text)
    rows = np.flatnonzero(text.codes >= 0)
    return _Part(rows, code, kind, text=text.take(rows))


def _mark_long_texts(faults: Faults, name: str, text: Coded, rows: Ints | None = None) -> None:
    too_long = np.append(np.diff(text.names.offsets) > MAX_TEXT_BYTES, False)  # the last is for code -1
    if too_long.any():
        marked = rows_with(too_long[text.codes], rows, len(faults.refused))
        faults.mark(marked, "text-too-long", f"{name[:80]!a} has a text of more than {MAX_TEXT_BYTES} bytes")


def _good_name(what: str, name: str, column: Column, faults: Faults) -> bool:
    fault = metric_fault(name) if what == "metric" else name_fault(name)
    if fault:
        faults.mark(_valid(column), "name", f"{what} {name[:80]!a} {fault}")
    return not fault


def _valid(column: Column) -> Flags:
    flags: Flags = column.is_valid().to_numpy()
    return flags


def _read_long(columns: dict[str, list[Column]], head: _Head, faults: Faults) -> Batch:
    strange = [
        name for name in columns if name not in {*_HEAD, "metric", "value", "text"} and not name.startswith(TAG_PREFIX)
    ]
    twice = [name for name, several in columns.items() if len(several) > 1]
    if strange or twice:
        raise Rejected(
            f"column {(strange + twice)[0][:80]!a}: long form: device, time, version_us, metric, value, text, tag:...",
            code="syntax",
        )
    (column,) = columns["metric"]
    if not is_text(column.type):
        raise Rejected(f"column 'metric' is {column.type}; it must be text", code="syntax")
    metric = coded(column)
    faults.mark(metric.codes < 0, "name", "the row names no metric")
    mark_names(faults, "metric", metric)

    parts: list[_Part] = []
    names = {name: code for code, name in enumerate(metric.names)}
    valued = np.zeros(len(faults.refused), np.int64)
    for key in ("value", "text"):
        for column in columns.get(key, ()):
            if pa.types.is_null(column.type):
                continue
            if is_text(column.type):
                part = _text_part(key, column, 0, CellKind.TEXT, faults)
            elif is_number(column.type) and key == "value":
                part = _number_part(key, column, 0, faults)
            else:
                raise Rejected(
                    f"column {key!r} is {column.type}; it must hold {'numbers or texts' if key == 'value' else 'texts'}",
                    code="syntax",
                )
            parts.append(_Part(part.rows, metric.codes[part.rows], part.kind, part.number, part.text))
            valued[part.rows] += 1
    faults.mark(valued == 0, "no-values", "the row has no value")
    faults.mark(valued > 1, "syntax", "the row has a value and a text: give one")
    for name, several in columns.items():
        if name.startswith(TAG_PREFIX) and not pa.types.is_null(several[0].type):
            tag = _tag_part(name, several[0], names, faults)
            if tag is not None:
                parts.append(tag)
    batch = head.batch(_joined(parts, names, head)).take(~faults.refused)
    return _neighbours_joined(batch, parts, ~faults.refused, head)


def _neighbours_joined(batch: Batch, parts: list[_Part], kept: Flags, head: _Head) -> Batch:
    """Rows of one device, time, version and tags that follow each other become one report."""
    if len(batch) == 0:
        return batch
    keys: list[npt.NDArray[Any]] = [batch.device.codes, batch.time_us, batch.version_us, head.received[kept]]
    for part in parts:
        if part.kind == CellKind.TAG and part.text is not None:
            tag = np.full(len(kept), -1, np.int32)
            tag[part.rows] = part.text.codes
            keys.append(tag[kept])
    first = np.ones(len(batch), np.bool_)
    first[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    cells = batch.cells.keep((batch.cells.kind != CellKind.TAG) | first[batch.cells.rows()])
    starts = np.flatnonzero(first)
    offsets = np.append(cells.offsets[starts], cells.offsets[-1])
    joined = Cells(offsets, cells.names, cells.name, cells.kind, cells.number, cells.texts, cells.text)
    return Batch(batch.device.take(starts), batch.time_us[starts], batch.version_us[starts], batch.position[starts], joined)


def _joined(parts: list[_Part], names: dict[str, int], head: _Head) -> Cells:
    """The cells of all parts, row by row; within a row in the order of the parts."""
    rows = np.flatnonzero(head.received)
    if len(rows):
        name, content = RECEIVED_TAG
        parts = [
            *parts,
            _Part(rows, names.setdefault(name, len(names)), CellKind.TAG, text=Coded.constant(content, len(rows))),
        ]
    counts = np.zeros(len(head.time_us) + 1, np.int64)
    for part in parts:
        counts[part.rows + 1] += 1
    offsets = np.cumsum(counts)
    n = int(offsets[-1])
    out_name, out_kind = np.empty(n, np.int32), np.empty(n, np.uint8)
    out_number, out_text = np.full(n, np.nan), np.full(n, -1, np.int32)
    texts, mappings = merged([part.text.names for part in parts if part.text is not None])
    free = offsets[:-1].copy()
    for part in parts:
        at = free[part.rows]
        free[part.rows] += 1
        out_name[at], out_kind[at] = part.name, part.kind
        if part.text is not None:
            out_text[at] = mappings.pop(0)[part.text.codes]
        else:
            out_number[at] = part.number
    return Cells(offsets, Names.of(names), out_name, out_kind, out_number, texts, out_text)


def _read_cells(table: Any, columns: dict[str, list[Column]], head: _Head, faults: Faults) -> Batch:
    """The form of our own messages: each row has a list of cells."""
    version = (table.schema.metadata or {}).get(FORMAT_KEY, CELLS_FORMAT)
    if version != CELLS_FORMAT:
        raise Unsupported(f"the stream is in format {version[:20]!r}, which is newer than this program")
    strange = set(columns) - {*_HEAD, "cells"}
    if strange:
        raise Rejected(f"column {min(strange)[:80]!a} does not belong to the cells form", code="syntax")
    name, kind, number, text, lengths = _cell_fields(columns["cells"][0])
    rows = np.repeat(np.arange(len(lengths)), lengths)
    n = len(lengths)
    is_tag, is_count = kind == CellKind.TAG, kind == CellKind.NUMBER
    wanted = np.where(is_count, ~np.isnan(number), text.codes >= 0) & (kind <= CellKind.TAG)
    faults.mark(rows_with(name.codes < 0, rows, n), "name", "a cell has no name")
    mark_names(faults, "name", name, rows)
    faults.mark(rows_with(is_count & ~np.isfinite(number), rows, n), "not-finite", "a number is missing, NaN or infinite")
    faults.mark(rows_with(~wanted, rows, n), "value-type", "a cell is neither a number, a text nor a tag")
    _mark_long_texts(faults, "a cell", text, rows)
    faults.mark(~rows_with(~is_tag, rows, n), "no-values", "the report has no value")

    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    codes = np.where(is_count, np.int32(-1), text.codes)
    number = np.where(is_count, number, np.nan)
    cells = Cells(offsets, name.names, name.codes, kind, number, text.names, codes)
    batch = head.batch(cells)
    if head.received.any():
        batch = batch.with_cells(_tagged_received(cells, head))
    return batch.take(~faults.refused)


def _cell_fields(column: Column) -> tuple[Coded, Any, Any, Coded, Ints]:
    """(name, kind, number, text) of every cell, and how many cells each row has."""
    item = column.type.value_type
    wanted = {"name": is_text, "kind": pa.types.is_uint8, "number": pa.types.is_float64, "text": is_text}
    if not pa.types.is_struct(item) or {field.name for field in item} != set(wanted) or item.num_fields != len(wanted):
        raise Rejected(f"column 'cells' is {column.type}; its items must have name, kind, number and text", code="syntax")
    for key, good in wanted.items():
        if not good(item.field(key).type):
            raise Rejected(f"cells.{key} is {item.field(key).type}, which it may not be", code="syntax")
    chunks = [dict(zip([f.name for f in item], chunk.flatten().flatten(), strict=True)) for chunk in column.chunks]
    fields = {key: pa.chunked_array([chunk[key] for chunk in chunks], item.field(key).type) for key in wanted}
    cells = len(fields["kind"])
    if cells > MAX_CELLS:
        raise TooLarge(f"the stream has {cells} cells; send several with up to {MAX_CELLS}")
    name, text = coded(fields["name"].unify_dictionaries()), coded(fields["text"].unify_dictionaries())
    kind = fields["kind"].fill_null(255).to_numpy().astype(np.uint8)
    number = fields["number"].to_numpy()
    lengths = np.concatenate([np.zeros(0, np.int64), *(c.value_lengths().fill_null(0).to_numpy() for c in column.chunks)])
    return name, kind, number, text, lengths.astype(np.int64)


def _tagged_received(cells: Cells, head: _Head) -> Cells:
    """The same cells, and the tag of receipt behind those of every row without a time."""
    name, content = RECEIVED_TAG
    names, (old_name, new_name) = merged([cells.names, Names.of((name,))])
    texts, (old_text, new_text) = merged([cells.texts, Names.of((content,))])
    rows = np.flatnonzero(head.received)
    at = cells.offsets[rows + 1]
    added = np.zeros(len(cells.offsets), np.int64)
    added[rows + 1] = 1
    none = np.int32(-1)
    return Cells(
        cells.offsets + np.cumsum(added),
        names,
        np.insert(np.append(old_name, none)[cells.name], at, new_name[0]),
        np.insert(cells.kind, at, CellKind.TAG),
        np.insert(cells.number, at, np.nan),
        texts,
        np.insert(np.append(old_text, none)[cells.text], at, new_text[0]),
    )
