"""Points as JSON, and times as texts, against what the standard library makes of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from widerow.codec.answer import encode_json
from widerow.codec.instants import rfc3339, texts
from widerow.model.names import Coded, Names
from widerow.model.points import Points
from widerow.model.times import MAX_TIME_US

TIMES = st.integers(0, MAX_TIME_US)
NEAR = st.integers(0, 300).map(lambda n: 10**15 + n * 611_111_111)
"""Several of a day."""
TEXTS = st.text(max_size=6)


def plain_time(time_us: int, decimals: int) -> str:
    moment = datetime.fromtimestamp(time_us // 1_000_000, UTC)
    fraction = f".{time_us % 1_000_000:06d}"[: decimals + 1] if decimals else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


@given(
    times=st.lists(st.one_of(TIMES, TIMES.map(lambda t: t - t % 1_000), NEAR, st.sampled_from([0, 10**15])), min_size=1),
    unit=st.sampled_from([1, 1_000, 1_000_000]),
    quoted=st.booleans(),
    repeats=st.integers(0, 4),
)
def test_times_are_written_as_the_standard_library_does(times: list[int], unit: int, quoted: bool, repeats: int) -> None:
    times = [t - t % unit for t in times] * 3
    decimals = 0 if not any(t % 1_000_000 for t in times) else 3 if not any(t % 1_000 for t in times) else 6
    want = [f'"{text}"' if quoted else text for text in (plain_time(t, decimals) for t in times)]
    for hint in (repeats, len(times) // 3):
        assert texts(rfc3339(np.array(times), quoted=quoted, repeats=hint)) == want


@st.composite
def some_points(draw: st.DrawFn) -> tuple[Points, list[Any], list[Any]]:
    """Points sorted by series, their values, and their tags."""
    series = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=5, unique=True).map(sorted))
    devices, metrics = draw(st.lists(TEXTS, min_size=3, max_size=9, unique=True)), draw(st.tuples(TEXTS, TEXTS, TEXTS))
    rows: list[tuple[int, int, int]] = []
    for device, metric in series:
        rows += [(device, metric, t) for t in draw(st.lists(st.integers(0, 99), min_size=1, max_size=4))]
    n = len(rows)
    values = draw(st.lists(st.one_of(st.floats(allow_nan=False, allow_infinity=False), TEXTS), min_size=n, max_size=n))
    is_text = [isinstance(v, str) for v in values]
    text = Coded.of([v if isinstance(v, str) else "" for v in values])
    sets = draw(st.lists(st.sampled_from([None, {}, {"a": "b"}, {'q"': "\\,]"}]), min_size=n, max_size=n))
    tag = Coded.of([json.dumps(s) for s in sets])
    column = np.array(rows, np.int64).reshape(n, 3)
    points = Points(
        Coded(Names.of(devices), column[:, 0].astype(np.int32)),
        Coded(Names.of(metrics), column[:, 1].astype(np.int32)),
        column[:, 2] * 1_000_000,
        np.array([np.nan if isinstance(v, str) else v for v in values], np.float64),
        np.zeros(n, np.int64),
        Coded(text.names, np.where(is_text, text.codes, -1).astype(np.int32)) if any(is_text) else None,
        Coded(tag.names, np.array([-1 if s is None else c for s, c in zip(sets, tag.codes, strict=True)], np.int32)),
    )
    return points, values, sets


@given(some_points(), st.booleans(), st.sampled_from([None, "s"]), st.one_of(st.none(), TEXTS))
def test_json_is_what_it_says(case: tuple[Points, list[Any], list[Any]], tags: bool, epoch: str | None, after: str) -> None:
    points, values, sets = case
    if not tags:
        points = Points(points.device, points.metric, points.time_us, points.number, points.version_us, points.text)
    series: list[dict[str, Any]] = []
    for i, (device, metric) in enumerate(zip(points.device.to_list(), points.metric.to_list(), strict=True)):
        codes = (points.device.codes[i], points.metric.codes[i])
        if not i or codes != (points.device.codes[i - 1], points.metric.codes[i - 1]):
            series.append({"device": device, "metric": metric, "points": []})
        time_us = int(points.time_us[i])
        time = plain_time(time_us, 0) if epoch is None else time_us // 1_000_000
        series[-1]["points"].append([time, values[i], sets[i]] if tags else [time, values[i]])
    assert json.loads(encode_json(points, epoch=epoch, next_cursor=after)) == {"series": series, "next": after}
