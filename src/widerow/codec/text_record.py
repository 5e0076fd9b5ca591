"""States as bytes: a rollup's record of a metric in one window in which its values were texts.

Texts: how many, the first and the last, and how often and how long each text was said. Both: a record of numbers and one of
texts, for a metric that had values of either kind in one window.
Rule: records are stored: see docs/format/rollup.md before changing a byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.codec.pieces import copy, cut_out
from widerow.codec.record import BOTH, HEAD_BYTES, TEXTS, part_of_numbers, put_head, take_head, trimmed, unit_of
from widerow.codec.states import States
from widerow.codec.varint import put_varint, take_varint, varint_bytes
from widerow.model.arrays import PAD, Bytes, Codes, Ints, lengths
from widerow.model.combine import in_order, united
from widerow.model.errors import Corrupt
from widerow.model.kernel import kernel, pasted
from widerow.model.names import Coded, Names

_HEAD_BYTES = HEAD_BYTES + 5 * 9
_VALUE_BYTES = 3 * 9
"""What a record takes at most, and each text besides its own bytes."""


def encode_states(window_us: Ints, states: States) -> Names:
    """Records of states. None begins before its window."""
    s, n = states, len(states)
    starts = np.empty(n + 1, np.int64)
    of_texts = int(lengths(s.names.offsets)[s.value].sum())
    data = np.empty(_HEAD_BYTES * n + _VALUE_BYTES * len(s.value) + of_texts, np.uint8)
    heads = np.stack([s.count, s.first_us, s.last_us, s.first, s.last, s.other_count, s.other_us])
    _put(window_us, heads, s.offsets, s.value, s.counts, s.lasted_us, s.names.data, s.names.offsets, data, starts)
    return trimmed(data, starts)


def decode_states(records: Names, which: Ints | Codes, window_us: Ints) -> States:
    """What records say in texts: those at `which`, all of them of texts. `Corrupt`: one is not, or of a newer release."""
    starts, stops = records.offsets[which], records.offsets[1:][which]
    n = len(starts)
    most = int((stops - starts).sum()) // 3  # a text takes three bytes or more
    heads, offsets = np.empty((7, n), np.int64), np.empty(n + 1, np.int64)
    values = np.empty((4, most), np.int64)
    if not _take(records.data, starts, stops, window_us, heads, offsets, values):
        raise Corrupt("a rollup record of texts cannot be read: was it written by a newer release?")
    at, size, counts, lasted_us = values[:, : offsets[-1]].copy()
    every = cut_out(records.data, at, size)
    text = in_order(united([Coded(every, np.arange(len(every), dtype=np.int32))]))
    count, first_us, last_us, first, last, other_count, other_us = heads.copy()
    return States(
        text.names,
        count,
        first_us,
        last_us,
        text.codes[first],
        text.codes[last],
        other_count,
        other_us,
        offsets,
        text.codes,
        counts,
        lasted_us,
    )


def together(n: int, numbers: Names, of_numbers: Ints, texts: Names, of_texts: Ints) -> Names:
    """So many records, in which the numbers and the texts stand that are for them: each has one at least."""
    number, text = np.full(n, -1), np.full(n, -1)
    number[of_numbers], text[of_texts] = np.arange(len(numbers)), np.arange(len(texts))
    sizes, offsets = np.empty(n, np.int64), np.zeros(n + 1, np.int64)
    _sizes_together(number, numbers.data, numbers.offsets, text, texts.data, texts.offsets, sizes)
    np.cumsum(sizes, out=offsets[1:])
    data = np.zeros(int(offsets[-1]) + PAD, np.uint8)
    _put_together(number, numbers.data, numbers.offsets, text, texts.data, texts.offsets, data, offsets)
    return Names(data, offsets)


@kernel
def _put(
    window_us: Ints,
    heads: Ints,
    offsets: Ints,
    value: Codes,
    counts: Ints,
    lasted_us: Ints,
    text: Bytes,
    text_at: Ints,
    data: Bytes,
    starts: Ints,
) -> None:
    starts[0] = 0
    for g in range(len(window_us)):
        count, first_us, last_us, first, last, other_count, other_us = heads[:, g]
        from_begin, from_first = first_us - window_us[g], last_us - first_us
        unit = unit_of(from_begin, from_first)
        first_at, last_at = 0, 0
        for i in range(offsets[g], offsets[g + 1]):
            unit = min(unit, unit_of(lasted_us[i], other_us))
            first_at = i - offsets[g] if value[i] == first else first_at
            last_at = i - offsets[g] if value[i] == last else last_at
        at = put_head(data, starts[g], TEXTS, unit, count, from_begin, from_first)
        at = put_varint(data, at, other_count)
        at = put_varint(data, at, other_us // unit)
        at = put_varint(data, at, offsets[g + 1] - offsets[g])
        at = put_varint(data, at, first_at)
        at = put_varint(data, at, last_at)
        for i in range(offsets[g], offsets[g + 1]):
            begin = text_at[value[i]]
            size = text_at[value[i] + 1] - begin
            at = put_varint(data, at, size)
            copy(text, begin, data, at, size)
            at = put_varint(data, at + size, counts[i])
            at = put_varint(data, at, lasted_us[i] // unit)
        starts[g + 1] = at


@kernel
def _take(data: Bytes, starts: Ints, stops: Ints, window_us: Ints, heads: Ints, offsets: Ints, values: Ints) -> bool:
    """False: one of the records cannot be. `values` are where each text is, its size, its count and its time."""
    offsets[0] = 0
    for g in range(len(starts)):
        stop = stops[g]
        begin = _part_of_texts(data, starts[g], stop)
        form, _, count, first_us, last_us, p = take_head(data, begin, stop, window_us[g])
        if p < 0 or form != TEXTS:
            return False
        unit = 1000 if data[begin + 1] & 0x80 else 1
        other_count, p = take_varint(data, p, stop)
        other_us, p = take_varint(data, p, stop)
        n, p = take_varint(data, p, stop)
        first, p = take_varint(data, p, stop)
        last, p = take_varint(data, p, stop)
        if p < 0 or 3 * n > stop - p or first >= n or last >= n or other_us > 1 << 53:
            return False
        used = offsets[g]
        for i in range(used, used + n):
            size, p = take_varint(data, p, stop)
            if p < 0 or size > stop - p:
                return False
            values[0, i], values[1, i] = p, size
            values[2, i], p = take_varint(data, p + size, stop)
            lasted, p = take_varint(data, p, stop)
            if p < 0 or lasted > 1 << 53:
                return False
            values[3, i] = lasted * unit
        if p != stop:
            return False
        heads[0, g], heads[1, g], heads[2, g] = count, first_us, last_us
        heads[3, g], heads[4, g], heads[5, g], heads[6, g] = used + first, used + last, other_count, other_us * unit
        offsets[g + 1] = used + n
    return True


@pasted
def _part_of_texts(data: Any, at: Any, stop: Any) -> Any:
    """Where the record of texts begins."""
    begin, end = part_of_numbers(data, at, stop)
    return at if begin == at else end


@kernel
def _sizes_together(
    number: Ints, numbers: Bytes, number_at: Ints, text: Ints, texts: Bytes, text_at: Ints, sizes: Ints
) -> None:
    for i in range(len(number)):
        n, t = number[i], text[i]
        of_numbers = number_at[n + 1] - number_at[n] if n >= 0 else 0
        of_texts = text_at[t + 1] - text_at[t] if t >= 0 else 0
        sizes[i] = of_numbers + of_texts
        if n >= 0 and t >= 0:
            count = _count(numbers, number_at[n], number_at[n + 1]) + _count(texts, text_at[t], text_at[t + 1])
            sizes[i] += 2 + varint_bytes(count) + varint_bytes(of_numbers)


@kernel
def _put_together(
    number: Ints, numbers: Bytes, number_at: Ints, text: Ints, texts: Bytes, text_at: Ints, data: Bytes, offsets: Ints
) -> None:
    for i in range(len(number)):
        n, t, at = number[i], text[i], offsets[i]
        of_numbers = number_at[n + 1] - number_at[n] if n >= 0 else 0
        if n >= 0 and t >= 0:
            data[at], data[at + 1] = BOTH, 0
            count = _count(numbers, number_at[n], number_at[n + 1]) + _count(texts, text_at[t], text_at[t + 1])
            at = put_varint(data, at + 2, count)
            at = put_varint(data, at, of_numbers)
        if n >= 0:
            copy(numbers, number_at[n], data, at, of_numbers)
            at += of_numbers
        if t >= 0:
            copy(texts, text_at[t], data, at, text_at[t + 1] - text_at[t])


@pasted
def _count(data: Any, at: Any, stop: Any) -> Any:
    """How many values a record is of."""
    return take_varint(data, at + 2, stop)[0]
