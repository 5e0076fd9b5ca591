"""How much of the log and the MANIFEST is on the disk, for the ledger.

Rule: lengths are taken before the fsync that covers them, and between writes. So they are never too large, and a claim ends
where a record does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

from widerow.engine.rocksdb.ledger import Ledger
from widerow.engine.rocksdb.log_format import whole

log = logging.getLogger(__name__)

_LOG = re.compile(r"(\d+)\.log")


class Durable:
    """Of one store that is open."""

    def __init__(self, folder: Path, ledger: Ledger, least_log: int) -> None:
        """RocksDB has just opened it. What was in older logs than `least_log` is in table files."""
        self._folder, self._ledger = folder, ledger
        claimed = ledger.read()
        still = {number: length for number, length in claimed.logs.items() if number >= least_log} if claimed else {}
        self._lengths = still
        self._newest, self._file = 0, -1
        self._manifest, self._manifest_file = "", -1
        self._manifest_seen = self._manifest_whole = 0
        self._told = False
        self._look(least_log)
        self.claim(still, sync=True)

    def note_write(self, least_log: Callable[[], int]) -> None:
        """A write has gone into the log. One at a time. `least_log`: the oldest log that RocksDB still needs."""
        if (size := os.fstat(self._file).st_size) > self._lengths[self._newest]:
            self._lengths[self._newest] = size
        else:  # RocksDB has begun another log
            self._look(least_log())

    def _look(self, least_log: int) -> None:
        found = {number: length for number, length in self._lengths.items() if number >= least_log}
        with os.scandir(self._folder) as entries:
            for entry in entries:
                name = _LOG.fullmatch(entry.name)
                if name and int(name[1]) >= least_log:
                    with contextlib.suppress(FileNotFoundError):  # RocksDB has just ceased to need it
                        found[int(name[1])] = entry.stat().st_size
        self._close_log()
        self._newest = max(found)
        self._file = os.open(self._folder / f"{self._newest:06}.log", os.O_RDONLY)
        self._lengths = found

    def lengths(self) -> dict[int, int]:
        """Of the logs as they are now: what an fsync that begins later covers."""
        return dict(self._lengths)

    def claim(self, lengths: dict[int, int], *, sync: bool = False) -> None:
        """An fsync has covered these. One at a time."""
        try:
            self._follow_manifest()
            self._ledger.write(self._manifest, self._manifest_whole, lengths, sync=sync)
        except OSError as error:  # an older claim is true as well
            if not self._told:
                log.warning("the ledger of %s cannot be written, so damage may go unnoticed: %s", self._folder, error)
            self._told = True

    def _follow_manifest(self) -> None:
        """RocksDB syncs it by itself, perhaps a moment after it has grown: before a claim is made it is synced here."""
        if self._manifest_file < 0 or not (now := os.fstat(self._manifest_file)).st_nlink:  # there is a newer one
            self._close_manifest()
            self._manifest = (self._folder / "CURRENT").read_text().strip()
            self._manifest_file = os.open(self._folder / self._manifest, os.O_RDONLY)
            self._manifest_seen = self._manifest_whole = 0
            now = os.fstat(self._manifest_file)
        if now.st_size != self._manifest_seen:
            self._manifest_whole = whole(self._folder / self._manifest, self._manifest_whole, now.st_size)
            os.fsync(self._manifest_file)
            self._manifest_seen = now.st_size

    def close(self) -> None:
        self._close_log()
        self._close_manifest()

    def _close_manifest(self) -> None:
        if self._manifest_file >= 0:
            os.close(self._manifest_file)
            self._manifest_file = -1

    def _close_log(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
