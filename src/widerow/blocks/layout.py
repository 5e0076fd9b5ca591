"""What every block begins with, and how its pieces are laid out: see docs/format/block.md.

Rule: a block is checked before anything of it is believed. What is read from it is bounded by what it says of its size, and
everything that is wrong with it is `Corrupt`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import zstandard

from widerow.blocks.columns import CODED, Columns
from widerow.model.arrays import PAD, Ints, lengths
from widerow.model.errors import Corrupt, TooLarge
from widerow.model.names import Names

MAGIC, VERSION = b"WBLK", 1
QUICK, DENSE = 0, 1  # encodings
LIMIT = 256 << 10
"""A block is not larger."""
MAX_PLAIN = 64 << 20
"""Its columns take no more in memory."""
U2, U4, I8 = np.dtype("<u2"), np.dtype("<u4"), np.dtype("<i8")
_HEADER = struct.Struct("<4sBBHIIIIIIIIqqqq")
HEADER_BYTES = _HEADER.size
_CHECKED_FROM = 12
"""The checksum covers the bytes before itself, and from here to the end of the directory."""


class Header(NamedTuple):
    """The numbers that a block begins with."""

    encoding: int
    level: int
    """Whose meaning is the caller's: raw reports, minutes, ..."""
    checksum: int
    size: int
    directory: int
    devices: int
    rows: int
    names: int
    heads: int
    values: int
    first_us: int
    last_us: int
    first_version_us: int
    last_version_us: int


def closed(columns: Columns, encoding: int, level: int, directory: bytes, pages: Sequence[bytes] = ()) -> bytes:
    """A block of columns that stand in its directory and pages."""
    size = HEADER_BYTES + len(directory) + sum(map(len, pages))
    counts = len(columns.devices), len(columns), len(columns.names), len(columns.heads), columns.count
    head = _HEADER.pack(MAGIC, VERSION, encoding, level, 0, size, len(directory), *counts, *ends_of(columns))
    checksum = crc32(directory, crc32(head[_CHECKED_FROM:], crc32(head[: _CHECKED_FROM - 4])))
    return b"".join([head[: _CHECKED_FROM - 4], struct.pack("<I", checksum), head[_CHECKED_FROM:], directory, *pages])


def ends_of(columns: Columns) -> tuple[int, int, int, int]:
    """The first and the last time, the first and the last version."""
    times, versions = columns.time_us, columns.version_us
    if len(columns) == 1:
        return int(times[0]), int(times[0]), int(versions[0]), int(versions[0])
    return int(times.min()), int(times.max()), int(versions.min()), int(versions.max())


def header_of(data: bytes) -> Header:
    """The header, and with it the directory, checked."""
    if data[:4] != MAGIC:
        raise Corrupt("this is no block")
    if len(data) < HEADER_BYTES:
        raise Corrupt(f"a block of {len(data)} bytes is cut short")
    _, version, *fields = _HEADER.unpack_from(data)
    if version != VERSION:
        raise Corrupt(f"a block of format {version}: was it written by a newer release?")
    head = Header(*fields)
    end = HEADER_BYTES + head.directory
    if head.size != len(data) or end > len(data):
        raise Corrupt(f"a block of {head.size} bytes has {len(data)}")
    view = memoryview(data)
    if crc32(view[_CHECKED_FROM:end], crc32(view[: _CHECKED_FROM - 4])) != head.checksum:
        raise Corrupt("the checksum of a block's directory does not fit")
    if 16 * head.rows + 12 * head.values > MAX_PLAIN or head.devices > head.rows or head.rows < 1:
        raise Corrupt("a block counts what cannot be")
    return head


class Reader:
    """Takes one piece after the other; a piece that is not there whole is `Corrupt`."""

    def __init__(self, data: bytes, at: int, stop: int) -> None:
        self._data, self._at, self._stop = data, at, stop

    def array(self, kind: np.dtype[Any], count: int) -> Any:
        """A view of numbers; a copy where they do not stand at a multiple of their size."""
        begin = self._skip(kind.itemsize * count)
        found = np.frombuffer(self._data, kind, count, begin)
        return found if found.flags.aligned or kind.names else found.copy()

    def ints(self, kind: np.dtype[Any], count: int) -> Ints:
        """Numbers of any width as whole words."""
        found: Ints = self.array(kind, count).astype(np.int64, copy=False)
        return found

    def bytes(self, size: int) -> bytes:
        begin = self._skip(size)
        return self._data[begin : begin + size]

    def names(self, kind: np.dtype[Any], count: int) -> Names:
        """Texts, their sizes before them: see `listed`."""
        offsets = offsets_of(self.ints(kind, count))
        begin = self._skip(int(offsets[-1]))
        text = self._data[begin : begin + int(offsets[-1]) + PAD]
        return Names(np.frombuffer(text + bytes(PAD + int(offsets[-1]) - len(text)), np.uint8), offsets)

    def end(self) -> None:
        if self._at != self._stop:
            raise Corrupt("a block has bytes that nothing describes")

    def _skip(self, size: int) -> int:
        begin = self._at
        if size < 0 or size > self._stop - begin:
            raise Corrupt("a block's directory is cut short")
        self._at += size
        return begin


def offsets_of(sizes: Ints) -> Ints:
    """Offsets of parts of these sizes, none of them negative."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def listed(names: Names, kind: np.dtype[Any]) -> bytes:
    """The sizes of texts, then the texts."""
    sizes = lengths(names.offsets)
    if int(sizes.max(initial=0)) >> 8 * kind.itemsize:
        raise TooLarge(f"a name has {sizes.max():,} bytes, more than a block can say")
    return sizes.astype(kind).tobytes() + names.data[names.offsets[0] : names.offsets[-1]].tobytes()


def size_of(columns: Columns) -> int:
    """How many bytes the columns take without compression, about: a quick block of them is not larger."""
    size = HEADER_BYTES + 8 + 16 * len(columns) + 4 * len(columns.devices)
    size += sum(4 + 4 * len(rows) for rows in {id(head.rows): head.rows for head in columns.heads}.values())
    size += sum(8 + (4 if head.kind in CODED else 8) * len(head.rows) for head in columns.heads)
    texts = (columns.devices, 2), (columns.names, 2), (columns.texts, 4)
    return size + sum(int(names.offsets[-1]) + extra * len(names) for names, extra in texts)


def squeezed(plain: bytes) -> bytes:
    """The bytes as a zstd frame that says how many there are."""
    return zstandard.ZstdCompressor(level=3).compress(plain)


def unsqueezed(data: bytes) -> bytes:
    try:
        if not 0 <= zstandard.frame_content_size(data) <= MAX_PLAIN:
            raise Corrupt("a compressed piece of a block says nothing of its size, or too much")
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise Corrupt(f"a compressed piece of a block cannot be read: {error}") from error
