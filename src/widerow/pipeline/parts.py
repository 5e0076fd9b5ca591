"""Which bytes of a body are kept as dead letters: those of the reports that were refused, and none of their neighbours.

Rule 1: a part is a body of the same form, so it can be read again as the body was: lines as lines, elements of an array as
an array, rows of an Arrow stream as a stream.
Rule 2: no part is larger than asked for. A single report that is larger is cut, says so, and cannot be sent again.
Rule 3: parts are made when they are asked for: who stops asking has paid for those before only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from widerow.codec.arrow.rows import encode_rows, open_rows
from widerow.codec.body import decompress
from widerow.codec.json.cut import element_spans
from widerow.codec.line.cut import line_spans
from widerow.model.arrays import Ints
from widerow.pipeline.origin import ARROW_TYPE, JSON_TYPES, LINE_TYPE, NDJSON_TYPES, Origin


class Kept(StrEnum):
    """What there is of a body."""

    WHOLE = "whole"
    CUT = "cut"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Part:
    origin: Origin
    """As the body's, with the bytes that are kept."""
    positions: Sequence[int]
    """Of its reports in the body they came in; none: the body as a whole."""
    kept: Kept = Kept.WHOLE


def whole(origin: Origin, max_bytes: int) -> Part:
    """The body as it came."""
    if len(origin.body) <= max_bytes:
        return Part(origin, ())
    return Part(replace(origin, body=origin.body[:max_bytes]), (), Kept.CUT)


def parts(origin: Origin, positions: Sequence[int], *, max_bytes: int, max_unpacked: int) -> Iterator[Part]:
    """The reports at ascending positions, as many together as fit. Raises what unpacking and reading raise."""
    wanted = np.asarray(positions, np.int64)
    body = decompress(origin.body, origin.encoding, max_unpacked)
    plain = replace(origin, body=body, encoding="")
    if origin.media_type == ARROW_TYPE:
        yield from _rows(replace(plain, body=b""), open_rows(body), wanted, max_bytes)
        return
    starts, stops = _spans(origin.media_type, body, wanted)
    array = origin.media_type in JSON_TYPES
    sizes = stops - starts + 1  # with a comma or newline behind it
    room = max_bytes - 1  # for a bracket more than there are commas
    found = np.flatnonzero(starts >= 0)
    at = 0
    while at < len(found):
        count = max(1, int(np.searchsorted(np.cumsum(sizes[found[at : at + max_bytes]]), room, side="right")))
        chosen = found[at : at + count]
        at += count
        pieces = [body[start:stop].rstrip() for start, stop in zip(starts[chosen], stops[chosen], strict=True)]
        content = b"[" + b",".join(pieces) + b"]" if array else b"\n".join(pieces)
        kept = Kept.WHOLE if len(content) <= max_bytes else Kept.CUT
        yield Part(replace(plain, body=content[:max_bytes]), wanted[chosen].tolist(), kept)


def _spans(media_type: str, body: bytes, wanted: Ints) -> tuple[Ints, Ints]:
    if media_type == LINE_TYPE:
        return line_spans(body, wanted)
    if media_type in NDJSON_TYPES:
        ends = np.append(np.flatnonzero(np.frombuffer(body, np.uint8) == ord("\n")), len(body))
        inside = wanted < len(ends)
        line = np.where(inside, wanted, 0)
        starts = np.where(line > 0, ends[line - 1] + 1, 0)
        return np.where(inside, starts, -1), np.where(inside, ends[line], -1)
    return element_spans(body, wanted)


def _rows(origin: Origin, table: object, wanted: Ints, max_bytes: int) -> Iterator[Part]:
    """Halves of what is too large, until it is not."""
    content = encode_rows(table, wanted)
    if len(content) <= max_bytes:
        yield Part(replace(origin, body=content), wanted.tolist())
    elif len(wanted) == 1:
        yield Part(origin, wanted.tolist(), Kept.NOTHING)
    else:
        middle = len(wanted) // 2
        yield from _rows(origin, table, wanted[:middle], max_bytes)
        yield from _rows(origin, table, wanted[middle:], max_bytes)
