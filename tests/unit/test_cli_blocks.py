"""`widerow blocks`: files of reports become blocks and come back; what they hold is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from golden.make import FOLDER
from widerow.cli.block_files import read_reports, reports_as
from widerow.cli.commands import app
from widerow.model.batch import Batch, reports_of
from widerow.simulate.fleet import Fleet

START_US = 1_700_000_000_000_000


def blocks(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["blocks", *map(str, arguments)])


def fleet() -> Batch:
    return Fleet(5, 12, start_us=START_US).made(range(30))


def content(path: Path) -> list[tuple[object, ...]]:
    batch = read_reports(path, START_US).batch
    return sorted((r.device, r.time_us, sorted(r.values.items()), sorted(r.tags.items())) for r in reports_of(batch))


@pytest.mark.parametrize("options", [(), ("--quick",)])
def test_a_parquet_file_becomes_blocks_and_comes_back(tmp_path: Path, options: tuple[str, ...]) -> None:
    first, packed, back = tmp_path / "fleet.parquet", tmp_path / "fleet.wblk", tmp_path / "back.parquet"
    first.write_bytes(reports_as(first, fleet()))
    done = blocks("pack", first, packed, "--json", *options)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["reports"], said["values"], said["refused"]) == (len(fleet()), len(fleet().cells), 0)
    assert said["bytes"]["blocks"] == packed.stat().st_size < said["bytes"]["rows"]
    assert blocks("unpack", packed, back).exit_code == 0
    assert content(back) == content(first)
    assert pq.read_table(back).column("version_us").to_pylist() == pq.read_table(first).column("version_us").to_pylist()


def test_lines_become_blocks_and_come_back(tmp_path: Path) -> None:
    lines, packed, back = tmp_path / "a.lp", tmp_path / "a.wblk", tmp_path / "b.lp"
    lines.write_text('m,device=press-7,path=/ used=1.5,state="run" 1700000000000000000\nbroken\n')
    done = blocks("pack", lines, packed)
    assert done.exit_code == 0, done.output
    assert "1 refused: device-missing" in done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == ["rows", "Parquet", "blocks"]
    assert blocks("unpack", packed, back).exit_code == 0
    assert back.read_text() == ('report,device=press-7 m_state{path\\=/}="run",m_used{path\\=/}=1.5 1700000000000000000\n')


def test_the_columns_and_the_rows_of_blocks_are_shown() -> None:
    shown = blocks("show", FOLDER / "report-quick-1.wblk", "--device", "press-7")
    assert shown.exit_code == 0, shown.output
    assert "encoding         quick" in shown.stdout
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert ["temperature", "number", "plain", "1", "8", "8.00"] in rows
    assert ["press-7", "2023-11-14T22:13:20Z", "2023-11-14T22:13:20.100Z", "temperature", "21.5"] in rows
    asked = blocks("show", FOLDER / "hour-dense-1.wblk", "--metric", "dose", "--limit", "2", "--json")
    one = json.loads(asked.stdout)
    assert [column["metric"] for column in one["columns"]] == ["dose"]
    assert [row["value"] for row in one["rows"]] == [0.0, 7.5]


def test_parts_of_rollups_are_shown_and_are_no_reports(tmp_path: Path) -> None:
    shown = blocks("show", FOLDER / "kinds-dense-1.wblk", "--metric", "x", "--json")
    parts = {row["part"]: row["value"] for row in json.loads(shown.stdout)["rows"] if row["part"]}
    assert parts == {"count": (1 << 63) - 1, "min": -1.5, "sketch": "00ff80"}
    back = blocks("unpack", FOLDER / "kinds-dense-1.wblk", tmp_path / "out.parquet")
    assert (back.exit_code, "rollups are no reports" in back.stderr) == (1, True)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_read_is_named_with_what_to_do(tmp_path: Path) -> None:
    odd = tmp_path / "a.csv"
    odd.write_text("device,time\n")
    assert blocks("pack", odd, tmp_path / "out").exit_code == 2
    wrong = tmp_path / "a.parquet"
    wrong.write_text("device,time\n")
    failed = blocks("pack", wrong, tmp_path / "out")
    assert (failed.exit_code, "is no Parquet file" in failed.stderr) == (1, True)
    assert "this is no block" in blocks("show", wrong).stderr
    cut = tmp_path / "cut.wblk"
    cut.write_bytes((FOLDER / "hour-dense-1.wblk").read_bytes()[:-1])
    assert "error: corrupt: " in blocks("show", cut).stderr
    for missing in (blocks("show", tmp_path / "none.wblk"), blocks("pack", tmp_path / "none.parquet", tmp_path / "out")):
        assert (missing.exit_code, "No such file" in missing.stderr) == (1, True)


def test_a_file_is_neither_replaced_by_its_blocks_nor_by_its_reports(tmp_path: Path) -> None:
    lines = tmp_path / "a.lp"
    lines.write_text("m,device=press-7 used=1.5 1700000000000000000\n")
    done = blocks("pack", lines, tmp_path / "." / "a.lp")
    assert (done.exit_code, "give OUT another name" in done.stderr) == (2, True)
    assert lines.read_text().startswith("m,device")
    named_so = tmp_path / "blocks.lp"
    assert blocks("pack", lines, named_so).exit_code == 0
    assert blocks("unpack", named_so, named_so).exit_code == 2


def test_a_file_without_blocks_and_a_name_that_no_block_has_are_said(tmp_path: Path) -> None:
    empty = tmp_path / "empty.wblk"
    empty.write_bytes(b"")
    shown = blocks("show", empty)
    assert (shown.exit_code, "has no blocks" in shown.stderr) == (1, True)
    absent = blocks("show", FOLDER / "hour-dense-1.wblk", "--device", "absent", "--limit", str(10**30))
    assert absent.exit_code == 0, absent.output
    assert absent.stderr == "no values of device absent\n"
    assert blocks("show", FOLDER / "hour-dense-1.wblk", "--metric", "absent").stderr == "no values of metric absent\n"


def test_a_damaged_page_is_said_where_blocks_are_shown(tmp_path: Path) -> None:
    whole = (FOLDER / "hour-dense-1.wblk").read_bytes()
    damaged = tmp_path / "damaged.wblk"
    damaged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    shown = blocks("show", damaged)
    assert (shown.exit_code, "the checksum of a page" in shown.stderr) == (1, True)
    assert "encoding         dense" in shown.stdout, "its directory is shown nevertheless"
