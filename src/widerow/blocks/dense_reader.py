"""Reading the dense encoding: the directory at once, pages when they are asked for.

Rule: a page's checksum is looked at before the page is decoded, and what is decoded is as long as the directory says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
from pcodec.wrapped import FileDecompressor

from widerow.blocks.columns import CODED, PLAIN, Columns, Head, Kind
from widerow.blocks.dense import (
    CODECS,
    COLUMN,
    CONSTANT,
    EVERY_ROW,
    PAGE,
    PCO,
    PRESENCE,
    SQUEEZED,
    TEXTS,
    TIMES,
    TYPES,
    VERSIONS,
)
from widerow.blocks.layout import HEADER_BYTES, Header, Reader, offsets_of, unsqueezed
from widerow.blocks.quick import rises
from widerow.model.arrays import Codes, Ints, lengths
from widerow.model.errors import Corrupt
from widerow.model.names import Names


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
        columns, pages, file_header = reader.ints("<u4", 3).tolist()
        lines = reader.array(COLUMN, columns).tolist()
        listed = reader.array(PAGE, pages)
        self.offsets: Final = offsets_of(reader.ints("<u4", header.devices))
        self._file, _ = _opened(reader.bytes(file_header))
        self._page_values = offsets_of(listed["values"].astype(np.int64))
        self._page_bytes = offsets_of(listed["bytes"].astype(np.int64)) + HEADER_BYTES + header.directory
        self._sums = listed["crc"].tolist()
        found: list[Column] = []
        page = 0
        for name, part, kind, codec, presence, count, meta, values, low, high in lines:
            if kind > max(Kind) or codec > SQUEEZED or page + count > pages or name < PRESENCE or part < PLAIN:
                raise Corrupt("a block's list of columns cannot be")
            key = name, part, Kind(kind), codec, presence, values, low, high
            found.append(Column(*key, reader.bytes(meta), page, page + count))
            page += count
        self.devices: Final[Names] = reader.names(reader.ints("<u2", header.devices))
        self.names: Final[Names] = reader.names(reader.ints("<u2", header.names))
        reader.end()
        self._texts = [column for column in found if column.name == TEXTS]
        self._presences = [column for column in found if column.name == PRESENCE]
        self._stamps = [column for column in found if column.name in (TIMES, VERSIONS)]
        self.columns: Final = [column for column in found if column.name >= 0]
        self._known: dict[int, Codes] = {EVERY_ROW: np.arange(header.rows, dtype=np.int32)}
        self._chunks: dict[int, Any] = {}
        self._check(header, page)

    def _check(self, header: Header, pages: int) -> None:
        """The directory agrees with itself and with the header."""
        keys = [column[:3] for column in self.columns]
        wrong = [
            len(self._texts) != 1 or [column.name for column in self._stamps] != [TIMES, VERSIONS],
            self._page_bytes[-1] != header.size or pages != len(self._sums) or len(self.columns) != header.heads,
            self.offsets[-1] != header.rows or lengths(self.offsets).min() < 1,
            sum(column.values for column in self.columns) != header.values or sorted(set(keys)) != keys,
            any(column.values != header.rows for column in self._stamps),
        ]
        for column in (*self._stamps, *self.columns):
            present = self._rows if column.presence == EVERY_ROW else -1
            if 0 < column.presence <= len(self._presences):
                present = self._presences[column.presence - 1].values
            counted = int(self._page_values[column.last_page] - self._page_values[column.first_page])
            wrong.append(
                max(column.name, column.part) >= len(self.names)
                or not 0 < column.values == present <= self._rows
                or counted != (0 if column.codec == CONSTANT else column.values)
                or (column.codec != PCO and column.last_page - column.first_page != (column.codec != CONSTANT))
            )
        wrong += [
            column.codec != SQUEEZED or column.last_page - column.first_page != (column.values > 0)
            for column in (*self._texts, *self._presences)
        ]
        if any(wrong):
            raise Corrupt("a block's directory cannot be")

    def describe(self, column: Column) -> tuple[str, int, int]:
        """Its codec, how many values it has, and its bytes without its line in the directory."""
        pages = int(self._page_bytes[column.last_page] - self._page_bytes[column.first_page])
        return CODECS[column.codec], column.values, pages + len(column.meta)

    def may_have(self, column: Column, low: float, high: float) -> bool:
        """False: no value of the column is a number between these."""
        ends = np.array([column.low, column.high])
        least, greatest = ends.view(np.float64) if column.kind == Kind.NUMBER else ends
        return not (least > high or greatest < low)

    def read(self, spans: Sequence[tuple[int, int]], wanted: Sequence[Column]) -> Columns:
        """The rows of the spans, which are whole devices, with the wanted columns."""
        times, versions = (self._values(column, spans) for column in self._stamps)
        shared: dict[int, tuple[list[tuple[int, int]], Codes]] = {}
        heads = []
        for column in wanted:
            if column.presence not in shared:
                shared[column.presence] = self._present(column.presence, spans)
            within, rows = shared[column.presence]
            if len(rows):
                heads.append(Head(column.name, column.part, column.kind, rows, self._values(column, within)))
        texts = self._read_texts() if any(head.kind in CODED for head in heads) else Names.of(())
        if any(head.values.min() < 0 or head.values.max() >= len(texts) for head in heads if head.kind in CODED):
            raise Corrupt("a block's texts are not those of its values")
        ends = [(int(self.offsets.searchsorted(a)), int(self.offsets.searchsorted(b))) for a, b in spans]
        if len(ends) == 1:
            (a, b), first = ends[0], spans[0][0]
            devices, offsets = self.devices.between(a, b), self.offsets[a : b + 1] - first
        else:
            which = np.concatenate([np.arange(a, b) for a, b in ends])
            devices, offsets = self.devices.take(which), offsets_of(lengths(self.offsets)[which])
        return Columns(devices, offsets, times, versions, self.names, tuple(heads), texts)

    def _present(self, presence: int, spans: Sequence[tuple[int, int]]) -> tuple[list[tuple[int, int]], Codes]:
        """Where the values of the rows of the spans are, and the numbers that these rows get."""
        if presence not in self._known:
            column = self._presences[presence - 1]
            bits = np.frombuffer(self._unsqueezed(column), np.uint8)
            if len(bits) != (self._rows + 7) // 8:
                raise Corrupt("a block's list of rows cannot be")
            rows = np.flatnonzero(np.unpackbits(bits, count=self._rows, bitorder="little")).astype(np.int32)
            if len(rows) != column.values:
                raise Corrupt("a block's list of rows cannot be")
            self._known[presence] = rows
        rows = self._known[presence]
        within, pieces, before = [], [], 0
        for first, last in spans:
            a, b = (first, last) if presence == EVERY_ROW else np.searchsorted(rows, (first, last)).tolist()
            within.append((a, b))
            pieces.append(rows[a:b] - np.int32(first - before) if first != before else rows[a:b])
            before += last - first
        return within, np.concatenate(pieces) if len(pieces) > 1 else pieces[0]

    def _values(self, column: Column, spans: Sequence[tuple[int, int]]) -> Ints:
        """The values between these places, as words."""
        if column.codec == CONSTANT:
            return np.full(sum(b - a for a, b in spans), column.low, np.int64)
        if column.codec == PCO:
            return self._paged(column, spans)
        plain = self._unsqueezed(column)
        if column.codec == SQUEEZED:
            if len(plain) != 8 * column.values:
                raise Corrupt("a block's values are more or fewer than it says")
            values = np.frombuffer(plain, "<i8")
            return np.concatenate([values[a:b] for a, b in spans])
        reader = Reader(plain, 0, len(plain))
        count = int(reader.ints("<u4", 1)[0])
        ends, words = np.cumsum(reader.ints("<u4", count)), reader.ints("<i8", count)
        reader.end()
        if not rises(ends) or ends[-1] != column.values:
            raise Corrupt("a block's runs are more or fewer than it says")
        edges = [np.clip(ends, a, b) - a for a, b in spans]
        return np.concatenate([np.repeat(words, np.diff(edge, prepend=0)) for edge in edges])

    def _paged(self, column: Column, spans: Sequence[tuple[int, int]]) -> Ints:
        starts = self._page_values[column.first_page : column.last_page + 1] - self._page_values[column.first_page]
        ranges = [
            (int(starts.searchsorted(a, "right")) - 1, int(starts.searchsorted(b))) if a < b else (0, 0) for a, b in spans
        ]
        pages = sorted({page for first, last in ranges for page in range(first, last)})
        at = offsets_of(lengths(starts)[pages]).tolist()
        buffer = np.empty(at[-1], TYPES.get(column.kind, np.uint32))
        for i, page in enumerate(pages):
            self._decode(column, column.first_page + page, buffer[at[i] : at[i + 1]])
        place = dict(zip(pages, at, strict=False))
        pieces = [
            buffer[place[first] + a - starts[first] : place[first] + b - starts[first]]
            for (a, b), (first, last) in zip(spans, ranges, strict=True)
            if first < last
        ]
        values = pieces[0] if len(pieces) == 1 else np.concatenate([*pieces, buffer[:0]])
        return values.view(np.int64) if column.kind in TYPES else values.astype(np.int64)

    def _decode(self, column: Column, page: int, into: Any) -> None:
        data = self._page(page)
        try:
            chunk = self._chunks.get(column.first_page)
            if chunk is None:
                kind = "f64" if column.kind == Kind.NUMBER else "i64" if column.kind == Kind.INTEGER else "u32"
                chunk, _ = self._file.chunk_decompressor(column.meta, kind)
                self._chunks[column.first_page] = chunk
            progress, used = chunk.read_page_into(data, len(into), into)
        except BaseException as error:
            if _is_panic(error) or isinstance(error, RuntimeError):
                raise Corrupt(f"a page of a block cannot be read: {error}") from None
            raise
        if progress.n_processed != len(into) or used != len(data):
            raise Corrupt("a page of a block has more or fewer values than it says")

    def _page(self, page: int) -> bytes:
        begin, end = self._page_bytes[page : page + 2].tolist()
        data = self._data[begin:end]
        if crc32(data) != self._sums[page]:
            raise Corrupt("the checksum of a page of a block does not fit")
        return data

    def _unsqueezed(self, column: Column) -> bytes:
        return unsqueezed(self._page(column.first_page)) if column.values else b""

    def _read_texts(self) -> Names:
        column = self._texts[0]
        plain = self._unsqueezed(column)
        reader = Reader(plain, 0, len(plain))
        texts = reader.names(reader.ints("<u4", column.values))
        reader.end()
        return texts


def _opened(header: bytes) -> tuple[Any, int]:
    try:
        found: tuple[Any, int] = FileDecompressor.new(header)
    except RuntimeError as error:
        raise Corrupt(f"a block's numbers cannot be read: {error}: was it written by a newer release?") from error
    return found


def _is_panic(error: BaseException) -> bool:
    """Whether pcodec gave up: what it raises then is no `Exception`, and has no name to import."""
    return type(error).__name__ == "PanicException"
