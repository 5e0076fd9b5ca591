"""Many times as RFC 3339 texts in UTC.

Rule: all texts of one call have the same decimals, as few as the times need: none, three or six. So they are of one length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.model.arrays import PAD, Bytes, Ints
from widerow.model.kernel import kernel, pasted
from widerow.model.machine import copy_bytes
from widerow.model.times import DAY, MS, SECOND

_DATE = 11
"""Length of a date, with what stands behind it."""
_WHOLE = 20
"""Length of a time without decimals: 2026-11-15T00:00:00Z."""


def rfc3339(time_us: Ints, *, quoted: bool = False, repeats: int = 0) -> Bytes:
    """A matrix with a text per row; `quoted` puts it between quotation marks, as JSON does.

    `repeats` is a hint: a time often equals the one so many rows before. The matrix has `PAD` spare bytes behind it.
    """
    decimals = _decimals(time_us)
    width = _WHOLE + (1 + decimals if decimals else 0) + 2 * quoted
    out = np.full(len(time_us) * width + PAD, ord('"'), np.uint8)
    _put_times(time_us, decimals, int(quoted), width, repeats or 1, out)
    return out[:-PAD].reshape(len(time_us), width)


def texts(matrix: Bytes) -> list[str]:
    """The rows of an ASCII matrix as strings."""
    width = matrix.shape[1]
    return [] if not len(matrix) else matrix.view(f"S{width}").reshape(-1).astype(f"U{width}").tolist()


@kernel
def _decimals(time_us: Ints) -> int:
    whole_ms = True
    for i in range(len(time_us)):
        if time_us[i] % MS:
            return 6
        whole_ms &= time_us[i] % SECOND == 0
    return 0 if whole_ms else 3


@kernel
def _put_times(time_us: Ints, decimals: int, at: int, width: int, repeats: int, out: Bytes) -> None:
    base = out.ctypes.data
    day, dated = np.int64(-1), 0
    for i in range(len(time_us)):
        p = i * width + at
        if i >= repeats and time_us[i] == time_us[i - repeats]:
            # What is copied too far is a quotation mark, as it is there, and the start of the next row, not yet written.
            copy_bytes(base + p, base + p - repeats * width, width - at)
            continue
        of_day = time_us[i] // DAY
        rest = time_us[i] - of_day * DAY
        if of_day == day:  # neighbours are mostly of one day; what is copied too far is written next
            copy_bytes(base + p, base + dated, _DATE)
        else:
            day, dated = of_day, p
            # Days of a 400-year cycle, counted from 1 March of the year 0, so that the leap day is a year's last.
            shifted = day + 719468
            cycle, of_cycle = shifted // 146097, shifted % 146097
            of_era = (of_cycle - of_cycle // 1460 + of_cycle // 36524 - of_cycle // 146096) // 365
            of_year = of_cycle - (365 * of_era + of_era // 4 - of_era // 100)
            from_march = (5 * of_year + 2) // 153
            date = of_year - (153 * from_march + 2) // 5 + 1
            month = from_march + 3 if from_march < 10 else from_march - 9
            year = of_era + 400 * cycle + (1 if month <= 2 else 0)
            _put_two(out, p, year // 100, 48)
            _put_two(out, p + 2, year % 100, 45)
            _put_two(out, p + 5, month, 45)
            _put_two(out, p + 8, date, 84)
        seconds = np.uint32(rest // SECOND)
        minutes = seconds // np.uint32(60)
        _put_two(out, p + 11, minutes // np.uint32(60), 58)
        _put_two(out, p + 14, minutes % np.uint32(60), 58)
        _put_two(out, p + 17, seconds % np.uint32(60), 46 if decimals else 90)
        if decimals:
            p += _WHOLE
            left = rest % SECOND
            for k in range(5, -1, -1):
                if k < decimals:
                    out[p + k] = np.uint8(48 + left % 10)
                left //= 10
            out[p + decimals] = np.uint8(90)


@pasted
def _put_two(out: Any, at: Any, value: Any, mark: Any) -> None:
    """Two digits, and what stands behind them."""
    tens = np.uint32(value) // np.uint32(10)
    out[at] = np.uint8(48 + tens)
    out[at + 1] = np.uint8(48 + np.uint32(value) - 10 * tens)
    out[at + 2] = np.uint8(mark)
