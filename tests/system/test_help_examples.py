"""The examples in the help of `widerow blocks`, `keys` and `plan` run as they stand, in a folder with a file of a fleet.

Those that look at a server or at a cluster of others are run where these are: see `ELSEWHERE`.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from golden.make import FOLDER
from widerow.cli.block_files import reports_as
from widerow.cli.commands import app
from widerow.simulate.fleet import Fleet

ELSEWHERE = ("widerow keys heat", "widerow keys sizes", "widerow plan --from")

FLEET = reports_as(Path("fleet.parquet"), Fleet(5, 12, start_us=1_700_000_000_000_000).made(range(3)))


def examples() -> list[str]:
    top: Any = typer.main.get_command(app)
    groups = [command for name in ("blocks", "keys") for command in top.commands[name].commands.values()]
    texts = [command.help or "" for command in (*groups, top.commands["plan"])]
    return [found for text in texts for found in re.findall(r"^\s*Example: (widerow .+)$", text, re.MULTILINE)]


@pytest.mark.parametrize("example", [one for one in examples() if not one.startswith(ELSEWHERE)])
def test_an_example_runs_as_it_stands(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(FOLDER / "hour-dense-1.wblk", "fleet.wblk")
    Path("fleet.parquet").write_bytes(FLEET)
    result = CliRunner().invoke(app, shlex.split(example)[1:])
    # A key that has faults is judged with 1, which is what the example is about.
    assert result.exit_code in ((0, 1) if " lint " in example else (0,)), result.output
    assert result.output.strip()
    assert "error:" not in result.stderr


def test_each_command_has_an_example() -> None:
    assert len(examples()) >= 16
    assert {" ".join(one.split()[:3]) for one in examples() if one.startswith(ELSEWHERE)} == {
        "widerow keys heat",
        "widerow keys sizes",
        "widerow plan --from",
    }
