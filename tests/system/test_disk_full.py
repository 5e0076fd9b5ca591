"""A full disk refuses, and recovers by itself. The rules are in disk_full.py, which runs in a mount namespace of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from servers.cache import Missing
from servers.fixtures import had

TESTS = Path(__file__).resolve().parents[1]
RESERVES_MIB = {"the reserve": 20, "the disk": 0}
"""Who refuses: we, before the disk is full, or the disk itself, in the middle of a write."""
WITHIN_S = 150

Stories = dict[str, subprocess.Popen[str]]


def own_mounts(folder: Path) -> list[str]:
    """How to run a command that may mount a disk: as root, or as root of a user namespace."""
    flags = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
    command = [shutil.which("unshare") or "unshare", *flags]
    try:
        tried = subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False)
        why = tried.stderr.decode(errors="replace").strip()
    except FileNotFoundError:
        why = "there is no unshare command"
    else:
        if tried.returncode == 0:
            return command
    raise Missing(f"a small disk cannot be mounted here: {why}")


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    """All at once, since most of the time they wait."""
    running: Stories = {}
    for name, reserve_mib in RESERVES_MIB.items():
        folder = tmp_path_factory.mktemp("disk")
        running[name] = subprocess.Popen(
            [*had(partial(own_mounts, folder)), sys.executable, "-m", "system.disk_full", str(folder), str(reserve_mib)],
            env=os.environ | {"PYTHONPATH": str(TESTS)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    yield running
    for story in running.values():
        with story:  # closes its pipe and waits
            if story.poll() is None:
                story.send_signal(signal.SIGINT)  # it ends its server, too


@pytest.mark.parametrize("who", RESERVES_MIB)
def test_a_disk_that_is_full_refuses_reports_and_loses_none(stories: Stories, who: str) -> None:
    said, _ = stories[who].communicate(timeout=WITHIN_S)
    print(said)
    assert stories[who].returncode == 0, said
