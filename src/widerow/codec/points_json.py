"""Points as JSON.

Rule: no Python object per point but the float that `msgspec` writes. Numbers are written by `msgspec` as one flat array,
times by a kernel, and a second kernel puts the pieces together as `[time,value]`. Python sees series.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from widerow.codec.instants import rfc3339
from widerow.model.arrays import Bytes, Codes, Ints
from widerow.model.kernel import kernel
from widerow.model.names import Coded, Names
from widerow.model.points import Points

_NULL = b"null"


def encode_points_json(points: Points, times: list[Any] | None, values: list[Any], next_cursor: str | None) -> bytes:
    """`{"series": [{"device", "metric", "points": [[time, value], ...]}], "next": cursor or null}`.

    `times` and `values` are JSON values, one per point; without `times` they are RFC 3339. A point has its tags as a third
    member when they were asked for. Points are sorted by series already.
    """
    start = _series_starts(points)
    devices, metrics = points.device.take(start), points.metric.take(start)
    text, cuts = _point_texts(points, times, values, [*start.tolist(), len(points)])
    series = b",".join(
        [
            b'{"device":%b,"metric":%b,"points":[%b]}' % (device, metric, text[a : b - 1])
            for device, metric, (a, b) in zip(_quoted(devices), _quoted(metrics), pairwise(cuts), strict=True)
        ]
    )
    return b'{"series":[%b],"next":%b}' % (series, msgspec.json.encode(next_cursor))


def _series_starts(points: Points) -> Ints:
    device, metric = points.device.codes, points.metric.codes
    first = np.ones(len(points), np.bool_)
    first[1:] = (device[1:] != device[:-1]) | (metric[1:] != metric[:-1])
    return np.flatnonzero(first)


def _quoted(column: Coded) -> list[bytes]:
    """Each text as JSON; a name that many series share is written once."""
    encode: Callable[[str], bytes] = msgspec.json.encode
    known: dict[int, bytes] = {}
    names = column.names
    return [known.get(c) or known.setdefault(c, encode(names[c])) for c in column.codes.tolist()]


@dataclass(frozen=True, slots=True)
class _Tokens:
    """JSON texts in one buffer. Text i ends `gap` bytes before the next begins."""

    data: Bytes
    offsets: Ints
    gap: int

    @classmethod
    def of_list(cls, values: list[Any]) -> _Tokens:
        data = np.frombuffer(msgspec.json.encode(values), np.uint8)
        offsets = np.empty(len(values) + 1, np.int64)
        _cut_array(data, offsets)
        return cls(data, offsets, 1)

    @classmethod
    def of_times(cls, time_us: Ints) -> _Tokens:
        matrix = rfc3339(time_us, quoted=True)
        n, width = matrix.shape
        return cls(matrix.reshape(-1), np.arange(0, (n + 1) * width, width), 0)


def _point_texts(points: Points, times: list[Any] | None, values: list[Any], starts: list[int]) -> tuple[bytes, list[int]]:
    """Every point as `[time,value],`, and where the points of each series begin."""
    time = _Tokens.of_times(points.time_us) if times is None else _Tokens.of_list(times)
    value = _Tokens.of_list(values)
    # Code -1, no tags, is the last entry.
    tags = Names.of_bytes(()) if points.tags is None else Names.of_bytes([*points.tags.names.to_bytes_list(), _NULL])
    tag = np.zeros(0, np.int32) if points.tags is None else points.tags.codes % len(tags)
    n = len(points)
    size = 4 * n + int(time.offsets[-1] + value.offsets[-1])
    if len(tag):
        size += n + int((tags.offsets[1:] - tags.offsets[:-1])[tag].sum())
    out, offsets = np.empty(size, np.uint8), np.zeros(n + 1, np.int64)
    _join_points(time.data, time.offsets, time.gap, value.data, value.offsets, tags.data, tags.offsets, tag, out, offsets)
    return out[: offsets[-1]].tobytes(), offsets[starts].tolist()


@kernel
def _cut_array(text: Bytes, offsets: Ints) -> None:
    """Where the members of a flat JSON array begin; the last offset is behind its bracket."""
    offsets[0] = 1
    i, p, quoted = 1, 1, False
    while p < len(text) - 1:
        c = text[p]
        if quoted:
            if c == 92:  # a backslash: what follows is no end
                p += 1
            elif c == 34:
                quoted = False
        elif c == 34:
            quoted = True
        elif c == 44:
            offsets[i] = p + 1
            i += 1
        p += 1
    offsets[len(offsets) - 1] = len(text)


@kernel
def _join_points(
    time: Bytes,
    time_at: Ints,
    time_gap: int,
    value: Bytes,
    value_at: Ints,
    tags: Bytes,
    tags_at: Ints,
    tag: Codes,
    out: Bytes,
    offsets: Ints,
) -> None:
    p = 0
    for i in range(len(offsets) - 1):
        out[p] = 91
        p += 1
        for k in range(time_at[i], time_at[i + 1] - time_gap):
            out[p] = time[k]
            p += 1
        out[p] = 44
        p += 1
        for k in range(value_at[i], value_at[i + 1] - 1):
            out[p] = value[k]
            p += 1
        if len(tag):
            out[p] = 44
            p += 1
            for k in range(tags_at[tag[i]], tags_at[tag[i] + 1]):
                out[p] = tags[k]
                p += 1
        out[p] = 93
        out[p + 1] = 44
        p += 2
        offsets[i + 1] = p
