"""Arrow streams of every form and type."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fuzz.arrow import check_sound, stream
from widerow.codec.arrow import decode_arrow, encode_arrow
from widerow.codec.arrow.stream import MAX_COLUMNS
from widerow.codec.decoded import Decoded
from widerow.model.batch import RECEIVED_TAG, Report, Value, batch_of, reports_of
from widerow.model.errors import Rejected, TooLarge, Unsupported
from widerow.model.times import MAX_TIME_US

NOW_US = VERSION_US = 1_763_193_600_000_000


def decode(columns: dict[str, Any] | Any, **options: Any) -> Decoded:
    table = pa.table(columns) if isinstance(columns, dict) else columns
    decoded = decode_arrow(stream(table), now_us=NOW_US, version_us=VERSION_US, **options)
    check_sound(decoded)
    return decoded


def codes(decoded: Decoded) -> list[tuple[int, str]]:
    return sorted((position, refusal.code) for refusal in decoded.refusals for position in refusal.positions)


def test_wide_columns_are_metrics() -> None:
    decoded = decode(
        {
            "device": ["a", "b"],
            "time": [1, 2],
            "Temp": [1.5, None],
            "State": [None, "run"],
            "tag:site": ["x", None],
        }
    )
    assert reports_of(decoded.batch) == [
        Report("a", 1_000, {"Temp": 1.5}, {"site": "x"}, VERSION_US),
        Report("b", 2_000, {"State": "run"}, {}, VERSION_US),
    ]


def test_metric_types() -> None:
    def check(array: Any, want: list[Value | None]) -> None:
        n = len(want)
        decoded = decode({"device": ["d"] * n, "time": range(n), "m": array, "other": [0] * n})
        assert [report.values.get("m") for report in reports_of(decoded.batch)] == want

    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        check(pa.array([1, None, 3], kind), [1.0, None, 3.0])
    check(pa.array([2**53, -(2**53)]), [2.0**53, -(2.0**53)])
    for kind in (pa.float32(), pa.float64()):
        check(pa.array([1.5, None], kind), [1.5, None])
    check(pa.array(np.array([1.5, 2], np.float16)), [1.5, 2.0])
    check(pa.array([True, False, None]), [1.0, 0.0, None])
    check(pa.array([Decimal("0.1"), None, Decimal("1234567890.123456789")]), [0.1, None, 1234567890.123456789])
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        check(pa.array(["run", None, "Zürich", ""], kind), ["run", None, "Zürich", ""])
    check(pa.array([1.5, None, 1.5]).dictionary_encode(), [1.5, None, 1.5])
    check(pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None])), ["a", None, None])
    check(pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.uint8()), pa.array(["a", "a", "b"])), ["a", "a", "b"])
    check(pa.nulls(2), [None, None])


def test_times() -> None:
    def check(array: Any, want: list[int], precision: str = "ms") -> None:
        decoded = decode({"device": ["d"] * len(want), "time": array, "m": [1] * len(want)}, precision=precision)
        assert decoded.batch.time_us.tolist() == want

    for zone in (None, "UTC", "Europe/Zurich"):
        check(pa.array([5], pa.timestamp("s", zone)), [5_000_000])
        check(pa.array([5], pa.timestamp("ms", zone)), [5_000])
        check(pa.array([5], pa.timestamp("us", zone)), [5])
        check(pa.array([5_999], pa.timestamp("ns", zone)), [5])
    check(pa.array([5], pa.int32()), [5_000_000], "s")
    check(pa.array([5], pa.uint64()), [5_000])
    check(pa.array([MAX_TIME_US]), [MAX_TIME_US], "us")
    check(pa.array([5_999]), [5], "ns")
    check(pa.array([1.25]), [1_250])
    check(pa.array([None, 1]), [NOW_US, 1_000])


def test_times_out_of_range_are_refused() -> None:
    def check(array: Any, precision: str = "ms") -> None:
        decoded = decode({"device": ["d", "d"], "time": array, "m": [1, 1]}, precision=precision)
        assert codes(decoded) == [(0, "time")]

    check(pa.array([-1, 1]))
    check(pa.array([2**63 - 1, 1]))
    check(pa.array([2**64 - 1, 1], pa.uint64()))
    check(pa.array([MAX_TIME_US + 1, 1]), "us")
    check(pa.array([-(2**63), 1], pa.timestamp("s")))
    check(pa.array([float("nan"), 1.0]))
    check(pa.array([1e300, 1.0]))


def test_a_missing_time_is_the_time_of_receipt() -> None:
    tag = {RECEIVED_TAG[0]: RECEIVED_TAG[1]}
    want = Report("d", NOW_US, {"m": 1.0}, tag, VERSION_US)
    assert reports_of(decode({"device": ["d"], "m": [1]}).batch) == [want]
    assert reports_of(decode({"device": ["d"], "time": pa.nulls(1), "m": [1]}).batch) == [want]
    assert reports_of(decode({"device": ["d"], "metric": ["m"], "value": [1]}).batch) == [want]


def test_a_metric_with_labels_may_have_1024_bytes_in_every_form() -> None:
    """Kafka has it in the form of cells: what a front acknowledged must not be refused by a worker."""
    kept, refused = "m{path=" + "x" * 1016 + "}", "m{path=" + "x" * 1017 + "}"
    report = Report("d", 1_000, {kept: 1.0}, {}, VERSION_US)
    message = encode_arrow(batch_of([report]))
    forms = {"device": ["d"], "time": [1]}
    assert reports_of(decode_arrow(message, now_us=NOW_US, version_us=VERSION_US).batch) == [report]
    assert reports_of(decode({**forms, kept: [1]}).batch) == [report]
    assert reports_of(decode({**forms, "metric": [kept], "value": [1]}).batch) == [report]
    assert codes(decode({**forms, refused: [1]})) == [(0, "name")]
    assert codes(decode({**forms, "metric": [refused], "value": [1]})) == [(0, "name")]


def test_a_bad_row_is_refused_alone() -> None:
    def check(code: str, **columns: Any) -> None:
        wide: dict[str, Any] = {"device": ["a", "b", "c"], "time": [1, 2, 3], "m": [1, 2, 3], **columns}
        decoded = decode(wide)
        assert codes(decoded) == [(1, code)]
        assert decoded.batch.position.tolist() == [0, 2]

    check("device-missing", device=["a", None, "c"])
    check("name", device=["a", "", "c"])
    check("name", device=["a", "b\n", "c"])
    check("name", device=["a", "b\x85", "c"])
    check("name", device=["a", "b" * 257, "c"])
    check("name", **{"m\t": [None, 1, None]})
    check("name", **{"tag:": [None, "x", None]})
    check("no-values", m=[1, None, 3])
    check("not-finite", m=[1.0, float("nan"), 3.0])
    check("not-finite", m=[1.0, float("-inf"), 3.0])
    check("integer-range", m=[1, 2**53 + 1, 3])
    check("integer-range", m=pa.array([1, 2**64 - 1, 3], pa.uint64()))
    check("value-type", extra=[None, [1], None])
    check("value-type", extra=pa.array([None, b"x", None]))
    check("value-type", **{"tag:n": [None, 1, None]})
    check("text-too-long", s=["x", "t" * 32_769, None])
    check("time", version_us=[1_000, VERSION_US + 1_000, None])
    check("time", version_us=[1_000, -1_000, None])


def test_versions_are_brought_in_whole_milliseconds_where_allowed() -> None:
    columns = {"device": ["a", "b", "c"], "time": [1, 2, 3], "m": [1, 2, 3], "version_us": [5_000, 5_999, None]}
    assert decode(columns).batch.version_us.tolist() == [5_000, 5_000, VERSION_US]
    with pytest.raises(Rejected, match="version_us"):
        decode(columns, may_bring_versions=False)


def test_long_rows_that_follow_each_other_are_joined() -> None:
    decoded = decode(
        {
            "device": ["a", "a", "a", "b", "b"],
            "time": [1, 1, 2, 2, 2],
            "metric": ["t", "s", "t", "t", "u"],
            "value": [1.0, None, 2.0, 3.0, 4.0],
            "text": [None, "run", None, None, None],
            "tag:site": ["x", "x", "x", "y", "z"],
        }
    )
    assert reports_of(decoded.batch) == [
        Report("a", 1_000, {"t": 1.0, "s": "run"}, {"site": "x"}, VERSION_US),
        Report("a", 2_000, {"t": 2.0}, {"site": "x"}, VERSION_US),
        Report("b", 2_000, {"t": 3.0}, {"site": "y"}, VERSION_US),
        Report("b", 2_000, {"u": 4.0}, {"site": "z"}, VERSION_US),
    ]
    assert decoded.batch.position.tolist() == [0, 2, 3, 4]
    assert decoded.batch.cells.offsets.tolist() == [0, 3, 5, 7, 9]


def test_a_bad_long_row_is_refused_alone() -> None:
    def check(code: str, **columns: Any) -> None:
        long: dict[str, Any] = {
            "device": ["a"] * 3,
            "time": [1] * 3,
            "metric": ["t", "u", "v"],
            "value": [1.0, 2.0, 3.0],
            **columns,
        }
        decoded = decode(long)
        assert codes(decoded) == [(1, code)]
        (report,) = reports_of(decoded.batch)
        assert report.values == {"t": 1.0, "v": 3.0}

    check("name", metric=["t", None, "v"])
    check("name", metric=["t", "\x00", "v"])
    check("no-values", value=[1.0, None, 3.0])
    check("not-finite", value=[1.0, float("inf"), 3.0])
    check("integer-range", value=[1, 2**60, 3])
    check("syntax", text=[None, "both", None])


def test_streams_that_make_no_sense_are_rejected() -> None:
    def check(code: str, columns: dict[str, Any] | Any) -> None:
        with pytest.raises(Rejected) as caught:
            decode(columns)
        assert caught.value.code == code

    check("device-missing", {"time": [1], "m": [1]})
    check("syntax", {"device": [1], "m": [1]})
    check("syntax", {"device": ["d"], "time": ["2026"], "m": [1]})
    check("syntax", {"device": ["d"], "metric": ["m"], "value": [1], "vlaue": [1]})
    check("syntax", {"device": ["d"], "metric": [1], "value": [1]})
    check("syntax", {"device": ["d"], "metric": ["m"], "text": [1]})
    check("syntax", {"device": ["d"], "version_us": [1.5], "m": [1]})
    check("syntax", {"device": ["d"], "cells": [[1]]})
    check("syntax", pa.table([["d"], ["e"], [1]], names=["device", "device", "m"]))
    for body in (b"", b"junk", stream(pa.table({"device": ["d"], "m": [1]}))[:200]):
        with pytest.raises(Rejected) as caught:
            decode_arrow(body, now_us=0, version_us=0)
        assert caught.value.code == "syntax"


def test_text_that_is_not_utf8_is_rejected() -> None:
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")])
    for column in (text, pa.DictionaryArray.from_arrays(pa.array([0]), text)):
        with pytest.raises(Rejected, match="UTF8"):
            decode({"device": column, "m": [1]})


def test_streams_too_large_are_refused_before_they_are_held() -> None:
    with pytest.raises(TooLarge, match="rows"):
        decode({"device": ["d"] * 4, "m": [1] * 4}, max_reports=3)
    with pytest.raises(TooLarge, match="columns"):
        decode({"device": ["d"], **{f"m{i}": [1] for i in range(MAX_COLUMNS)}})
    zeros = pa.table({"device": pa.DictionaryArray.from_arrays(np.zeros(500_000, np.int8), ["d"]), "m": np.zeros(500_000)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, zeros.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(zeros)
    body = sink.getvalue().to_pybytes()
    assert len(body) < 20_000
    with pytest.raises(TooLarge, match="decompresses"):
        decode_arrow(body, now_us=NOW_US, version_us=VERSION_US, max_bytes=1 << 20)
    assert len(decode_arrow(body, now_us=NOW_US, version_us=VERSION_US).batch) == 500_000


def test_dictionaries_may_differ_between_record_batches() -> None:
    def part(devices: list[str], states: list[str]) -> Any:
        columns = {
            "device": pa.array(devices).dictionary_encode(),
            "time": [1, 2],
            "s": pa.array(states).dictionary_encode(),
        }
        return pa.RecordBatch.from_pydict(columns)

    parts = [part(["a", "b"], ["x", "x"]), part(["c", "a"], ["y", "x"])]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, parts[0].schema) as writer:
        for each in parts:
            writer.write_batch(each)
    decoded = decode_arrow(sink.getvalue().to_pybytes(), now_us=NOW_US, version_us=VERSION_US)
    assert [(report.device, report.values["s"]) for report in reports_of(decoded.batch)] == [
        ("a", "x"),
        ("b", "x"),
        ("c", "y"),
        ("a", "x"),
    ]
    assert decoded.batch.device.names.to_list() == ["a", "b", "c"]


def test_slices_are_read_from_where_they_start() -> None:
    table = pa.table({"device": [f"d{i}" for i in range(10)], "time": range(10), "s": [f"t{i}" for i in range(10)]})
    decoded = decode(table.slice(4, 3))
    assert [(report.device, report.values["s"]) for report in reports_of(decoded.batch)] == [
        ("d4", "t4"),
        ("d5", "t5"),
        ("d6", "t6"),
    ]


def test_an_encoded_batch_comes_back_equal() -> None:
    reports = [
        Report("a", 5, {"x": 1.5, "s": "run"}, {"site": "q"}, 1_000),
        Report("Zürich/1", MAX_TIME_US, {"x": -0.0, "y": 5e-324}, {}, 2_000),
        Report("a", 0, {"s": ""}, {"k": "run", RECEIVED_TAG[0]: RECEIVED_TAG[1]}, 0),
    ]
    batch = batch_of(reports)

    def check(part: Any, want: list[Report]) -> None:
        body = encode_arrow(part)
        decoded = decode_arrow(body, now_us=NOW_US, version_us=VERSION_US)
        check_sound(decoded)
        assert decoded.refusals == ()
        assert reports_of(decoded.batch) == want

    check(batch, reports)
    check(batch.take(np.array([2, 0])), [reports[2], reports[0]])
    check(batch.take(np.array([], np.int64)), [])
    assert b"rich" not in encode_arrow(batch.take(np.array([0, 2])))


def test_a_cell_given_twice_survives_encoding() -> None:
    columns = {"device": ["d"] * 2, "time": [1, 1], "metric": ["m", "m"], "value": [1.0, 2.0]}
    twice = decode(columns).batch
    again = decode_arrow(encode_arrow(twice), now_us=NOW_US, version_us=VERSION_US).batch
    assert again.cells.number.tolist() == [1.0, 2.0]
    assert again.cells.offsets.tolist() == [0, 2]


def cells_table(cells: list[list[dict[str, Any] | None] | None], **others: Any) -> Any:
    item = pa.struct([("name", pa.string()), ("kind", pa.uint8()), ("number", pa.float64()), ("text", pa.string())])
    return pa.table({"device": ["d"] * len(cells), "cells": pa.array(cells, pa.list_(item)), **others})


def test_cells_from_others_obey_the_same_rules() -> None:
    good = {"name": "m", "kind": 0, "number": 1.0}

    def check(cells: list[dict[str, Any] | None] | None, code: str) -> None:
        decoded = decode(cells_table([[good], cells, [good]], time=[1, 2, None]))
        assert codes(decoded) == [(1, code)]
        assert [report.values for report in reports_of(decoded.batch)] == [{"m": 1.0}] * 2
        assert [report.tags for report in reports_of(decoded.batch)] == [{}, {RECEIVED_TAG[0]: RECEIVED_TAG[1]}]

    check(None, "no-values")
    check([], "no-values")
    check([{"name": "t", "kind": 2, "text": "x"}], "no-values")
    check([{**good, "name": None}], "name")
    check([good, {**good, "name": "a\n"}], "name")
    check([{**good, "number": float("nan")}], "not-finite")
    check([{**good, "number": None}], "not-finite")
    check([{**good, "kind": 3, "text": "x"}], "value-type")
    check([{**good, "kind": None}], "value-type")
    check([{"name": "t", "kind": 1}], "value-type")
    check([good, None], "name")
    check([{"name": "t", "kind": 1, "text": "t" * 32_769}], "text-too-long")
    with pytest.raises(Rejected):
        decode(cells_table([[]], extra=[1]))
    with pytest.raises(Unsupported):
        decode(cells_table([[]]).replace_schema_metadata({"widerow.cells": "2"}))
