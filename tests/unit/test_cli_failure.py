"""How a command ends that fails: one line, an exit code, and never a traceback."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

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


def test_an_interrupt_that_meets_the_end_of_an_object_is_not_lost() -> None:
    statement = (
        "import signal, time\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs ignore it
        "    class Ending:\n"
        "        def __del__(self):\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "    Ending()\n"
        "    time.sleep(20)"
    )
    done = ended(statement)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("mib", [150, 500, 1500])
@pytest.mark.parametrize(
    "command",
    ["tenant list --store rocksdb:no", "serve --store rocksdb:no"],
)
def test_too_little_address_space_is_said_beforehand(command: str, mib: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "widerow.cli.main", *command.split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20)),
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert f"limited to {mib:,} MiB" in last
    assert "ulimit -v" in last
    assert "Traceback" not in done.stderr
