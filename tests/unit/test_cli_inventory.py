"""Lists of devices in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from widerow.cli.failure import Failed
from widerow.cli.inventory import read_inventory


def read(folder: Path, name: str, text: str) -> list[dict[str, Any]]:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return read_inventory(file)


def test_every_format_gives_the_same_forms(tmp_path: Path) -> None:
    want = [
        {"name": "Halle 3/Presse #7", "type": "press", "profile": {"reports_per_s": 0.5}, "tags": {"line": "L2"}},
        {"name": "b"},
    ]
    text = '{"name":"Halle 3/Presse #7","type":"press","profile":{"reports_per_s":0.5},"tags":{"line":"L2"},"revision":3}'
    assert read(tmp_path, "a.json", f'[{text},{{"name":"b"}}]') == want
    assert read(tmp_path, "a.ndjson", f'{text}\n\n{{"name":"b"}}\n') == want
    assert read(tmp_path, "a.csv", "name,type,reports_per_s,tag:line\nHalle 3/Presse #7,press,0.5,L2\nb,,,\n") == want
    assert read(tmp_path, "b.csv", "\ufeffname\r\nb\r\n") == [{"name": "b"}]
    assert read(tmp_path, "c.csv", "name,metrics_per_report\nb,12\n") == [
        {"name": "b", "profile": {"metrics_per_report": 12}}
    ]


def test_a_quoted_cell_may_hold_a_line_break(tmp_path: Path) -> None:
    assert read(tmp_path, "a.csv", 'name,tag:note\nb,"two\nlines"\n') == [{"name": "b", "tags": {"note": "two\nlines"}}]


def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path: Path) -> None:
    def check(name: str, text: str, want: str) -> None:
        with pytest.raises(Failed, match=want):
            read(tmp_path, name, text)

    check("a.txt", "", "ending")
    check("a.json", "{", "not JSON")
    check("a.json", "{}", "array")
    check("a.json", '[{"name":"a"},{"type":"b"}]', "entry 2")
    check("a.ndjson", '{"name":"a"}\n{', "line 2")
    check("a.csv", "type\npress\n", "no column `name`")
    check("a.csv", "name,colour\na,red\n", "colour")
    check("a.csv", "name,name\na,b\n", "twice")
    check("a.csv", "name,type\na\n", "line 2 has 1 cells")
    check("a.csv", "name,reports_per_s\na,often\n", "line 2: 'often'")
    check("a.csv", "name,metrics_per_report\na,1.5\n", "line 2: '1.5' is not a whole number")


def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"name\nK\xe4lte\n")
    with pytest.raises(Failed, match="not UTF-8"):
        read_inventory(file)
