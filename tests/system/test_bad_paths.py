"""Paths that cannot be used: every command says so in one line, whichever of its paths it is. See bad_paths.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from system.bad_paths import Tried, tried
from widerow.cli.output_file import written_to


@pytest.fixture(scope="module")
def all_tried(tmp_path_factory: pytest.TempPathFactory) -> list[Tried]:
    return tried(tmp_path_factory.mktemp("paths"))


@pytest.mark.rest
def test_a_bad_path_ends_every_command_with_one_line(all_tried: list[Tried]) -> None:
    assert len({tuple(one.line[:2]) for one in all_tried}) > 40
    for one in all_tried:
        if one.line[:2] == ["schema", "show"] and "--config" not in one.line:
            continue  # which needs no store
        assert not one.raised, one
        assert one.exit_code in (1, 2), one
        *notes, last = one.stderr.splitlines()
        if "Usage:" in one.stderr:  # of an option that is refused before the command runs
            assert one.exit_code == 2, one
            continue
        assert last.startswith("error: "), one
        assert not last.startswith("error: internal"), one
        assert "[Errno" not in last, one
        assert all(note.startswith(("starting", "20")) for note in notes), one  # a remark, or a line of the log


@pytest.mark.rest
def test_commands_that_only_read_make_no_store(all_tried: list[Tried]) -> None:
    assert [one for one in all_tried if one.made] == []


def test_output_goes_into_a_pipe_and_does_not_replace_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with written_to(pipe) as write:
        write(b"points")
    assert os.read(reader, 100) == b"points"
    assert pipe.is_fifo()
    os.close(reader)
