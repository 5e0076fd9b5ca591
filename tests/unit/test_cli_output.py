"""What is printed, and the forms of points."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from widerow.cli import output
from widerow.cli.failure import Failed
from widerow.cli.output_file import written_to
from widerow.cli.points import ArrowForm, CsvForm, JsonForm, TableForm
from widerow.cli.steps import _table as steps_table
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, format_time

NOW_US = 1_763_000_000 * SECOND


def test_values_for_people() -> None:
    def check(value: object, want: str) -> None:
        assert output.shown(value) == want

    check(None, "-")
    check({}, "-")
    check(True, "yes")
    check(1234567, "1,234,567")
    check(21.5, "21.5")
    check(3.0, "3")
    check(1e300, "1e+300")
    check({"a": "ü"}, '{"a": "ü"}')
    check("\x1b]0;title\x07\n", "\\x1b]0;title\\x07\\n")


def test_sizes_and_ages() -> None:
    assert [output.size(n) for n in (0, 1023, 1536, 5 << 30, 3 << 50)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        "3072.0 TiB",
    ]
    ages = {0: "just now", 95 * SECOND: "1.6m ago", 3 * MINUTE: "3m ago", 5 * HOUR: "5h ago", 3 * DAY: "3d ago"}
    for past_us, want in ages.items():
        assert output.age(format_time(NOW_US - past_us), NOW_US) == want
    assert output.age(None, NOW_US) == "-"
    assert output.age(format_time(NOW_US + SECOND), NOW_US) == "ahead of this clock"


def test_a_table_shows_names_as_they_are() -> None:
    text = output.table(("device", "value"), [("[red]Halle 3/Presse #17[/red] :smile:", 1.5)], right=("value",))
    assert "[red]Halle 3/Presse #17[/red] :smile:" in text


def test_a_metric_with_numbers_and_texts_has_a_column_for_each() -> None:
    def one(metric: str, kind: str, *values: Any) -> dict[str, Any]:
        points = [[f"2026-11-15T0{i}:00:00Z", value] for i, value in enumerate(values)]
        return {"device": "a", "metric": metric, "agg": "last", "kind": kind, "points": points}

    table = steps_table([one("mode", "text", "run"), one("x", "number", 1.0, 2.0), one("x", "text", "off", "on")])
    head, _, *rows = [line.split() for line in table.splitlines()]
    assert head == ["time", "mode", "last", "x", "last", "number", "x", "last", "text"]
    assert rows == [["2026-11-15T00:00:00Z", "run", "1", "off"], ["2026-11-15T01:00:00Z", "2", "on"]]


def test_a_table_in_a_pipe_does_not_fold_names() -> None:
    name = "n" * 200
    assert name in output.table(("device", "other"), [(name, name)])


def test_a_file_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    file.write_text("before")
    with pytest.raises(ZeroDivisionError), written_to(file) as write:
        write(b"half" * (1 // 0))
    assert file.read_text() == "before"
    with written_to(file) as write:
        write(b"whole")
    assert file.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [file]
    with (
        pytest.raises(Failed, match="no/such: No such file"),
        written_to(tmp_path / "no" / "such") as write,
    ):
        write(b"")


def page(*points: tuple[str, float], metric: str = "t") -> bytes:
    return json.dumps({"series": [{"device": "d", "metric": metric, "points": points}], "next": None}).encode()


def test_json_pages_become_one_value() -> None:
    form, out = JsonForm(), bytearray()
    assert form.page(page(("2026-01-01T00:00:00Z", 1)), out.extend) == 1
    assert form.page(page(("2026-01-01T00:00:01Z", 2)), out.extend) == 1
    assert form.page(page(("2026-01-01T00:00:01Z", 3), metric="a"), out.extend) == 1
    form.end(out.extend)
    assert json.loads(out) == {
        "series": [
            {"device": "d", "metric": "a", "points": [["2026-01-01T00:00:01Z", 3]]},
            {"device": "d", "metric": "t", "points": [["2026-01-01T00:00:00Z", 1], ["2026-01-01T00:00:01Z", 2]]},
        ]
    }


def test_a_table_has_a_line_for_each_time_in_order_of_time() -> None:
    form, out = TableForm(), bytearray()
    form.page(page(("2026-01-01T00:00:00Z", 1), ("2026-01-01T00:00:01Z", 2)), out.extend)
    form.page(page(("2026-01-01T00:00:00.500Z", 3), metric="a"), out.extend)
    form.end(out.extend)
    lines = [line.split() for line in out.decode().splitlines()]
    assert lines[0] == ["time", "a", "t"]
    assert lines[2:] == [
        ["2026-01-01T00:00:00Z", "1"],
        ["2026-01-01T00:00:00.500Z", "3"],
        ["2026-01-01T00:00:01Z", "2"],
    ]


def test_csv_pages_share_one_header() -> None:
    form, out = CsvForm(), bytearray()
    assert form.page(b'device,value\r\nd,"a\r\nb"\r\n', out.extend) == 1
    assert form.page(b"device,value\r\nd,1\r\nd,2\r\n", out.extend) == 2
    form.end(out.extend)
    assert out == b'device,value\r\nd,"a\r\nb"\r\nd,1\r\nd,2\r\n'


def test_arrow_pages_become_one_stream_though_their_dictionaries_differ() -> None:
    def stream(names: list[str]) -> bytes:
        table = pa.table({"metric": pa.array(names).dictionary_encode()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        body: bytes = sink.getvalue().to_pybytes()
        return body

    form, out = ArrowForm(), bytearray()
    assert form.page(stream(["a", "b"]), out.extend) == 2
    assert form.page(stream(["c"]), out.extend) == 1
    form.end(out.extend)
    assert pa.ipc.open_stream(bytes(out)).read_all()["metric"].to_pylist() == ["a", "b", "c"]
    with pytest.raises(Failed, match="Arrow"):
        form.page(b"no stream at all", out.extend)
