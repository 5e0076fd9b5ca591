"""Backups of a store that is in use: one at a time, in a thread of its own.

Rule 1: the store is linked first, file by file, into a folder inside its own. Linking takes milliseconds; it holds the
interpreter for as long as it flushes, so everything is flushed before, which does not.
Rule 2: the folder of links is removed afterwards; one that a killed process left, when the store is opened next.
Rule 3: before anything is copied, the ledger of what was erased is brought up, and from then on every erasure is added to it
before it is answered. A folder that cannot be reached does not keep anything from being erased: the log says so, and the
ledger is brought up at the next erasure or backup that reaches it.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from widerow.backup.erased import Erased, Ledger
from widerow.backup.folder import BackupFolder, Manifest, Stopped, StoredFile
from widerow.engine.port import Engine
from widerow.model.errors import Conflict, NotFound, Unavailable, WiderowError, unexpected
from widerow.model.system import explained
from widerow.model.times import Clock, format_time
from widerow.schema.tables import META

log = logging.getLogger(__name__)

KEY = ("backup",)
"""Where META says what a store knows of its backups."""
LINKS = "backup-links"
"""The folder of links, inside the store's."""
_ID_BYTES = 8


class Known(msgspec.Struct, frozen=True):
    """What a store knows of its backups."""

    store: str
    """Its id, which its backups bear."""
    folders: tuple[str, ...] = ()
    """Where erasures are noted."""
    last: Last | None = None


class Last(msgspec.Struct, frozen=True):
    """The last backup that was finished."""

    to: str
    number: int
    mark_us: int
    finished_us: int
    bytes: int
    copied_bytes: int


_KNOWN_DECODER = msgspec.json.Decoder(Known)


@dataclass(slots=True)
class _Run:
    to: Path
    started_us: int
    phase: str = "flushing"
    of_bytes: int = 0
    done_bytes: int = 0


class Backups:
    """Of one process that has the store open, in this folder. None: the store is not embedded, and is not backed up here."""

    def __init__(self, engine: Engine, clock: Clock, store: Path | None) -> None:
        self._engine, self._clock = engine, clock
        self._links = store / LINKS if store else None
        self._lock, self._ledgers = threading.Lock(), threading.Lock()
        self._run: _Run | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._error: dict[str, Any] | None = None
        self._known: Known | None = None
        self._complete: set[str] = set()
        """Folders whose ledger has all marks there are; kept so by adding each new one."""
        self._troubles: dict[str, str] = {}
        """Why erasures could not be noted, by folder."""
        self._remove_links()

    def start(self, to: Path) -> None:
        """Begin a backup into a folder. `Conflict`: one is under way. `NotFound`: the store is not embedded."""
        self._check_embedded()
        with self._lock:
            if self._run is not None:
                raise Conflict(f"a backup into {self._run.to} is under way: one at a time")
            if self._stopping:
                raise Unavailable("the process is stopping")
            run = self._run = _Run(to, self._clock.now_us())
            self._error = None
            self._thread = threading.Thread(target=self._work, args=(run,), name="backup")
            self._thread.start()

    def stop(self) -> None:
        """Leave off what is under way. The next run goes on with what is copied."""
        with self._lock:
            self._stopping = True
            thread = self._thread
        if thread is not None:
            thread.join()

    def state(self) -> dict[str, Any]:
        """What is under way, and how the last ones ended."""
        self._check_embedded()
        with self._lock:
            run, error = self._run, self._error
        known = self._read()
        last = known.last if known else None
        return {
            "state": "idle" if run is None else "running",
            "run": None
            if run is None
            else {
                "to": str(run.to),
                "started": format_time(run.started_us),
                "phase": run.phase,
                "done_bytes": run.done_bytes,
                "of_bytes": run.of_bytes,
            },
            "last_success": None if last is None else shown(last),
            "last_error": error,
            "ledgers": [
                {"folder": folder, "trouble": self._troubles.get(folder)} for folder in (known.folders if known else ())
            ],
        }

    def _check_embedded(self) -> None:
        if self._links is None:
            raise NotFound("this store is not embedded: docs/guides/backup.md says how it is backed up", code="no-backup")

    # -- a run

    def _work(self, run: _Run) -> None:
        error: WiderowError | None = None
        try:
            self._take(run)
        except WiderowError as failed:
            error = failed
        except OSError as failed:
            error = Unavailable(explained(failed, failed.filename or run.to), code="file")
        except Exception as failed:
            log.exception("the backup into %s failed", run.to)
            error = unexpected(failed)
        if error is not None:
            log.warning("the backup into %s failed: %s", run.to, error)
        with self._lock:
            if error is not None:
                now = format_time(self._clock.now_us())
                self._error = {"to": str(run.to), "time": now, "code": error.code, "message": str(error)}
            self._run = self._thread = None

    def _take(self, run: _Run) -> None:
        assert self._links is not None
        known = self._read() or self._write(None, Known(secrets.token_hex(_ID_BYTES)))
        folder = BackupFolder(run.to)
        with folder.held():
            folder.make(known.store)
            before = folder.newest()
            self._remember(str(run.to))
            mark_us = self._clock.now_us()
            self._remove_links()
            try:
                _link(self._engine, self._links)
                files, copied_bytes = self._copy(run, folder, before)
            finally:
                self._remove_links()
            manifest = Manifest(
                number=max(folder.numbers(), default=0) + 1,
                store=known.store,
                mark_us=mark_us,
                finished_us=self._clock.now_us(),
                copied_bytes=copied_bytes,
                files=files,
            )
            folder.publish(manifest)
            folder.sweep()
        now = self._read()
        assert now is not None
        last = Last(
            str(run.to), manifest.number, mark_us, manifest.finished_us, bytes=manifest.bytes, copied_bytes=copied_bytes
        )
        self._write(now, msgspec.structs.replace(now, last=last))

    def _copy(self, run: _Run, folder: BackupFolder, before: Manifest | None) -> tuple[dict[str, StoredFile], int]:
        """The files of the store, taken into the folder; and how many bytes of them were new."""
        assert self._links is not None
        stamped = {file.stamp: file for file in before.files.values() if file.stamp} if before else {}
        sources = sorted(self._links.iterdir())
        run.phase, run.of_bytes = "copying", sum(source.stat().st_size for source in sources)

        def advance(count: int) -> None:
            run.done_bytes += count
            if self._stopping:
                raise Stopped("the process is stopping; the next backup goes on where this one was")

        files, copied = {}, 0
        for source in sources:
            stat = source.stat()
            # A table file never changes. Whatever has its inode and its time is the same file.
            stamp = f"{stat.st_ino}:{stat.st_mtime_ns}:{stat.st_size}" if source.suffix == ".sst" else ""
            same = stamped.get(stamp)
            if same is not None and folder.has(same):
                advance(same.bytes)
                files[source.name] = same
                continue
            file, new = folder.add(source, stamp, advance)
            files[source.name] = file
            copied += file.bytes if new else 0
        return files, copied

    def _remove_links(self) -> None:
        if self._links is not None:
            for left in (self._links, self._links.with_name(f"{LINKS}.tmp")):  # RocksDB's name while it makes them
                shutil.rmtree(left, ignore_errors=True)

    # -- what was erased

    def erased(self, tenant: str, mark: Mapping[str, float | str]) -> None:
        """Something was erased: note it wherever there are backups of it."""
        with self._ledgers:
            known = self._read() if self._links else None
            for folder in known.folders if known else ():
                self._note(folder, Erased(tenant, dict(mark)))

    def _note(self, folder: str, erased: Erased) -> None:
        """Should it fail, the ledger is behind until it can be brought up."""
        ledger, now_us = Ledger(BackupFolder(Path(folder)).erased), self._clock.now_us()
        try:
            if folder in self._complete:
                ledger.add([erased], now_us)
            else:
                ledger.bring_up(self._engine, now_us)
        except (OSError, WiderowError) as error:
            self._complete.discard(folder)
            self._troubles[folder] = str(error)
            log.warning("an erasure could not be written to the backups at %s; the next backup does it: %s", folder, error)
        else:
            self._complete.add(folder)
            self._troubles.pop(folder, None)

    def _remember(self, folder: str) -> None:
        """Note erasures there from now on, and bring up its ledger. Folders that cannot be reached are forgotten."""
        with self._ledgers:
            known = self._read()
            assert known is not None
            left = tuple(other for other in known.folders if other != folder and BackupFolder(Path(other)).exists())
            for other in set(known.folders) - {folder, *left}:
                log.warning("the backups at %s cannot be reached: the next backup writes the erasures there", other)
                self._complete.discard(other)
                self._troubles.pop(other, None)
            if known.folders != (*left, folder):
                self._write(known, msgspec.structs.replace(known, folders=(*left, folder)))
            Ledger(BackupFolder(Path(folder)).erased).bring_up(self._engine, self._clock.now_us())
            self._complete.add(folder)
            self._troubles.pop(folder, None)

    # -- what the store knows

    def _read(self) -> Known | None:
        if self._known is None:
            self._known = known_to(self._engine)
        return self._known

    def _write(self, before: Known | None, now: Known) -> Known:
        if before != now and not self._engine.put_if(META, KEY, row_of(now), None if before is None else row_of(before)):
            self._known = None
            raise Unavailable("the record of the store's backups was changed meanwhile: try again")
        self._known = now
        return now


def _link(engine: Engine, folder: Path) -> None:
    from widerow.engine.rocksdb import RocksEngine  # noqa: PLC0415 - processes on other stores do without it

    assert isinstance(engine, RocksEngine)
    engine.db.link(folder)


def known_to(engine: Engine) -> Known | None:
    """What a store knows of its backups; None: there was none."""
    row = engine.get(META, KEY)
    return None if row is None else _KNOWN_DECODER.decode(str(row["body"]))


def row_of(known: Known) -> dict[str, float | str]:
    return {"body": msgspec.json.encode(known).decode()}


def shown(last: Last | Manifest) -> dict[str, Any]:
    """A backup, for answers."""
    return {
        "number": last.number,
        "mark": format_time(last.mark_us),
        "finished": format_time(last.finished_us),
        "bytes": last.bytes,
        "copied_bytes": last.copied_bytes,
    } | ({"to": last.to} if isinstance(last, Last) else {})
