"""Reading the dense encoding: the directory at once, pages when they are asked for.

Rule: a page's checksum is looked at before the page is decoded, and what is decoded is as long as the directory says.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
from pcodec.wrapped import FileDecompressor

from widerow.blocks.columns import CODED, KINDS, PLAIN, Columns, Head, Kind
from widerow.blocks.dense import COLUMN, EVERY_ROW, FIRST, TYPES, Codec
from widerow.blocks.layout import HEADER_BYTES, I8, U2, U4, Header, Reader, offsets_of, unsqueezed
from widerow.blocks.quick import rises
from widerow.model.arrays import Bytes, Codes, Ints, lengths
from widerow.model.errors import Corrupt
from widerow.model.names import NO_NAMES

_PCO_TYPES: Final = {Kind.NUMBER: "f64", Kind.INTEGER: "i64"}


class Column(NamedTuple):
    """A column as the directory describes it."""

    name: int
    part: int
    kind: Kind
    codec: int
    presence: int
    values: int
    low: int
    high: int
    meta: bytes
    first_page: int
    last_page: int


class Dense:
    """The directory of a dense block, and its pages on demand."""

    def __init__(self, data: bytes, header: Header) -> None:
        self._data, self._rows = data, header.rows
        plain = unsqueezed(data[HEADER_BYTES : HEADER_BYTES + header.directory])
        reader = Reader(plain, 0, len(plain))
        columns, pages, file_header = reader.ints(U4, 3).tolist()
        lines = reader.array(COLUMN, columns)
        page_values, page_bytes, self._sums = reader.ints(U4, 3 * pages).reshape(-1, 3).T
        self.offsets: Final = offsets_of(reader.ints(U4, header.devices))
        self._file_header = reader.bytes(file_header)
        fields = [lines[f"f{i}"].astype(np.int64) for i in range(10)]
        name, part, kind, codec, presence, paged, meta, values = fields[:8]
        last, metas = np.cumsum(paged), offsets_of(meta).tolist()
        self._before: list[int] = offsets_of(page_values).tolist()
        """How many values are on the pages before each."""
        self._page_bytes = offsets_of(page_bytes) + HEADER_BYTES + header.directory
        every_meta = reader.bytes(metas[-1])
        self.devices: Final = reader.names(U2, header.devices)
        self.names: Final = reader.names(U2, header.names)
        reader.end()
        if columns < len(FIRST) or last[-1] != pages or kind.max() >= len(KINDS) or codec.max() > Codec.SQUEEZED:
            raise Corrupt("a block's list of columns cannot be")
        before, empty, rest = np.array(self._before), codec == Codec.CONSTANT, presence[2:]
        right = before[last] - before[last - paged] == values * ~empty
        right &= np.where(codec == Codec.PCO, paged > 0, paged == (values > 0) & ~empty)
        right[2:] &= (values[2:] > 0) & np.where(rest > 0, values[2:] <= header.rows, values[2:] == header.rows)
        right[4:] &= (name[4:] >= 0) & (name[4:] < len(self.names)) & (part[4:] >= PLAIN) & (part[4:] < len(self.names))
        keys = list(zip(name[4:].tolist(), part[4:].tolist(), kind[4:].tolist(), strict=True))
        rules = [
            right.all() and presence.max() <= values[1] and not presence[:4].any() and name[:4].tolist() == list(FIRST),
            codec[:2].tolist() == [Codec.SQUEEZED] * 2 and kind[2:4].tolist() == [Kind.INTEGER] * 2,
            len(keys) == header.heads and all(a < b for a, b in pairwise(keys)) and values[4:].sum() == header.values,
            self._page_bytes[-1] == header.size and self.offsets[-1] == header.rows and rises(self.offsets),
        ]
        if not all(rules):
            raise Corrupt("a block's directory cannot be")
        self._presence, self._counts = rest[rest > 0] - 1, values[2:][rest > 0]
        parts = [every_meta[a:b] for a, b in pairwise(metas)]
        kinds = [KINDS[number] for number in kind.tolist()]
        of = [field.tolist() for field in (name, part, codec, presence, values, *fields[8:], last - paged, last)]
        found = [Column(*column) for column in zip(*of[:2], kinds, *of[2:7], parts, *of[7:], strict=True)]
        self._texts, self._presences, self._times, self._versions = found[:4]
        self.columns: Final = found[4:]
        self._marks: Bytes | None = None
        self._chunks: dict[int, Any] = {}

    def describe(self, column: Column) -> tuple[str, int, int]:
        """Its codec, how many values it has, and its bytes without its line in the directory."""
        pages = int(self._page_bytes[column.last_page] - self._page_bytes[column.first_page])
        return Codec(column.codec).name.lower(), column.values, pages + len(column.meta)

    def may_have(self, column: Column, low: float, high: float) -> bool:
        """False: no value of the column is a number between these."""
        ends = np.array([column.low, column.high])
        least, greatest = ends.view(np.float64) if column.kind == Kind.NUMBER else ends
        return not (least > high or greatest < low)

    def read(self, spans: Sequence[tuple[int, int]], wanted: Sequence[Column]) -> Columns:
        """The rows of the spans, which are whole devices, with the wanted columns."""
        sparse = any(column.presence != EVERY_ROW for column in wanted)
        marked = [(self._marked(first), self._marked(last)) for first, last in spans] if sparse else []
        places, rows = {EVERY_ROW: list(spans)}, {EVERY_ROW: np.arange(sum(b - a for a, b in spans), dtype=np.int32)}
        heads = []
        for column in wanted:
            number = column.presence
            if number not in places:
                places[number] = [(int(a[number - 1]), int(b[number - 1])) for a, b in marked]
                if any(a < b for a, b in places[number]):
                    rows[number] = self._marked_rows(number, spans)
            if number in rows:
                values = self._values(column, places[number])
                heads.append(Head(column.name, column.part, column.kind, rows[number], values))
        texts = NO_NAMES
        if any(head.kind in CODED for head in heads):
            plain = self._unsqueezed(self._texts)
            texts = Reader(plain, 0, len(plain)).names(U4, self._texts.values)
        if any(head.values.min() < 0 or head.values.max() >= len(texts) for head in heads if head.kind in CODED):
            raise Corrupt("a block's texts are not those of its values")
        times, versions = (self._values(column, spans) for column in (self._times, self._versions))
        ends = [(int(self.offsets.searchsorted(a)), int(self.offsets.searchsorted(b))) for a, b in spans]
        if len(ends) == 1:
            (a, b), first = ends[0], spans[0][0]
            devices, offsets = self.devices.between(a, b), self.offsets[a : b + 1] - first
        else:
            which = np.concatenate([np.arange(a, b) for a, b in ends])
            devices, offsets = self.devices.take(which), offsets_of(lengths(self.offsets)[which])
        return Columns(devices, offsets, times, versions, self.names, tuple(heads), texts)

    def _bits(self) -> Bytes:
        """For each presence a bit for each row."""
        if self._marks is None:
            shape = self._presences.values, (self._rows + 7) // 8
            bits = np.frombuffer(self._unsqueezed(self._presences), np.uint8)
            if len(bits) != shape[0] * shape[1]:
                raise Corrupt("a block's lists of rows cannot be")
            self._marks = bits.reshape(shape)
            if (self._marked(self._rows)[self._presence] != self._counts).any():
                raise Corrupt("a block's lists of rows are not those of its values")
        return self._marks

    def _marked(self, row: int) -> Ints:
        """For each presence how many of the rows before this one have a value."""
        bits, whole = self._bits(), row // 8
        rest = bits[:, whole : whole + 1] & ((1 << row % 8) - 1)
        counts: Ints = np.bitwise_count(np.hstack([bits[:, :whole], rest])).sum(axis=1, dtype=np.int64)
        return counts

    def _marked_rows(self, presence: int, spans: Sequence[tuple[int, int]]) -> Codes:
        """The rows of the spans that have a value, numbered as they will be."""
        bits, pieces, before = self._bits()[presence - 1], [], 0
        for first, last in spans:
            low = first // 8
            marks = np.unpackbits(bits[low : (last + 7) // 8], bitorder="little")
            pieces.append(np.flatnonzero(marks[first - 8 * low : last - 8 * low]) + before)
            before += last - first
        return np.concatenate(pieces).astype(np.int32)

    def _values(self, column: Column, spans: Sequence[tuple[int, int]]) -> Ints:
        """The values between these places, as words."""
        if column.codec == Codec.CONSTANT:
            return np.full(sum(b - a for a, b in spans), column.low, np.int64)
        if column.codec == Codec.PCO:
            return self._paged(column, spans)
        plain = self._unsqueezed(column)
        if column.codec == Codec.SQUEEZED:
            if len(plain) != 8 * column.values:
                raise Corrupt("a block's values are more or fewer than it says")
            values = np.frombuffer(plain, I8)
            return np.concatenate([values[a:b] for a, b in spans])
        reader = Reader(plain, 0, len(plain))
        count = int(reader.ints(U4, 1)[0])
        ends, words = reader.ints(U4, count).cumsum(), reader.ints(I8, count)
        reader.end()
        if not rises(ends) or ends[-1] != column.values:
            raise Corrupt("a block's runs are more or fewer than it says")
        pieces = []
        for a, b in spans:
            runs = slice(int(ends.searchsorted(a, "right")), int(ends.searchsorted(b)) + (a < b))
            edges = np.minimum(ends[runs], b)
            edges[1:] -= edges[:-1].copy()
            edges[:1] -= a
            pieces.append(words[runs].repeat(edges))
        return np.concatenate(pieces)

    def _paged(self, column: Column, spans: Sequence[tuple[int, int]]) -> Ints:
        base, pieces, page = self._before[column.first_page], [], -1
        for first, last in spans:
            at, end = first + base, last + base
            mine = bisect_right(self._before, at, column.first_page, column.last_page) - 1
            while at < end:
                if mine != page:
                    page, decoded = mine, self._decode(column, mine)
                begin, stop = self._before[mine : mine + 2]
                pieces.append(decoded[at - begin : min(end, stop) - begin])
                at, mine = stop, mine + 1
        values = np.concatenate(pieces)  # a view would hold on to its page
        return values.view(np.int64) if column.kind in TYPES else values.astype(np.int64)

    def _decode(self, column: Column, page: int) -> Any:
        data, values = (
            self._page(page),
            np.empty(self._before[page + 1] - self._before[page], TYPES.get(column.kind, np.uint32)),
        )
        try:
            chunk = self._chunks.get(column.first_page)
            if chunk is None:
                file, _ = FileDecompressor.new(self._file_header)
                chunk, _ = file.chunk_decompressor(column.meta, _PCO_TYPES.get(column.kind, "u32"))
                self._chunks[column.first_page] = chunk
            progress, used = chunk.read_page_into(data, len(values), values)
        except BaseException as error:
            if isinstance(error, RuntimeError) or type(error).__name__ == "PanicException":  # which cannot be imported
                raise Corrupt(f"a page of a block cannot be read: {error}") from None
            raise
        if progress.n_processed != len(values) or used != len(data):
            raise Corrupt("a page of a block has more or fewer values than it says")
        return values

    def _page(self, page: int) -> bytes:
        begin, end = self._page_bytes[page : page + 2].tolist()
        data = self._data[begin:end]
        if crc32(data) != int(self._sums[page]):
            raise Corrupt("the checksum of a page of a block does not fit")
        return data

    def _unsqueezed(self, column: Column) -> bytes:
        return unsqueezed(self._page(column.first_page))
