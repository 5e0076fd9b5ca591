"""A block: opened, asked what it has, and read in part. See docs/format/block.md.

Opening checks the directory, and reading each page that it touches: `Corrupt`. Safe to share between threads.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import numpy as np

from widerow.blocks.columns import CODED, NO_COLUMNS, PLAIN, Columns, Head, Kind
from widerow.blocks.dense_reader import Dense
from widerow.blocks.layout import DENSE, HEADER_BYTES, QUICK, U2, U4, Header, Reader, header_of, listed
from widerow.blocks.quick import Quick
from widerow.model.arrays import Flags, Floats, Ints
from widerow.model.errors import Corrupt
from widerow.model.names import Names
from widerow.model.times import TimeSpan

_BODIES: Final[dict[int, type[Quick | Dense]]] = {QUICK: Quick, DENSE: Dense}


@dataclass(frozen=True, slots=True)
class Where:
    """Rows in which a metric is a number from `low` to `high`."""

    metric: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Info:
    """A column, as people ask about it."""

    name: str
    part: str
    kind: Kind
    codec: str
    values: int
    bytes: int


class Block:
    """One block. Its devices and counts are known without reading any page."""

    def __init__(self, data: bytes) -> None:
        self.header: Final[Header] = header_of(data)
        if self.header.encoding not in _BODIES:
            raise Corrupt(f"a block of encoding {self.header.encoding}: was it written by a newer release?")
        self._body = _BODIES[self.header.encoding](data, self.header)
        self._columns: Final[Sequence[Any]] = self._body.columns
        self.devices: Final[Names] = self._body.devices
        self.offsets: Final[Ints] = self._body.offsets
        """Where the rows of each device begin, and where those of the last end."""
        try:
            self._names = self._body.names.to_list()
        except UnicodeDecodeError as error:
            raise Corrupt("a name in a block is no text") from error

    @property
    def metrics(self) -> list[str]:
        """Names of metrics and tags."""
        return [self._names[name] for name in dict.fromkeys(column.name for column in self._columns)]

    def infos(self) -> list[Info]:
        """The columns of metrics and tags, in order."""
        names = [*self._names, ""]  # the last is that of `PLAIN`
        return [Info(names[c.name], names[c.part], c.kind, *self._body.describe(c)) for c in self._columns]

    def part(self, first: int, last: int) -> Columns:
        """All of the devices `first` to `last - 1`."""
        return self._read([(first, last)], self._columns) if first < last else NO_COLUMNS

    def read(
        self,
        devices: Sequence[str] | None = None,
        metrics: Sequence[str] | None = None,
        span: TimeSpan | None = None,
        where: Where | None = None,
    ) -> Columns:
        """The rows of these devices within the span, with these metrics (and tags) alone.

        A row stays if none of the metrics is in it. `where`: rows that do not match are left out.
        """
        head, columns = self.header, self._columns
        if span is not None:
            if span.stop_us <= head.first_us or span.start_us > head.last_us:
                return NO_COLUMNS
            if span.start_us <= head.first_us and head.last_us < span.stop_us:
                span = None
        asked = [column for column in columns if self._may_match(column, where)] if where is not None else []
        ranges = [(0, len(self.devices))] if devices is None else self._ranges(devices)
        if (where is not None and not asked) or not ranges:
            return NO_COLUMNS
        if metrics is not None:
            wanted = set(metrics)
            columns = [column for column in columns if self._names[column.name] in wanted]
        found = self._read(ranges, columns)
        keep = np.ones(len(found), np.bool_)
        if span is not None:
            keep = (found.time_us >= span.start_us) & (found.time_us < span.stop_us)
        if where is not None:
            keep &= _matching(self._read(ranges, asked), where)
        return found.matching(keep)

    def _read(self, ranges: Sequence[tuple[int, int]], columns: Sequence[Any]) -> Columns:
        return self._body.read([(int(self.offsets[a]), int(self.offsets[b])) for a, b in ranges], columns)

    def _may_match(self, column: Any, where: Where) -> bool:
        mine = self._names[column.name] == where.metric and column.part == PLAIN and column.kind not in CODED
        return mine and self._body.may_have(column, where.low, where.high)

    def _ranges(self, devices: Sequence[str]) -> list[tuple[int, int]]:
        """Where these devices are, of those that are here; neighbours together."""
        wanted, known, ranges = sorted({device.encode() for device in devices}), self.devices, [(-1, -1)]
        for device in wanted:
            place = bisect_left(range(len(known)), device, key=known.bytes_at)
            if place < len(known) and known.bytes_at(place) == device:
                begin = ranges.pop()[0] if ranges[-1][1] == place else place
                ranges.append((begin, place + 1))
        return ranges[1:]


def _matching(columns: Columns, where: Where) -> Flags:
    """Which rows match."""
    fits = np.zeros(len(columns), np.bool_)
    for head in columns.heads:
        numbers = numbers_of(head)
        fits[head.rows[(numbers >= where.low) & (numbers <= where.high)] - columns.first_row] = True
    return fits


def numbers_of(head: Head) -> Floats:
    """The values as doubles."""
    return head.values.view(np.float64) if head.kind == Kind.NUMBER else head.values.astype(np.float64)


def blocks_in(data: bytes) -> Iterator[Block]:
    """Blocks that stand one behind the other."""
    at = 0
    while at < len(data):
        size = max(HEADER_BYTES, int.from_bytes(data[at + 12 : at + 16], "little"))
        yield Block(data[at : at + size])
        at += size


def framed(blocks: Sequence[tuple[str, bytes]]) -> bytes:
    """Blocks of several owners, as the tenants of one flush, in one piece."""
    owners, every = Names.of(owner for owner, _ in blocks), [block for _, block in blocks]
    head = np.array([len(every), *map(len, every)], U4).tobytes() + listed(owners, U2)
    return b"".join([struct.pack("<II", len(head), crc32(head)), head, *every])


def frames_in(data: bytes) -> Iterator[tuple[str, Block]]:
    """The owners and the blocks of such a piece."""
    size, checksum = struct.unpack_from("<II", data.ljust(8, b"\0"))
    if len(data) < 8 + size or crc32(data[8 : 8 + size]) != checksum or size < 4:
        raise Corrupt("the checksum of a list of blocks does not fit")
    reader = Reader(data, 8, len(data))
    sizes = reader.ints(U4, int(reader.ints(U4, 1)[0])).tolist()
    for owner, length in zip(reader.names(U2, len(sizes)), sizes, strict=True):
        yield owner, Block(reader.bytes(length))
    reader.end()
