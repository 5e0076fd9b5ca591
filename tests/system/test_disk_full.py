"""A full disk refuses, and recovers by itself. The rules are in disk_full.py, which runs in a mount namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def own_mounts() -> list[str]:
    """How to run a command that may mount a disk: as root, or as root of a user namespace."""
    flags = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
    command = [shutil.which("unshare") or "unshare", *flags]
    try:
        allowed = subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
        why = allowed.stderr.decode(errors="replace").strip()
    except FileNotFoundError:
        why = "there is no unshare command"
    else:
        if allowed.returncode == 0:
            return command
    if os.environ.get("CI") == "true":
        pytest.fail(f"a small disk cannot be mounted here: {why}")
    pytest.skip(f"a small disk cannot be mounted here: {why}")


@pytest.mark.parametrize(
    "reserve_mib",
    [pytest.param(20, id="refused by the reserve"), pytest.param(0, id="refused by the disk")],
)
def test_a_full_disk_refuses_reports_and_loses_none(tmp_path: Path, reserve_mib: int) -> None:
    command = [*own_mounts(), sys.executable, "-m", "system.disk_full", str(tmp_path), str(reserve_mib)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(TESTS)}, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
