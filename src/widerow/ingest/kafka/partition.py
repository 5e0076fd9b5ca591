"""Which partition of a topic a device's reports belong to: murmur2 of `tenant/device`, as Kafka's own clients have it.

Rule: the result may never change. Producers of other makes put their reports beside ours, and a device's stay in one line.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.model.arrays import Bytes, Codes, Ints, frozen
from widerow.model.kernel import inlined, kernel
from widerow.model.machine import peek8
from widerow.model.names import Names

_SEED, _M = 0x9747B28C, 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def key_of(tenant: str, device: str) -> bytes:
    """What a message is keyed by."""
    return f"{tenant}/{device}".encode()


def partitions_of(tenant: str, devices: Names, partitions: int) -> Codes:
    """For each device the partition of its reports, of a topic that has so many."""
    out = np.empty(len(devices), np.int32)
    prefix = np.frombuffer(f"{tenant}/".encode(), np.uint8)
    _partitions(prefix, devices.data, devices.offsets, partitions, out)
    frozen(out)
    return out


@inlined
def _murmur2(address: Any, length: Any) -> Any:
    """Of the bytes at an address; in 64 bits, of which the upper half is cut off, since that is what Numba is sure about."""
    h = (_SEED ^ length) & _MASK
    at, stop = address, address + length - length % 4
    while at < stop:
        k = peek8(at) | peek8(at + 1) << 8 | peek8(at + 2) << 16 | peek8(at + 3) << 24
        k = (k * _M) & _MASK
        k ^= k >> 24
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
        at += 4
    rest = length % 4
    if rest == 3:
        h ^= peek8(at + 2) << 16
    if rest >= 2:
        h ^= peek8(at + 1) << 8
    if rest >= 1:
        h ^= peek8(at)
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ h >> 15


@kernel
def _partitions(prefix: Bytes, data: Bytes, offsets: Ints, partitions: int, out: Codes) -> None:
    longest = 0
    for i in range(len(out)):
        longest = max(longest, offsets[i + 1] - offsets[i])
    head = len(prefix)
    key = np.empty(head + longest + 1, np.uint8)
    key[:head] = prefix
    for i in range(len(out)):
        length = offsets[i + 1] - offsets[i]
        key[head : head + length] = data[offsets[i] : offsets[i + 1]]
        out[i] = (_murmur2(np.int64(key.ctypes.data), np.int64(head + length)) & _POSITIVE) % partitions
