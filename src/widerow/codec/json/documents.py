"""One pass over many documents, each a report or an array of them: what `scan` does for one body.

Rule 1: each document is followed by a zero, which ends its scans; none is read on into its neighbour.
Rule 2: what is wrong with a document as a whole takes back what was found in it, and nothing else.
Rule 3: reports are counted through all documents, so that their places keep their order and tell their document.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.codec.json.scan import (
    ARRAY,
    CELLS,
    FAULT,
    LENGTH,
    NOT_A_NAME,
    ODDS,
    OPEN_LIST,
    PLACE,
    REPORTS,
    SCRATCH,
    SINGLE,
    TOO_MANY,
    scan,
)
from widerow.codec.json.strings import skip_space
from widerow.model.arrays import Bytes, Codes, Floats, Ints
from widerow.model.check import MAX_NAME_BYTES
from widerow.model.kernel import inlined, kernel
from widerow.model.machine import peek8, peek64, poke, poke8, signed

U = np.uint64
_TOPS = U(0x8080808080808080)

READ, BROKEN, TOO_LONG = 0, 1, 2
"""What became of a document: it was read, it is not JSON, it holds more reports than allowed."""


@inlined
def _is_name(p: Any, length: Any) -> Any:
    """Whether UTF-8 is the name of something: neither empty nor too long, and without control characters."""
    for q in range(p, p + length):
        c = peek8(q)
        if c < 0x20 or c == 0x7F or (c == 0xC2 and peek8(q + 1) < 0xA0):
            return False
    return 1 <= length <= MAX_NAME_BYTES


@kernel
def spread(data: Bytes, cuts: Ints, buffer: Bytes) -> bool:
    """Copy the documents between cuts into a buffer, each followed by a zero; whether there are bytes beyond ASCII."""
    base, source = np.int64(buffer.ctypes.data), np.int64(data.ctypes.data)
    seen = U(0)
    for i in range(len(cuts) - 1):
        size = cuts[i + 1] - cuts[i]
        p, to = source + cuts[i], base + cuts[i] - cuts[0] + i
        for k in range(0, size - 7, 8):
            word = peek64(p + k)
            poke(to + k, signed(word))
            seen |= word
        for k in range(size & ~7, size):  # not by words: nothing need be readable behind the data
            byte = peek8(p + k)
            poke8(to + k, byte)
            seen |= U(byte)
        poke8(to + size, 0)
    return bool(seen & _TOPS)


@kernel
def scan_documents(
    buffer: Bytes,
    cuts: Ints,
    own: Ints,
    high_ok: Bytes,
    fates: Bytes,
    places: Ints,
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
    """Documents that `spread` laid out. Document i has the places from `places[i]` up to the next one's, and `fates[i]`."""
    base = np.int64(buffer.ctypes.data)
    for i in range(len(own)):
        places[i] = state[PLACE]
        reports, cells, odds, scratch = state[REPORTS], state[CELLS], state[ODDS], state[SCRATCH]
        begin, size = cuts[i] - cuts[0] + i, cuts[i + 1] - cuts[i]
        device_span = own[i]
        if device_span >= 0 and not _is_name(base + (device_span >> 16), device_span & LENGTH):
            device_span = np.int64(NOT_A_NAME)
        scan(
            buffer,
            begin,
            size,
            ARRAY if peek8(skip_space(base + begin)) == OPEN_LIST else SINGLE,
            device_span,
            high_ok[i] != 0,
            unit_us,
            now_us,
            received_name,
            received_text,
            max_reports,
            max_values,
            device,
            time_us,
            position,
            offsets,
            name,
            kind,
            number,
            text,
            odd_ranges,
            state,
        )
        fates[i] = BROKEN if state[FAULT] >= 0 else TOO_LONG if state[TOO_MANY] else READ
        if fates[i] != READ:
            state[REPORTS], state[CELLS], state[ODDS], state[SCRATCH] = reports, cells, odds, scratch
            state[PLACE] = places[i]
    places[len(own)] = state[PLACE]
