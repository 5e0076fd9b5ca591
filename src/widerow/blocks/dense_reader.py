"""Reading the dense encoding: the directory at once, pages when they are asked for.

Rule: a page's checksum is looked at before the page is decoded, and what is decoded is as long as the directory says.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
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
from widerow.model.kernel import kernel
from widerow.model.names import NO_NAMES

_CONSTANT, _PCO, _SQUEEZED, _LAST = map(int, (Codec.CONSTANT, Codec.PCO, Codec.SQUEEZED, max(Codec)))
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


@kernel
def _possible(fields: Ints, before: Ints, counts: Ints) -> bool:
    """Whether the lines of columns agree with each other, the pages, and the header's rows, names, heads and values."""
    (rows, names, heads, total), page = counts, 0
    for i in range(fields.shape[1]):
        name, part, kind, codec, presence, paged, _, values = fields[:8, i]
        if kind >= len(KINDS) or codec > _LAST or page + paged >= len(before):
            return False
        stored = 0 if codec == _CONSTANT else values
        right = before[page + paged] - before[page] == stored and (paged > 0) == (stored > 0)
        right &= paged < 2 or codec == _PCO
        if i < len(FIRST):
            right &= name == FIRST[i] and not presence and (codec == _SQUEEZED if i < 2 else KINDS[kind] == Kind.INTEGER)
        else:
            right &= 0 <= name < names and PLAIN <= part < names and presence <= fields[7, 1]
            right &= i == len(FIRST) or (fields[0, i - 1], fields[1, i - 1], fields[2, i - 1]) < (name, part, kind)
            total -= values
        if not right or (i >= 2 and not (0 < values <= rows if presence else values == rows)):
            return False
        page += paged
    return fields.shape[1] == heads + len(FIRST) and total == 0 and page == len(before) - 1


class Dense:
    """The directory of a dense block, and its pages on demand."""

    def __init__(self, data: bytes, header: Header) -> None:
        self._data, self._rows = data, header.rows
        plain = unsqueezed(data[HEADER_BYTES : HEADER_BYTES + header.directory])
        reader = Reader(plain, 0, len(plain))
        columns, pages, file_header = reader.ints(U4, 3).tolist()
        lines = reader.array(COLUMN, columns)
        page_values, page_bytes, sums = reader.ints(U4, 3 * pages).reshape(-1, 3).T
        self.offsets: Final = offsets_of(reader.ints(U4, header.devices))
        self._file_header = reader.bytes(file_header)
        fields = np.array([lines[f"f{i}"] for i in range(10)], np.int64)
        metas, before = offsets_of(fields[6]).tolist(), offsets_of(page_values)
        self._sums: list[int] = sums.tolist()
        self._before: list[int] = before.tolist()
        """How many values are on the pages before each."""
        self._page_bytes: list[int] = (offsets_of(page_bytes) + HEADER_BYTES + header.directory).tolist()
        every_meta = reader.bytes(metas[-1])
        self.devices: Final = reader.names(U2, header.devices)
        self.names: Final = reader.names(U2, header.names)
        reader.end()
        whole = self._page_bytes[-1] == header.size and self.offsets[-1] == header.rows and rises(self.offsets)
        if not whole or not _possible(fields, before, np.array(header[6:10])):
            raise Corrupt("a block's directory cannot be")
        self._presence, self._counts = (fields[i, 2:][fields[4, 2:] > 0] for i in (4, 7))
        parts = [every_meta[a:b] for a, b in pairwise(metas)]
        name, part, kind, codec, presence, paged, _, values, low, high = fields.tolist()
        first = list(accumulate(paged, initial=0))
        kinds = [KINDS[number] for number in kind]
        of = name, part, kinds, codec, presence, values, low, high, parts, first[:-1], first[1:]
        found = [Column(*column) for column in zip(*of, strict=True)]
        self._texts, self._presences, self._times, self._versions = found[:4]
        self.columns: Final = found[4:]
        self._marks: Bytes | None = None
        self._chunks: dict[int, Any] = {}

    def describe(self, column: Column) -> tuple[str, int, int]:
        """Its codec, how many values it has, and its bytes without its line in the directory."""
        pages = self._page_bytes[column.last_page] - self._page_bytes[column.first_page]
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
                places[number] = [(a[number - 1], b[number - 1]) for a, b in marked]
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
        which = np.concatenate([np.arange(a, b) for a, b in ends])
        devices, offsets = self.devices.take(which), offsets_of(lengths(self.offsets)[which])
        return Columns(devices, offsets, times, versions, self.names, tuple(heads), texts)

    def _bits(self) -> Bytes:
        """For each presence a bit for each row."""
        if self._marks is None:
            bits = np.frombuffer(self._unsqueezed(self._presences), np.uint8)
            if len(bits) != self._presences.values * ((self._rows + 7) // 8):
                raise Corrupt("a block's lists of rows cannot be")
            self._marks = bits.reshape(self._presences.values, -1)
            if (np.array(self._marked(self._rows))[self._presence - 1] != self._counts).any():
                raise Corrupt("a block's lists of rows are not those of its values")
        return self._marks

    def _marked(self, row: int) -> list[int]:
        """For each presence how many of the rows before this one have a value."""
        bits, whole = self._bits(), row // 8
        parts = bits[:, :whole], bits[:, whole : whole + 1] & ((1 << row % 8) - 1)
        counts: list[int] = sum(np.bitwise_count(part).sum(axis=1, dtype=np.int64) for part in parts).tolist()
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
        values = np.concatenate(pieces) if len(pieces) != 1 else pieces[0].copy()  # a view would hold on to its page
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
        data = self._data[self._page_bytes[page] : self._page_bytes[page + 1]]
        if crc32(data) != self._sums[page]:
            raise Corrupt("the checksum of a page of a block does not fit")
        return data

    def _unsqueezed(self, column: Column) -> bytes:
        return unsqueezed(self._page(column.first_page))
