"""Looking at the files of a store before RocksDB opens them.

Rule 1: a store is made only where none was. RocksDB itself makes an empty one wherever `CURRENT` is missing, and then
deletes the table files that the new one does not name.
Rule 2: all that the ledger claims must be there and whole: the MANIFEST and each log that is still needed. What lies behind
the claim may end anywhere: that is a write nobody was told of, cut off when the process or the machine died.
Rule 3: table files are not looked at. RocksDB misses one that is gone, and its blocks have checksums of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from widerow.engine.rocksdb.ledger import LEDGER, Claim
from widerow.engine.rocksdb.log_format import whole
from widerow.engine.rocksdb.manifest import read_manifest
from widerow.model.errors import ConfigError, Corrupt
from widerow.model.store import is_made, remains

_NO_STRANGERS = re.compile(
    rf"LOCK|LOG(\.old\.\d+)?|OPTIONS-\d+|.+\.dbtmp|rocksdict-config\.json|{LEDGER}|serve\.sock|demo-tokens\.json|lost\+found"
)
"""Files that a store leaves that was never made, or removed by hand; and the folder that file systems have at their top."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not as it was when it was last synced."""

    file: str
    offset: int
    """Where it begins."""
    bytes: int
    """What was on the disk from there on."""
    what: str

    def __str__(self) -> str:
        return f"{self.file} {self.what} at offset {self.offset:,}, and {self.bytes:,} bytes from there on were on the disk"


def refuse_strangers(folder: Path) -> None:
    """`ConfigError`: no store is here, and somebody's files are. A new store is not made among them."""
    if not folder.exists() or is_made(folder):
        return
    if found := sorted(file.name for file in folder.iterdir() if not _NO_STRANGERS.fullmatch(file.name)):
        more = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
        raise ConfigError(
            f"{folder} holds something other than a store ({found[0]}{more}), and was left as it is: "
            f"give the store a folder that is empty or not there yet"
        )


def may_create(folder: Path, claim: Claim | None) -> bool:
    """Whether a new store is to be made here; False: there is one. `Corrupt`: there was one."""
    if (folder / "CURRENT").exists():
        return False
    found = remains(folder)
    tables = sum(name.endswith(".sst") for name in found)
    logs = sum(name.endswith(".log") for name in found)
    if claim is not None and not claim.manifest and not tables and not logs:
        return True  # whoever made it was killed before anything was written to it
    if claim is None and not found:
        return True
    newest = max((name for name in found if name.startswith("MANIFEST-")), key=_number, default="")
    todo = f"printf '{newest}\\n' > {folder / 'CURRENT'} makes CURRENT name the newest MANIFEST again. " if newest else ""
    raise Corrupt(
        f"{folder} held a store, and its file CURRENT is missing: {tables} table files, {logs} logs and "
        f"{newest or 'no MANIFEST'} are left. Nothing was changed. {todo}{way_out(folder)}. "
        f"For a new store use another folder (or remove these files and {LEDGER})"
    )


def check_files(folder: Path, claim: Claim | None) -> None:
    """`Corrupt`: something that was on the disk is not there any more."""
    if found := damage(folder, claim):
        raise Corrupt(f"{folder} is damaged and was not opened; nothing was changed: {described(found)}. {way_out(folder)}")


def way_out(folder: Path) -> str:
    return (
        f"Restore it from a backup, or give up what is lost: widerow doctor --store rocksdb:{folder} --accept-loss keeps a "
        f"copy of what is damaged and opens the rest"
    )


def described(found: Sequence[Damage]) -> str:
    return "; ".join(map(str, found))


def damage(folder: Path, claim: Claim | None) -> list[Damage]:
    """What is damaged of a store that no process has open, as far as the ledger tells."""
    manifest = (folder / "CURRENT").read_text(errors="replace").strip()
    if claim is None or not claim.manifest:  # of an older release, or copied without it
        return []
    if not manifest.startswith("MANIFEST-") or not manifest[9:].isdecimal():
        return [Damage("CURRENT", 0, len(claim.manifest) + 1, f"does not name a MANIFEST (last was {claim.manifest})")]
    if _number(manifest) < _number(claim.manifest):
        return [Damage("CURRENT", 0, len(claim.manifest) + 1, f"names {manifest}, and was at {claim.manifest} already")]
    if not (folder / manifest).exists():
        return [Damage(manifest, 0, claim.manifest_bytes, "is missing")]
    if manifest == claim.manifest and (found := _cut(folder / manifest, claim.manifest_bytes)):
        return [found]
    if not any(damaged_logs(folder, 0, claim)):  # a large MANIFEST takes a while to read
        return []
    return list(damaged_logs(folder, read_manifest(folder / manifest).least_log, claim))


def damaged_logs(folder: Path, least_log: int, claim: Claim) -> Iterator[Damage]:
    """In order. Logs before `least_log` went into table files, and RocksDB deletes them."""
    for number, length in sorted(claim.logs.items()):
        if number >= least_log and (found := _cut(folder / f"{number:06}.log", length)):
            yield found


def _cut(file: Path, length: int) -> Damage | None:
    """The damage within the first `length` bytes of a file."""
    try:
        size = file.stat().st_size
        good = whole(file, 0, min(size, length))
    except FileNotFoundError:
        return Damage(file.name, 0, length, "is missing") if length else None
    except OSError as error:
        return Damage(file.name, 0, length, f"cannot be read ({error.strerror})")
    if good >= length:
        return None
    return Damage(file.name, good, length - good, "ends" if good == size else "is damaged")


def _number(manifest: str) -> int:
    return int(manifest.removeprefix("MANIFEST-"))
