"""Folders for data: their owner's alone."""

from __future__ import annotations

from pathlib import Path


def make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing, all of mode 0700 whatever the umask. What exists stays as it is."""
    for path in reversed([folder, *folder.parents]):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)
            path.chmod(0o700)
