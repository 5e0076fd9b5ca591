"""Pieces of text inside kernels: where they end, whether they are UTF-8, and their unescaped form.

A delimiter is escaped exactly when the byte before it is a backslash. Inside quotes a backslash escapes a quote or itself.
All functions take addresses; the body is followed by a newline that is not part of it, and by spare bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.model.kernel import inlined
from widerow.model.machine import copy_bytes, peek8, peek64, poke8, trailing_zeros

U = np.uint64

TAB, NEWLINE, RETURN, SPACE, QUOTE, HASH, COMMA, EQUALS, BACKSLASH = 9, 10, 13, 32, 34, 35, 44, 61, 92
NOT_UTF8, CONTROL = 1, 2

_ONES, _TOPS = U(0x0101010101010101), U(0x8080808080808080)


@inlined
def having(word: Any, byte: Any) -> Any:
    """The top bit of the first byte of the word that equals `byte` is set, and none before it."""
    word = word ^ (_ONES * U(byte))
    return (word - _ONES) & ~word & _TOPS


@inlined
def series_end(address: Any) -> Any:
    """Where the first space that is not escaped stands, or the end of the line before it."""
    while True:
        word = peek64(address)
        found = having(word, SPACE) | having(word, NEWLINE)
        if found == U(0):
            address += 8
            continue
        address += trailing_zeros(found) >> 3
        if peek8(address) == NEWLINE or peek8(address - 1) != BACKSLASH:
            return address
        address += 1


@inlined
def key_end(address: Any) -> Any:
    """Where the equals sign of the field key at an address stands, or 0: a comma, a space or the line's end came first."""
    while True:
        ch = peek8(address)
        if ch == NEWLINE:
            return np.int64(0)
        if (ch == EQUALS or ch == COMMA or ch == SPACE) and peek8(address - 1) != BACKSLASH:  # noqa: PLR1714, SIM109
            return address if ch == EQUALS else np.int64(0)
        address += 1


@inlined
def newline_after(address: Any) -> Any:
    while peek8(address) != NEWLINE:
        address += 1
    return address


@inlined
def ends_value(address: Any) -> Any:
    """Whether a value may end before this byte."""
    ch = peek8(address)
    return ch == COMMA or ch == SPACE or ch == NEWLINE or (ch == RETURN and peek8(address + 1) == NEWLINE)  # noqa: PLR1714


@inlined
def quote_end(address: Any, stop: Any) -> Any:
    """The closing quote of the text that starts at an address, or 0 if there is none that ends a value."""
    while address < stop:
        ch = peek8(address)
        if ch == QUOTE:
            return address if ends_value(address + 1) else np.int64(0)
        if ch == BACKSLASH:
            address += 1
        address += 1
    return np.int64(0)


@inlined
def line_end(address: Any, stop: Any) -> Any:
    """The newline that ends the line at an address: the first that is not inside a text of a field.

    A quote right after an equals sign opens a text, once the first space is past. If nothing closes it, the line ends
    with its first newline, so that a forgotten quote costs its own line and not the rest of the body.
    """
    address = series_end(address)
    while peek8(address) != NEWLINE:
        if peek8(address) == QUOTE and peek8(address - 1) == EQUALS and peek8(address - 2) != BACKSLASH:
            close = quote_end(address + 1, stop)
            if close == 0:
                return newline_after(address)
            address = close
        address += 1
    return address


@inlined
def count_newlines(address: Any, stop: Any) -> Any:
    count = 0
    while address < stop:
        if peek8(address) == NEWLINE:
            count += 1
        address += 1
    return count


@inlined
def unescape_text(to: Any, address: Any, stop: Any) -> Any:
    """Copy the text between quotes without its escapes; the length of the copy."""
    plain = address
    while plain < stop and having(peek64(plain), BACKSLASH) == U(0):
        plain += 8
    if plain >= stop:
        copy_bytes(to, address, stop - address)
        return stop - address
    start = to
    while address < stop:
        ch = peek8(address)
        if ch == BACKSLASH and (peek8(address + 1) == QUOTE or peek8(address + 1) == BACKSLASH):
            address += 1
            ch = peek8(address)
        poke8(to, ch)
        to += 1
        address += 1
    return to - start


@inlined
def text_flags(address: Any, length: Any) -> Any:
    """NOT_UTF8 if the bytes are not UTF-8 (as strict as Python), else CONTROL if a C0, DEL or C1 character is among them."""
    flags = 0
    stop = address + length
    while address < stop:
        word = peek64(address)
        below = (word - _ONES * U(0x20)) & ~word & _TOPS
        if (word & _TOPS) | below | having(word, 0x7F) == U(0):
            address += 8
            continue
        lead = peek8(address)
        if lead < 0x80:
            if lead < 0x20 or lead == 0x7F:
                flags = CONTROL
            address += 1
            continue
        more = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        if lead < 0xC2 or lead > 0xF4 or address + more >= stop:
            return NOT_UTF8
        second = peek8(address + 1)
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        if second < low or second > high:
            return NOT_UTF8
        for k in range(2, more + 1):
            if peek8(address + k) & 0xC0 != 0x80:
                return NOT_UTF8
        if lead == 0xC2 and second < 0xA0:
            flags = CONTROL
        address += more + 1
    return flags
