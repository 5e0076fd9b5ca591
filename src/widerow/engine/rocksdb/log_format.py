"""The format of RocksDB's logs and MANIFESTs: blocks of 32 KiB with records, each with a checksum.

A record: masked CRC-32C of all that follows the length (4 bytes), length (2), type (1), in some types the log's number (4),
then the bytes. Records do not cross the end of a block; what does not fit goes on in the next. All little-endian.
https://github.com/facebook/rocksdb/wiki/Write-Ahead-Log-File-Format
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from widerow.model.arrays import Bytes
from widerow.model.kernel import kernel
from widerow.model.machine import peek64

BLOCK = 32 << 10
_AT_ONCE = 256 * BLOCK
_HEAD = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
"""Types of records: which part of what was appended. 4 more: with the log's number."""
_POLYNOMIAL = 0x82F63B78


def _tables() -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    """Eight tables: what a byte does to the checksum of the 0 to 7 bytes behind it."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for k in range(1, 8):
        tables[k] = tables[0][tables[k - 1] & 0xFF] ^ tables[k - 1] >> 8
    return tables


_TABLES = _tables()


@kernel
def _crc32c(address: int, length: int) -> int:
    crc = np.uint32(0xFFFFFFFF)
    at, end = address, address + length
    while at + 8 <= end:
        word = peek64(at) ^ np.uint64(crc)
        crc = np.uint32(0)
        for k in range(8):
            crc ^= _TABLES[7 - k, np.int64((word >> np.uint64(8 * k)) & np.uint64(0xFF))]
        at += 8
    if at < end:
        word = peek64(at)  # there are spare bytes behind
        for k in range(end - at):
            byte = (np.int64(crc) ^ np.int64(word >> np.uint64(8 * k))) & 0xFF
            crc = _TABLES[0, byte] ^ (crc >> np.uint32(8))
    return int(crc ^ np.uint32(0xFFFFFFFF))


@kernel
def _good(data: Bytes, start: int, length: int) -> int:
    """Up to where there are whole records. `data` begins with a block and has 8 spare bytes; a record begins at `start`."""
    at, base = start, data.ctypes.data
    while at < length:
        left = BLOCK - at % BLOCK
        if left < _HEAD:  # too little for a record: filled up
            at += left
            continue
        if at + _HEAD > length:
            return at
        kind = data[at + 6]
        head = _HEAD + 4 if 5 <= kind <= 8 or kind in (11, 131) else _HEAD
        size = head + int(data[at + 4]) + 256 * int(data[at + 5])
        if kind == 0 or size > left or at + size > length:
            return at
        stored = np.int64(peek64(base + at) & np.uint64(0xFFFFFFFF))
        crc = _crc32c(base + at + 6, size - 6)
        if ((((crc >> 15) | (crc << 17)) & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF != stored:
            return at
        at += size
    return min(at, length)


def whole(file: Path, start: int, stop: int) -> int:
    """Up to where, from `start` (the start of a record) to at most `stop`, a file holds whole records alone."""
    at, first = start - start % BLOCK, start % BLOCK
    with file.open("rb") as opened:
        opened.seek(at)
        while at < stop:
            content = opened.read(min(_AT_ONCE, stop - at))
            length = len(content)
            good = _good(_padded(content), min(first, length), length)
            if good < length or not length:
                return at + good
            at, first = at + length, 0
    return stop


def records(file: Path) -> Iterator[bytes]:
    """What was appended, one at a time, up to what is not whole. For MANIFESTs, which are small."""
    content = file.read_bytes()
    end, at, parts = _good(_padded(content), 0, len(content)), 0, b""
    while at + _HEAD <= end:
        left = BLOCK - at % BLOCK
        if left < _HEAD:
            at += left
            continue
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        head = _HEAD + 4 if 5 <= kind <= 8 else _HEAD
        parts += content[at + head : at + head + size]
        if kind in (_FULL, _LAST, _FULL + 4, _LAST + 4):
            yield parts
            parts = b""
        at += head + size


def append(file: Path, record: bytes) -> None:
    """Put a record behind the others. What is not whole at the end goes."""
    end = whole(file, 0, file.stat().st_size)
    with file.open("r+b") as opened:
        opened.truncate(end)
        opened.seek(end)
        first = True
        while first or record:
            left = BLOCK - end % BLOCK
            if left < _HEAD:
                opened.write(bytes(left))
                end += left
                continue
            part, record = record[: left - _HEAD], record[left - _HEAD :]
            kind = (_FULL if first else _LAST) if not record else (_FIRST if first else _MIDDLE)
            end += opened.write(_record(kind, part))
            first = False
        opened.flush()
        os.fsync(opened.fileno())


def _record(kind: int, part: bytes) -> bytes:
    covered = _padded(bytes([kind]) + part)
    crc = _crc32c(covered.ctypes.data, 1 + len(part))
    masked = ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF
    return masked.to_bytes(4, "little") + len(part).to_bytes(2, "little") + bytes([kind]) + part


def _padded(content: bytes) -> Bytes:
    data = np.zeros(len(content) + 8, np.uint8)
    data[: len(content)] = np.frombuffer(content, np.uint8)
    return data
