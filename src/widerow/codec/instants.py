"""Many times as RFC 3339 texts in UTC.

Rule: all texts of one call have the same decimals, as few as the times need: none, three or six. So they are of one length.
"""

from __future__ import annotations

import numpy as np

from widerow.model.arrays import Bytes, Ints
from widerow.model.kernel import kernel
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND

_WHOLE = 20
"""Length of a time without decimals: 2026-11-15T00:00:00Z."""


def rfc3339(time_us: Ints, *, quoted: bool = False) -> Bytes:
    """A matrix with a text per row; `quoted` puts it between quotation marks, as JSON does."""
    decimals = 0 if not np.any(time_us % SECOND) else 3 if not np.any(time_us % MS) else 6
    width = _WHOLE + (1 + decimals if decimals else 0)
    out = np.full((len(time_us), width + 2 * quoted), ord('"'), np.uint8)
    _put_times(time_us, decimals, int(quoted), out)
    return out


def texts(matrix: Bytes) -> list[str]:
    """The rows of an ASCII matrix as strings."""
    width = matrix.shape[1]
    return [] if not len(matrix) else matrix.view(f"S{width}").reshape(-1).astype(f"U{width}").tolist()


@kernel
def _put_times(time_us: Ints, decimals: int, at: int, out: Bytes) -> None:
    day, year, month, date = np.int64(-1), np.int64(0), np.int64(0), np.int64(0)
    for i in range(len(time_us)):
        rest = time_us[i] % DAY
        if time_us[i] // DAY != day:  # neighbours are mostly of one day
            day = time_us[i] // DAY
            # Days of a 400-year cycle, counted from 1 March of the year 0, so that the leap day is a year's last.
            shifted = day + 719468
            cycle = shifted // 146097
            of_cycle = shifted % 146097
            of_era = (of_cycle - of_cycle // 1460 + of_cycle // 36524 - of_cycle // 146096) // 365
            of_year = of_cycle - (365 * of_era + of_era // 4 - of_era // 100)
            from_march = (5 * of_year + 2) // 153
            date = of_year - (153 * from_march + 2) // 5 + 1
            month = from_march + 3 if from_march < 10 else from_march - 9
            year = of_era + 400 * cycle + (1 if month <= 2 else 0)
        p = at
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
                out[i, p + k] = np.uint8(48 + left % 10)
                left //= 10
            out[i, p + digits] = np.uint8(mark)
            p += digits + 1
        if decimals:
            left = rest % SECOND
            for k in range(5, -1, -1):
                if k < decimals:
                    out[i, p + k] = np.uint8(48 + left % 10)
                left //= 10
            out[i, p + decimals] = np.uint8(90)
