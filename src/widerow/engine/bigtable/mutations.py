"""Rows as the entries of MutateRows requests: bytes, ready to send.

Rule 1: an entry sets or deletes cells of one row with explicit timestamps, so sending it twice changes nothing.
Rule 2: cells of sparse rows are encoded by kernels; no Python runs per cell. Fixed rows are few and are encoded one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from widerow.engine.bigtable.families import EXPIRES, KEPT, NAMES
from widerow.engine.bigtable.wire import copy_bytes, field, number, put_varint, varint_length
from widerow.model.arrays import PAD, Bytes, Codes, Flags, Hashes, Ints
from widerow.model.batch import CellKind, Cells
from widerow.model.kernel import inlined, kernel
from widerow.model.machine import poke8
from widerow.model.names import Names

MAX_MUTATIONS = 100_000
"""What Bigtable takes in one request."""
REQUEST_BYTES = 2 << 20
"""Where a request is cut: large enough that its fixed cost vanishes, small enough that several are under way."""

NEVER_S, DEFAULT_S = -1, -2
"""An expiry that is never, and one that is what the table says, which is not stored."""

_KINDS = len(CellKind)
_NUMBER = int(CellKind.NUMBER)


# -- mutations, one by one


def set_cell(family: str, qualifier: bytes, timestamp_us: int, value: bytes) -> bytes:
    cell = field(1, family.encode()) + field(2, qualifier) + number(3, timestamp_us) + field(4, value)
    return field(1, cell)


def delete_column(family: str, qualifier: bytes, stop_us: int) -> bytes:
    """All versions before `stop_us`."""
    return field(2, field(1, family.encode()) + field(2, qualifier) + field(3, number(2, stop_us)))


def delete_family(family: str) -> bytes:
    return field(3, field(1, family.encode()))


DELETE_ROW = field(4, b"")


def entry(row_key: bytes, mutations: Sequence[bytes]) -> bytes:
    return field(2, field(1, row_key) + b"".join(field(2, mutation) for mutation in mutations))


def expiry_text(expire_s: int) -> bytes:
    return b"never" if expire_s == NEVER_S else b"%d" % expire_s


# -- cells of many rows


def requests(entries: Names, mutations: Ints) -> Iterator[Names]:
    """Entries cut into requests, by bytes and by mutations; `mutations` has how many each entry holds."""
    total = np.zeros(len(entries) + 1, np.int64)
    np.cumsum(mutations, out=total[1:])
    start = 0
    while start < len(entries):
        by_bytes = np.searchsorted(entries.offsets, entries.offsets[start] + REQUEST_BYTES, side="right") - 1
        by_count = np.searchsorted(total, total[start] + MAX_MUTATIONS, side="right") - 1
        stop = max(start + 1, int(min(by_bytes, by_count)))
        yield Names(entries.data, entries.offsets[start : stop + 1])
        start = stop


def _stems(names: Names, used: Flags, *, expires: bool, kept: bool) -> Names:
    """What a cell begins with on the wire, its family and qualifier, by name and kind; only of those that are used."""
    known = names.to_bytes_list()
    stems = [b""] * len(used)
    for i in np.flatnonzero(used).tolist():
        family, name = NAMES[i % _KINDS], known[i // _KINDS]
        if expires:
            family, name = EXPIRES, elsewhere(family, name)
        if kept:
            family, name = KEPT, elsewhere(family, name)
        stems[i] = field(1, family.encode()) + field(2, name)
    return Names.of_bytes(stems)


def elsewhere(family: str, name: bytes) -> bytes:
    """The qualifier under which `expires` and `kept` have what is of a column of another family."""
    return family.encode() + b":" + name


def encode_cells(keys: Names, version_us: Ints, expire_s: Ints, cells: Cells, *, kept: bool) -> tuple[Names, Ints]:
    """The entry of each row, and how many mutations it holds. An `expire_s` of DEFAULT_S is not stored."""
    which: Ints = cells.name.astype(np.int64) * _KINDS + cells.kind
    used = np.zeros(len(cells.names) * _KINDS, np.bool_)
    used[which] = True
    stems = _stems(cells.names, used, expires=False, kept=kept)
    explicit: Flags = expire_s != DEFAULT_S
    lives = _stems(cells.names, used if explicit.any() else np.zeros_like(used), expires=True, kept=kept)
    expiries = Names.of_bytes(
        [expiry_text(s) if s != DEFAULT_S else b"" for s in expire_s.tolist()] if explicit.any() else []
    )
    offsets = np.zeros(len(keys) + 1, np.int64)
    source = (
        keys.data, keys.offsets, version_us, explicit, expiries.data, expiries.offsets, stems.data, stems.offsets,
        lives.data, lives.offsets, cells.offsets, which, cells.number.view(np.uint64), cells.texts.data, cells.texts.offsets,
        cells.text,
    )  # fmt: skip
    _walk_cells(*source, np.empty(0, np.uint8), offsets)
    np.cumsum(offsets, out=offsets)
    data = np.zeros(int(offsets[-1]) + PAD, np.uint8)
    _walk_cells(*source, data, offsets)
    counts = (cells.offsets[1:] - cells.offsets[:-1]) * (1 + explicit)
    return Names(data, offsets), counts


@inlined
def _framed(length: Any) -> Any:
    """How long a field of one-byte tag is, with its tag and length."""
    return 1 + varint_length(length) + length


@inlined
def _put_head(address: Any, tag: Any, length: Any) -> Any:
    poke8(address, tag)
    return put_varint(address + 1, length)


@inlined
def _cell_length(stem: Any, timestamp_us: Any, value: Any) -> Any:
    return stem + 1 + varint_length(timestamp_us) + _framed(value)


@inlined
def _put_cell(address: Any, cell: Any, stem_address: Any, stem: Any, timestamp_us: Any, value: Any) -> Any:
    """A mutation that sets a cell, up to its value; gives the address where that goes."""
    address = _put_head(address, 0x12, _framed(cell))
    address = _put_head(address, 0x0A, cell)
    address = copy_bytes(stem_address, address, stem)
    poke8(address, 0x18)
    address = put_varint(address + 1, timestamp_us)
    return _put_head(address, 0x22, value)


@kernel
def _walk_cells(
    keys: Bytes,
    key_offsets: Ints,
    version_us: Ints,
    explicit: Flags,
    expiries: Bytes,
    expiry_offsets: Ints,
    stems: Bytes,
    stem_offsets: Ints,
    lives: Bytes,
    life_offsets: Ints,
    cell_offsets: Ints,
    which: Ints,
    numbers: Hashes,
    texts: Bytes,
    text_offsets: Ints,
    text: Codes,
    out: Bytes,
    offsets: Ints,
) -> None:
    """Without room in `out`: the length of each entry into offsets[1:]. With it: the entries, at their offsets."""
    measure = len(out) == 0
    for i in range(len(version_us)):
        ts = version_us[i]
        key = key_offsets[i + 1] - key_offsets[i]
        life = expiry_offsets[i + 1] - expiry_offsets[i] if explicit[i] else 0
        inner = _framed(key)
        for c in range(cell_offsets[i], cell_offsets[i + 1]):
            w = which[c]
            value = 8 if w % _KINDS == _NUMBER else text_offsets[text[c] + 1] - text_offsets[text[c]]
            inner += _framed(_framed(_cell_length(stem_offsets[w + 1] - stem_offsets[w], ts, value)))
            if explicit[i]:
                inner += _framed(_framed(_cell_length(life_offsets[w + 1] - life_offsets[w], ts, life)))
        if measure:
            offsets[i + 1] = _framed(inner)
            continue
        address = _put_head(out.ctypes.data + offsets[i], 0x12, inner)
        address = _put_head(address, 0x0A, key)
        address = copy_bytes(keys.ctypes.data + key_offsets[i], address, key)
        for c in range(cell_offsets[i], cell_offsets[i + 1]):
            w = which[c]
            stem = stem_offsets[w + 1] - stem_offsets[w]
            is_number = w % _KINDS == _NUMBER
            value = 8 if is_number else text_offsets[text[c] + 1] - text_offsets[text[c]]
            cell = _cell_length(stem, ts, value)
            address = _put_cell(address, cell, stems.ctypes.data + stem_offsets[w], stem, ts, value)
            if is_number:
                bits = numbers[c]
                for k in range(8):
                    poke8(address + k, np.int64(bits >> np.uint64(56 - 8 * k)) & 0xFF)
                address += 8
            else:
                address = copy_bytes(texts.ctypes.data + text_offsets[text[c]], address, value)
            if explicit[i]:
                stem = life_offsets[w + 1] - life_offsets[w]
                cell = _cell_length(stem, ts, life)
                address = _put_cell(address, cell, lives.ctypes.data + life_offsets[w], stem, ts, life)
                address = copy_bytes(expiries.ctypes.data + expiry_offsets[i], address, life)


# -- deletions of many rows


def encode_deletions(
    keys: Names, cell_offsets: Ints, family: Ints, qualifier: Codes, qualifiers: Names, stop_us: int
) -> tuple[Names, Ints]:
    """For each row an entry that deletes the given columns, all versions before `stop_us`."""
    width = len(NAMES)
    which = qualifier.astype(np.int64) * width + family
    used = np.zeros(len(qualifiers) * width, np.bool_)
    used[which] = True
    known = qualifiers.to_bytes_list()
    whole = [b""] * len(used)
    for i in np.flatnonzero(used).tolist():
        whole[i] = field(2, delete_column(NAMES[i % width], known[i // width], stop_us))
    mutations = Names.of_bytes(whole).take(which)
    cuts = mutations.offsets[cell_offsets].tolist()
    text = mutations.data.tobytes()
    entries = [field(2, field(1, key) + text[a:b]) for key, (a, b) in zip(keys.to_bytes_list(), pairwise(cuts), strict=True)]
    return Names.of_bytes(entries), cell_offsets[1:] - cell_offsets[:-1]
