"""Statistics as bytes: a rollup's record of one metric in one window.

Numbers are written in one of two forms, whichever is shorter; what is read from either is the same, bit for bit.
Values: the values themselves, in order of time, where there are few. Statistics are computed as they are read. Values that
are whole numbers of tenths, hundredths, ... take a byte or two each.
Statistics: the statistics and the sketch.
Two more forms have texts in them: `codec.text_record`.
Rule 1: records are stored: see docs/format/rollup.md before changing a byte.
Rule 2: `merged` says what `decode` and then `Stats.merged` say, bit for bit, in one pass: of windows that are merged no
quantile and no sketch is made, only of what they are merged to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.codec.pieces import chosen, copy
from widerow.codec.sketch import Sketches, bin_of, collect, histogram, most_bytes, no_sketches, put_sketch, take_sketch
from widerow.codec.stats import (
    FLOATS,
    Stats,
    add_later,
    estimate_quantiles,
    no_quantiles,
    put_quantiles,
    put_values,
    stats_of,
)
from widerow.codec.varint import put_varint, take_varint, unzigzag, zigzag
from widerow.model.arrays import PAD, Bytes, Codes, Flags, Floats, Ints, lengths, picked
from widerow.model.errors import Corrupt
from widerow.model.kernel import inlined, kernel, pasted
from widerow.model.machine import float_of_bits, peek64
from widerow.model.names import Names

VALUES, STATISTICS, TEXTS, BOTH = 1, 2, 3, 4
"""The first byte."""

_MOST_DECIMALS = 6
_DOUBLES = 15
"""Instead of a number of decimals: the values are 8 bytes each."""
_POWERS = np.array([10.0**k for k in range(_MOST_DECIMALS + 1)])
_EXACT = float(1 << 53)
HEAD_BYTES = 2 + 3 * 9
"""A head takes at most these."""
_FEWEST_BYTES = 8 * FLOATS + 4
"""Statistics take at least these, with a sketch of one bin."""


def forms_of(records: Names, which: Ints | Codes) -> Bytes:
    """The first byte of those at `which`. (Of one that is empty any: whoever reads it on refuses it.)"""
    return records.data[records.offsets[which]]


def has_numbers(form: Bytes) -> Flags:
    """Which forms `decode` and `merged` read. (One that is unknown is for them to refuse.)"""
    numbers: Flags = form != TEXTS
    return numbers


def has_texts(form: Bytes) -> Flags:
    texts: Flags = (form == TEXTS) | (form == BOTH)
    return texts


def encode_values(window_us: Ints, first_us: Ints, last_us: Ints, values: Floats, offsets: Ints) -> Names:
    """Records of groups of values, at least one each, in order of time; none before its window begins."""
    if (lengths(offsets) < 1).any():
        raise ValueError("a group without values has no record")
    starts, body = np.empty(len(offsets), np.int64), np.empty(len(window_us), np.int64)
    data = np.empty(HEAD_BYTES * len(window_us) + 8 * int(offsets[-1] - offsets[0]), np.uint8)
    _put_values(window_us, first_us, last_us, values, offsets, data, starts, body)
    records = trimmed(data, starts)
    long = np.flatnonzero(body > _FEWEST_BYTES)  # of the others no statistics are needed
    if len(long) == 0:
        return records
    cuts, where = picked(offsets, long)
    summed = encode_stats(window_us[long], Stats.between(first_us[long], last_us[long], values[where], cuts))
    shorter = lengths(summed.offsets) < lengths(records.offsets)[long]
    other = np.full(len(records), -1)
    other[long[shorter]] = np.flatnonzero(shorter)
    return chosen(records, summed, other)


def encode_stats(window_us: Ints, stats: Stats) -> Names:
    """Records of statistics whose values are not at hand."""
    columns, sketch, n = stats.columns(), stats.sketch, len(stats)
    starts = np.empty(n + 1, np.int64)
    data = np.empty((HEAD_BYTES + 8 * FLOATS) * n + most_bytes(n, len(sketch.bins)), np.uint8)
    _put_statistics(window_us, np.stack(columns[:3]), stats.rows(), sketch.offsets, sketch.bins, sketch.counts, data, starts)
    return trimmed(data, starts)


def trimmed(data: Bytes, starts: Ints) -> Names:
    return Names(np.concatenate([data[: starts[-1]], np.zeros(PAD, np.uint8)]), starts)


def decode(records: Names, window_us: Ints, *, quantiles: bool = True) -> Stats:
    """What the records say. `Corrupt`: one is not a record, or of a newer release."""
    n = len(records)
    return merged(records, np.arange(n), window_us, np.arange(n + 1), quantiles=quantiles)


def merged(
    records: Names,
    which: Ints | Codes,
    window_us: Ints,
    offsets: Ints,
    *,
    quantiles: bool = True,
    sketches: bool = True,
) -> Stats:
    """What groups of records say together in numbers: of those at `which`, whose windows begin at `window_us`.

    Each group has one at least, all of them of numbers, and they come in order of time. Without quantiles: these are no
    numbers, the sketches are empty, and what is stored of them is passed over. Without sketches, these are not read where
    each group is a single record, whose quantiles are stored. `Corrupt`: one is not a record, or of a newer release.
    """
    starts, stops = records.offsets[which], records.offsets[1:][which]
    n = len(offsets) - 1
    sketches = quantiles and (sketches or len(which) != n)
    most = int((stops - starts).sum()) if sketches else 0  # a value and a bin take a byte or more each
    ints, rows, cuts = np.empty((3, n), np.int64), np.empty((n, FLOATS)), np.empty(n + 1, np.int64)
    bins, counts = np.empty(most, np.int32), np.empty(most, np.int64)
    if not _read(records.data, starts, stops, window_us, offsets, quantiles, sketches, ints, rows, cuts, bins, counts):
        raise Corrupt("a rollup record cannot be read: was it written by a newer release?")
    if not sketches:
        return stats_of(ints, rows, no_sketches(n))
    sketch = Sketches(cuts, bins[: cuts[-1]].copy(), counts[: cuts[-1]].copy())
    estimate_quantiles(rows, sketch, lengths(offsets) > 1)
    return stats_of(ints, rows, sketch)


@kernel
def _read(
    data: Bytes,
    starts: Ints,
    stops: Ints,
    window_us: Ints,
    offsets: Ints,
    quantiles: bool,
    sketches: bool,
    ints: Ints,
    rows: Floats,
    cuts: Ints,
    bins: Codes,
    counts: Ints,
) -> bool:
    """False: one of the records cannot be."""
    base = data.ctypes.data
    longest = 8 * FLOATS
    for i in range(len(starts)):
        longest = max(longest, stops[i] - starts[i])
    values, by_size, space = np.empty(longest), np.empty(longest), histogram()
    values_bytes = values.view(np.uint8)
    one = np.empty(FLOATS)
    cuts[0] = 0
    for g in range(len(offsets) - 1):
        used, count = cuts[g], np.int64(0)
        for i in range(offsets[g], offsets[g + 1]):
            begin, stop = starts[i], stops[i]
            if data[begin] == BOTH:
                begin, stop = part_of_numbers(data, begin, stop)
            form, decimals, n, first_us, last_us, p = take_head(data, begin, stop, window_us[i])
            if p < 0 or form == TEXTS:
                return False
            row = one if count else rows[g]
            if form == VALUES:
                if not _take_values(data, p, stop, decimals, n, values, values_bytes):
                    return False
                put_values(values, 0, n, row)
                if sketches:
                    for k in range(n):
                        bins[used + k], counts[used + k] = bin_of(values[k]), 1
                    used += n
                if quantiles and offsets[g + 1] - offsets[g] == 1:
                    put_quantiles(values, 0, n, by_size, row)
            else:
                if p + 8 * FLOATS > stop:
                    return False
                for k in range(FLOATS):
                    row[k] = float_of_bits(peek64(base + p + 8 * k))
                if sketches:
                    used = take_sketch(data, p + 8 * FLOATS, stop, bins, counts, used)
                    if used < 0:
                        return False
            if count:
                add_later(count, rows[g], n, one)
            else:
                ints[1, g] = first_us
            count += n
            ints[2, g] = last_us
        ints[0, g] = count
        if sketches:
            used = collect(bins, counts, cuts[g], used, cuts[g], space)
        elif not quantiles:
            no_quantiles(rows[g])
        cuts[g + 1] = used
    return True


# The head: the form, the decimals (0x80 added: times are whole milliseconds), the count, the first time from the window's
# begin on, the last from the first on.


@pasted
def unit_of(first: Any, last: Any) -> Any:
    return 1000 if first % 1000 == 0 and last % 1000 == 0 else 1


@pasted
def put_head(data: Any, at: Any, form: Any, unit: Any, count: Any, first: Any, last: Any) -> Any:
    """The time of the first is from the window's begin on, that of the last from the first on. Where it ends."""
    data[at] = form
    data[at + 1] = 0x80 if unit == 1000 else 0
    at = put_varint(data, at + 2, count)
    at = put_varint(data, at, first // unit)
    return put_varint(data, at, last // unit)


@pasted
def _put_head(data: Any, at: Any, form: Any, count: Any, window_us: Any, first_us: Any, last_us: Any) -> Any:
    first, last = first_us - window_us, last_us - first_us
    return put_head(data, at, form, unit_of(first, last), count, first, last)


@pasted
def take_head(data: Any, at: Any, stop: Any, window_us: Any) -> Any:
    """The form, the decimals, the count, the first and the last time, and where the head ends; -1: it cannot be."""
    wrong = np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(-1)
    if stop - at < 5 or data[at] < VALUES or data[at] > TEXTS:
        return wrong
    form, decimals = np.int64(data[at]), np.int64(data[at + 1] & 0x7F)
    unit = 1000 if data[at + 1] & 0x80 else 1
    count, p = take_varint(data, at + 2, stop)
    first, p = take_varint(data, p, stop)
    last, p = take_varint(data, p, stop)
    if p < 0 or count < 1 or first > 1 << 50 or last > 1 << 50 or (form == VALUES and count > stop - p):
        return wrong
    return form, decimals, count, window_us + first * unit, window_us + (first + last) * unit, p


@inlined
def part_of_numbers(data: Any, at: Any, stop: Any) -> Any:
    """Where the record of numbers begins and stops: it may be part of one that has texts, too."""
    if at >= stop or data[at] != BOTH:
        return at, stop
    _, p = take_varint(data, at + 2, stop)
    size, p = take_varint(data, p, stop)
    if p < 0 or size > stop - p:
        return at, at
    return p, p + size


# Values: differences of whole numbers, or doubles.


@pasted
def _scaled(value: Any, decimals: Any) -> Any:
    """The value as a whole number of so many decimals, and whether it is one."""
    whole = np.rint(value * _POWERS[decimals])
    fits = abs(whole) < _EXACT and whole / _POWERS[decimals] == value and not (value == 0.0 and np.signbit(value))
    return np.int64(whole) if fits else np.int64(0), fits


@pasted
def _put_whole(data: Any, at: Any, values: Any, start: Any, stop: Any, decimals: Any) -> Any:
    """The values as whole numbers of so many decimals. Where they end, and how many there were up to one that is none."""
    before = np.int64(0)
    for i in range(start, stop):
        whole, fits = _scaled(values[i], decimals)
        if not fits:
            return at, i - start
        at = put_varint(data, at, zigzag(whole - before))
        before = whole
    return at, stop - start


@kernel
def _put_values(
    window_us: Ints, first_us: Ints, last_us: Ints, values: Floats, offsets: Ints, data: Bytes, starts: Ints, body: Ints
) -> None:
    raw = values.view(np.uint8)
    starts[0] = 0
    for g in range(len(window_us)):
        start, stop = offsets[g], offsets[g + 1]
        n = stop - start
        begin = _put_head(data, starts[g], VALUES, n, window_us[g], first_us[g], last_us[g])
        decimals = 0
        at, fitting = _put_whole(data, begin, values, start, stop, decimals)
        furthest = 0
        while fitting < n and fitting >= furthest and decimals <= _MOST_DECIMALS:
            furthest = fitting
            while decimals <= _MOST_DECIMALS and not _scaled(values[start + fitting], decimals)[1]:
                decimals += 1
            if decimals <= _MOST_DECIMALS:
                at, fitting = _put_whole(data, begin, values, start, stop, decimals)
        if fitting < n:
            decimals = _DOUBLES
            at = begin + 8 * n
            copy(raw, 8 * start, data, begin, 8 * n)
        data[starts[g] + 1] |= decimals
        body[g] = at - begin
        starts[g + 1] = at


@pasted
def _take_values(data: Any, at: Any, stop: Any, decimals: Any, n: Any, values: Any, values_bytes: Any) -> Any:
    """False: there are more or fewer."""
    if decimals == _DOUBLES:
        if at + 8 * n != stop:
            return False
        copy(data, at, values_bytes, 0, 8 * n)
        return True
    if decimals > _MOST_DECIMALS:
        return False
    whole, power = np.int64(0), _POWERS[decimals]
    for i in range(n):
        step, at = take_varint(data, at, stop)
        whole += unzigzag(step)
        values[i] = whole / power
    return at == stop


@kernel
def _put_statistics(
    window_us: Ints, ints: Ints, rows: Floats, cuts: Ints, bins: Codes, counts: Ints, data: Bytes, starts: Ints
) -> None:
    raw = rows.reshape(-1).view(np.uint8)
    starts[0] = 0
    for g in range(len(window_us)):
        at = _put_head(data, starts[g], STATISTICS, ints[0, g], window_us[g], ints[1, g], ints[2, g])
        copy(raw, 8 * FLOATS * g, data, at, 8 * FLOATS)
        starts[g + 1] = put_sketch(data, at + 8 * FLOATS, bins, counts, cuts[g], cuts[g + 1])
