"""A backup becomes a store again, in a folder that is empty or not there yet.

Rule 1: the folder bears a mark until all is done, and nobody opens a store that bears it (`engine.open`). The same command
goes on where one was interrupted: a file has its name when it is whole, and once all have it they are not copied again.
Rule 2: what was erased after the backup is erased again before the mark goes.
Rule 3: the restored store does not note its erasures with the backups it came from: it may be a drill beside the store that
does. Its own first backup changes that.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from widerow.backup.erased import Ledger, erase_again
from widerow.backup.folder import BackupFolder, Manifest, copy, sync_folder, write_whole
from widerow.backup.running import KEY, known_to, row_of
from widerow.catalog.audit import record_command
from widerow.catalog.store import bring_up
from widerow.engine.port import Engine
from widerow.engine.rocksdb import RocksEngine
from widerow.model.errors import Conflict, Corrupt
from widerow.model.store import RESTORING
from widerow.model.times import DAY, Clock
from widerow.ops.folders import make_private
from widerow.schema.tables import META


@dataclass(frozen=True, slots=True)
class Restored:
    backup: Manifest
    erased: int
    """Marks that the backup did not have."""
    erased_known_us: int | None
    """Up to when it is known what was erased; None: it is not."""


class _Mark(msgspec.Struct, frozen=True):
    """What an unfinished restore says of itself."""

    source: str
    number: int
    copied: bool = False


_MARK_DECODER = msgspec.json.Decoder(_Mark)


def restore(
    folder: BackupFolder, manifest: Manifest, target: Path, clock: Clock, advance: Callable[[int], None], *, audit_days: int
) -> Restored:
    """Make a store of a backup. `advance` is told of bytes that are copied, or were before."""
    marks, known_us = Ledger(folder.erased).read()  # first: nothing is begun that this would end
    mark = _begun(target, _Mark(str(folder.path), manifest.number))
    if not mark.copied:
        _copy(folder, manifest, target, advance)
        write_whole(target / RESTORING, msgspec.json.encode(msgspec.structs.replace(mark, copied=True)))
    engine = RocksEngine(target, clock=clock)
    try:
        bring_up(engine)
        _forget_folders(engine)
        erased = erase_again(engine, marks)
        said = [f"backup {manifest.number} of {folder.path}", f"{erased} erasures repeated"]
        record_command(engine, engine.clock, "widerow restore", said, keep_us=audit_days * DAY)
    finally:
        engine.close()
    (target / RESTORING).unlink()
    sync_folder(target)
    return Restored(manifest, erased, known_us)


def _begun(target: Path, wanted: _Mark) -> _Mark:
    """The mark of this restore; a new one, if it begins."""
    make_private(target)
    mark = target / RESTORING
    if mark.exists():
        try:
            found = _MARK_DECODER.decode(mark.read_bytes())
        except msgspec.DecodeError as error:
            raise Corrupt(f"{mark} cannot be read: {error}; remove {target}") from None
        if (found.source, found.number) != (wanted.source, wanted.number):
            raise Conflict(
                f"{target} holds part of backup {found.number} of {found.source}: go on with that one, or remove the folder"
            )
        return found
    if any(target.iterdir()):
        raise Conflict(f"{target} is not empty: restore into an empty folder, or one that is not there yet")
    write_whole(mark, msgspec.json.encode(wanted))
    return wanted


def _copy(folder: BackupFolder, manifest: Manifest, target: Path, advance: Callable[[int], None]) -> None:
    room = shutil.disk_usage(target).free
    missing = {name: file for name, file in manifest.files.items() if not (target / name).exists()}
    advance(manifest.bytes - sum(file.bytes for file in missing.values()))
    if (needed := sum(file.bytes for file in missing.values())) > room:
        raise Conflict(f"the disk of {target} has {room >> 20} MiB free, and {needed >> 20} are needed")
    for name, file in missing.items():
        if not folder.has(file):
            raise Corrupt(f"{folder.object(file)} is not there, or is cut off: backup {manifest.number} is not whole")
        copy(folder.object(file), target / name, file, advance)
    sync_folder(target)


def _forget_folders(engine: Engine) -> None:
    known = known_to(engine)
    if known is not None and known.folders:
        engine.put_if(META, KEY, row_of(msgspec.structs.replace(known, folders=())), row_of(known))
