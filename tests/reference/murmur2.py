"""murmur2 as Kafka's Java client computes it, one byte string at a time: `Utils.murmur2`, in Python."""

from __future__ import annotations

M, MASK = 0x5BD1E995, 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """As an unsigned number of 32 bits."""
    whole = len(data) - len(data) % 4
    h = 0x9747B28C ^ len(data)
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * M & MASK
        k = (k ^ k >> 24) * M & MASK
        h = (h * M & MASK) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * M & MASK
    h = (h ^ h >> 13) * M & MASK
    return h ^ h >> 15
