"""Numbers and RFC 3339 times of a JSON text, for kernels.

Rule: what these do not read exactly they leave to the slow path. They never guess.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.codec.line.floats import digits_at, scaled, whole_at
from widerow.model.kernel import inlined
from widerow.model.machine import peek8

U = np.uint64
NONE, WHOLE, REAL = 0, 1, 2
"""Kinds of numbers: not one that is read here; without, and with, a fraction or an exponent."""

_MAX_DIGITS = 19
"""So many decimal digits fit into 64 bits."""

_TENS = np.array([10**i for i in range(9)], np.uint64)
_DAY_S = 86_400


@inlined
def scan_number(address: Any) -> Any:
    """(address behind it, digits as an integer, power of ten, is negative, kind) of the number at `address`."""
    p = address
    power = 0
    digits = U(0)
    negative = peek8(p) == 0x2D
    if negative:
        p += 1
    first = p
    p, digits = whole_at(p)
    c = peek8(p)
    count = p - first
    if count == 0 or (count > 1 and peek8(first) == 48):
        return p, digits, power, negative, NONE
    kind = WHOLE
    if c == 0x2E:
        p += 1
        fraction = p
        more = 8
        while more == 8:
            more, part = digits_at(p)
            digits = digits * _TENS[more] + part
            p += more
        c = peek8(p)
        power = fraction - p
        if power == 0:
            return p, digits, power, negative, NONE
        count -= power
        kind = REAL
    if count > _MAX_DIGITS:
        lead = first
        while peek8(lead) == 48 or peek8(lead) == 0x2E:
            count -= peek8(lead) == 48
            lead += 1
        if count > _MAX_DIGITS:
            return p, digits, power, negative, NONE
    if c | 32 == 0x65:
        p, exponent = _exponent(p + 1)
        if p == 0:
            return p, digits, power, negative, NONE
        power += exponent
        kind = REAL
    return p, digits, power, negative, kind


@inlined
def _exponent(p: Any) -> Any:
    """(address behind it, exponent); address 0 for none, or for more than three digits."""
    c = peek8(p)
    minus = c == 0x2D
    if minus or c == 0x2B:
        p += 1
        c = peek8(p)
    first = p
    exponent = 0
    while 48 <= c <= 57 and p - first < 4:
        exponent = exponent * 10 + c - 48
        p += 1
        c = peek8(p)
    if p == first or p - first == 4:
        return 0, 0
    return p, -exponent if minus else exponent


@inlined
def _two(p: Any) -> Any:
    """The two digits at p as a number; far out of range where they are not digits."""
    a, b = peek8(p) - 48, peek8(p + 1) - 48
    if 0 <= a <= 9 and 0 <= b <= 9:
        return a * 10 + b
    return 1_000_000


@inlined
def days_of(year: Any, month: Any, day: Any) -> Any:
    """Days since 1970-01-01 of a date of the Gregorian calendar."""
    if month <= 2:
        year -= 1
        month += 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 719_469


@inlined
def _last_day(year: Any, month: Any) -> Any:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 + ((month + (month >> 3)) & 1)


@inlined
def scan_rfc3339(p: Any, stop: Any) -> Any:
    """Microseconds since 1970 of `2026-11-15T08:00:00[.fraction](Z|+hh:mm|-hh:mm)`, or -1 for anything else."""
    if stop - p < 20 or peek8(p + 4) != 0x2D or peek8(p + 7) != 0x2D or peek8(p + 10) != 0x54:
        return -1
    if peek8(p + 13) != 0x3A or peek8(p + 16) != 0x3A:
        return -1
    year, month, day = _two(p) * 100 + _two(p + 2), _two(p + 5), _two(p + 8)
    hour, minute, second = _two(p + 11), _two(p + 14), _two(p + 17)
    if year < 1970 or year > 2255 or month < 1 or month > 12 or day < 1 or day > _last_day(year, month):
        return -1
    if hour > 23 or minute > 59 or second > 59:
        return -1
    p += 19
    micros = 0
    if peek8(p) == 0x2E:
        p += 1
        scale = 100_000
        c = peek8(p)
        if not 48 <= c <= 57:
            return -1
        while 48 <= c <= 57:
            micros += (c - 48) * scale
            scale //= 10  # 0 behind six digits: the rest is cut
            p += 1
            c = peek8(p)
    shift_s = 0
    sign = peek8(p)
    if sign == 0x5A:
        p += 1
    elif (sign == 0x2B or sign == 0x2D) and peek8(p + 3) == 0x3A:  # noqa: PLR1714 - Numba has no fast `in`
        hours, minutes = _two(p + 1), _two(p + 4)
        if hours > 23 or minutes > 59:
            return -1
        shift_s = hours * 3_600 + minutes * 60
        if sign == 0x2D:
            shift_s = -shift_s
        p += 6
    else:
        return -1
    if p != stop:
        return -1
    seconds = days_of(year, month, day) * _DAY_S + hour * 3_600 + minute * 60 + second - shift_s
    return seconds * 1_000_000 + micros


@inlined
def to_float(digits: Any, power: Any) -> Any:
    """(whether it is certain, the float nearest to digits * 10^power)."""
    if digits == U(0):
        return True, 0.0
    return scaled(digits, power)
