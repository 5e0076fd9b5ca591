"""Columns as blocks within the limit of a block."""

from __future__ import annotations

import itertools

from widerow.blocks.columns import Columns
from widerow.blocks.layout import LIMIT, size_of
from widerow.blocks.quick import encode_quick
from widerow.model.errors import TooLarge
from widerow.model.times import format_time


def pack(columns: Columns, *, dense: bool, level: int = 0) -> list[bytes]:  # noqa: ARG001
    """The columns as blocks, in order. `TooLarge`: one row alone does not fit into a block."""
    return [encode_quick(piece, level) for piece in split(columns, LIMIT)]


def split(columns: Columns, limit: int) -> list[Columns]:
    """Compacted pieces, each at most so large without compression; cut between devices where that costs little."""
    piece = columns.compacted()
    size, rows = size_of(piece), len(piece)
    if size <= limit:
        return [piece] if rows else []
    if rows == 1:
        raise TooLarge(
            f"the report of {piece.devices[0]!r} at {format_time(int(piece.time_us[0]))} takes {size:,} bytes, more than "
            f"the {limit:,} of a block: report fewer or shorter values at one time"
        )
    parts = min(rows, size // limit + 1)
    cuts = [0]
    for k in range(1, parts):
        even = rows * k // parts
        nearest = int(piece.offsets[max(0, int(piece.offsets.searchsorted(even, "right")) - 1)])
        cuts.append(nearest if even - nearest <= rows // parts // 2 else even)
    cuts = sorted({*cuts, rows})
    return [part for a, b in itertools.pairwise(cuts) for part in split(piece.between(a, b), limit)]
