"""Whether a backup can be restored: its files are there, and open as a store."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from widerow.backup.folder import BackupFolder, Manifest, digest_of
from widerow.engine.rocksdb.readable import check_readable
from widerow.model.errors import Corrupt


def check(folder: BackupFolder, manifest: Manifest, *, thorough: bool, advance: Callable[[int], None]) -> None:
    """`Corrupt`: it cannot. `thorough`: every byte is read, and every checksum compared; `advance` is told of them."""
    for name, file in manifest.files.items():
        at = folder.object(file)
        if not folder.has(file):
            raise Corrupt(f"backup {manifest.number} is not whole: {at} ({name}) is not there, or is cut off")
        if thorough:
            if digest_of(at)[0] != file.sha256:
                aside = at.rename(at.with_name(f"{at.name}.damaged"))  # the next backup copies it anew
                raise Corrupt(f"backup {manifest.number} is damaged: {name} has changed on disk; it is now {aside}")
            advance(file.bytes)
    with tempfile.TemporaryDirectory(prefix="widerow-check-") as opened:
        for name, file in manifest.files.items():
            (Path(opened) / name).symlink_to(folder.object(file).resolve())
        check_readable(Path(opened), every_block=thorough, advance=lambda _rows: None)
