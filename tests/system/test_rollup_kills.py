"""A process that rolls is killed at every named point once: the short version of `make crash-rollups`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.rest
def test_killed_at_any_point_of_a_roll_nothing_is_wrong() -> None:
    # Its processes are forked, which is only safe where nothing else runs: so it is a process of its own.
    command = [sys.executable, "-m", "tests.system.rollup_kills", "--cycles", "18"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False, timeout=280)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed 18 times at 18 of 18 points" in done.stdout, done.stdout
