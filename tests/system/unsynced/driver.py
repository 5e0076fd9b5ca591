"""A disk that forgets: after a kill, a folder is put back to what was durable in it.

    watch = Watch(folder, scratch)         compiles the shim
    Popen(..., env=environ | watch.arm())  from now on the shim takes notes (see shim.c)
    ... kill it ...
    watch.forget(random)                   the folder as it might be after the power went

Rule 1: a name is there as it was when the folder was last synced, not as later creations, renames and removals left it.
Rule 2: of a file, everything up to its length at its last sync is there. What was written behind that is gone, or torn off
at any point, or there in length only, as zeros: all of which file systems do.
Rule 3: what a process finds when it starts is durable: it was read back from the disk.
The folder itself, and folders inside of it, are not looked after.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

FATES = ("gone", "torn", "zeros")
"""Of what was not synced."""
SHIM = Path(__file__).with_name("shim.c")


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


class ShimBlind(AssertionError):
    """The notes do not fit what is on the disk: the process went past the shim, and nothing is proved."""


@dataclass
class Notes:
    """What is durable: names with their inodes, and the length of each inode."""

    names: dict[str, int] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)
    syncs: int = 0

    def read(self, line: str) -> None:
        event, _, rest = line.partition(" ")
        if event == "D":
            entries = [entry.partition(":") for entry in rest.split("/") if entry]
            self.names = {name: int(inode) for inode, _, name in entries}
            return
        inode, length = map(int, rest.split())
        if event == "S":
            self.lengths[inode] = length
            self.syncs += 1
        else:
            self.lengths[inode] = min(length, self.lengths.get(inode, 0))


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How much was taken away, to show that there was something to take."""

    bytes: dict[str, int]
    """By file."""
    names: int
    syncs: int


class Watch:
    """Looks after one folder, over any number of processes, one at a time. `scratch` is beside it on the same disk."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._scratch = folder.resolve(), scratch.resolve()
        self._library, self._log, self._graves = self._scratch / "shim.so", self._scratch / "log", self._scratch / "graves"
        cc = compiler()
        if cc is None:
            raise FileNotFoundError("no C compiler: install cc or gcc")
        subprocess.run([cc, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", self._library, SHIM, "-ldl"], check=True)
        self._notes = Notes()
        self.fates: Sequence[str] = FATES

    def arm(self) -> dict[str, str]:
        """Begin new notes; the environment of the process to be started."""
        self._log.write_bytes(b"")
        shutil.rmtree(self._graves, ignore_errors=True)
        self._graves.mkdir()
        found = _files(self.folder)
        self._notes = Notes({name: s.st_ino for name, s in found.items()}, {s.st_ino: s.st_size for s in found.values()})
        return {
            "LD_PRELOAD": str(self._library),
            "UNSYNCED_ROOT": str(self.folder),
            "UNSYNCED_LOG": str(self._log),
            "UNSYNCED_GRAVES": str(self._graves),
        }

    def forget(self, chance: random.Random) -> Forgotten:
        """Put the folder back. The process must have ended."""
        notes = self._notes
        for line in self._log.read_text().splitlines():
            notes.read(line)
        now = {s.st_ino: self.folder / name for name, s in _files(self.folder).items()}
        graves = {int(grave.name): grave for grave in self._graves.iterdir()}
        after = self._scratch / "after"
        after.mkdir()
        lost_bytes: dict[str, int] = {}
        for name, inode in notes.names.items():
            source = now.get(inode) or graves.get(inode)
            if source is None:
                raise ShimBlind(f"{name} (inode {inode}) was durable and is gone, and nobody saw it go")
            os.link(source, after / name)
            lost_bytes[name] = _forget_tail(after / name, notes.lengths.get(inode, 0), chance, chance.choice(self.fates))
        lost_names = len(set(now) - set(notes.names.values()))
        shutil.rmtree(self.folder)
        after.rename(self.folder)
        return Forgotten(lost_bytes, lost_names, notes.syncs)


def _files(folder: Path) -> dict[str, os.stat_result]:
    with os.scandir(folder) as entries:
        return {entry.name: entry.stat() for entry in entries if entry.is_file(follow_symlinks=False)}


def _forget_tail(file: Path, durable: int, chance: random.Random, fate: str) -> int:
    """Take away what lies behind the durable length; gives how much that was."""
    size = file.stat().st_size
    if size < durable:
        raise ShimBlind(f"{file.name} has {size} bytes, {durable} of them durable: it was cut, and nobody saw it")
    os.truncate(file, chance.randint(durable, size) if fate == "torn" else durable)
    if fate == "zeros":
        os.truncate(file, size)
    return size - durable
