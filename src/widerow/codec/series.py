"""Answers about steps as JSON, CSV and Arrow.

JSON is by series, each with the aggregate it is of; CSV and Arrow have a line for each point, with the same columns.
Rule: Python sees series, not points; the numbers are written by `msgspec`, and a kernel puts the pieces together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from widerow.codec.answer import ARROW, CSV, JSON, MEDIA_TYPES, csv_of, csv_values, dictionary_of, format_times, stream_of
from widerow.codec.points_json import Texts
from widerow.model.arrays import PAD, Bytes, Ints
from widerow.model.errors import Unsupported
from widerow.model.kernel import kernel
from widerow.model.machine import copy_bytes
from widerow.model.names import Names
from widerow.model.series import SERIES_LABELS, Reply, Series
from widerow.model.times import TimeSpan, format_time

_OPEN, _CLOSE, _COMMA, _BRACE = b"[],}"
WHOLE = ("count", "devices")
"""The aggregates whose values are whole numbers."""
STATES = "states"
"""The aggregate whose values are objects: JSON already."""


def encode_reply(reply: Reply, media_type: str, *, epoch: str | None = None) -> bytes:
    if media_type == JSON:
        return encode_reply_json(reply, epoch=epoch)
    if media_type == CSV:
        return _encode_csv(reply.series, epoch)
    if media_type == ARROW:
        return _encode_arrow(reply.series)
    raise Unsupported(f"answers are {', '.join(MEDIA_TYPES)}; not {media_type[:80]!r}")


def used_text(reply: Reply) -> str:
    """Which levels were read, for a header: `hour=24, raw=12`."""
    return ", ".join(f"{level}={rows}" for level, rows in reply.used.items())


def missing_text(reply: Reply) -> str:
    """What can no longer be answered, for a header: `START/END, ...`."""
    return ", ".join(f"{format_time(gone.start_us)}/{format_time(gone.stop_us)}" for gone in reply.missing)


def encode_reply_json(reply: Reply, *, epoch: str | None = None) -> bytes:
    """`{"series": [{"device", "metric", "agg", "kind", "points": [[time, value], ...]}], "step", "used", ...}`."""
    rest: dict[str, Any] = {"step": reply.step or None, "used": dict(reply.used)}
    if reply.tz:
        rest["tz"] = reply.tz
    if reply.missing:
        rest["missing"] = [_span(gone, epoch) for gone in reply.missing]
    if reply.top:
        rest["top"] = [{"device": name, "value": value} for name, value in reply.top]
    rest["next"] = None
    return b'{"series":[%b],%b' % (_series_json(reply.series, epoch), msgspec.json.encode(rest)[1:])


def _span(gone: TimeSpan, epoch: str | None) -> dict[str, Any]:
    if epoch is None:
        return {"start": format_time(gone.start_us), "end": format_time(gone.stop_us)}
    start, end = format_times(np.array([gone.start_us, gone.stop_us]), epoch)
    return {"start": start, "end": end}


def _series_json(series: Series, epoch: str | None) -> bytes:
    if not len(series):
        return b""
    cuts = series.cuts()
    heads = _heads(series, cuts[:-1])
    if series.has_aggregate(STATES) and series.of_aggregate(STATES).any():
        return _plain(heads, cuts, format_times(series.time_us, epoch), _values(series))
    repeats = int(cuts[1])  # series have the same times, mostly
    time = Texts.of_times(series.time_us, repeats) if epoch is None else Texts.of_values(format_times(series.time_us, epoch))
    value = Texts.of_values(_values(series))
    out = _join(cuts, heads.data, heads.offsets, time.data, time.starts, time.gap, value.data, value.starts)
    return out.tobytes()


def _heads(series: Series, firsts: Ints) -> Names:
    """How each series begins."""
    columns = {name: column.take(firsts).to_list() for name, column in series.labels.items()}
    encode = msgspec.json.encode
    if not series.grouped:
        return Names.of_bytes(
            [
                encode(dict(zip(columns, row, strict=True)))[:-1] + b',"points":['
                for row in zip(*columns.values(), strict=True)
            ]
        )
    owners, n = list(series.owners()), len(SERIES_LABELS)
    return Names.of_bytes(
        [
            encode({"group": dict(zip(owners, row, strict=False)), **dict(zip(SERIES_LABELS, row[-n:], strict=True))})[:-1]
            + b',"points":['
            for row in zip(*columns.values(), strict=True)
        ]
    )


def _plain(heads: Names, cuts: Ints, times: Sequence[Any], values: Sequence[Any]) -> bytes:
    """The same without kernels, for values that are objects."""
    points = list(zip(times, values, strict=True))
    ends = cuts.tolist()
    parts = [
        head + msgspec.json.encode(points[start:stop])[1:] + b"}"
        for head, start, stop in zip(heads.to_bytes_list(), ends, ends[1:], strict=False)
    ]
    return b",".join(parts)


def _values(series: Series) -> list[Any]:
    """As JSON has them: whole numbers where they are counts, null where there is nothing."""
    if series.text is None and not series.has_aggregate(*WHOLE):
        numbers: list[Any] = series.number.tolist()
        return numbers
    whole = np.logical_or.reduce([series.of_aggregate(name) for name in WHOLE])
    values = series.number.astype(object)
    counts = whole & ~np.isnan(series.number)
    values[counts] = series.number[counts].astype(np.int64)
    if series.text is not None and len(series.text.names):
        texts = series.text.names.to_list()
        states = series.of_aggregate(STATES)
        for i in np.flatnonzero(series.text.codes >= 0).tolist():
            text = texts[series.text.codes[i]]
            values[i] = msgspec.Raw(text.encode()) if states[i] else text
    return list(values.tolist())


@kernel
def _join(
    cuts: Ints, heads: Bytes, head_at: Ints, times: Bytes, time_at: Ints, time_gap: int, values: Bytes, value_at: Ints
) -> Bytes:
    """Every series, with commas between. Texts are copied by words, so a few bytes behind the end are needed."""
    series, n = len(cuts) - 1, cuts[len(cuts) - 1]
    out = np.empty(head_at[series] + time_at[n] + value_at[n] + 4 * n + 3 * series + PAD, np.uint8)
    base = out.ctypes.data
    p = 0
    for s in range(series):
        length = head_at[s + 1] - head_at[s]
        copy_bytes(base + p, heads.ctypes.data + head_at[s], length)
        p += length
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
            out[p] = _CLOSE
            out[p + 1] = _COMMA
            p += 2
        out[p - 1] = _CLOSE  # instead of the comma
        out[p] = _BRACE
        out[p + 1] = _COMMA
        p += 2
    return out[: p - 1]


def _encode_csv(series: Series, epoch: str | None) -> bytes:
    """RFC 4180: the owner's columns, time, metric, agg, kind, value and text. What is not known is empty.

    Series with numbers come first, and only counts alone are without a point: readers guess types by the first lines.
    """
    order = _numbers_first(series)
    owners = series.owners()
    numbers, said = csv_values(series.number[order], None if series.text is None else series.text.take(order))
    if set(series.labels["agg"].names) <= set(WHOLE):
        numbers = [int(number) if number != "" else "" for number in numbers]
    columns = [
        *(column.take(order).to_list() for column in owners.values()),
        format_times(series.time_us[order], epoch),
        *(series.labels[name].take(order).to_list() for name in SERIES_LABELS),
        numbers,
        said,
    ]
    return csv_of([*owners, "time", *SERIES_LABELS, "value", "text"], zip(*columns, strict=True))


def _numbers_first(series: Series) -> Ints:
    cuts = series.cuts()
    if not len(series):
        return cuts[:0]
    without = ~np.logical_or.reduceat(np.isfinite(series.number), cuts[:-1])
    return np.argsort(np.repeat(without, np.diff(cuts)), kind="stable")


def _encode_arrow(series: Series) -> bytes:
    """An IPC stream of the owner's columns, time, metric, agg, kind, value (null: not known, or a text) and text."""
    columns = {name: dictionary_of(column) for name, column in series.owners().items()}
    columns["time"] = pa.array(series.time_us).cast(pa.timestamp("us", "UTC"))
    columns |= {name: dictionary_of(series.labels[name]) for name in SERIES_LABELS}
    columns["value"] = pa.array(series.number, mask=~np.isfinite(series.number))
    if series.text is not None:
        columns["text"] = dictionary_of(series.text).cast(pa.string())
    else:
        columns["text"] = pa.nulls(len(series), pa.string())
    return stream_of(pa.table(columns))
