"""Points as JSON.

Rule: no Python object per point but the number that `msgspec` writes, and none per series. Values are written by `msgspec`
as one flat array, times by a kernel, and a second kernel puts the pieces together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from widerow.codec.instants import rfc3339
from widerow.model.arrays import PAD, Bytes, Codes, Ints
from widerow.model.kernel import kernel, pasted
from widerow.model.machine import copy_bytes, peek64, trailing_zeros
from widerow.model.names import Coded, Names
from widerow.model.points import Points

_DEVICE, _METRIC, _POINTS = b'{"device":', b',"metric":', b',"points":['
_WORDS = np.frombuffer(_DEVICE + _METRIC + _POINTS + bytes(PAD), np.uint8)
_DEVICE_LENGTH, _METRIC_LENGTH, _POINTS_LENGTH = len(_DEVICE), len(_METRIC), len(_POINTS)
_OPEN, _CLOSE, _COMMA, _BRACE, _QUOTE, _BACKSLASH = b'[],}"\\'
_ONES, _HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_COMMAS, _QUOTES = np.uint64(_COMMA) * _ONES, np.uint64(_QUOTE) * _ONES


def encode_points_json(points: Points, times: list[Any] | None, values: list[Any], next_cursor: str | None) -> bytes:
    """`{"series": [{"device", "metric", "points": [[time, value], ...]}], "next": cursor or null}`.

    `times` and `values` are JSON values, one per point; without `times` they are RFC 3339. A point has its tags as a third
    member when they were asked for. Points are sorted by series already.
    """
    series = b"" if not len(points) else _series(points, times, values)
    return b'{"series":[%b],"next":%b}' % (series, msgspec.json.encode(next_cursor))


@dataclass(frozen=True, slots=True)
class Texts:
    """JSON texts in one buffer with `PAD` spare bytes behind. Text i ends `gap` bytes before the next one begins."""

    data: Bytes
    starts: Ints
    """One more than there are texts."""
    gap: int

    @classmethod
    def of_values(cls, values: Sequence[Any]) -> Texts:
        text = msgspec.json.encode(values)
        data = np.frombuffer(text + bytes(PAD), np.uint8)
        starts = np.empty(len(values) + 1, np.int64)
        _cut_array(data, len(text), starts)
        return cls(data, starts, 1)

    @classmethod
    def of_times(cls, time_us: Ints, repeats: int) -> Texts:
        matrix = rfc3339(time_us, quoted=True, repeats=repeats)
        width = matrix.shape[1]
        return cls(matrix.reshape(-1), np.arange(0, (len(time_us) + 1) * width, width), 0)

    @classmethod
    def of_objects(cls, objects: Names) -> Texts:
        """Texts that are JSON already, and behind the last one a null."""
        data = Names.of_bytes([*objects.to_bytes_list(), b"null"])
        return cls(data.data, data.offsets, 0)


_NO_TAGS = Texts.of_objects(Names.of(()))
_NO_CODES = np.zeros(0, np.int32)


def _series(points: Points, times: list[Any] | None, values: list[Any]) -> bytes:
    device, metric = points.device.codes, points.metric.codes
    first = np.ones(len(points) + 1, np.bool_)
    first[1:-1] = (device[1:] != device[:-1]) | (metric[1:] != metric[:-1])
    cuts = np.flatnonzero(first)
    # The metrics of a device have the same times, mostly.
    time = Texts.of_times(points.time_us, int(cuts[1])) if times is None else Texts.of_values(times)
    value = Texts.of_values(values)
    devices, device_code = _used(points.device.take(cuts[:-1]))
    metrics, metric_code = _used(points.metric.take(cuts[:-1]))
    tags, tag = _NO_TAGS, _NO_CODES
    if points.tags is not None:
        tags = Texts.of_objects(points.tags.names)
        tag = points.tags.codes % np.int32(len(tags.starts) - 1)  # -1, no tags, is the last one, the null
    out = _join(
        cuts,
        (devices.data, devices.starts, device_code),
        (metrics.data, metrics.starts, metric_code),
        (time.data, time.starts, time.gap),
        (value.data, value.starts),
        (tags.data, tags.starts, tag),
    )
    return out.tobytes()


def _used(column: Coded) -> tuple[Texts, Codes]:
    """Names as JSON, and which of them each row has. Of a dictionary far larger than the answer only those that occur."""
    codes = column.codes
    if len(column.names) <= 2 * len(codes):
        return Texts.of_values(column.names.to_list()), codes
    used, which = np.unique(codes, return_inverse=True)
    return Texts.of_values([column.names[c] for c in used.tolist()]), which.astype(np.int32)


@pasted
def _where(word: Any, bytes_: Any) -> Any:
    """The highest bit of the first byte of a word that is the one repeated in the other. (Further ones may be wrong.)"""
    other = word ^ bytes_
    return (other - _ONES) & ~other & _HIGH


@kernel
def _cut_array(text: Bytes, length: int, starts: Ints) -> None:
    """Where the members of a flat JSON array begin, and a byte behind its bracket, as if another followed."""
    base = text.ctypes.data
    starts[0] = 1
    i, p, quoted = 1, 1, False
    while p < length - 1:
        if not quoted:  # eight at a time up to a comma or a quotation mark: numbers are long
            word = peek64(base + p)
            found = trailing_zeros(_where(word, _COMMAS) | _where(word, _QUOTES)) >> 3
            p += found
            if found == 8 or p >= length - 1:
                continue
        c = text[p]
        if quoted:
            if c == _BACKSLASH:  # what follows is no end
                p += 1
            elif c == _QUOTE:
                quoted = False
        elif c == _QUOTE:
            quoted = True
        elif c == _COMMA:
            starts[i] = p + 1
            i += 1
        p += 1
    starts[len(starts) - 1] = length


@kernel
def _join(
    cuts: Ints,
    device: tuple[Bytes, Ints, Codes],
    metric: tuple[Bytes, Ints, Codes],
    time: tuple[Bytes, Ints, int],
    value: tuple[Bytes, Ints],
    tags: tuple[Bytes, Ints, Codes],
) -> Bytes:
    """Every series, with commas between. Texts are copied by words, so a few bytes behind the end are needed."""
    devices, device_at, device_code = device
    metrics, metric_at, metric_code = metric
    times, time_at, time_gap = time
    values, value_at = value
    tag_sets, tag_at, tag_code = tags
    n = cuts[len(cuts) - 1]
    size = time_at[n] + value_at[n] + 4 * n + PAD
    for s in range(len(cuts) - 1):
        size += _DEVICE_LENGTH + _METRIC_LENGTH + _POINTS_LENGTH + 3
        size += device_at[device_code[s] + 1] - device_at[device_code[s]]
        size += metric_at[metric_code[s] + 1] - metric_at[metric_code[s]]
    for i in range(len(tag_code)):
        size += 1 + tag_at[tag_code[i] + 1] - tag_at[tag_code[i]]
    out = np.empty(size, np.uint8)
    base, words = out.ctypes.data, _WORDS.ctypes.data
    p = 0
    for s in range(len(cuts) - 1):
        copy_bytes(base + p, words, _DEVICE_LENGTH)
        p += _DEVICE_LENGTH
        length = device_at[device_code[s] + 1] - 1 - device_at[device_code[s]]
        copy_bytes(base + p, devices.ctypes.data + device_at[device_code[s]], length)
        p += length
        copy_bytes(base + p, words + _DEVICE_LENGTH, _METRIC_LENGTH)
        p += _METRIC_LENGTH
        length = metric_at[metric_code[s] + 1] - 1 - metric_at[metric_code[s]]
        copy_bytes(base + p, metrics.ctypes.data + metric_at[metric_code[s]], length)
        p += length
        copy_bytes(base + p, words + _DEVICE_LENGTH + _METRIC_LENGTH, _POINTS_LENGTH)
        p += _POINTS_LENGTH
        for i in range(cuts[s], cuts[s + 1]):
            out[p] = _OPEN
            p += 1
            length = time_at[i + 1] - time_gap - time_at[i]
            copy_bytes(base + p, times.ctypes.data + time_at[i], length)
            p += length
            out[p] = _COMMA
            p += 1
            length = value_at[i + 1] - 1 - value_at[i]
            copy_bytes(base + p, values.ctypes.data + value_at[i], length)
            p += length
            if len(tag_code):
                out[p] = _COMMA
                p += 1
                length = tag_at[tag_code[i] + 1] - tag_at[tag_code[i]]
                copy_bytes(base + p, tag_sets.ctypes.data + tag_at[tag_code[i]], length)
                p += length
            out[p] = _CLOSE
            out[p + 1] = _COMMA
            p += 2
        out[p - 1] = _CLOSE  # instead of the comma
        out[p] = _BRACE
        out[p + 1] = _COMMA
        p += 2
    return out[: p - 1]
