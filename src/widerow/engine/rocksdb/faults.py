"""What the driver's errors mean.

rocksdict raises plain `Exception` for everything, with RocksDB's own words. Rule: they are told apart by how RocksDB begins
them and by what it says of its files, never by a word that may stand in a path.
"""

from __future__ import annotations

import re
from pathlib import Path

from widerow.engine.rocksdb.ledger import is_open_elsewhere
from widerow.model.errors import Corrupt, StorageFull, StoreUnavailable, WiderowError

_LOCKED = re.compile(
    r"IO error: (While lock file: .*/LOCK: Resource temporarily unavailable"
    r"|lock hold by current process, .*/LOCK: No locks available)$",
    re.DOTALL,
)
_CORRUPT = re.compile(r"(Corruption|IO error: No such file or directory): ")
"""A file that is missing is damage, as one is that cannot be read."""
_FULL = re.compile(r"IO error: (.*: )?No space left on device", re.DOTALL)
_TABLE_FILE = re.compile(r"/(\d+\.sst)\b")


def fault(error: Exception, folder: Path, doing: str) -> WiderowError:
    """The error to raise instead of the driver's."""
    said = str(error)
    if _LOCKED.match(said):
        return is_open_elsewhere(folder)
    if _FULL.match(said):
        return StorageFull(f"the disk of {folder} is full: free some space", retry_after_s=5)
    if _CORRUPT.match(said):
        return Corrupt(f"{doing}: {said}")
    return StoreUnavailable(f"{doing}: {said}")


def table_file(error: BaseException) -> str | None:
    """The table file that an error is about."""
    found = _TABLE_FILE.search(str(error))
    return found[1] if found else None
