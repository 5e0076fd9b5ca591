"""Values: the cells of a row as bytes.

A sparse row is stored as its values alone; which names, kinds and tags they have (its shape) stands once per partition,
under the shape's hash, which is part of the row's key. A device that always reports the same metrics has one shape, so a
report of ten numbers is 5 + 80 bytes. Tags are part of the shape: a tag that does not change costs a row nothing.
A fixed row carries its version and which of the table's columns it has.
The layout is stored: see docs/format/rocksdb.md before changing a byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from widerow.engine.rocksdb.keys import Strings
from widerow.engine.rows import NEVER
from widerow.model.arrays import PAD, Bytes, Codes, Flags, Hashes, Ints, lengths
from widerow.model.batch import CellKind, Cells
from widerow.model.errors import Corrupt
from widerow.model.hashing import SEED, hash_names, mix
from widerow.model.kernel import kernel
from widerow.model.machine import copy_bytes, peek64
from widerow.model.names import Names
from widerow.model.times import SECOND

SPARSE_FORMAT = 1
FIXED_FORMAT = 2
SHAPE_FORMAT = 1
HEADER = 5
"""Of every value: the format, one byte, and the second it expires in, four (0: never)."""
FIXED_HEAD = 16
"""Behind the header of a fixed row: its version and its column mask, eight bytes each."""
_TAG = int(CellKind.TAG)
_NUMBER = int(CellKind.NUMBER)


class Wanted(Protocol):
    """The names of the cells that a scan wants."""

    def __contains__(self, name: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def isdisjoint(self, names: Iterable[bytes], /) -> bool: ...


def expire_seconds(expire_us: Ints) -> Ints:
    """Whole seconds, rounded up; 0 for never. Seconds that four bytes cannot hold (the year 2106) are never, too."""
    seconds = (np.clip(expire_us, 0, NEVER - SECOND) + SECOND - 1) // SECOND
    return np.where(seconds > 0xFFFFFFFF, 0, np.maximum(seconds, 1))


def shape_hashes(cells: Cells) -> Hashes:
    """For each row the hash of its shape: names and kinds in order, and the content of tags."""
    out = np.empty(len(cells.offsets) - 1, np.uint64)
    _shape_hashes(cells.offsets, cells.name, cells.kind, cells.text, hash_names(cells.names), hash_names(cells.texts), out)
    return out


@kernel
def _shape_hashes(
    offsets: Ints, name: Codes, kind: Bytes, text: Codes, name_hash: Hashes, text_hash: Hashes, out: Hashes
) -> None:
    for i in range(len(out)):
        h = SEED
        for c in range(offsets[i], offsets[i + 1]):
            h = mix(h, name_hash[name[c]] + np.uint64(kind[c]))
            if kind[c] == _TAG:
                h = mix(h, text_hash[text[c]])
        out[i] = h


def encode_shape(cells: Cells, row: int) -> bytes:
    """The shape of one row: what its hash stands for."""
    parts = [SHAPE_FORMAT.to_bytes(1)]
    for c in range(int(cells.offsets[row]), int(cells.offsets[row + 1])):
        name = cells.names.bytes_at(int(cells.name[c]))
        parts += [int(cells.kind[c]).to_bytes(1), len(name).to_bytes(2, "little"), name]
        if cells.kind[c] == _TAG:
            content = cells.texts.bytes_at(int(cells.text[c]))
            parts += [len(content).to_bytes(4, "little"), content]
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Shape:
    """Names and kinds of a row's cells in order, and the content of its tags."""

    names: tuple[bytes, ...]
    kinds: tuple[int, ...]
    tags: tuple[bytes, ...]
    """One per cell; empty for cells that are no tags."""


def decode_shape(stored: bytes) -> Shape:
    if stored[:1] != SHAPE_FORMAT.to_bytes(1):
        raise Corrupt(f"a shape of format {stored[:1].hex()} is not known here: was the store written by a newer release?")
    names, kinds, tags = [], [], []
    p = 1
    while p < len(stored):
        kind, length = stored[p], int.from_bytes(stored[p + 1 : p + 3], "little")
        p += 3
        names.append(stored[p : p + length])
        kinds.append(kind)
        p += length
        content = b""
        if kind == _TAG:
            length = int.from_bytes(stored[p : p + 4], "little")
            content = stored[p + 4 : p + 4 + length]
            p += 4 + length
        tags.append(content)
    return Shape(tuple(names), tuple(kinds), tuple(tags))


def encode_sparse(cells: Cells, expire_us: Ints) -> Strings:
    """The value of each row."""
    return _encode(cells, SPARSE_FORMAT, expire_seconds(expire_us), 0, np.zeros(0, np.uint64))


def encode_fixed(cells: Cells, expire_us: Ints, version_us: Ints, masks: Hashes) -> Strings:
    """The value of each row, whose cells must stand in the order of the table's columns. `masks`: see `column_masks`."""
    heads = np.stack([version_us.astype(np.uint64), masks], axis=1).reshape(-1)
    return _encode(cells, FIXED_FORMAT, expire_seconds(expire_us), FIXED_HEAD // 8, heads)


def column_masks(cells: Cells, ordinal: Codes) -> Hashes:
    """For each row: bit k, it has column k; bit 32 + k, as text. `ordinal` is the column of each cell."""
    bits = np.uint64(1) << ordinal.astype(np.uint64)
    bits |= np.where(cells.kind == _NUMBER, np.uint64(0), bits << np.uint64(32))
    masks = np.zeros(len(cells.offsets) - 1, np.uint64)
    np.bitwise_or.at(masks, cells.rows(), bits)
    return masks


def mask_shape(columns: Sequence[str], mask: int) -> Shape:
    """The shape that a mask of `column_masks` stands for."""
    present = [k for k in range(32) if mask >> k & 1]
    if present and present[-1] >= len(columns):
        raise Corrupt(f"a row has column {present[-1]}, but only {len(columns)} are declared: written by a newer release?")
    kinds = tuple(int(CellKind.TEXT) if mask >> (32 + k) & 1 else _NUMBER for k in present)
    return Shape(tuple(columns[k].encode() for k in present), kinds, (b"",) * len(present))


def _encode(cells: Cells, form: int, expire_s: Ints, head_words: int, heads: Hashes) -> Strings:
    offsets = np.zeros(len(cells.offsets), np.int64)
    base = HEADER + 8 * head_words
    text_offsets = cells.texts.offsets
    _value_lengths(cells.offsets, cells.kind, cells.text, text_offsets, base, offsets)
    np.cumsum(offsets, out=offsets)
    out = np.empty(offsets[-1] + PAD, np.uint8)
    _put_values(
        cells.offsets,
        cells.kind,
        cells.number.view(np.uint64),
        cells.text,
        cells.texts.data,
        text_offsets,
        np.ascontiguousarray(expire_s),
        form,
        heads,
        head_words,
        out,
        offsets,
    )
    return Strings(out, offsets)


@kernel
def _value_lengths(offsets: Ints, kind: Bytes, text: Codes, text_offsets: Ints, base: int, out: Ints) -> None:
    for i in range(len(offsets) - 1):
        length = base
        for c in range(offsets[i], offsets[i + 1]):
            if kind[c] == _NUMBER:
                length += 8
            elif kind[c] != _TAG:
                length += 4 + text_offsets[text[c] + 1] - text_offsets[text[c]]
        out[i + 1] = length


@kernel
def _put_values(
    offsets: Ints,
    kind: Bytes,
    number: Hashes,
    text: Codes,
    texts: Bytes,
    text_offsets: Ints,
    expire_s: Ints,
    form: int,
    heads: Hashes,
    head_words: int,
    out: Bytes,
    starts: Ints,
) -> None:
    for i in range(len(offsets) - 1):
        p = starts[i]
        out[p] = form
        for k in range(4):
            out[p + 1 + k] = np.uint8((expire_s[i] >> (8 * k)) & 0xFF)
        p += 5
        for w in range(head_words):
            word = heads[i * head_words + w]
            for k in range(8):
                out[p + k] = np.uint8((word >> np.uint64(8 * k)) & np.uint64(0xFF))
            p += 8
        for c in range(offsets[i], offsets[i + 1]):
            if kind[c] == _NUMBER:
                word = number[c]
                for k in range(8):
                    out[p + k] = np.uint8((word >> np.uint64(8 * k)) & np.uint64(0xFF))
                p += 8
        for c in range(offsets[i], offsets[i + 1]):
            if kind[c] != _NUMBER and kind[c] != _TAG:
                a, b = text_offsets[text[c]], text_offsets[text[c] + 1]
                for k in range(4):
                    out[p + k] = np.uint8(((b - a) >> (8 * k)) & 0xFF)
                p += 4
                for k in range(a, b):
                    out[p] = texts[k]
                    p += 1


@kernel
def value_expiry(data: Bytes, starts: Ints, form: int, out: Ints) -> int:
    """The second each value expires in (0: never), and how many are not of the expected format."""
    strange = 0
    base = data.ctypes.data
    for i in range(len(out)):
        word = peek64(base + starts[i])
        strange += np.int64(word & np.uint64(0xFF)) != form
        out[i] = np.int64((word >> np.uint64(8)) & np.uint64(0xFFFFFFFF))
    return strange


@kernel
def fixed_heads(data: Bytes, starts: Ints, version_us: Ints, mask: Hashes) -> None:
    """Version and column mask of fixed rows."""
    base = data.ctypes.data
    for i in range(len(version_us)):
        version_us[i] = np.int64(peek64(base + starts[i] + HEADER))
        mask[i] = peek64(base + starts[i] + HEADER + 8)


def decode_cells(values: Strings, skip: int, row_shape: Codes, shapes: ShapeTable, wanted: Wanted | None = None) -> Cells:
    """The cells of each row (with a wanted name), given its shape; `skip` bytes stand before the values."""
    picked, cell_counts, text_counts = shapes.wanted(wanted)
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(cell_counts[row_shape], out=offsets[1:])
    c = int(offsets[-1])
    name, kind = np.empty(c, np.int32), np.empty(c, np.uint8)
    number, text = np.empty(c, np.float64), np.full(c, -1, np.int32)
    many = int(text_counts[row_shape].sum()) if shapes.has_texts else 0
    spans = np.empty((many, 2), np.int64)
    broken = _take_cells(
        values.data,
        values.offsets,
        skip,
        row_shape,
        shapes.starts,
        shapes.name,
        shapes.kind,
        shapes.tag,
        picked,
        len(shapes.tag_texts),
        offsets,
        name,
        kind,
        number.view(np.uint64),
        text,
        spans,
    )
    if broken:
        raise Corrupt(f"{broken} stored rows do not have the length their shape calls for")
    texts = shapes.no_texts
    if many:
        texts = _texts_at(shapes.no_texts, values.data, spans)
    return Cells(offsets, shapes.names, name, kind, number, texts, text)


def _texts_at(known: Names, data: Bytes, spans: Ints) -> Names:
    """The known texts, then those that stand in the spans of the data."""
    offsets = np.empty(len(known) + len(spans) + 1, np.int64)
    offsets[: len(known) + 1] = known.offsets
    np.cumsum(spans[:, 1] - spans[:, 0], out=offsets[len(known) + 1 :])
    offsets[len(known) + 1 :] += known.offsets[-1]
    text = np.empty(int(offsets[-1]) + PAD, np.uint8)
    text[: known.offsets[-1]] = known.data[: known.offsets[-1]]
    text[offsets[-1] :] = 0
    _copy_spans(data, spans, text, int(known.offsets[-1]))
    return Names(text, offsets)


@kernel
def _copy_spans(data: Bytes, spans: Ints, out: Bytes, at: int) -> None:
    """By words: both have a few bytes behind their end."""
    source, target = data.ctypes.data, out.ctypes.data
    for i in range(len(spans)):
        length = spans[i, 1] - spans[i, 0]
        if length:
            copy_bytes(target + at, source + spans[i, 0], length)
            at += length


class ShapeTable:
    """The shapes of one chunk as arrays, with one dictionary of names."""

    def __init__(self, shapes: list[Shape]) -> None:
        names: dict[bytes, int] = {}
        tags: dict[bytes, int] = {}
        name, kind, tag, starts = [], [], [], [0]
        for shape in shapes:
            for n, k, content in zip(shape.names, shape.kinds, shape.tags, strict=True):
                name.append(names.setdefault(n, len(names)))
                kind.append(k)
                tag.append(tags.setdefault(content, len(tags)) if k == _TAG else -1)
            starts.append(len(name))
        self.names = Names.of_bytes(list(names))
        self.name = np.array(name, np.int32)
        self.kind = np.array(kind, np.uint8)
        self.tag = np.array(tag, np.int32)
        self.starts = np.array(starts, np.int64)
        self.tag_texts = list(tags)
        self.cell_counts = lengths(self.starts)
        self.repeats = any(
            len(s.names) != len({(n, k == _TAG) for n, k in zip(s.names, s.kinds, strict=True)}) for s in shapes
        )
        """Whether a row may hold a cell twice."""
        self.text_counts = np.array([sum(k not in (_NUMBER, _TAG) for k in shape.kinds) for shape in shapes], np.int64)
        self.has_texts = bool(self.text_counts.any())
        self._all = np.ones(len(name), np.bool_)
        self.no_texts = Names.of_bytes(self.tag_texts)
        """The texts of rows that have no others than their tags."""

    def wanted(self, names: Wanted | None) -> tuple[Flags, Ints, Ints]:
        """Which cells of the shapes have one of the names; and of each shape how many, and how many of these are texts."""
        if names is None:
            return self._all, self.cell_counts, self.text_counts
        picked = np.array([name in names for name in self.names.to_bytes_list()], np.bool_)[self.name]
        texts = picked & (self.kind != _NUMBER) & (self.kind != _TAG)
        return picked, _counted(picked, self.starts), _counted(texts, self.starts)


def _counted(flags: Flags, starts: Ints) -> Ints:
    """How many are set between each two starts."""
    sums = np.zeros(len(flags) + 1, np.int64)
    np.cumsum(flags, out=sums[1:])
    counts: Ints = sums[starts[1:]] - sums[starts[:-1]]
    return counts


@kernel
def _take_cells(
    data: Bytes,
    starts: Ints,
    skip: int,
    row_shape: Codes,
    shape_starts: Ints,
    shape_name: Codes,
    shape_kind: Bytes,
    shape_tag: Codes,
    picked: Flags,
    first_text: int,
    offsets: Ints,
    name: Codes,
    kind: Bytes,
    number: Hashes,
    text: Codes,
    spans: Ints,
) -> int:
    base = data.ctypes.data
    t = 0
    broken = 0
    for i in range(len(row_shape)):
        p, stop = starts[i] + skip, starts[i + 1]
        a, b, c = shape_starts[row_shape[i]], shape_starts[row_shape[i] + 1], offsets[i]
        has_texts = False
        for s in range(a, b):
            is_number = shape_kind[s] == _NUMBER
            if picked[s]:
                name[c] = shape_name[s]
                kind[c] = shape_kind[s]
                if is_number:
                    number[c] = peek64(base + p) if p + 8 <= stop else np.uint64(0)
                else:
                    number[c] = np.uint64(0x7FF8000000000000)
                    text[c] = shape_tag[s]
                c += 1
            if is_number:
                p += 8
            else:
                has_texts |= shape_kind[s] != _TAG
        if has_texts:
            c = offsets[i]
            for s in range(a, b):
                if shape_kind[s] != _NUMBER and shape_kind[s] != _TAG:
                    length = np.int64(peek64(base + p) & np.uint64(0xFFFFFFFF)) if p + 4 <= stop else 0
                    if p + 4 + length > stop:
                        length = 0
                    if picked[s]:
                        spans[t, 0] = p + 4
                        spans[t, 1] = p + 4 + length
                        text[c] = first_text + t
                        t += 1
                    p += 4 + length
                if picked[s]:
                    c += 1
        broken += p != stop
    return broken
