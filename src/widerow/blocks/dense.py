"""The dense encoding: each column in the codec that suits it, in pages that are read one by one.

Values of a page are those of whole devices, unless a device alone fills more than one. So reading one device reads little.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final
from zlib import crc32

import numpy as np
from pcodec import ChunkConfig, PagingSpec
from pcodec.wrapped import FileCompressor

from widerow.blocks.columns import PLAIN, Columns, Kind
from widerow.blocks.layout import DENSE, U2, U4, closed, listed, squeezed
from widerow.model.arrays import Ints, lengths
from widerow.model.kernel import kernel


class Codec(IntEnum):
    """How the values of a column are stored. Never renumber."""

    CONSTANT = 0
    RUNS = 1
    PCO = 2
    SQUEEZED = 3


TEXTS, PRESENCES, TIMES, VERSIONS = FIRST = -1, -2, -3, -4
"""Instead of the names of the first four columns."""
COLUMN = np.dtype("<i4,<i4,u1,u1,<u2,<u4,<u4,<u4,<i8,<i8")
"""Name, part, kind, codec, presence, pages, bytes of its meta, values, the least and the greatest value."""
EVERY_ROW = 0
"""The presence of a column with a value in every row. The others count from 1."""
MOST_PRESENCES = 0xFFFF
_FULL_PAGE, _MOST = 1_400, 3_000
"""A page is full from so many values on, and a device with more than the second is cut."""
_FEW = 64
"""Fewer values are no work for pcodec."""
_LONG_RUNS = 32
"""Runs are stored as such from this average length on."""
_LEVEL = 4
TYPES: Final = {Kind.NUMBER: np.float64, Kind.INTEGER: np.int64}
"""What pcodec takes values as; others are 32 bits wide."""


class _Writer:
    """The lines, metas and pages of columns, one behind the other."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, ...]] = []
        self.metas: list[bytes] = []
        self.pages: list[tuple[int, bytes]] = []
        """How many values each has, and its bytes."""
        self._file = FileCompressor()
        self.file_header: bytes = self._file.write_header()

    def squeeze(self, name: int, values: int, plain: bytes) -> None:
        """A column that is no numbers."""
        self._add((name, PLAIN, 0, Codec.SQUEEZED, EVERY_ROW), values, (0, 0), [(values, squeezed(plain))] if values else [])

    def numbers(self, key: tuple[int, int, Kind], presence: int, values: Ints, sizes: Sequence[int]) -> None:
        """A column of numbers, on pages of these sizes if it is pcodec's."""
        count, kind, meta = len(values), key[2], b""
        changes = np.flatnonzero(values[1:] != values[:-1])
        spread = extremes(values, kind)
        pages: list[tuple[int, bytes]] = []
        if len(changes) == 0:
            codec, spread = Codec.CONSTANT, (int(values[0]), int(values[0]))
        elif _LONG_RUNS * len(changes) < count:
            begins = np.concatenate([[0], changes + 1])
            long = np.diff(begins, append=count).astype(U4)
            plain = struct.pack("<I", len(begins)) + long.tobytes() + values[begins].tobytes()
            codec, pages = Codec.RUNS, [(count, squeezed(plain))]
        elif count < _FEW:
            codec, pages = Codec.SQUEEZED, [(count, squeezed(values.tobytes()))]
        else:
            config = ChunkConfig(compression_level=_LEVEL, paging_spec=PagingSpec.exact_page_sizes(sizes))
            chunk = self._file.chunk_compressor(
                values.view(TYPES[kind]) if kind in TYPES else values.astype(np.uint32), config
            )
            codec, meta = Codec.PCO, chunk.write_meta()
            pages = [(size, chunk.write_page(i)) for i, size in enumerate(sizes)]
        self._add((*key, codec, presence), count, spread, pages, meta)

    def _add(
        self, line: tuple[int, ...], values: int, spread: tuple[int, int], pages: list[tuple[int, bytes]], meta: bytes = b""
    ) -> None:
        self.lines.append((*line, len(pages), len(meta), values, *spread))
        self.metas.append(meta)
        self.pages += pages


def extremes(values: Ints, kind: Kind) -> tuple[int, int]:
    """The words of the least and the greatest value; numbers that are none do not count."""
    if kind != Kind.NUMBER:
        return int(values.min()), int(values.max())
    numbers = values.view(np.float64)
    ends = np.array([np.fmin.reduce(numbers), np.fmax.reduce(numbers)])
    return tuple(ends.view(np.int64).tolist())


@kernel
def _page_sizes(cuts: Ints, sizes: Ints) -> int:
    """Cut values into pages: `cuts` says where those of each device begin. How many pages there are."""
    pages, begin = 0, cuts[0]
    for d in range(1, len(cuts)):
        while cuts[d] - begin > _MOST and cuts[d - 1] > begin:  # the page of those before is not full, and this is large
            sizes[pages] = cuts[d - 1] - begin
            begin = cuts[d - 1]
            pages += 1
        mine = cuts[d] - begin
        if mine >= _FULL_PAGE or (d == len(cuts) - 1 and mine):
            parts = max(1, (mine + _MOST - 1) // _MOST)
            for k in range(parts):
                sizes[pages] = mine * (k + 1) // parts - mine * k // parts
                pages += 1
            begin = cuts[d]
    return pages


def page_sizes(cuts: Ints) -> list[int]:
    sizes = np.empty(2 * (int(cuts[-1] - cuts[0]) // _FULL_PAGE + 2), np.int64)
    cuts.flags.writeable = False
    found: list[int] = sizes[: _page_sizes(cuts, sizes)].tolist()
    return found


def encode_dense(columns: Columns, level: int) -> bytes:
    """A block of columns as `Columns.compacted` makes them. It may be larger than a block may be."""
    writer = _Writer()
    rows, texts = len(columns), columns.texts
    writer.squeeze(TEXTS, len(texts), listed(texts, U4))
    presences = {id(head.rows): head.rows for head in columns.heads if len(head.rows) < rows}
    marks = np.zeros((len(presences), rows), np.bool_)
    for mine, present in zip(marks, presences.values(), strict=True):
        mine[present] = True
    writer.squeeze(PRESENCES, len(presences), np.packbits(marks, axis=1, bitorder="little").tobytes())
    place = {key: number for number, key in enumerate(presences, 1)}
    sizes = {key: page_sizes(np.searchsorted(present, columns.offsets)) for key, present in presences.items()}
    every = page_sizes(columns.offsets)
    writer.numbers((TIMES, PLAIN, Kind.INTEGER), EVERY_ROW, columns.time_us, every)
    writer.numbers((VERSIONS, PLAIN, Kind.INTEGER), EVERY_ROW, columns.version_us, every)
    for head in columns.heads:
        key = id(head.rows)
        writer.numbers(head.key, place.get(key, EVERY_ROW), head.values, sizes.get(key, every))
    pages = [(values, len(page), crc32(page)) for values, page in writer.pages]
    plain = [
        struct.pack("<III", len(writer.lines), len(pages), len(writer.file_header)),
        np.array(writer.lines, COLUMN).tobytes(),
        np.array(pages, U4).tobytes(),
        lengths(columns.offsets).astype(U4).tobytes(),
        writer.file_header,
        *writer.metas,
        listed(columns.devices, U2),
        listed(columns.names, U2),
    ]
    return closed(columns, DENSE, level, squeezed(b"".join(plain)), [page for _, page in writer.pages])
