"""A small file in the store's folder that says how much of the store is known to be on the disk.

RocksDB cannot tell a damaged log from one whose last write was cut off: both just end early. So after each fsync of the log
the store notes here how long the log and the MANIFEST were, and before RocksDB opens they are compared (`check`).

Rule 1: a claim is made only of bytes that an fsync has covered. An old ledger, or none, is harmless: it claims less.
Rule 2: two slots are written in turn, each with a checksum: a write that was cut off leaves the claim before it.
Rule 3: the process that holds the lock of this file has the store. The lock ends with the process, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import zlib
from pathlib import Path

import msgspec

from widerow.model.errors import ConfigError, StoreUnavailable
from widerow.model.system import explained

LEDGER = "widerow-ledger"
"""Its name. It belongs to this folder alone: a copy of the store that was taken file by file goes without it."""
_SLOT_BYTES = 64 << 10
_MOST_LOGS = 2_000
"""So many fit into a slot."""


class Claim(msgspec.Struct, frozen=True):
    """How much of the store is known to be on the disk."""

    manifest: str = ""
    """The MANIFEST in use. Empty: the store is being made, and nothing was written to it yet."""
    manifest_bytes: int = 0
    logs: dict[int, int] = {}
    """The length of each log, by its number."""
    turn: int = 0
    """Counts the claims: the greater of two slots is the newer."""


_CLAIM_DECODER = msgspec.json.Decoder(Claim)


class Ledger:
    """The ledger of one folder, locked until `close`."""

    def __init__(self, folder: Path) -> None:
        """`ConfigError`: another process has the store, or this one does."""
        try:
            self._file = os.open(folder / LEDGER, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreUnavailable(f"cannot open {explained(error, folder)}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            held = isinstance(error, BlockingIOError)
            raise (
                is_open_elsewhere(folder) if held else StoreUnavailable(f"cannot lock {explained(error, folder)}")
            ) from error
        if os.fstat(self._file).st_size < 2 * _SLOT_BYTES:  # claims are then made on a full disk as well
            with contextlib.suppress(OSError):
                os.posix_fallocate(self._file, 0, 2 * _SLOT_BYTES)
        self._turn = claim.turn if (claim := self.read()) else 0

    def read(self) -> Claim | None:
        """The newest claim that can be read; None: there is none."""
        return _newest(self._file)

    def write(self, manifest: str, manifest_bytes: int, logs: dict[int, int], *, sync: bool = False) -> None:
        """Replace the older claim. `sync`: return when it is on the disk itself."""
        self._turn += 1
        kept = dict(sorted(logs.items())[-_MOST_LOGS:])
        body = msgspec.json.encode(Claim(manifest, manifest_bytes, kept, self._turn))
        os.pwrite(self._file, b"%08x %b\n" % (zlib.crc32(body), body), self._turn % 2 * _SLOT_BYTES)
        if sync:
            os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def is_open_elsewhere(folder: Path) -> ConfigError:
    return ConfigError(f"{folder} is open in another process: reach it through that one (--server, or --store beside serve)")


def _newest(file: int) -> Claim | None:
    claims = (_parse(os.pread(file, _SLOT_BYTES, slot * _SLOT_BYTES)) for slot in range(2))
    return max((claim for claim in claims if claim), key=lambda claim: claim.turn, default=None)


def _parse(slot: bytes) -> Claim | None:
    head, _, rest = slot.partition(b" ")
    body, end, _ = rest.partition(b"\n")
    if not end or head != b"%08x" % zlib.crc32(body):
        return None
    try:
        return _CLAIM_DECODER.decode(body)
    except msgspec.DecodeError:
        return None
