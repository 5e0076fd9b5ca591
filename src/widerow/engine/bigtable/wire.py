"""Protocol buffers on the wire: the few rules that bulk requests and answers are made of.

The generated classes cost one to two microseconds a cell, and a cell is a metric: so what is large is written and read by
kernels, as bytes, and the generated classes are the test's oracle. What is small is put together by `field` and `number`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.model.kernel import inlined
from widerow.model.machine import peek8, poke8

BYTES = 2
"""The wire type of strings, bytes and messages."""


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(tag: int, payload: bytes) -> bytes:
    """A field that holds bytes, a string or a message."""
    return varint(tag << 3 | BYTES) + varint(len(payload)) + payload


def number(tag: int, value: int) -> bytes:
    """A field that holds an integer; none is negative."""
    return varint(tag << 3) + varint(value)


@inlined
def varint_length(value: Any) -> Any:
    length = 1
    while value > 0x7F:
        value >>= 7
        length += 1
    return length


@inlined
def put_varint(address: Any, value: Any) -> Any:
    """Write it, and give the address behind it."""
    while value > 0x7F:
        poke8(address, (value & 0x7F) | 0x80)
        value >>= 7
        address += 1
    poke8(address, value)
    return address + 1


@inlined
def varint_at(data: Any, p: Any, stop: Any) -> Any:
    """The integer at p and the position behind it; -1 for the position where it does not end in time."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while p < stop and shift < np.uint64(70):
        b = np.uint64(data[p])
        value |= (b & np.uint64(0x7F)) << shift
        p += 1
        if b < np.uint64(0x80):
            return np.int64(value), p
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@inlined
def copy_bytes(source: Any, target: Any, size: Any) -> Any:
    """Copy, and give the address behind the copy."""
    for k in range(size):
        poke8(target + k, peek8(source + k))
    return target + size
