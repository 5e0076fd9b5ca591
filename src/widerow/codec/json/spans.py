"""From spans of a buffer to codes and a dictionary.

Rule: the hash is seeded, so that no sender can choose names that collide and make a body take quadratic time.
"""

from __future__ import annotations

import numpy as np

from widerow.model.arrays import PAD, Bytes, Codes, Hashes, Ints
from widerow.model.hashing import hash_from, same_at
from widerow.model.kernel import kernel
from widerow.model.names import Coded, Names

U = np.uint64
_LENGTH = 0xFFFF


def code_spans(buffer: Bytes, spans: Ints, seed: int) -> Coded:
    """A text column: one entry per distinct string, in order of first appearance. Span -1 gives code -1.

    The buffer has at least 8 readable bytes behind every span.
    """
    n = len(spans)
    slots = np.full(1 << max(4, (2 * n).bit_length()), -1, np.int32)
    codes, firsts = np.empty(n, np.int32), np.empty(n, np.int64)
    hashes = np.empty(n, np.uint64)
    offsets = np.zeros(n + 1, np.int64)
    count = _code_all(buffer, spans, U(seed), slots, hashes, firsts, offsets, codes)
    offsets = offsets[: count + 1].copy()
    data = np.zeros(offsets[-1] + PAD, np.uint8)
    _gather(buffer, firsts, offsets, data)
    return Coded(Names(data, offsets), codes)


@kernel
def _code_all(
    buffer: Bytes,
    spans: Ints,
    seed: np.uint64,
    slots: Codes,
    hashes: Hashes,
    firsts: Ints,
    offsets: Ints,
    codes: Codes,
) -> int:
    base = np.int64(buffer.ctypes.data)
    mask = len(slots) - 1
    count = 0
    for k in range(len(spans)):
        span = spans[k]
        if span < 0:
            codes[k] = -1
            continue
        address, length = base + (span >> 16), span & _LENGTH
        h = hash_from(seed, address, length)
        p = np.int64(h & U(mask))
        code = np.int64(slots[p])
        while code >= 0:
            same = hashes[code] == h and firsts[code] & _LENGTH == length
            if same and same_at(address, base + (firsts[code] >> 16), length):
                break
            p = (p + 1) & mask
            code = np.int64(slots[p])
        if code < 0:
            code = np.int64(count)
            slots[p] = code
            hashes[code], firsts[code] = h, span
            offsets[code + 1] = offsets[code] + length
            count += 1
        codes[k] = code
    return count


@kernel
def _gather(buffer: Bytes, firsts: Ints, offsets: Ints, data: Bytes) -> None:
    for k in range(len(offsets) - 1):
        start, to = firsts[k] >> 16, offsets[k]
        for i in range(firsts[k] & _LENGTH):
            data[to + i] = buffer[start + i]
