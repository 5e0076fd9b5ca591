"""Many times as RFC 3339 texts in UTC.

Rule: all texts of one call have the same decimals, as few as the times need: none, three or six. So they are of one length.
"""

from __future__ import annotations

import numpy as np

from widerow.model.arrays import PAD, Bytes, Ints
from widerow.model.kernel import kernel
from widerow.model.machine import copy_bytes
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND

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
    day, year, month, date = np.int64(-1), np.int64(0), np.int64(0), np.int64(0)
    for i in range(len(time_us)):
        p = i * width + at
        if i >= repeats and time_us[i] == time_us[i - repeats]:
            # What is copied too far is a quotation mark, as it is there, and the start of the next row, not yet written.
            copy_bytes(base + p, base + p - repeats * width, width - at)
            continue
        rest = time_us[i] % DAY
        if time_us[i] // DAY != day:  # neighbours are mostly of one day
            day = time_us[i] // DAY
            # Days of a 400-year cycle, counted from 1 March of the year 0, so that the leap day is a year's last.
            shifted = day + 719468
            cycle, of_cycle = shifted // 146097, shifted % 146097
            of_era = (of_cycle - of_cycle // 1460 + of_cycle // 36524 - of_cycle // 146096) // 365
            of_year = of_cycle - (365 * of_era + of_era // 4 - of_era // 100)
            from_march = (5 * of_year + 2) // 153
            date = of_year - (153 * from_march + 2) // 5 + 1
            month = from_march + 3 if from_march < 10 else from_march - 9
            year = of_era + 400 * cycle + (1 if month <= 2 else 0)
        for value, digits, mark in (
            (year, 4, 45),
            (month, 2, 45),
            (date, 2, 84),
            (rest // HOUR, 2, 58),
            (rest // MINUTE % 60, 2, 58),
            (rest // SECOND % 60, 2, 46 if decimals else 90),
        ):
            left = value
            for k in range(digits - 1, -1, -1):
                out[p + k] = np.uint8(48 + left % 10)
                left //= 10
            out[p + digits] = np.uint8(mark)
            p += digits + 1
        if decimals:
            left = rest % SECOND
            for k in range(5, -1, -1):
                if k < decimals:
                    out[p + k] = np.uint8(48 + left % 10)
                left //= 10
            out[p + decimals] = np.uint8(90)
