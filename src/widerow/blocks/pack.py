"""Columns as blocks within the limit of a block."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from widerow.blocks.columns import Columns
from widerow.blocks.dense import MOST_PRESENCES, encode_dense
from widerow.blocks.layout import LIMIT, MAX_PLAIN, size_of
from widerow.blocks.quick import encode_quick
from widerow.model.errors import TooLarge
from widerow.model.times import format_time

_FIRST_PLAIN = 4 * LIMIT
"""Bytes without compression of the first piece that is made dense: reports take a tenth of that, noise most of it."""
_FULL = 0.95
"""How full a block is meant to be: the next piece may be less alike."""


def pack(columns: Columns, *, dense: bool, level: int = 0) -> list[bytes]:
    """The columns as blocks, in order. `TooLarge`: one row alone does not fit into a block."""
    if dense:
        return list(_dense(columns, level))
    return [encode_quick(piece, level) for piece in split(columns, LIMIT)]


def _dense(columns: Columns, level: int) -> Iterator[bytes]:
    """How much fits is known when it is compressed: so the pieces are as many rows as the one before lets expect."""
    at, end = columns.first_row, columns.first_row + len(columns)
    plain = size_of(columns)
    most = max(1, len(columns) * (MAX_PLAIN // 4) // plain)
    rows = min(most, len(columns) * _FIRST_PLAIN // plain + 1)
    while at < end:
        stop = min(end, at + rows)
        if stop < end:
            stop = _device_before(columns, at, stop)
        piece = columns.between(at, stop).compacted()
        block = encode_dense(piece, level) if _fits_in_memory(piece) else b""
        rows = len(piece)
        if 0 < len(block) <= LIMIT:
            yield block
            at = stop
            rows = min(most, int(rows * _FULL * LIMIT / len(block)) + 1)
        elif rows == 1:
            raise _too_large(piece, len(block) or size_of(piece), LIMIT)
        else:
            rows = max(1, min(rows * 3 // 4, int(rows * _FULL * LIMIT / len(block)) if block else rows // 2))


def _device_before(columns: Columns, at: int, stop: int) -> int:
    """The end of a device somewhat before a row, if there is one."""
    nearest = int(columns.offsets[int(columns.offsets.searchsorted(stop, "right")) - 1])
    return nearest if stop - nearest <= (stop - at) // 2 else stop


def _fits_in_memory(piece: Columns) -> bool:
    presences, plain = len({id(head.rows) for head in piece.heads}), size_of(piece)
    return plain <= MAX_PLAIN // 2 and presences * len(piece) // 8 <= max(plain, LIMIT) and presences <= MOST_PRESENCES


def split(columns: Columns, limit: int) -> list[Columns]:
    """Compacted pieces, each at most so large without compression; cut between devices where that costs little."""
    piece = columns.compacted()
    size, rows = size_of(piece), len(piece)
    if size <= limit:
        return [piece] if rows else []
    if rows == 1:
        raise _too_large(piece, size, limit)
    parts = min(rows, max(2, size // limit + 1))
    even = [rows * k // parts for k in range(1, parts)]
    cuts = sorted({0, rows, *[_device_before(piece, row - rows // parts, row) for row in even]})
    return [part for a, b in pairwise(cuts) for part in split(piece.between(a, b), limit)]


def _too_large(piece: Columns, size: int, limit: int) -> TooLarge:
    return TooLarge(
        f"the report of {piece.devices[0]!r} at {format_time(int(piece.time_us[0]))} takes {size:,} bytes, more than "
        f"the {limit:,} of a block: report fewer or shorter values at one time"
    )
