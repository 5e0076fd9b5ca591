"""Where single elements of a JSON array stand: for keeping the bytes of those that were refused."""

from __future__ import annotations

import numpy as np

from widerow.codec.json.scan import skip_value
from widerow.codec.json.strings import skip_space
from widerow.model.arrays import PAD, Bytes, Ints
from widerow.model.kernel import kernel
from widerow.model.machine import peek8

_COMMA, _OPEN_LIST = 0x2C, 0x5B
_SPACE = b" \t\r\n"


def element_spans(body: bytes, wanted: Ints) -> tuple[Ints, Ints]:
    """[start, stop) of the elements at ascending positions, -1 where there is none. A single object is element 0."""
    starts, stops = np.full(len(wanted), -1, np.int64), np.full(len(wanted), -1, np.int64)
    if body.lstrip(_SPACE)[:1] == b"[":
        buffer = np.zeros(len(body) + PAD, np.uint8)
        buffer[: len(body)] = np.frombuffer(body, np.uint8)
        _find(buffer, wanted, starts, stops)
    elif len(wanted) and wanted[0] == 0:
        starts[0], stops[0] = 0, len(body)
    return starts, stops


@kernel
def _find(buffer: Bytes, wanted: Ints, starts: Ints, stops: Ints) -> None:
    base = np.int64(buffer.ctypes.data)
    p = skip_space(base)
    if peek8(p) != _OPEN_LIST:
        return
    place, k = 0, 0
    p += 1
    while k < len(wanted):
        start = skip_space(p)
        p, closed = skip_value(start)
        if not closed:
            return
        if place == wanted[k]:
            starts[k], stops[k] = start - base, p - base
            k += 1
        if peek8(p) != _COMMA:
            return
        place += 1
        p += 1
