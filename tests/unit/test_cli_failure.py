"""How a command ends that fails: one line, an exit code, and never a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest


def ended(statement: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The entry point, where the command does this."""
    code = f"import widerow.cli.commands as c, widerow.cli.main as m\ndef run():\n    {statement}\nc.run = run\nm.main()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize(
    ("statement", "exit_code", "line"),
    [
        (
            "open('/dev/null/x')",
            1,
            "error: file: /dev/null/x: Not a directory; a part of the path is a file: give another path",
        ),
        (
            "import errno; raise OSError(errno.ENOSPC, '')",
            1,
            "error: file: No space left on device; free some space on the disk",
        ),
        ("raise MemoryError", 1, "error: memory: there is too little memory; give the process more"),
        ("raise ValueError('a\\nb')", 1, "error: internal: ValueError: a\\nb; this is a fault of Widerow"),
        ("import sys; sys.exit(7)", 7, ""),
        ("raise KeyboardInterrupt", 130, ""),
        ("raise BrokenPipeError", 1, ""),
    ],
)
def test_every_error_ends_in_one_line_with_what_to_do(statement: str, exit_code: int, line: str) -> None:
    done = ended(statement)
    assert (done.returncode, done.stdout) == (exit_code, "")
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == bool(line)


def test_a_traceback_is_shown_where_it_is_asked_for() -> None:
    done = ended("raise ValueError('odd')", WIDEROW_TRACEBACK="1")
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: internal: ValueError: odd")
