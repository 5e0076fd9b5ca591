"""Keys whose byte order is the order of the tuples they stand for.

Text: its UTF-8 bytes, 0x00 written as 0x00 0xFF, closed by 0x00 0x00, so that a name never runs into its neighbour.
Ints: a byte that tells sign and length, then the magnitude, big-endian; small numbers are short.
Descending columns: the same bytes, inverted. Every part is prefix-free, so no partition is a prefix of another.
The layout is stored: see docs/format/rocksdb.md before changing a byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from widerow.engine.rows import Column, Key, key_columns
from widerow.model.arrays import PAD, Bytes, Codes, Ints, lengths
from widerow.model.kernel import inlined, kernel
from widerow.model.names import Coded, Names
from widerow.schema.table import KeyColumn, Table

_MANY = 16
"""From so many keys on, arrays are worth their overhead."""


@dataclass(frozen=True, slots=True)
class Strings:
    """Byte strings in one buffer, being made or read; string i is `data[offsets[i]:offsets[i + 1]]`."""

    data: Bytes
    offsets: Ints

    @classmethod
    def of(cls, parts: Sequence[bytes]) -> Strings:
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.fromiter(map(len, parts), np.int64, len(parts)).cumsum(out=offsets[1:])
        return cls(np.frombuffer(b"".join((*parts, bytes(PAD))), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def part(self, start: int, stop: int) -> Strings:
        """The strings from one up to another."""
        first = int(self.offsets[start])
        return Strings(self.data[first:], self.offsets[start : stop + 1] - first)

    def to_list(self) -> list[bytes]:
        """As Python objects. Strings of one length, the usual case, take a fifth of the time."""
        n = len(self)
        length = int(self.offsets[1]) if n else 0
        if n and length and self.offsets[-1] == n * length and (lengths(self.offsets) == length).all():
            view: list[bytes] = self.data[: n * length].view(f"V{length}").tolist()
            return view
        text, cuts = self.data.tobytes(), self.offsets.tolist()
        return [text[a:b] for a, b in pairwise(cuts)]


def encode_keys(columns: Sequence[KeyColumn], values: Mapping[str, Column], n: int) -> Strings:
    """The key of each row."""
    return _encode_keys(columns, values, n, gap_after=len(columns), gap=0)[0]


def encode_row_keys(table: Table, values: Mapping[str, Column], n: int, spare: int) -> tuple[Strings, Ints]:
    """The key of each row with a byte left free behind the partition and `spare` bytes at its end.

    Also gives where in the buffer each partition's prefix ends.
    """
    return _encode_keys(table.key, values, n, gap_after=len(table.partition), gap=1, spare=spare)


def _encode_keys(
    columns: Sequence[KeyColumn], values: Mapping[str, Column], n: int, *, gap_after: int, gap: int, spare: int = 0
) -> tuple[Strings, Ints]:
    sizes = np.full(n, gap + spare, np.int64)
    texts: dict[str, Strings] = {}
    for column in columns:
        value = values[column.name]
        if isinstance(value, Coded):
            texts[column.name] = _escape(value.names)
            sizes += lengths(texts[column.name].offsets)[value.codes]
        else:
            _add_int_lengths(value, sizes)
    offsets = np.zeros(n + 1, np.int64)
    sizes.cumsum(out=offsets[1:])
    data = np.empty(int(offsets[-1]) + PAD, np.uint8)
    position = offsets[:-1].copy()
    prefix_end = position
    for k, column in enumerate(columns):
        value = values[column.name]
        flip = 0xFF if column.descending else 0
        if isinstance(value, Coded):
            escaped = texts[column.name]
            _put_texts(escaped.data, escaped.offsets, value.codes, flip, data, position)
        else:
            _put_ints(value, flip, data, position)
        if k + 1 == gap_after and gap:
            prefix_end = position.copy()
            position += gap
    return Strings(data, offsets), prefix_end


def encode_key(columns: Sequence[KeyColumn], key: Key) -> bytes:
    """One key, or the start of one: as many columns as `key` has values."""
    return b"".join(encode_part(column, value) for column, value in zip(columns, key, strict=False))


def encode_all(columns: Sequence[KeyColumn], keys: Sequence[Key]) -> list[bytes]:
    """`encode_key` of each. Many at once cost a quarter of what they cost one by one."""
    if len(keys) < _MANY or not columns:
        return [encode_key(columns, key) for key in keys]
    return encode_keys(columns, key_columns(columns, keys), len(keys)).to_list()


def encode_part(column: KeyColumn, value: str | int) -> bytes:
    if column.type == "text":
        part = str(value).encode().replace(b"\0", b"\0\xff") + b"\0\0"
    else:
        number = int(value)
        magnitude = number if number >= 0 else ~number
        length = (magnitude.bit_length() + 7) // 8
        part = bytes([0x80 + length]) + magnitude.to_bytes(length, "big")
        if number < 0:
            part = _inverted(part)
    return _inverted(part) if column.descending else part


def decode_keys(columns: Sequence[KeyColumn], keys: Strings, position: Ints) -> dict[str, Column]:
    """The columns that start at each position in the keys' buffer; `position` moves behind them."""
    out: dict[str, Column] = {}
    for column in columns:
        flip = 0xFF if column.descending else 0
        if column.type == "text":
            offsets = np.zeros(len(position) + 1, np.int64)
            _text_lengths(keys.data, position, flip, offsets)
            np.cumsum(offsets, out=offsets)
            data = np.zeros(offsets[-1] + PAD, np.uint8)
            _take_texts(keys.data, position, flip, data, offsets)
            out[column.name] = Coded(Names(data, offsets), np.arange(len(position), dtype=np.int32))
        else:
            values = np.empty(len(position), np.int64)
            _take_ints(keys.data, position, flip, values)
            out[column.name] = values
    return out


def _inverted(part: bytes) -> bytes:
    return bytes(b ^ 0xFF for b in part)


def _escape(names: Names) -> Strings:
    zeros = int(np.count_nonzero(names.data[: names.offsets[-1]] == 0))
    data = np.empty(int(names.offsets[-1]) + zeros + 2 * len(names) + PAD, np.uint8)
    offsets = np.zeros(len(names) + 1, np.int64)
    _escape_all(names.data, names.offsets, data, offsets)
    return Strings(data, offsets)


@kernel
def _escape_all(text: Bytes, starts: Ints, out: Bytes, offsets: Ints) -> None:
    p = 0
    for i in range(len(starts) - 1):
        for k in range(starts[i], starts[i + 1]):
            out[p] = text[k]
            p += 1
            if text[k] == 0:
                out[p] = 0xFF
                p += 1
        out[p] = 0
        out[p + 1] = 0
        p += 2
        offsets[i + 1] = p


@inlined
def _int_length(value: Any) -> Any:
    magnitude = np.uint64(value if value >= 0 else ~value)
    length = 0
    while magnitude > np.uint64(0):
        magnitude >>= np.uint64(8)
        length += 1
    return length


@kernel
def _add_int_lengths(values: Ints, lengths: Ints) -> None:
    for i in range(len(values)):
        lengths[i] += 1 + _int_length(values[i])


@kernel
def _put_ints(values: Ints, flip: int, out: Bytes, position: Ints) -> None:
    for i in range(len(values)):
        value = values[i]
        length = _int_length(value)
        invert = np.uint8(flip ^ (0 if value >= 0 else 0xFF))
        magnitude = np.uint64(value if value >= 0 else ~value)
        p = position[i]
        out[p] = np.uint8(0x80 + length) ^ invert
        for k in range(length, 0, -1):
            out[p + k] = np.uint8(magnitude & np.uint64(0xFF)) ^ invert
            magnitude >>= np.uint64(8)
        position[i] = p + 1 + length


@kernel
def _put_texts(text: Bytes, starts: Ints, codes: Codes, flip: int, out: Bytes, position: Ints) -> None:
    invert = np.uint8(flip)
    for i in range(len(codes)):
        p = position[i]
        for k in range(starts[codes[i]], starts[codes[i] + 1]):
            out[p] = text[k] ^ invert
            p += 1
        position[i] = p


@kernel
def _take_ints(data: Bytes, position: Ints, flip: int, out: Ints) -> None:
    for i in range(len(out)):
        p = position[i]
        head = data[p] ^ np.uint8(flip)
        negative = head < 0x80
        invert = np.uint8(flip ^ (0xFF if negative else 0))
        length = np.int64(data[p] ^ invert) - 0x80
        magnitude = np.uint64(0)
        for k in range(length):
            magnitude = (magnitude << np.uint64(8)) | np.uint64(data[p + 1 + k] ^ invert)
        out[i] = ~np.int64(magnitude) if negative else np.int64(magnitude)
        position[i] = p + 1 + length


@kernel
def _text_lengths(data: Bytes, position: Ints, flip: int, offsets: Ints) -> None:
    """Decoded length of the text at each position, into offsets[1:]."""
    invert = np.uint8(flip)
    for i in range(len(position)):
        p = position[i]
        length = 0
        while True:
            if data[p] ^ invert == 0:
                if data[p + 1] ^ invert == 0:
                    break
                p += 1
            p += 1
            length += 1
        offsets[i + 1] = length


@kernel
def _take_texts(data: Bytes, position: Ints, flip: int, out: Bytes, offsets: Ints) -> None:
    invert = np.uint8(flip)
    for i in range(len(position)):
        p = position[i]
        for k in range(offsets[i], offsets[i + 1]):
            out[k] = data[p] ^ invert
            p += 2 if out[k] == 0 else 1
        position[i] = p + 2


def split_key(columns: Sequence[KeyColumn], key: bytes) -> tuple[Key, int]:
    """The values of ascending columns at the start of one key, and where they end."""
    values: list[str | int] = []
    p = 0
    for column in columns:
        if column.type == "text":
            stop = p
            while key[stop : stop + 2] != b"\0\0":
                stop += 2 if key[stop] == 0 else 1
            values.append(key[p:stop].replace(b"\0\xff", b"\0").decode())
            p = stop + 2
        else:
            negative = key[p] < 0x80
            length = (key[p] ^ (0xFF if negative else 0)) - 0x80
            part = key[p + 1 : p + 1 + length]
            values.append(~int.from_bytes(_inverted(part), "big") if negative else int.from_bytes(part, "big"))
            p += 1 + length
    return tuple(values), p
