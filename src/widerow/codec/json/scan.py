"""One pass over a body of reports: regular ones into columns, the byte ranges of all others into a list.

Rule 1: a report is regular when it is right in every respect: known keys once each, a good device, time and names, and
values that are exact. The kernel refuses nothing; what it does not accept whole, the slow path reads and judges.
Rule 2: strings are not copied. A span is `start << 16 | length` into the buffer; -1 is none.
Rule 3: the buffer is the body, `PAD` zeros, then room for unescaped strings. The zeros end every scan.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.codec.json.numbers import NONE, REAL, WHOLE, scan_number, scan_rfc3339, to_float
from widerow.codec.json.strings import (
    BROKEN,
    CONTROL,
    ESCAPED,
    HIGH,
    QUOTE,
    scan_string,
    skip_space,
    unescape,
)
from widerow.codec.looking import CROWDED
from widerow.model.arrays import PAD, Bytes, Codes, Floats, Ints
from widerow.model.batch import CellKind
from widerow.model.check import MAX_NAME_BYTES, MAX_TEXT_BYTES
from widerow.model.hashing import same_at
from widerow.model.kernel import inlined, kernel
from widerow.model.machine import peek8, peek64, trailing_zeros
from widerow.model.times import MAX_TIME_US

SINGLE, ARRAY, LINES = 0, 1, 2
"""How a body holds its reports."""

REPORTS, CELLS, ODDS, SCRATCH, PLACE, FAULT, TOO_MANY = range(7)
"""What `state` tells: how many of each were found, where the scratch room is free, the place of the next report, where the
body broke (-1: nowhere), and whether it holds more reports than allowed."""
STATE_SIZE = 7

NOT_SAID, NOT_A_NAME = -1, -2
"""A body's own device: there is none, each report must name its own; there is one that no device may have."""

U = np.uint64
_DEVICE, _TIME, _VALUES, _TAGS = 1, 2, 4, 8
_KEY_DEVICE = U(int.from_bytes(b'"device"', "little"))
_KEY_VALUES = U(int.from_bytes(b'"values"', "little"))
_KEY_TIME = U(int.from_bytes(b'"time"', "little"))
_KEY_TAGS = U(int.from_bytes(b'"tags"', "little"))
_SIX = U((1 << 48) - 1)
_FOUR = U((1 << 32) - 1)
_NULL = U(int.from_bytes(b"null", "little"))
_TRUE = U(int.from_bytes(b"true", "little"))
_FALSE = U(int.from_bytes(b"alse", "little"))
_ONES = U(0x0101010101010101)
_TOPS = U(0x8080808080808080)
_NEWLINES = _ONES * U(10)
_NUMBER, _TEXT, _TAG = int(CellKind.NUMBER), int(CellKind.TEXT), int(CellKind.TAG)
_MAX_WHOLE = U(1 << 53)
LENGTH = 0xFFFF
"""The bits of a span that are its length."""
_COMMA, _COLON, _OPEN, _CLOSE, _CLOSE_LIST, OPEN_LIST = 0x2C, 0x3A, 0x7B, 0x7D, 0x5D, 0x5B


@inlined
def _read_text(p: Any, base: Any, is_name: Any, high_ok: Any, scratch: Any) -> Any:
    """(address behind the string, its span or -1, free scratch room) of the string whose first character is at p."""
    stop, odd = scan_string(p)
    if odd & BROKEN or (odd & HIGH and not high_ok):
        return stop, -1, scratch
    length = stop - p
    if odd & ESCAPED:
        length, control = unescape(p, stop, scratch)
        p = scratch
        scratch += max(length, 0)
        if control:
            odd |= CONTROL
    if is_name:
        if odd & CONTROL or length < 1 or length > MAX_NAME_BYTES:
            return stop, -1, scratch
    elif length < 0 or length > MAX_TEXT_BYTES:
        return stop, -1, scratch
    return stop + 1, (p - base) << 16 | length, scratch


@inlined
def _read_time(p: Any, unit_us: Any) -> Any:
    """(address behind it, microseconds or -1) of the time at p: RFC 3339 or a number in units, of nanoseconds when 0."""
    if peek8(p) == QUOTE:
        stop, odd = scan_string(p + 1)
        time_us = scan_rfc3339(p + 1, stop) if odd == 0 else -1
        p = stop + 1
    else:
        p, digits, power, negative, kind = scan_number(p)
        time_us = -1
        if kind == WHOLE and not negative:
            if unit_us == 0:
                time_us = np.int64(digits // U(1_000))
            elif digits <= U(MAX_TIME_US) // U(unit_us):
                time_us = np.int64(digits) * unit_us
        elif kind != NONE and not negative:
            exact, value = to_float(digits, power)
            value = value / 1_000 if unit_us == 0 else value * unit_us
            if exact and value <= MAX_TIME_US:
                time_us = np.int64(np.rint(value))
    return p, time_us if 0 <= time_us <= MAX_TIME_US else -1


@inlined
def skip_value(p: Any) -> Any:
    """(address of the comma or bracket that ends the array element at p, whether there is one)."""
    depth = 0
    while True:
        c = peek8(p)
        if c == QUOTE:
            p, odd = scan_string(p + 1)
            if odd & BROKEN:
                return p, False
        elif c in (_OPEN, OPEN_LIST):
            depth += 1
        elif c in (_CLOSE, _CLOSE_LIST):
            if depth == 0:
                return p, True
            depth -= 1
        elif c == _COMMA and depth == 0:
            return p, True
        elif c == 0:
            return p, False
        p += 1


@inlined
def _line_stop(p: Any, end: Any) -> Any:
    """The address of the next newline, or `end`."""
    while p < end:
        x = peek64(p) ^ _NEWLINES
        found = (x - _ONES) & ~x & _TOPS
        if found != U(0):
            return min(p + (trailing_zeros(found) >> 3), end)
        p += 8
    return end


@kernel
def depth(buffer: Bytes) -> int:
    """How deep brackets are nested in a text with its spare zeros; strings are skipped."""
    p = np.int64(buffer.ctypes.data)
    end = p + len(buffer) - PAD
    deepest, level = 0, 0
    while p < end:
        c = peek8(p)
        if c == QUOTE:
            p, _ = scan_string(p + 1)
        elif c in (_OPEN, OPEN_LIST):
            level += 1
            deepest = max(deepest, level)
        elif c in (_CLOSE, _CLOSE_LIST):
            level -= 1
        p += 1
    return deepest


@kernel
def scan(
    buffer: Bytes,
    begin: int,
    size: int,
    mode: int,
    own: int,
    high_ok: bool,
    unit_us: int,
    now_us: int,
    received_name: int,
    received_text: int,
    max_reports: int,
    max_values: int,
    device: Ints,
    time_us: Ints,
    position: Codes,
    offsets: Ints,
    name: Ints,
    kind: Bytes,
    number: Floats,
    text: Ints,
    odd_ranges: Ints,
    state: Ints,
) -> None:
    """One body of `size` bytes, added to what `state` says was found before. `own` is the span of its device."""
    base = np.int64(buffer.ctypes.data)
    p = base + begin
    end = p + size
    scratch = base + state[SCRATCH]
    reports, cells, odds, place = state[REPORTS], state[CELLS], state[ODDS], state[PLACE]
    room = reports + odds + max_reports
    state[FAULT], state[TOO_MANY] = -1, 0
    offsets[reports] = cells
    if mode != LINES:
        p = skip_space(p)
    if mode == ARRAY:
        p = skip_space(p + 1)
        if peek8(p) == _CLOSE_LIST:
            p = skip_space(p + 1)
            if p != end:
                state[FAULT] = p - base
            return
    stop = end
    while True:
        if mode == LINES:
            if p >= end:
                break
            stop = _line_stop(p, end)
        start = p = skip_space(p)
        if mode == LINES and p >= stop:
            place += 1
            p = stop + 1
            continue
        if reports + odds == room:
            state[TOO_MANY] = 1
            break

        # One report. Whatever is not just right makes it odd.
        at, span, values, seen = now_us, -1, 0, 0
        timed = crowded = False
        first_cell, first_scratch = cells, scratch
        odd = peek8(p) != _OPEN
        p = skip_space(p + 1)
        while not odd:
            w = peek64(p)
            if w == _KEY_DEVICE:
                key = _DEVICE
            elif w == _KEY_VALUES:
                key = _VALUES
            elif w & _SIX == _KEY_TIME:
                key = _TIME
            elif w & _SIX == _KEY_TAGS:
                key = _TAGS
            else:
                odd = True
                break
            p = skip_space(p + (8 if key in (_DEVICE, _VALUES) else 6))
            if seen & key or peek8(p) != _COLON:
                odd = True
                break
            p = skip_space(p + 1)
            seen |= key
            if key == _TIME and peek64(p) & _FOUR == _NULL:
                p += 4
            elif key == _TIME:
                p, at = _read_time(p, unit_us)
                odd = at < 0
                timed = True
            elif key == _DEVICE:
                if peek8(p) == QUOTE:
                    p, span, scratch = _read_text(p + 1, base, True, high_ok, scratch)
                odd = span < 0
            elif peek8(p) != _OPEN:
                odd = True
            else:
                p = skip_space(p + 1)
                more = peek8(p) != _CLOSE
                while more:
                    if peek8(p) != QUOTE:
                        odd = True
                        break
                    p, label, scratch = _read_text(p + 1, base, True, high_ok, scratch)
                    p = skip_space(p)
                    if label < 0 or peek8(p) != _COLON:
                        odd = True
                        break
                    p = skip_space(p + 1)
                    c = peek8(p)
                    name[cells] = label
                    text[cells] = -1
                    number[cells] = np.nan
                    absent = False
                    if c == QUOTE:
                        p, content, scratch = _read_text(p + 1, base, False, high_ok, scratch)
                        if content < 0:
                            odd = True
                            break
                        text[cells] = content
                        kind[cells] = _TEXT if key == _VALUES else _TAG
                    elif peek64(p) & _FOUR == _NULL:
                        absent = True
                        p += 4
                    elif key == _TAGS:
                        odd = True
                        break
                    elif peek64(p) & _FOUR == _TRUE:
                        number[cells] = 1.0
                        kind[cells] = _NUMBER
                        p += 4
                    elif c == 0x66 and peek64(p + 1) & _FOUR == _FALSE:
                        number[cells] = 0.0
                        kind[cells] = _NUMBER
                        p += 5
                    else:
                        p, digits, power, negative, form = scan_number(p)
                        exact, value = to_float(digits, power)
                        if form == NONE or not exact or (form == WHOLE and digits > _MAX_WHOLE):
                            odd = True
                            break
                        number[cells] = -value if negative and (form == REAL or digits != U(0)) else value
                        kind[cells] = _NUMBER
                    if not absent:
                        cells += 1
                        values += key == _VALUES
                        if cells - first_cell > max_values:
                            odd = crowded = True
                            break
                    p = skip_space(p)
                    more = peek8(p) == _COMMA
                    if more:
                        p = skip_space(p + 1)
                odd = odd or peek8(p) != _CLOSE
                p += 1
            if odd:
                break
            p = skip_space(p)
            c = peek8(p)
            p += 1
            if c == _CLOSE:
                break
            odd = c != _COMMA
            p = skip_space(p)
        if not seen & _DEVICE:
            span = own
        elif own != NOT_SAID and not odd:
            odd = span & LENGTH != own & LENGTH or not same_at(base + (span >> 16), base + (own >> 16), own & LENGTH)
        odd = odd or span < 0 or own == NOT_A_NAME or values == 0

        # What follows it.
        if mode == ARRAY:
            if odd:
                p, closed = skip_value(start)
                if not closed:
                    state[FAULT] = p - base
                    break
                stop = p
            p = skip_space(p)
            c = peek8(p)
            p += 1
            if c != _COMMA:
                after = skip_space(p)
                if c != _CLOSE_LIST or after != end:
                    state[FAULT] = (p - 1 if c != _CLOSE_LIST else after) - base
                    break
        else:
            odd = odd or p > stop or skip_space(p) < stop
            c = _COMMA if mode == LINES else _CLOSE_LIST
            p = stop + 1

        if odd:
            cells, scratch = first_cell, first_scratch
            odd_ranges[3 * odds] = start - base
            odd_ranges[3 * odds + 1] = CROWDED if crowded else stop - base
            odd_ranges[3 * odds + 2] = place
            odds += 1
        else:
            if not timed:
                name[cells], kind[cells], number[cells], text[cells] = received_name, _TAG, np.nan, received_text
                cells += 1
            device[reports], time_us[reports], position[reports] = span, at, place
            reports += 1
            offsets[reports] = cells
        place += 1
        if c == _CLOSE_LIST:
            break
    state[REPORTS], state[CELLS], state[ODDS], state[SCRATCH] = reports, cells, odds, scratch - base
    state[PLACE] = place
