"""Request bodies say what the batch said, whatever the names and digits."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.model.batch import Report, Value, batch_of, reports_of
from widerow.simulate.encode import (
    FORMATS,
    encode_arrow_long,
    encode_arrow_wide,
    encode_json,
    encode_line,
    encode_ndjson,
)
from widerow.simulate.fleet import Fleet

FLEET = Fleet(5, 100, start_us=1_760_000_000_000_000)
ODD = [
    Report("Halle 3/Presse #7", 1_760_000_000_000_001, {"a b": 0.1, "x=y": 5e-324, "q,r": 'say "no"\\'}, {"t,1": "a = b"}),
    Report("plain", 1_760_000_000_000_002, {"v": 1.7976931348623157e308, "n": -0.5681260027821038}, {}),
    Report("Öl;ß", 3, {"state": "läuft\nnicht", "w": 9007199254740993.0}, {"x": "ü", "y": "1"}),
]


def split_unescaped(text: str, mark: str) -> list[str]:
    """Cut at marks that are neither escaped nor quoted."""
    parts, quoted, current, i = [], False, "", 0
    while i < len(text):
        if text[i] == "\\" and i + 1 < len(text):
            current += text[i : i + 2]
            i += 2
            continue
        if text[i] == '"' and mark != "\n":
            quoted = not quoted
        if text[i] == mark and not quoted:
            parts.append(current)
            current = ""
        else:
            current += text[i]
        i += 1
    return [*parts, current]


def plain(text: str) -> str:
    return re.sub(r"\\([,= ])", r"\1", text)


def read_line(line: str) -> tuple[str, Report]:
    """A report and its measurement, by the letter of the protocol."""
    head, fields, time_ns = split_unescaped(line, " ")
    measurement, *tags = split_unescaped(head, ",")
    labels = {plain(k): plain(v) for k, v in (split_unescaped(tag, "=") for tag in tags)}
    values: dict[str, Value] = {}
    for field in split_unescaped(fields, ","):
        name, value = split_unescaped(field, "=")
        values[plain(name)] = re.sub(r'\\(["\\])', r"\1", value[1:-1]) if value.startswith('"') else float(value)
    device = labels.pop("device")
    return plain(measurement), Report(device, int(time_ns) // 1000, values, labels)


def test_line_protocol_reads_back() -> None:
    for batch, types in ((FLEET.batch(30), FLEET.types()), (batch_of(ODD[:2]), ["my press", "b,c"])):
        lines = encode_line(batch, types).decode().removesuffix("\n").split("\n")
        read = [read_line(line) for line in lines]
        assert [report for _, report in read] == reports_of(batch)
        assert [measurement for measurement, _ in read] == [types[c] for c in batch.device.codes]


def test_line_protocol_refuses_what_it_cannot_say() -> None:
    for name in ("ends with \\", "a\\,b"):
        with pytest.raises(ValueError, match="backslash"):
            encode_line(batch_of([Report(name, 1, {"v": 1.0}, {})]), ["t"])


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_every_float_keeps_all_its_bits(numbers: list[float]) -> None:
    batch = batch_of([Report("d", i, {"v": x}, {}) for i, x in enumerate(numbers)])
    lines = encode_line(batch, ["t"]).decode().split("\n")[:-1]
    assert [float(line.split(" ")[1][2:]) for line in lines] == numbers
    assert [o["values"]["v"] for o in json.loads(encode_json(batch))] == numbers


def read_objects(objects: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return [(o["device"], o["time"], o["values"], o.get("tags", {})) for o in objects]


def test_json_and_ndjson_read_back() -> None:
    for batch in (FLEET.batch(30), batch_of(ODD)):
        want = [(r.device, r.time_us, r.values, r.tags) for r in reports_of(batch)]
        assert read_objects(json.loads(encode_json(batch))) == want
        lines = encode_ndjson(batch).decode().split("\n")
        assert lines.pop() == ""
        assert read_objects([json.loads(line) for line in lines]) == want


def test_wide_arrow_reads_back() -> None:
    for batch in (FLEET.batch(30), batch_of(ODD)):
        got = []
        for row in pa.ipc.open_stream(encode_arrow_wide(batch)).read_all().to_pylist():
            device, time = row.pop("device"), row.pop("time")
            cells = {k: v for k, v in row.items() if v is not None}
            tags = {k.removeprefix("tag:"): cells.pop(k) for k in list(cells) if k.startswith("tag:")}
            time_us = np.datetime64(time.replace(tzinfo=None), "us").astype(int)
            got.append(Report(device, int(time_us), cells, tags))
        assert got == reports_of(batch)


def test_long_arrow_holds_every_value() -> None:
    batch = batch_of(ODD)
    rows = pa.ipc.open_stream(encode_arrow_long(batch)).read_all().to_pylist()
    got = [(r["device"], r["metric"], r["text"] if r["value"] is None else r["value"]) for r in rows]
    assert got == [(r.device, name, value) for r in ODD for name, value in r.values.items()]


def test_wide_arrow_refuses_a_metric_of_two_minds() -> None:
    mixed = [Report("d", 1, {"v": 1.0}, {}), Report("d", 2, {"v": "one"}, {})]
    with pytest.raises(ValueError, match="use long"):
        encode_arrow_wide(batch_of(mixed))
    with pytest.raises(ValueError, match="column of its own"):
        encode_arrow_wide(batch_of([Report("d", 1, {"time": 1.0}, {})]))


def test_text_formats_refuse_what_is_not_finite() -> None:
    batch = batch_of([Report("d", 1, {"v": float("nan")}, {})])
    for encode in (encode_json, encode_ndjson, encode_line):
        with pytest.raises(ValueError, match="NaN"):
            encode(batch, ["t"])


def test_an_empty_batch_has_a_body_in_every_format() -> None:
    empty = batch_of([])
    assert {name: f.encode(empty, []) for name, f in FORMATS.items() if "arrow" not in name} == {
        "line": b"",
        "json": b"[]",
        "ndjson": b"",
    }
    assert pa.ipc.open_stream(FORMATS["arrow"].encode(empty, [])).read_all().num_rows == 0
