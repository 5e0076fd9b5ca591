"""The quick encoding: plain arrays behind the header, for small commits. All of it is the directory: one checksum."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np

from widerow.blocks.columns import CODED, KINDS, PLAIN, Columns, Head
from widerow.blocks.layout import HEADER_BYTES, I8, QUICK, U2, U4, Header, Reader, closed, ends_of, listed, offsets_of
from widerow.model.arrays import Codes, Ints, lengths
from widerow.model.errors import Corrupt

NO_PART = 0xFFFF
_SMALL_ROWS = 1 << 16
"""The numbers of so many rows take two bytes each."""


def encode_quick(columns: Columns, level: int) -> bytes:
    """A block of columns as `Columns.compacted` makes them."""
    rows = len(columns)
    place: dict[int, int] = {}
    presences: list[Codes] = []
    lines: list[int] = []
    for head in columns.heads:
        if id(head.rows) not in place:
            place[id(head.rows)] = len(presences)
            presences.append(head.rows)
        lines += (head.name, head.part & NO_PART, head.kind, place[id(head.rows)])
    narrow = U2 if rows <= _SMALL_ROWS else U4
    times, versions = columns.time_us, columns.version_us
    first, last, first_version, last_version = ends_of(columns)
    pieces = [
        struct.pack(f"<2I{len(presences)}I", len(presences), len(columns.texts), *map(len, presences)),
        struct.pack(f"<{len(lines)}H", *lines),
        times.tobytes() if first != last else b"",
        versions.tobytes() if first_version != last_version else b"",
        *[(h.values.astype(U4) if h.kind in CODED else h.values).tobytes() for h in columns.heads],
        lengths(columns.offsets).astype(U4).tobytes(),
        *[present.astype(narrow).tobytes() for present in presences if len(present) < rows],
        listed(columns.devices, U2),
        listed(columns.names, U2),
        listed(columns.texts, U4),
    ]
    return closed(columns, QUICK, level, b"".join(pieces))


class Quick:
    """A quick block, all of it at hand."""

    def __init__(self, data: bytes, header: Header) -> None:
        self._whole = decode_quick(data, header)
        self.devices: Final = self._whole.devices
        self.offsets: Final = self._whole.offsets
        self.names: Final = self._whole.names
        self.columns: Final = self._whole.heads

    def describe(self, column: Head) -> tuple[str, int, int]:
        """Its codec, how many values it has, and their bytes."""
        return "plain", len(column.rows), len(column.rows) * (4 if column.kind in CODED else 8)

    def may_have(self, column: Head, low: float, high: float) -> bool:  # noqa: ARG002 - of a dense block the directory knows
        return True

    def read(self, spans: Sequence[tuple[int, int]], wanted: Sequence[Head]) -> Columns:
        """The rows of the spans, which are whole devices, with the wanted columns."""
        some = replace(self._whole, heads=tuple(wanted))
        if len(spans) == 1:
            return some.between(*spans[0])
        rows = np.zeros(len(some), np.bool_)
        for first, last in spans:
            rows[first:last] = True
        return some.matching(rows)


def decode_quick(data: bytes, header: Header) -> Columns:
    """The columns, whose arrays are the block's own where they can be. `Corrupt`: they break a rule of columns."""
    reader = Reader(data, HEADER_BYTES, HEADER_BYTES + header.directory)
    rows = header.rows
    count, texts = reader.ints(U4, 2).tolist()
    sizes = reader.ints(U4, count).tolist()
    lines = reader.ints(U2, 4 * header.heads).reshape(-1, 4).tolist()
    if any(line[3] >= count or line[2] >= len(KINDS) for line in lines) or any(not 0 < size <= rows for size in sizes):
        raise Corrupt("a block's list of columns cannot be")
    spans = (header.first_us, header.last_us), (header.first_version_us, header.last_version_us)
    times, versions = (reader.ints(I8, rows) if first != last else np.full(rows, first, np.int64) for first, last in spans)
    values = [reader.ints(U4 if line[2] in CODED else I8, sizes[line[3]]) for line in lines]
    counts = reader.ints(U4, header.devices)
    narrow, every = U2 if rows <= _SMALL_ROWS else U4, np.arange(rows, dtype=np.int32)
    presences = [reader.ints(narrow, size).astype(np.int32) if size < rows else every for size in sizes]
    devices, names, known = (
        reader.names(kind, number) for kind, number in ((U2, header.devices), (U2, header.names), (U4, texts))
    )
    heads = tuple(
        Head(name, PLAIN if part == NO_PART else part, KINDS[kind], presences[place], some)
        for (name, part, kind, place), some in zip(lines, values, strict=True)
    )
    reader.end()
    return _checked(Columns(devices, offsets_of(counts), times, versions, names, heads, known), header)


def _checked(columns: Columns, header: Header) -> Columns:
    """The columns, if they keep the rules of columns and agree with the header."""
    heads, names = columns.heads, len(columns.names)
    wrong = [
        not rises(columns.offsets) or columns.offsets[-1] != len(columns) or columns.count != header.values,
        any(not rises(rows) or rows[-1] >= len(columns) for rows in {id(head.rows): head.rows for head in heads}.values()),
        any(max(head.name, head.part) >= names for head in heads) or any(a.key >= b.key for a, b in pairwise(heads)),
        any(head.values.max() >= len(columns.texts) for head in heads if head.kind in CODED),
    ]
    if any(wrong):
        raise Corrupt("a block's columns cannot be")
    return columns


def rises(numbers: Codes | Ints) -> bool:
    return len(numbers) > 0 and bool((numbers[1:] > numbers[:-1]).all())
