"""Looking at the files of a store before RocksDB opens them.

Rule 1: a store is made only where none was. RocksDB itself makes an empty one wherever `CURRENT` is missing, and then
deletes the table files that the new one does not name.
"""

from __future__ import annotations

from pathlib import Path

from widerow.engine.rocksdb.ledger import LEDGER, Claim
from widerow.model.errors import Corrupt
from widerow.model.store import remains


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
    todo = f"printf '{newest}\\n' > {folder / 'CURRENT'} makes CURRENT name the newest MANIFEST again; or " if newest else ""
    raise Corrupt(
        f"{folder} held a store, and its file CURRENT is missing: {tables} table files, {logs} logs and "
        f"{newest or 'no MANIFEST'} are left. Nothing was changed. {todo}restore it from a backup. "
        f"For a new store use another folder (or remove these files and {LEDGER})"
    )


def _number(manifest: str) -> int:
    return int(manifest.removeprefix("MANIFEST-"))
