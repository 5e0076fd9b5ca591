"""The parts a key is made of, as loops over bytes. Stored: see docs/format/keys.md before changing a byte.

Rule 1: the byte order of a part is the order of the values it shows, for every text and every 64-bit number.
Rule 2: no part holds the delimiter `#`, and every byte that can follow a text sorts behind it. So no name breaks a key, and
a name that is the start of another comes first.

Text: every byte up to `%` (control characters, space, `!"#$%`) as `%` and two hex digits; the empty text is a lone `%`.
Descending text: the inverted bytes in hex, closed by `~`.
Digits: zero-padded to a width; what does not fit is `-` (negative) or `:` (too great) and 19 digits, which sort before and
behind all digits. Descending: the same of 10**width - 1 - n, so that the newest time comes first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.model.arrays import PAD, Bytes, Codes, Ints, lengths
from widerow.model.kernel import inlined, kernel
from widerow.model.names import Names

DELIMITER = b"#"
AFTER_DELIMITER = b"$"
"""Put behind a part, it sorts behind all keys that go on after that part."""

LONG = 20
"""The bytes of a number that does not fit its width."""

_PERCENT = 0x25
_U = np.uint64
_SPARE = _U(10**19)
"""Greater than every 64-bit integer, and all 19 digits can show of it."""


def escape_text(text: str) -> bytes:
    """One text as it stands in a key."""
    return b"".join(b"%%%02X" % b if b <= _PERCENT else bytes([b]) for b in text.encode()) or b"%"


def escape_text_down(text: str) -> bytes:
    return bytes(b ^ 0xFF for b in text.encode()).hex().encode() + b"~"


def escape(names: Names, *, descending: bool = False) -> Names:
    """Each text as it stands in a key."""
    size = int(names.offsets[-1])
    data = np.zeros((2 if descending else 3) * size + len(names) + PAD, np.uint8)
    offsets = np.zeros(len(names) + 1, np.int64)
    (_escape_down_all if descending else _escape_all)(names.data, names.offsets, data, offsets)
    return Names(data, offsets)


def format_digits(value: int, width: int, *, descending: bool = False) -> bytes:
    """One number as it stands in a key."""
    shown = 10**width - 1 - value if descending else value
    if 0 <= shown < 10**width:
        return b"%0*d" % (width, shown)
    return b"-%019d" % (10**19 + shown) if shown < 0 else b":%019d" % shown


@inlined
def _hex_upper(n: Any) -> Any:
    return n + (0x30 if n < 10 else 0x37)


@inlined
def _hex_lower(n: Any) -> Any:
    return n + (0x30 if n < 10 else 0x57)


@inlined
def _hex_value(c: Any) -> Any:
    """Of a digit of either case; 16 or more: it is none."""
    if 0x30 <= c <= 0x39:
        return c - 0x30
    if 0x41 <= c <= 0x46:
        return c - 0x37
    if 0x61 <= c <= 0x66:
        return c - 0x57
    return 16


@kernel
def _escape_all(text: Bytes, starts: Ints, out: Bytes, offsets: Ints) -> None:
    p = 0
    for i in range(len(starts) - 1):
        for k in range(starts[i], starts[i + 1]):
            b = np.int64(text[k])
            if b <= _PERCENT:
                out[p] = _PERCENT
                out[p + 1] = _hex_upper(b >> 4)
                out[p + 2] = _hex_upper(b & 15)
                p += 3
            else:
                out[p] = b
                p += 1
        if starts[i] == starts[i + 1]:
            out[p] = _PERCENT
            p += 1
        offsets[i + 1] = p


@kernel
def _escape_down_all(text: Bytes, starts: Ints, out: Bytes, offsets: Ints) -> None:
    p = 0
    for i in range(len(starts) - 1):
        for k in range(starts[i], starts[i + 1]):
            b = np.int64(text[k]) ^ 0xFF
            out[p] = _hex_lower(b >> 4)
            out[p + 1] = _hex_lower(b & 15)
            p += 2
        out[p] = 0x7E
        p += 1
        offsets[i + 1] = p


@kernel
def put_texts(text: Bytes, starts: Ints, codes: Codes, out: Bytes, position: Ints) -> None:
    """Text `codes[i]` at `position[i]`, which moves behind it."""
    for i in range(len(codes)):
        p = position[i]
        for k in range(starts[codes[i]], starts[codes[i] + 1]):
            out[p] = text[k]
            p += 1
        position[i] = p


def text_lengths(names: Names, codes: Codes) -> Ints:
    return lengths(names.offsets)[codes]


def digit_lengths(values: Ints, width: int) -> Ints:
    return np.where((values >= 0) & (values < 10**width), width, LONG)


@kernel
def put_digits(values: Ints, width: int, descending: bool, out: Bytes, position: Ints) -> None:
    """Number i at `position[i]`, which moves behind it."""
    bound = np.int64(10) ** width
    for i in range(len(values)):
        value = values[i]
        p = position[i]
        count = width
        if 0 <= value < bound:
            shown = _U(bound - 1 - value if descending else value)
        else:
            count = 19
            negative = value < 0
            if negative:
                size = _U(~value) + _U(1)
                shown = _U(bound - 1) + size if descending else _SPARE - size
            else:
                shown = _SPARE + _U(bound - 1) - _U(value) if descending else _U(value)
            out[p] = 0x2D if negative != descending else 0x3A
            p += 1
        for k in range(count - 1, -1, -1):
            out[p + k] = 0x30 + shown % _U(10)
            shown //= _U(10)
        position[i] = p + count


@kernel
def take_digits(data: Bytes, position: Ints, stops: Ints, width: int, descending: bool, out: Ints) -> int:
    """The number at each position, which moves behind it. Gives the first row that has none there, or -1."""
    bound = np.int64(10) ** width
    for i in range(len(out)):
        p = position[i]
        lead = np.int64(data[p]) if p < stops[i] else 0
        is_long = lead in (0x2D, 0x3A)
        count = 19 if is_long else width
        if is_long:
            p += 1
        if p + count > stops[i]:
            return i
        shown = _U(0)
        for k in range(p, p + count):
            digit = np.int64(data[k]) - 0x30
            if digit < 0 or digit > 9:
                return i
            shown = shown * _U(10) + _U(digit)
        position[i] = p + count
        if not is_long:
            out[i] = bound - 1 - np.int64(shown) if descending else np.int64(shown)
        elif (lead == 0x2D) != descending:
            size = shown - _U(bound - 1) if descending else _SPARE - shown
            out[i] = ~np.int64(size - _U(1))
        else:
            out[i] = np.int64(_SPARE + _U(bound - 1) - shown if descending else shown)
    return -1


def take_texts(data: Bytes, position: Ints, stops: Ints, *, descending: bool) -> tuple[Names | None, int]:
    """The text at each position, which moves to the delimiter behind it; or the first row that has none there."""
    out = np.zeros(int((stops - position).sum()) + PAD, np.uint8)
    offsets = np.zeros(len(position) + 1, np.int64)
    bad = (_take_texts_down if descending else _take_texts)(data, position, stops, out, offsets)
    return (None, bad) if bad >= 0 else (Names(out, offsets), -1)


@kernel
def _take_texts(data: Bytes, position: Ints, stops: Ints, out: Bytes, offsets: Ints) -> int:
    q = 0
    for i in range(len(position)):
        p, stop = position[i], stops[i]
        if p >= stop or data[p] == 0x23:
            return i
        if data[p] == _PERCENT and (p + 1 == stop or data[p + 1] == 0x23):
            p += 1
        while p < stop and data[p] != 0x23:
            if data[p] == _PERCENT:
                if p + 2 >= stop:
                    return i
                high, low = _hex_value(np.int64(data[p + 1])), _hex_value(np.int64(data[p + 2]))
                if high > 15 or low > 15:
                    return i
                out[q] = 16 * high + low
                p += 3
            else:
                out[q] = data[p]
                p += 1
            q += 1
        position[i] = p
        offsets[i + 1] = q
    return -1


@kernel
def _take_texts_down(data: Bytes, position: Ints, stops: Ints, out: Bytes, offsets: Ints) -> int:
    q = 0
    for i in range(len(position)):
        p, stop = position[i], stops[i]
        while p < stop and data[p] != 0x7E:
            high, low = _hex_value(np.int64(data[p])), _hex_value(np.int64(data[p + 1])) if p + 1 < stop else 16
            if high > 15 or low > 15:
                return i
            out[q] = (16 * high + low) ^ 0xFF
            q += 1
            p += 2
        if p >= stop:
            return i
        position[i] = p + 1
        offsets[i + 1] = q
    return -1


@kernel
def take_literal(data: Bytes, position: Ints, stops: Ints, literal: Bytes) -> int:
    """Step over the same bytes in each key. Gives the first row that has others, or -1."""
    n = len(literal)
    for i in range(len(position)):
        p = position[i]
        if p + n > stops[i]:
            return i
        for k in range(n):
            if data[p + k] != literal[k]:
                return i
        position[i] = p + n
    return -1
