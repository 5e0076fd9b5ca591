"""ReadRows answers, read by a kernel: which cells of which rows there are, as columns that point into the bytes.

Answers of several requests can be read as one: a repeated field that is given in two pieces is one field.
The rows of an answer are whole. A server may cut a large value into chunks, or take a row back and send it again; both are
rare and are put right by the generated classes before the kernel reads the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from google.cloud.bigtable_v2 import types as bigtable
from google.protobuf.message import DecodeError

from widerow.engine.bigtable.families import NAMES
from widerow.engine.bigtable.wire import varint_at
from widerow.model.arrays import PAD, Bytes, Codes, Ints
from widerow.model.errors import Corrupt
from widerow.model.hashing import same_at
from widerow.model.intern import coded_slices, slices
from widerow.model.kernel import kernel
from widerow.model.names import Coded, Names

_FAMILIES = Names.of(NAMES)
_UNKNOWN = len(NAMES)
"""The family of cells that are not ours."""

_WHOLE, _MEND, _BROKEN = 0, 1, 2


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """Rows as they were sent: in key order for each request. Row i has the cells `offsets[i]:offsets[i + 1]`."""

    data: Bytes
    keys: Names
    offsets: Ints
    family: Ints
    """Codes into `families.NAMES`."""
    qualifier: Codes
    qualifiers: Names
    timestamp_us: Ints
    value: Ints
    """Where in `data` each value begins."""
    value_bytes: Ints

    def __len__(self) -> int:
        return len(self.keys)

    def values(self, cells: Ints) -> list[bytes]:
        return slices(self.data, self.value[cells], self.value_bytes[cells]).to_bytes_list()

    def texts(self, cells: Ints) -> Coded:
        return coded_slices(self.data, self.value[cells], self.value_bytes[cells])


def read_page(answer: bytes) -> Page:
    """What an answer, or several put together, holds."""
    data = np.frombuffer(answer + bytes(PAD), np.uint8)
    size = len(answer)
    rows, chunks, state = _count(data, size)
    if state == _MEND:
        return read_page(_mended(answer))
    if state == _WHOLE:
        key, key_bytes, first = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows + 1, np.int64)
        family, timestamp_us = np.empty(chunks, np.int64), np.empty(chunks, np.int64)
        qualifier, qualifier_bytes = np.empty(chunks, np.int64), np.empty(chunks, np.int64)
        value, value_bytes = np.empty(chunks, np.int64), np.empty(chunks, np.int64)
        known = _FAMILIES.data, _FAMILIES.offsets
        state = _fill(
            data, size, *known, key, key_bytes, first, family, qualifier, qualifier_bytes, timestamp_us, value, value_bytes
        )
    if state != _WHOLE:
        raise Corrupt("an answer of Bigtable cannot be read")
    keys, names = slices(data, key, key_bytes), coded_slices(data, qualifier, qualifier_bytes)
    return Page(data, keys, first, family, names.codes, names.names, timestamp_us, value, value_bytes)


def _mended(answer: bytes) -> bytes:
    """The same rows without cut values and without what was taken back."""
    try:
        got = bigtable.ReadRowsResponse.deserialize(answer)
    except DecodeError as error:
        raise Corrupt(f"an answer of Bigtable cannot be read: {error}") from None
    whole: list[bigtable.ReadRowsResponse.CellChunk] = []
    committed, goes_on = 0, False
    for chunk in got.chunks:
        if chunk.reset_row:
            del whole[committed:]
            goes_on = False
            continue
        if goes_on:
            whole[-1].value += chunk.value
            whole[-1].commit_row = chunk.commit_row
        else:
            whole.append(chunk)
        goes_on = chunk.value_size > 0
        whole[-1].value_size = 0
        if chunk.commit_row:
            committed = len(whole)
    if committed < len(whole):
        raise Corrupt("an answer of Bigtable ends within a row")
    return bytes(bigtable.ReadRowsResponse.serialize(bigtable.ReadRowsResponse(chunks=whole)))


@kernel
def _count(data: Bytes, size: int) -> tuple[int, int, int]:
    """How many rows and cells there are, and whether they can be read as they are."""
    rows = 0
    chunks = 0
    p = 0
    while p < size:
        tag, p = varint_at(data, p, size)
        if p < 0 or tag & 7 != 2:
            return 0, 0, _BROKEN
        length, p = varint_at(data, p, size)
        if p < 0 or length < 0 or p + length > size:
            return 0, 0, _BROKEN
        if tag == 0x0A:
            chunks += 1
            q, stop = p, p + length
            while q < stop:
                inner, q = varint_at(data, q, stop)
                if q < 0:
                    return 0, 0, _BROKEN
                number, q = varint_at(data, q, stop)
                if q < 0:
                    return 0, 0, _BROKEN
                if inner & 7 == 2:
                    if number < 0 or q + number > stop:
                        return 0, 0, _BROKEN
                    q += number
                elif inner & 7 != 0:
                    return 0, 0, _BROKEN
                if inner == 0x48 and number:
                    rows += 1
                if (inner in (0x38, 0x40)) and number:
                    return 0, 0, _MEND
        p += length
    return rows, chunks, _WHOLE


@kernel
def _fill(
    data: Bytes,
    size: int,
    names: Bytes,
    name_offsets: Ints,
    key: Ints,
    key_bytes: Ints,
    first: Ints,
    family: Ints,
    qualifier: Ints,
    qualifier_bytes: Ints,
    timestamp_us: Ints,
    value: Ints,
    value_bytes: Ints,
) -> int:
    base = data.ctypes.data
    row = 0
    cell = 0
    begins = True
    code = len(name_offsets) - 1
    at = 0
    at_bytes = 0
    ts = 0
    p = 0
    first[0] = 0
    while p < size:
        tag, p = varint_at(data, p, size)
        length, p = varint_at(data, p, size)
        stop = p + length
        if tag != 0x0A:  # how far the server has looked, or statistics
            p = stop
            continue
        value[cell] = p
        value_bytes[cell] = 0
        commits = False
        ts = 0
        while p < stop:
            inner, p = varint_at(data, p, stop)
            number, p = varint_at(data, p, stop)
            if inner == 0x0A and number > 0:  # given with each chunk, or with the first of a row
                if row >= len(key) or not (
                    begins or (key_bytes[row] == number and same_at(base + key[row], base + p, number))
                ):
                    return _BROKEN
                begins = False
                key[row] = p
                key_bytes[row] = number
            elif inner in (0x12, 0x1A):  # the name inside its wrapper: a message whose only field is the text
                q, text, text_bytes = p, p, 0
                if number > 0:
                    _, q = varint_at(data, q, stop)
                    text_bytes, text = varint_at(data, q, stop)
                    if text < 0 or text_bytes < 0 or text + text_bytes > stop:
                        return _BROKEN
                if inner == 0x1A:
                    at, at_bytes = text, text_bytes
                else:
                    code = len(name_offsets) - 1
                    for k in range(len(name_offsets) - 1):
                        size_k = name_offsets[k + 1] - name_offsets[k]
                        if size_k == text_bytes and same_at(names.ctypes.data + name_offsets[k], base + text, size_k):
                            code = k
            elif inner == 0x20:
                ts = number
            elif inner == 0x32:
                value[cell] = p
                value_bytes[cell] = number
            elif inner == 0x48:
                commits = number != 0
            if inner & 7 == 2:
                p += number
        if begins or p != stop:
            return _BROKEN
        family[cell] = code
        qualifier[cell] = at
        qualifier_bytes[cell] = at_bytes
        timestamp_us[cell] = ts
        cell += 1
        if commits:
            row += 1
            first[row] = cell
            begins = True
    return _WHOLE if begins and row == len(key) else _BROKEN
