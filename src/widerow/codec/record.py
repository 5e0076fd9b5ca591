"""Statistics as bytes: a rollup's record of one metric in one window.

A record is written in one of two forms, whichever is shorter; what is read from either is the same, bit for bit.
Values: the values themselves, in order of time, where there are few. Statistics are computed as they are read. Values that
are whole numbers of tenths, hundredths, ... take a byte or two each.
Statistics: the statistics and the sketch.
Rule: records are stored: see docs/format/rollup.md before changing a byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.codec.sketch import Sketches
from widerow.codec.stats import COLUMNS, Stats, stacked
from widerow.codec.varint import put_varint, take_varint, unzigzag, varint_bytes, zigzag
from widerow.model.arrays import PAD, Bytes, Floats, Ints, lengths, picked
from widerow.model.errors import Corrupt
from widerow.model.kernel import inlined, kernel
from widerow.model.names import Names

VALUES, STATISTICS = 1, 2
"""The first byte."""

_MOST_DECIMALS = 6
_DOUBLES = 15
"""Instead of a number of decimals: the values are 8 bytes each."""
_POWERS = np.array([10.0**k for k in range(_MOST_DECIMALS + 1)])
_EXACT = float(1 << 53)
_FLOATS = len(COLUMNS) - 3
_FEWEST_BYTES = 8 * _FLOATS + 4
"""Statistics take at least these, with a sketch of one bin."""


def encode_values(window_us: Ints, time_us: Ints, values: Floats, offsets: Ints) -> Names:
    """Records of groups of values, at least one each, in order of time; none before its window begins."""
    count = lengths(offsets)
    if (count < 1).any():
        raise ValueError("a group without values has no record")
    decimals, sizes = np.empty(len(count), np.int64), np.empty(len(count), np.int64)
    _plan_values(values, offsets, decimals, sizes)
    long = np.flatnonzero(sizes > _FEWEST_BYTES)  # of the others no statistics are needed
    stats = _of_some(time_us, values, offsets, long)
    sketches = stats.sketch.encode()
    long_sizes = 8 * _FLOATS + lengths(sketches.offsets)
    summed = long_sizes < sizes[long]
    sizes[long] = np.minimum(sizes[long], long_sizes)
    kind = np.full(len(count), VALUES, np.uint8)
    kind[long[summed]] = STATISTICS
    heads = count, time_us[offsets[:-1]], time_us[offsets[1:] - 1]
    data, starts, at = _begun(window_us, heads, kind, decimals, sizes)
    _put_values(values, offsets, kind, decimals, data, at)
    _put_statistics(_table(stats), sketches.data, sketches.offsets, np.flatnonzero(summed), long, data, at)
    return Names(data, starts)


def encode_stats(window_us: Ints, stats: Stats) -> Names:
    """Records of statistics whose values are not at hand."""
    n, sketches = len(stats), stats.sketch.encode()
    heads = stats.count, stats.first_us, stats.last_us
    kind, none = np.full(n, STATISTICS, np.uint8), np.zeros(n, np.int64)
    data, starts, at = _begun(window_us, heads, kind, none, 8 * _FLOATS + lengths(sketches.offsets))
    every = np.arange(n)
    _put_statistics(_table(stats), sketches.data, sketches.offsets, every, every, data, at)
    return Names(data, starts)


def _begun(
    window_us: Ints, heads: tuple[Ints, Ints, Ints], kind: Bytes, decimals: Ints, sizes: Ints
) -> tuple[Bytes, Ints, Ints]:
    """Records with their heads written: the bytes, where each record begins, and where its head ends."""
    of_heads = np.empty(len(sizes), np.int64)
    _head_bytes(window_us, *heads, of_heads)
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(of_heads + sizes, out=starts[1:])
    data = np.zeros(int(starts[-1]) + PAD, np.uint8)
    at = starts[:-1].copy()
    _put_heads(window_us, *heads, kind, decimals, data, at)
    return data, starts, at


def _of_some(time_us: Ints, values: Floats, offsets: Ints, which: Ints) -> Stats:
    """The statistics of some of the groups."""
    cuts, where = picked(offsets, which)
    return Stats.of(time_us[where], values[where], cuts)


def decode(records: Names, window_us: Ints) -> Stats:
    """What the records say. `Corrupt`: one is not a record, or of a newer release."""
    n = len(records)
    kind, ints, at = np.empty(n, np.uint8), np.empty((3, n), np.int64), np.empty(n, np.int64)
    decimals = np.empty(n, np.int64)
    if not _take_heads(records.data, records.offsets, window_us, kind, decimals, ints, at):
        raise _corrupt()
    few, many = np.flatnonzero(kind == VALUES), np.flatnonzero(kind == STATISTICS)
    parts = []
    if len(few):
        parts.append(_from_values(records, few, ints[:, few], decimals[few], at[few]))
    if len(many):
        parts.append(_from_statistics(records, many, ints[:, many], at[many]))
    if not parts:
        return Stats.of(np.zeros(0, np.int64), np.zeros(0), np.zeros(1, np.int64))
    if len(parts) == 1:
        return parts[0]
    order = np.empty(n, np.int64)
    order[np.concatenate([few, many])] = np.arange(n)
    return stacked(parts).take(order)


def _from_values(records: Names, which: Ints, ints: Ints, decimals: Ints, at: Ints) -> Stats:
    offsets = np.zeros(len(which) + 1, np.int64)
    np.cumsum(ints[0], out=offsets[1:])
    values = np.empty(int(offsets[-1]))
    if not _take_values(records.data, records.offsets[which + 1], decimals, at, offsets, values):
        raise _corrupt()
    # Only the first and the last time are kept: no other is asked for.
    time_us = np.zeros(len(values), np.int64)
    time_us[offsets[:-1]] = ints[1]
    time_us[offsets[1:] - 1] = ints[2]
    return Stats.of(time_us, values, offsets)


def _from_statistics(records: Names, which: Ints, ints: Ints, at: Ints) -> Stats:
    floats = np.empty((_FLOATS, len(which)))
    stops = records.offsets[which + 1]
    if (at + 8 * _FLOATS > stops).any():
        raise _corrupt()
    _take_floats(records.data, at, floats)
    rest = [records.data[a:b].tobytes() for a, b in zip((at + 8 * _FLOATS).tolist(), stops.tolist(), strict=True)]
    columns: list[Any] = [*ints, *floats]
    return Stats(**dict(zip(COLUMNS, columns, strict=True)), sketch=Sketches.decode(Names.of_bytes(rest)))


def _corrupt() -> Corrupt:
    return Corrupt("a rollup record cannot be read: was it written by a newer release?")


def _table(stats: Stats) -> Floats:
    return np.stack(stats.columns()[3:])


# The head: the form, the decimals (0x80 added: times are whole milliseconds), the count, the first time from the window's
# begin on, the last from the first on.


@inlined
def _unit(first: Any, last: Any) -> Any:
    return 1000 if first % 1000 == 0 and last % 1000 == 0 else 1


@kernel
def _head_bytes(window_us: Ints, count: Ints, first_us: Ints, last_us: Ints, sizes: Ints) -> None:
    for g in range(len(count)):
        first, last = first_us[g] - window_us[g], last_us[g] - first_us[g]
        unit = _unit(first, last)
        sizes[g] = 2 + varint_bytes(count[g]) + varint_bytes(first // unit) + varint_bytes(last // unit)


@kernel
def _put_heads(
    window_us: Ints, count: Ints, first_us: Ints, last_us: Ints, kind: Bytes, decimals: Ints, data: Bytes, at: Ints
) -> None:
    for g in range(len(count)):
        first, last = first_us[g] - window_us[g], last_us[g] - first_us[g]
        unit = _unit(first, last)
        p = at[g]
        data[p] = kind[g]
        data[p + 1] = (decimals[g] if kind[g] == VALUES else 0) | (0x80 if unit == 1000 else 0)
        p = put_varint(data, p + 2, count[g])
        p = put_varint(data, p, first // unit)
        at[g] = put_varint(data, p, last // unit)


@kernel
def _take_heads(data: Bytes, starts: Ints, window_us: Ints, kind: Bytes, decimals: Ints, ints: Ints, at: Ints) -> bool:
    for g in range(len(kind)):
        p, stop = starts[g], starts[g + 1]
        if stop - p < 5 or (data[p] != VALUES and data[p] != STATISTICS):
            return False
        kind[g] = data[p]
        decimals[g] = data[p + 1] & 0x7F
        unit = 1000 if data[p + 1] & 0x80 else 1
        count, p = take_varint(data, p + 2, stop)
        first, p = take_varint(data, p, stop)
        last, p = take_varint(data, p, stop)
        if p < 0 or count < 1 or first > 1 << 50 or last > 1 << 50:
            return False
        if kind[g] == VALUES and count > stop - p:
            return False
        ints[0, g] = count
        ints[1, g] = window_us[g] + first * unit
        ints[2, g] = ints[1, g] + last * unit
        at[g] = p
    return True


# Values: differences of whole numbers, or doubles.


@inlined
def _scaled(value: Any, decimals: Any) -> Any:
    """The value as a whole number of so many decimals, and whether it is one."""
    whole = np.rint(value * _POWERS[decimals])
    fits = abs(whole) < _EXACT and whole / _POWERS[decimals] == value and not (value == 0.0 and np.signbit(value))
    return np.int64(whole) if fits else np.int64(0), fits


@kernel
def _plan_values(values: Floats, offsets: Ints, decimals: Ints, sizes: Ints) -> None:
    """How many decimals the values of each group have, and the bytes they take."""
    for g in range(len(decimals)):
        start, stop = offsets[g], offsets[g + 1]
        k = 0
        for i in range(start, stop):
            while k <= _MOST_DECIMALS and not _scaled(values[i], k)[1]:
                k += 1
            if k > _MOST_DECIMALS:
                break
        size = 0
        before = np.int64(0)
        for i in range(start, stop):
            if k > _MOST_DECIMALS:
                break
            whole, fits = _scaled(values[i], k)
            if not fits:
                k = _MOST_DECIMALS + 1
            size += varint_bytes(zigzag(whole - before))
            before = whole
        decimals[g] = k if k <= _MOST_DECIMALS else _DOUBLES
        sizes[g] = size if k <= _MOST_DECIMALS else 8 * (stop - start)


@kernel
def _put_values(values: Floats, offsets: Ints, kind: Bytes, decimals: Ints, data: Bytes, at: Ints) -> None:
    for g in range(len(decimals)):
        if kind[g] != VALUES:
            continue
        p = at[g]
        if decimals[g] == _DOUBLES:
            raw = values[offsets[g] : offsets[g + 1]].copy().view(np.uint8)
            data[p : p + len(raw)] = raw
            continue
        before = np.int64(0)
        for i in range(offsets[g], offsets[g + 1]):
            whole = _scaled(values[i], decimals[g])[0]
            p = put_varint(data, p, zigzag(whole - before))
            before = whole


@kernel
def _take_values(data: Bytes, stops: Ints, decimals: Ints, at: Ints, offsets: Ints, values: Floats) -> bool:
    for g in range(len(decimals)):
        p = at[g]
        n = offsets[g + 1] - offsets[g]
        if decimals[g] == _DOUBLES:
            if p + 8 * n != stops[g]:
                return False
            values[offsets[g] : offsets[g + 1]] = data[p : stops[g]].copy().view(np.float64)
            continue
        if decimals[g] > _MOST_DECIMALS:
            return False
        whole = np.int64(0)
        for i in range(offsets[g], offsets[g + 1]):
            step, p = take_varint(data, p, stops[g])
            whole += unzigzag(step)
            values[i] = whole / _POWERS[decimals[g]]
        if p != stops[g]:
            return False
    return True


@kernel
def _put_statistics(
    table: Floats, sketches: Bytes, sketch_starts: Ints, which: Ints, record: Ints, data: Bytes, at: Ints
) -> None:
    """The statistics at `which`; number g goes into the record `record[g]`."""
    for g in which:
        p = at[record[g]]
        raw = table[:, g].copy().view(np.uint8)
        data[p : p + len(raw)] = raw
        p += len(raw)
        for i in range(sketch_starts[g], sketch_starts[g + 1]):
            data[p] = sketches[i]
            p += 1


@kernel
def _take_floats(data: Bytes, at: Ints, floats: Floats) -> None:
    for g in range(len(at)):
        floats[:, g] = data[at[g] : at[g] + 8 * len(floats)].copy().view(np.float64)
