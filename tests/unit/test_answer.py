"""Answers read back as what they were."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from widerow.codec.answer import (
    ARROW,
    CSV,
    JSON,
    encode_arrow_points,
    encode_csv,
    encode_json,
    encode_points,
    encode_records,
    format_times,
)
from widerow.codec.arrow import decode_arrow
from widerow.codec.series import encode_reply
from widerow.model.batch import reports_of
from widerow.model.errors import Unsupported
from widerow.model.names import Coded, Names
from widerow.model.points import NO_POINTS, Points
from widerow.model.series import Reply, Series

SECOND = 1_000_000


def points(*, tags: bool = False) -> Points:
    """Of two devices and two metrics, by time, one of them a text."""
    return Points(
        Coded.of(["a", "a", 'b,"x"', "a"]),
        Coded.of(["Temp", "State", "Temp", "Temp"]),
        np.array([1, 1, 2, 3]) * SECOND,
        np.array([21.5, np.nan, 3.0, 1e300]),
        np.zeros(4, np.int64),
        Coded(Names.of(("run",)), np.array([-1, 0, -1, -1], np.int32)),
        Coded(Names.of(('{"site":"q"}',)), np.array([0, -1, 0, -1], np.int32)) if tags else None,
    )


def read_arrow(body: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.ipc.open_stream(body).read_all().to_pylist()
    return rows


def test_json_has_a_list_of_points_per_series() -> None:
    assert json.loads(encode_json(points(), next_cursor="c1")) == {
        "series": [
            {"device": "a", "metric": "Temp", "points": [["1970-01-01T00:00:01Z", 21.5], ["1970-01-01T00:00:03Z", 1e300]]},
            {"device": "a", "metric": "State", "points": [["1970-01-01T00:00:01Z", "run"]]},
            {"device": 'b,"x"', "metric": "Temp", "points": [["1970-01-01T00:00:02Z", 3.0]]},
        ],
        "next": "c1",
    }


def test_json_points_bring_tags_when_asked_for() -> None:
    first = json.loads(encode_json(points(tags=True), epoch="s"))["series"][0]
    assert first["points"] == [[1, 21.5, {"site": "q"}], [3, 1e300, None]]


def test_nothing_is_a_good_answer() -> None:
    assert json.loads(encode_json(NO_POINTS)) == {"series": [], "next": None}
    assert encode_csv(NO_POINTS) == b"device,time,metric,value,text\r\n"
    assert read_arrow(encode_arrow_points(NO_POINTS)) == []
    for media_type in (JSON, CSV, ARROW):
        encode_records([], media_type)


def test_numbers_read_back_equal() -> None:
    numbers = np.array([0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, 2.0**53, 123456789.0, 1e22])
    n = len(numbers)
    many = Points(Coded.constant("d", n), Coded.constant("m", n), np.arange(n), numbers, np.zeros(n, np.int64))
    assert [p[1] for p in json.loads(encode_json(many))["series"][0]["points"]] == numbers.tolist()
    rows = list(csv.DictReader(io.StringIO(encode_csv(many).decode(), newline="")))
    assert [float(row["value"]) for row in rows] == numbers.tolist()
    assert [row["value"] for row in read_arrow(encode_arrow_points(many))] == numbers.tolist()


def test_times_are_rfc3339_or_epochs() -> None:
    def check(times: list[int], epoch: str | None, want: list[Any]) -> None:
        found = format_times(np.array(times, np.int64), epoch)
        assert found == want
        assert list(map(type, found)) == list(map(type, want))

    check([0, SECOND], None, ["1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z"])
    check([0, 250_000], None, ["1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.250Z"])
    check([1_794_729_600_000_001], None, ["2026-11-15T08:00:00.000001Z"])
    check([2 * SECOND], "s", [2])
    check([2 * SECOND, 500_000], "s", [2.0, 0.5])
    check([2 * SECOND], "ms", [2_000])
    check([2 * SECOND], "us", [2_000_000])
    check([2 * SECOND], "ns", [2_000_000_000])
    with pytest.raises(Unsupported):
        format_times(np.zeros(1, np.int64), "h")


def test_csv_quotes_as_rfc4180_says() -> None:
    lines = encode_csv(points(tags=True), epoch="s").decode().split("\r\n")
    assert lines[0] == "device,time,metric,value,text,tags"
    assert lines[1] == 'a,1,Temp,21.5,,"{""site"":""q""}"'
    assert lines[2] == "a,1,State,,run,"
    assert lines[3] == '"b,""x""",2,Temp,3.0,,"{""site"":""q""}"'
    assert lines[5] == ""


def steps(text_first: int) -> Reply:
    """A series of texts, one of counts and one of means; the last value is more than a number can say."""
    n = text_first
    labels = {
        "device": Coded.constant("d", 3 * n),
        "metric": Coded.of(["a"] * n + ["b"] * 2 * n),
        "agg": Coded.of(["last"] * n + ["count"] * n + ["sum"] * n),
        "kind": Coded.of(["text"] * n + ["number"] * 2 * n),
    }
    number = np.concatenate([np.full(n, np.nan), np.arange(n), np.arange(n - 1) + 0.5, [np.inf]])
    said = Coded(Names.of(("run",)), np.repeat([0, -1], [n, 2 * n]).astype(np.int32))
    return Reply(Series(labels, np.tile(np.arange(n) * SECOND, 3), number, said), "1s", "", {})


def test_readers_of_csv_over_steps_find_the_types_though_texts_are_first() -> None:
    frame = pl.read_csv(io.BytesIO(encode_reply(steps(150), CSV)), try_parse_dates=True)
    assert frame.columns == ["device", "time", "metric", "agg", "kind", "value", "text"]
    assert frame.dtypes == [pl.String, pl.Datetime("us", "UTC"), pl.String, pl.String, pl.String, pl.Float64, pl.String]
    assert frame.filter(pl.col("kind") == "text")["text"].to_list() == ["run"] * 150
    assert frame.filter(pl.col("agg") == "count")["value"].to_list() == list(range(150))


def test_what_is_more_than_a_number_can_say_is_not_known_in_any_form() -> None:
    reply = steps(2)
    assert json.loads(encode_reply(reply, JSON))["series"][-1]["points"][-1][1] is None
    assert list(csv.DictReader(io.StringIO(encode_reply(reply, CSV).decode())))[-3]["value"] == ""
    assert read_arrow(encode_reply(reply, ARROW))[-1]["value"] is None


def test_arrow_keeps_types_and_can_be_written_back() -> None:
    body = encode_arrow_points(points())
    schema = pa.ipc.open_stream(body).schema
    assert schema.field("time").type == pa.timestamp("us", "UTC")
    assert pa.types.is_dictionary(schema.field("metric").type)
    assert [(row["value"], row["text"]) for row in read_arrow(body)] == [
        (21.5, None),
        (None, "run"),
        (3.0, None),
        (1e300, None),
    ]
    decoded = decode_arrow(body, now_us=0, version_us=0)
    assert decoded.refusals == ()
    assert [report.values for report in reports_of(decoded.batch)] == [
        {"Temp": 21.5, "State": "run"},
        {"Temp": 3.0},
        {"Temp": 1e300},
    ]
    assert [row["tags"] for row in read_arrow(encode_arrow_points(points(tags=True)))] == [
        '{"site":"q"}',
        None,
        '{"site":"q"}',
        None,
    ]


def test_the_media_type_chooses_the_form() -> None:
    assert encode_points(points(), JSON, next_cursor="c") == encode_json(points(), next_cursor="c")
    assert encode_points(points(), CSV, epoch="ms") == encode_csv(points(), epoch="ms")
    assert encode_points(points(), ARROW) == encode_arrow_points(points())
    with pytest.raises(Unsupported):
        encode_points(points(), "text/html")
    with pytest.raises(Unsupported):
        encode_records([], "text/html")


def test_records_become_columns() -> None:
    records = [{"name": "a", "tags": {"k": "v"}, "n": 1}, {"name": "b", "n": 2.5, "mixed": "x"}, {"name": "c", "mixed": 1}]
    assert json.loads(encode_records(records, JSON)) == records
    lines = encode_records(records, CSV).decode().split("\r\n")
    assert lines[:3] == ["name,tags,n,mixed", 'a,"{""k"":""v""}",1,', "b,,2.5,x"]
    assert read_arrow(encode_records(records, ARROW)) == [
        {"name": "a", "tags": '{"k":"v"}', "n": 1.0, "mixed": None},
        {"name": "b", "tags": None, "n": 2.5, "mixed": "x"},
        {"name": "c", "tags": None, "n": None, "mixed": "1"},
    ]


def test_points_are_taken_by_mask_or_index() -> None:
    def check(rows: Any, times: list[int]) -> None:
        taken = points(tags=True).take(rows)
        assert (taken.time_us // SECOND).tolist() == times
        assert len(taken) == len(times)

    check(np.array([3, 0]), [3, 1])
    check(np.array([False, False, True, False]), [2])
    with pytest.raises(ValueError, match="length"):
        Points(Coded.of(["a"]), Coded.of(["m"]), np.zeros(2, np.int64), np.zeros(1), np.zeros(1, np.int64))
