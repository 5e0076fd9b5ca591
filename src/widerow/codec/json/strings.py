"""Strings of a JSON text, for kernels: where one ends, what is odd about it, and its characters behind escapes.

Rule: the text is followed by `PAD` zero bytes. A zero may not stand inside a string, so every scan ends there by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.model.kernel import inlined
from widerow.model.machine import peek8, peek64, poke8, trailing_zeros

U = np.uint64
QUOTE, BACKSLASH, SLASH = 0x22, 0x5C, 0x2F

PLAIN = 0
ESCAPED = 1
"""The string holds a backslash; `unescape` it before use."""
CONTROL = 2
"""It holds DEL or a C1 control character: legal JSON, but not in a name."""
HIGH = 4
"""It holds bytes beyond ASCII."""
BROKEN = 8
"""It does not end, or holds a control character as it is."""

_ONES = U(0x0101010101010101)
_TOPS = U(0x8080808080808080)
_QUOTES = _ONES * U(QUOTE)
_BACKSLASHES = _ONES * U(BACKSLASH)
_SPACES = _ONES * U(0x20)
_DELS = _ONES * U(0x7F)


@inlined
def skip_space(address: Any) -> Any:
    """The address of the first byte that is not JSON's white space."""
    c = peek8(address)
    while c <= 0x20 and (c == 0x20 or c == 0x0A or c == 0x0D or c == 0x09):  # noqa: PLR1714 - Numba unrolls this better
        address += 1
        c = peek8(address)
    return address


@inlined
def _not_plain(w: Any) -> Any:
    """The top bits of the bytes that are not printable ASCII, or are a quote or backslash; exact up to the first of them."""
    quote, backslash, delete = w ^ _QUOTES, w ^ _BACKSLASHES, w ^ _DELS
    low = ((quote - _ONES) & ~quote) | ((backslash - _ONES) & ~backslash) | ((delete - _ONES) & ~delete)
    return (low | ((w - _SPACES) & ~w) | w) & _TOPS


@inlined
def scan_string(address: Any) -> Any:
    """(address of the closing quote, what is odd) of the string whose first character is at `address`."""
    p = address
    found = _not_plain(peek64(p))
    while found == U(0):
        p += 8
        found = _not_plain(peek64(p))
    p += trailing_zeros(found) >> 3
    if peek8(p) == QUOTE:
        return p, PLAIN
    return _scan_odd(p)


@inlined
def _scan_odd(p: Any) -> Any:
    odd = PLAIN
    while True:
        c = peek8(p)
        if c == QUOTE:
            return p, odd
        if c < 0x20:
            return p, odd | BROKEN
        if c == BACKSLASH:
            odd |= ESCAPED
            p += 1
            if peek8(p) < 0x20:
                return p, odd | BROKEN
        elif c >= 0x80:
            odd |= HIGH
            if c == 0xC2 and peek8(p + 1) < 0xA0:
                odd |= CONTROL
        elif c == 0x7F:
            odd |= CONTROL
        p += 1


@inlined
def _hex4(p: Any) -> Any:
    """The four hexadecimal digits at p as a number, or -1."""
    value = 0
    for i in range(4):
        c = peek8(p + i)
        if 48 <= c <= 57:
            digit = c - 48
        elif 97 <= (c | 32) <= 102:
            digit = (c | 32) - 87
        else:
            return -1
        value = value * 16 + digit
    return value


@inlined
def _short_escape(c: Any) -> Any:
    """The character that backslash and c stand for, or -1."""
    if c in (QUOTE, BACKSLASH, SLASH):
        return c
    if c == 110:
        return 0x0A
    if c == 116:
        return 0x09
    if c == 114:
        return 0x0D
    if c == 98:
        return 0x08
    if c == 102:
        return 0x0C
    return -1


@inlined
def _put_utf8(out: Any, point: Any) -> Any:
    """Write a character to an address; the address behind it."""
    if point < 0x80:
        poke8(out, point)
        return out + 1
    if point < 0x800:
        poke8(out, 0xC0 | (point >> 6))
        poke8(out + 1, 0x80 | (point & 0x3F))
        return out + 2
    if point < 0x10000:
        poke8(out, 0xE0 | (point >> 12))
        poke8(out + 1, 0x80 | ((point >> 6) & 0x3F))
        poke8(out + 2, 0x80 | (point & 0x3F))
        return out + 3
    poke8(out, 0xF0 | (point >> 18))
    poke8(out + 1, 0x80 | ((point >> 12) & 0x3F))
    poke8(out + 2, 0x80 | ((point >> 6) & 0x3F))
    poke8(out + 3, 0x80 | (point & 0x3F))
    return out + 4


@inlined
def unescape(p: Any, stop: Any, out: Any) -> Any:
    """Write the string at p, up to `stop`, to `out`; (length, holds a control character). Length -1: a bad escape.

    The result is never longer than the source. Lone surrogates are bad: UTF-8 has no place for them.
    """
    begin = out
    control = False
    while p < stop:
        point = peek8(p)
        if point != BACKSLASH:
            control = control or point == 0x7F or (point == 0xC2 and peek8(p + 1) < 0xA0)
            poke8(out, point)
            out += 1
            p += 1
            continue
        escape = peek8(p + 1)
        point = _short_escape(escape)
        p += 2
        if escape == 0x75:
            point = _hex4(p)
            p += 4
            if 0xD800 <= point < 0xDC00 and peek8(p) == BACKSLASH and peek8(p + 1) == 0x75:
                low = _hex4(p + 2)
                if 0xDC00 <= low < 0xE000:
                    point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
                    p += 6
        if point < 0 or 0xD800 <= point < 0xE000:
            return -1, control
        control = control or point < 0x20 or 0x7F <= point < 0xA0
        out = _put_utf8(out, point)
    return out - begin, control
