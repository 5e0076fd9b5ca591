"""A folder of backups: what is in it, and how it changes. docs/format/backup.md describes it.

    store.json            which store the backups are of
    backups/000042.json   a manifest for each backup: its mark, and its files by name, each with length and SHA-256
    objects/SHA256        the contents of these files, each once, however many backups have it
    erased.log            what was erased (`backup.erased`)
    lock                  held by the process that changes the folder

Rule 1: a manifest gets its name when everything it names is on disk, so a run that is killed leaves no half backup.
Rule 2: an object gets its name when it is whole and on disk, so the next run finds what a killed one has copied.
Rule 3: files are told apart by their contents. Their numbers repeat after a restore.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from widerow.model.errors import Conflict, Corrupt, NotFound, Unavailable
from widerow.ops.folders import make_private

log = logging.getLogger(__name__)

FORMAT = 1
_CHUNK_BYTES = 1 << 20
_PART = ".part"


class Stopped(Unavailable):
    """The process is stopping, and what it was at is not finished. The next run goes on."""

    code = "stopped"


class StoredFile(msgspec.Struct, frozen=True):
    """A file of a backup."""

    bytes: int
    sha256: str
    stamp: str = ""
    """Inode and time of change of the table file it was copied from: one that has the same is not read again."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A backup."""

    format: int = FORMAT
    number: int
    store: str
    """Id of the store it is of."""
    mark_us: int
    """Everything acknowledged before this moment is in it."""
    finished_us: int
    copied_bytes: int
    """How much of it no earlier backup had."""
    files: dict[str, StoredFile]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


_MANIFEST_DECODER = msgspec.json.Decoder(Manifest)


class _Sealed(msgspec.Struct, frozen=True):
    """A manifest as it is stored: its bytes, and their checksum."""

    sha256: str
    manifest: msgspec.Raw


_SEALED_DECODER = msgspec.json.Decoder(_Sealed)


class _Owner(msgspec.Struct, frozen=True):
    """What `store.json` says."""

    format: int
    store: str


_OWNER_DECODER = msgspec.json.Decoder(_Owner)


class BackupFolder:
    """See above. Only `held` may change it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.erased = path / "erased.log"
        self._backups, self._objects, self._owner = path / "backups", path / "objects", path / "store.json"

    def exists(self) -> bool:
        return self._owner.is_file()

    def make(self, store: str) -> None:
        """Make it if it is not there. `Conflict`: it has something else in it, or the backups of another store."""
        if not self.exists():
            if self.path.exists() and any(entry.name != "lock" for entry in self.path.iterdir()):
                raise Conflict(f"{self.path} is not empty, and holds no backups: give an empty folder, or one that has some")
            make_private(self.path)
            make_private(self._backups)
            make_private(self._objects)
            self.erased.touch(mode=0o600)
            write_whole(self._owner, msgspec.json.encode(_Owner(FORMAT, store)))
            sync_folder(self.path)
        try:
            owner = _OWNER_DECODER.decode(self._owner.read_bytes())
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(f"{self._owner} cannot be read: {error}") from None
        if owner.store != store:
            raise Conflict(f"{self.path} holds the backups of another store: give each store a folder of its own")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else changes it meanwhile. `Conflict`: somebody does."""
        make_private(self.path)
        with (self.path / "lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(f"another process is using {self.path}: one backup at a time") from None
            yield

    # -- backups

    def numbers(self) -> list[int]:
        """Of all backups, the oldest first."""
        if not self.exists():
            raise NotFound(f"there are no backups in {self.path}", code="no-backup")
        return sorted(int(file.stem) for file in self._backups.glob("*.json") if file.stem.isdecimal())

    def manifest(self, number: int | None = None) -> Manifest:
        """One of them; the newest, if none is named."""
        numbers = self.numbers()
        if number is None and numbers:
            number = numbers[-1]
        if number is None or number not in numbers:
            raise NotFound(f"there is no backup {number or ''} in {self.path}; `--list` shows them", code="no-backup")
        file = self._file(number)
        try:
            sealed = _SEALED_DECODER.decode(file.read_bytes())
            manifest = _MANIFEST_DECODER.decode(sealed.manifest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(f"{file} cannot be read: {error}") from None
        if hashlib.sha256(sealed.manifest).hexdigest() != sealed.sha256:
            raise Corrupt(f"{file} was changed: its checksum is another")
        if manifest.format != FORMAT:
            raise Corrupt(f"{file} has format {manifest.format}, this release knows {FORMAT}: use a newer release")
        if any("/" in name or name in ("", ".", "..") for name in manifest.files):
            raise Corrupt(f"{file} names files outside of a store")
        return manifest

    def newest(self) -> Manifest | None:
        """None: there is none, or it cannot be read."""
        try:
            return self.manifest() if self.numbers() else None
        except Corrupt as error:
            log.warning("%s", error)
            return None

    def publish(self, manifest: Manifest) -> None:
        """From here on the backup is one."""
        sync_folder(self._objects)
        encoded = msgspec.json.encode(manifest)
        sealed = _Sealed(hashlib.sha256(encoded).hexdigest(), msgspec.Raw(encoded))
        write_whole(self._file(manifest.number), msgspec.json.encode(sealed))

    def prune(self, keep: int) -> list[int]:
        """Remove all backups but the newest; gives the numbers of those that went."""
        gone = self.numbers()[:-keep]
        for number in gone:
            self._file(number).unlink()
        sync_folder(self._backups)
        self.sweep()
        return gone

    def sweep(self) -> None:
        """Remove objects that no backup has: those of backups that are gone, and of runs that were killed.

        None goes while there is a manifest that cannot be read: nobody knows which are its own.
        """
        try:
            wanted = {file.sha256 for number in self.numbers() for file in self.manifest(number).files.values()}
        except Corrupt as error:
            log.warning("%s; until it is removed all objects are kept", error)
            return
        for entry in list(self._objects.iterdir()):
            if entry.name not in wanted:
                entry.unlink()

    def _file(self, number: int) -> Path:
        return self._backups / f"{number:06}.json"

    # -- objects

    def object(self, file: StoredFile) -> Path:
        return self._objects / file.sha256

    def has(self, file: StoredFile) -> bool:
        """Whether its object is there, in full length."""
        try:
            return self.object(file).stat().st_size == file.bytes
        except FileNotFoundError:
            return False

    def add(self, source: Path, stamp: str, advance: Callable[[int], None]) -> tuple[StoredFile, bool]:
        """Take a file in; and whether it was new."""
        digest, size = digest_of(source)
        file = StoredFile(size, digest, stamp)
        if self.has(file):
            advance(size)
            return file, False
        copy(source, self.object(file), file, advance)
        return file, True


def copy(source: Path, target: Path, file: StoredFile, advance: Callable[[int], None]) -> None:
    """Copy a file that should be as described; the target gets its name when it is whole, and on disk."""
    part = target.with_name(target.name + _PART)
    digest = hashlib.sha256()
    with source.open("rb", buffering=0) as read, part.open("wb", buffering=0) as write:
        while chunk := read.read(_CHUNK_BYTES):
            digest.update(chunk)
            view = memoryview(chunk)
            while view:
                view = view[write.write(view) :]
            advance(len(chunk))
        os.fsync(write.fileno())
    if digest.hexdigest() != file.sha256:
        part.unlink()
        raise Corrupt(f"{source} has changed: its checksum is not {file.sha256}")
    part.replace(target)


def digest_of(path: Path) -> tuple[str, int]:
    """The SHA-256 of a file, and its length."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size


def write_whole(path: Path, data: bytes) -> None:
    """A small file, replaced at once and durably."""
    part = path.with_name(path.name + _PART)
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
