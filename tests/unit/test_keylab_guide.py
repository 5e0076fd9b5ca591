"""The guide about row keys shows what the commands print, and the picture that they draw. Times differ by the day."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from widerow.cli.commands import app

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDE = (DOCS / "guides" / "row-keys.md").read_text()


def printed(command: str) -> str:
    return timeless(CliRunner().invoke(app, shlex.split(command)[1:]).stdout)


def timeless(text: str) -> str:
    return re.sub(r"\d{13}", "TIME", text)


def test_the_guide_judges_keys_as_the_command_does() -> None:
    shown = re.findall(r"^```text\n\$ (widerow keys lint [^\n]+)\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    for command, output in shown:
        assert printed(command) == timeless(output)


@pytest.mark.rest
def test_the_guide_has_the_figures_and_the_picture_of_its_simulation(tmp_path: Path) -> None:
    (command,) = re.findall(r"^(widerow keys simulate .+) --html heat\.html$", GUIDE, re.MULTILINE)
    (figures,) = re.findall(r"^```text\n( spec .*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    picture = tmp_path / "row-keys.svg"
    lines = [line.split() for line in printed(f"{command} --svg {picture}").splitlines()]
    assert [line for line in figures.splitlines() if line.split() not in lines] == []
    assert timeless(picture.read_text()) == timeless((DOCS / "img" / "row-keys.svg").read_text())
