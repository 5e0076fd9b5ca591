"""Where single lines of line protocol stand: for keeping the bytes of those that were refused.

Lines are counted as the decoder counts them: a text of a field may go over several, and then the next line's number is
greater by as many.
"""

from __future__ import annotations

import numpy as np

from widerow.codec.line.text import HASH, NEWLINE, SPACE, TAB, count_newlines, line_end, newline_after
from widerow.model.arrays import PAD, Bytes, Ints
from widerow.model.kernel import kernel
from widerow.model.machine import peek8


def line_spans(body: bytes, wanted: Ints) -> tuple[Ints, Ints]:
    """[start, stop) of the lines with these ascending numbers, -1 where there is none."""
    starts, stops = np.full(len(wanted), -1, np.int64), np.full(len(wanted), -1, np.int64)
    size = len(body)
    buffer = np.zeros(size + 1 + PAD, np.uint8)
    buffer[:size] = np.frombuffer(body, np.uint8)
    buffer[size] = ord("\n")
    _find(buffer, size, wanted, starts, stops)
    return starts, stops


@kernel
def _find(buffer: Bytes, size: int, wanted: Ints, starts: Ints, stops: Ints) -> None:
    base = np.int64(buffer.ctypes.data)
    p, stop = base, base + size
    line, k = 0, 0
    while p < stop and k < len(wanted):
        while peek8(p) == SPACE or peek8(p) == TAB:
            p += 1
        q = newline_after(p) if peek8(p) == HASH or peek8(p) == NEWLINE else line_end(p, stop)
        while k < len(wanted) and wanted[k] < line:  # the middle of a line that goes over several
            k += 1
        if k < len(wanted) and line == wanted[k]:
            starts[k], stops[k] = p - base, q - base
            k += 1
        line += 1 + count_newlines(p, q)
        p = q + 1
