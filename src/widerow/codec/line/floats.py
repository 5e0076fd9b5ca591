"""Numbers as line protocol writes them, read exactly: the result equals Python's `float()` bit for bit, or is left to it.

`number_at` understands a sign, up to 19 significant digits, a point, an exponent, and the suffixes `i` and `u`. A mantissa
up to 2^53 with a power of ten up to 22 takes one correctly rounded operation (Clinger 1990); the rest takes one or two
128-bit products (Eisel and Lemire, arXiv:2101.11408). What neither proves (subnormals, overflow, halves too close to call,
more digits) is reported as not read, and the line takes the plain path.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.model.kernel import inlined
from widerow.model.machine import float_of_bits, leading_zeros, peek8, peek64, signed, trailing_zeros, umulh

U = np.uint64
MAX_INTEGER = 1 << 53
"""The largest integer up to which every integer is a 64-bit float."""

_MIN_POWER, _MAX_POWER = -342, 308
_MAX_DIGITS = 19
_MAX_EXPONENT_DIGITS = 5


def _powers_of_five() -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The upper 128 bits of 5^q as two words, for each q a finite float can need; rounded up below 0, down above."""
    words = []
    for q in range(_MIN_POWER, _MAX_POWER + 1):
        if q < 0:
            power = 5**-q
            bits = (power - 1).bit_length()
            scaled = 2 ** (bits + 127) // power + 1 if q >= -27 else 2 ** (2 * bits + 128) // power + 1
        else:
            scaled = 5**q << 128
        scaled >>= max(0, scaled.bit_length() - 128)
        words += [scaled >> 64, scaled & (2**64 - 1)]
    return np.array(words, np.uint64)


_FIVES = _powers_of_five()
_TENS = np.array([10.0**i for i in range(23)])
_WHOLE_TENS = np.array([10**i for i in range(20)], np.uint64)


@inlined
def digits_at(address: Any) -> Any:
    """How many of the 8 bytes at an address are leading digits, and the number they make."""
    word = peek64(address) ^ U(0x3030303030303030)
    others = ((word + U(0x7676767676767676)) | word) & U(0x8080808080808080)
    count = trailing_zeros(others) >> 3
    if count == 0:
        return count, U(0)
    word = word << U(64 - 8 * count)
    word = word * U(10) + (word >> U(8))
    pairs = (word & U(0x000000FF000000FF)) * U(0x000F424000000064)
    pairs += ((word >> U(16)) & U(0x000000FF000000FF)) * U(0x0000271000000001)
    return count, pairs >> U(32)


@inlined
def whole_at(address: Any) -> Any:
    """The address after the digits at `address`, and their number modulo 2^64 (exact up to 19 digits)."""
    count, whole = digits_at(address)
    address += count
    while count == 8:
        count, more = digits_at(address)
        whole = whole * _WHOLE_TENS[count] + more
        address += count
    return address, whole


@inlined
def scaled(mantissa: Any, power: Any) -> Any:
    """Whether mantissa * 10^power could be rounded for certain to a normal float, and that float. The mantissa is not 0."""
    if power < _MIN_POWER or power > _MAX_POWER:
        return False, 0.0
    shift = leading_zeros(mantissa)
    mantissa = mantissa << U(shift)
    k = 2 * (power - _MIN_POWER)
    upper, lower = umulh(mantissa, _FIVES[k]), mantissa * _FIVES[k]
    if (upper & U(0x1FF)) == U(0x1FF):
        carry = umulh(mantissa, _FIVES[k + 1])
        lower = lower + carry
        if lower < carry:
            upper = upper + U(1)
        if lower == U(0xFFFFFFFFFFFFFFFF) and (power < -27 or power > 55):
            return False, 0.0
    top = upper >> U(63)
    bits = upper >> (top + U(9))
    exponent = ((217706 * power) >> 16) + 63 + np.int64(top) - shift + 1023  # 217706 / 2^16 is log2(10), closely enough
    if exponent <= 0 or exponent >= 2046:
        return False, 0.0
    # Exactly half way between two floats: to the even one. Only these powers can get there.
    if lower <= U(1) and -4 <= power <= 23 and (bits & U(3)) == U(1) and (bits << (top + U(9))) == upper:
        bits = bits & ~U(1)
    bits = (bits + (bits & U(1))) >> U(1)
    if bits >= U(1) << U(53):
        bits = U(1) << U(52)
        exponent += 1
    return True, float_of_bits((bits & ~(U(1) << U(52))) | (U(exponent) << U(52)))


@inlined
def _leading_zeros_of(start: Any) -> Any:
    """How many zeros stand before the first other digit of the number at an address; a point among them is skipped."""
    zeros = 0
    while True:
        ch = peek8(start)
        if ch == 48:
            zeros += 1
        elif ch != 46:
            return zeros
        start += 1


@inlined
def number_at(address: Any) -> Any:
    """The address after the number that starts here, and its value; address 0 where it was not read."""
    negative = peek8(address) == 45  # -
    if negative:
        address += 1
    start = address
    address, mantissa = whole_at(address)
    digits = address - start
    power = 0
    ch = peek8(address)
    pointed = ch == 46  # .
    if pointed:
        first = address + 1
        count, more = digits_at(first)
        address = first + count
        mantissa = mantissa * _WHOLE_TENS[count] + more
        while count == 8:
            count, more = digits_at(address)
            mantissa = mantissa * _WHOLE_TENS[count] + more
            address += count
        power = first - address
        digits -= power
        ch = peek8(address)
    if digits == 0:
        return np.int64(0), 0.0
    if digits > _MAX_DIGITS and digits - _leading_zeros_of(start) > _MAX_DIGITS:
        return np.int64(0), 0.0
    if ch == 105 or ch == 117:  # i, u  # noqa: PLR1714
        if pointed or mantissa > U(MAX_INTEGER) or (negative and ch == 117):
            return np.int64(0), 0.0
        value = float(mantissa)
        return address + 1, -value if negative and mantissa != U(0) else value
    if ch == 101 or ch == 69:  # e, E  # noqa: PLR1714
        address += 1
        ch = peek8(address)
        down = ch == 45
        if down or ch == 43:
            address += 1
        first = address
        address, exponent = whole_at(address)
        if address == first or address - first > _MAX_EXPONENT_DIGITS:
            return np.int64(0), 0.0
        power += -signed(exponent) if down else signed(exponent)
    if mantissa == U(0):
        value = 0.0
    elif mantissa <= U(MAX_INTEGER) and -22 <= power <= 22:
        value = float(mantissa)
        value = value / _TENS[-power] if power < 0 else value * _TENS[power]
    else:
        sure, value = scaled(mantissa, power)
        if not sure:
            return np.int64(0), 0.0
    return address, -value if negative else value
