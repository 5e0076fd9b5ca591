"""How many there were in each second of an hour, in few bytes.

The first byte is the format. Then for each run of seconds with the same count: the count times two, plus one if the run is
longer than a second, and then how long it is; both as varints. Seconds behind the last run have none.
Stored: see docs/format/usage.md before changing a byte.
"""

from __future__ import annotations

import numpy as np

from widerow.codec.varint import put_varint, take_varint
from widerow.model.arrays import Bytes, Ints
from widerow.model.errors import Corrupt
from widerow.model.kernel import kernel

SECONDS = 3600
FORMAT = 1
_MOST_BYTES = 1 + SECONDS * 10


def encode_seconds(counts: Ints) -> bytes:
    """Counts of the seconds of an hour, from 0 to 2^40 each."""
    if len(counts) != SECONDS:
        raise ValueError(f"an hour has {SECONDS} seconds, not {len(counts)}")
    data = np.empty(_MOST_BYTES, np.uint8)
    data[0] = FORMAT
    return data[: _encode(np.ascontiguousarray(counts, np.int64), data)].tobytes()


def decode_seconds(data: bytes) -> Ints:
    """`Corrupt`: it is no such record, or one of a newer release."""
    counts = np.zeros(SECONDS, np.int64)
    if not data or data[0] != FORMAT or not _decode(np.frombuffer(data, np.uint8), counts):
        raise Corrupt("counts of seconds cannot be read: were they written by a newer release?")
    return counts


@kernel
def _encode(counts: Ints, data: Bytes) -> int:
    at, i, stop = 1, 0, len(counts)
    while stop > 0 and counts[stop - 1] == 0:
        stop -= 1
    while i < stop:
        run = 1
        while i + run < stop and counts[i + run] == counts[i]:
            run += 1
        if run == 1:
            at = put_varint(data, at, counts[i] << 1)
        else:
            at = put_varint(data, at, (counts[i] << 1) | 1)
            at = put_varint(data, at, np.int64(run))
        i += run
    return at


@kernel
def _decode(data: Bytes, counts: Ints) -> bool:
    at, i = np.int64(1), np.int64(0)
    while at < len(data):
        token, at = take_varint(data, at, len(data))
        run = np.int64(1)
        if at >= 0 and token & 1:
            run, at = take_varint(data, at, len(data))
        if at < 0 or run < 1 or i + run > len(counts):
            return False
        for k in range(run):
            counts[i + k] = token >> 1
        i += run
    return True
