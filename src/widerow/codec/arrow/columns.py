"""Arrow columns as NumPy: text as codes, numbers as floats, times as microseconds, each with what is wrong in which row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widerow.model.arrays import PAD, Codes, Flags, Floats, Ints
from widerow.model.check import MAX_NAME_BYTES, metric_fault, name_fault
from widerow.model.errors import Refusal
from widerow.model.names import Coded, Names
from widerow.model.times import MAX_TIME_US, MIN_TIME_US, PRECISION_US

Column: TypeAlias = Any
"""A pyarrow ChunkedArray."""

_MAX_WHOLE = 1 << 53
_UNIT_US = {**PRECISION_US, "ns": 0}
"""Microseconds per unit; nanoseconds, as 0, are divided instead."""


class Faults:
    """Which rows are refused, and why. A row is refused once, for the first fault found."""

    def __init__(self, rows: int) -> None:
        self.refused: Flags = np.zeros(rows, np.bool_)
        self.refusals: list[Refusal] = []

    def mark(self, rows: Flags, code: str, reason: str) -> None:
        new = rows & ~self.refused
        if new.any():
            self.refusals.append(Refusal(code, reason, np.flatnonzero(new).tolist()))
            self.refused |= new


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column of numbers: the rows that have one, the numbers of those rows, and where they cannot be kept."""

    rows: Ints
    number: Floats
    infinite: Flags
    too_big: Flags


def is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: Any) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def coded(column: Column) -> Coded:
    """A text column; one entry per distinct string, whatever dictionaries it came with."""
    array = column.combine_chunks()
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    codes = _filled(array.indices, -1).astype(np.int32)
    distinct = array.dictionary.dictionary_encode()
    mapping = np.append(_filled(distinct.indices, -1), -1).astype(np.int32)  # code -1 stays -1
    return Coded(names_of(distinct.dictionary), mapping[codes])


def names_of(strings: Any) -> Names:
    """An Arrow array of text without nulls; slices keep their parent's buffers, so only the part in use is copied."""
    strings = strings.cast(pa.large_string())
    n = len(strings)
    if n == 0:
        return Names.of(())
    _, offsets_buffer, text = strings.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[strings.offset : strings.offset + n + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + PAD, np.uint8)
    if last > first:
        data[: last - first] = np.frombuffer(text, np.uint8)[first:last]
    return Names(data, offsets - first)


def merged(parts: Sequence[Names]) -> tuple[Names, list[Codes]]:
    """One dictionary of several, and for each of them its codes in the new one."""
    whole = pa.concat_arrays([strings_of(names) for names in parts]) if parts else pa.array([], pa.large_string())
    distinct = whole.dictionary_encode()
    cuts = np.cumsum([len(names) for names in parts], dtype=np.int64)[:-1]
    mapping = distinct.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    return names_of(distinct.dictionary), [part.astype(np.int32) for part in np.split(mapping, cuts)]


def strings_of(names: Names) -> Any:
    """Names as an Arrow array, sharing their memory."""
    return pa.LargeStringArray.from_buffers(len(names), pa.py_buffer(names.offsets), pa.py_buffer(names.data))


def numbers(column: Column) -> Numbers:
    """A column of integers, floats, booleans or decimals."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    array = column.combine_chunks()
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.string()).cast(pa.float64())  # by way of text the nearest float is found, directly it is not
    elif pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    values = array.drop_null().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(valid)
    none = np.zeros(len(rows), np.bool_)
    if values.dtype.kind in "iu":
        too_big = (values > _MAX_WHOLE) | (values < -_MAX_WHOLE) if values.itemsize == 8 else none
        return Numbers(rows, values.astype(np.float64), none, too_big)
    values = values.astype(np.float64)
    return Numbers(rows, values, ~np.isfinite(values), none)


def times(column: Column, precision: str) -> tuple[Ints, Flags, Flags]:
    """(microseconds, rows without a time, rows whose time cannot be kept) of timestamps, or of numbers in `precision`."""
    if pa.types.is_timestamp(column.type):
        precision = column.type.unit
        column = column.cast(pa.int64())
    unit_us = _UNIT_US[precision]
    array = column.combine_chunks()
    absent = array.is_null().to_numpy(zero_copy_only=False)
    values = _filled(array.cast(pa.float64()) if pa.types.is_floating(array.type) else array, 0)
    if values.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.rint(values / 1_000 if unit_us == 0 else values * unit_us)
        bad = ~((scaled >= MIN_TIME_US) & (scaled <= MAX_TIME_US))
        return np.where(bad, 0, scaled).astype(np.int64), absent, bad
    top = MAX_TIME_US * 1_000 + 999 if unit_us == 0 else MAX_TIME_US // unit_us
    bad = values < MIN_TIME_US
    if values.itemsize == 8 or top < np.iinfo(values.dtype).max:
        bad |= values > top
    whole = np.where(bad, 0, values).astype(np.int64)
    return whole // 1_000 if unit_us == 0 else whole * unit_us, absent, bad


def is_time(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_timestamp(kind) or types.is_integer(kind) or types.is_floating(kind))


def mark_names(faults: Faults, what: str, column: Coded, rows: Ints | None = None) -> None:
    """Refuse the rows whose name may not exist. `rows` says which row an entry belongs to, when that is not its index."""
    strings = strings_of(column.names)
    lengths = np.diff(column.names.offsets)
    control = pc.match_substring_regex(strings, r"\p{Cc}").to_numpy(zero_copy_only=False)
    suspect = np.flatnonzero((lengths == 0) | (lengths > MAX_NAME_BYTES) | control)
    by_fault: dict[str, list[int]] = {}
    for code in suspect.tolist():
        fault = name_fault(column.names[code]) if what == "device" else metric_fault(column.names[code])
        if fault:
            by_fault.setdefault(fault, []).append(code)
    for fault, codes in by_fault.items():
        others = f" (and {len(codes) - 1} others)" if len(codes) > 1 else ""
        bad = np.zeros(len(column.names) + 1, np.bool_)  # the last for code -1
        bad[codes] = True
        faults.mark(
            rows_with(bad[column.codes], rows, len(faults.refused)),
            "name",
            f"{what} {column.names[codes[0]][:80]!a} {fault}{others}",
        )


def rows_with(entries: Flags, rows: Ints | None, count: int) -> Flags:
    """The rows that have a marked entry."""
    if rows is None:
        return entries
    out = np.zeros(count, np.bool_)
    out[rows[entries]] = True
    return out


def _filled(array: Any, value: int) -> Any:
    """As NumPy, nulls replaced. Unsigned indices are widened, so that -1 fits."""
    if array.null_count == 0:
        return array.to_numpy(zero_copy_only=False)
    if value < 0 and pa.types.is_integer(array.type):
        array = array.cast(pa.int64())
    return pc.fill_null(array, pa.scalar(value, array.type)).to_numpy(zero_copy_only=False)
