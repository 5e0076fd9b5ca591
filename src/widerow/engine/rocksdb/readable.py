"""Whether a folder holds a store that can be read, without changing it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rocksdict import AccessType, Options, Rdict

from widerow.model.errors import Corrupt

_STEP = 10_000


def check_readable(folder: Path, *, every_block: bool, advance: Callable[[int], None]) -> None:
    """Open it, and read all of it if every block's checksum is to be compared. `Corrupt`: it cannot be read.

    `advance` is told of rows that were read.
    """
    try:
        names = Rdict.list_cf(str(folder))
        options = {name: Options(raw_mode=True) for name in names}
        db = Rdict(str(folder), Options(raw_mode=True), options, access_type=AccessType.read_only(False))
        try:
            for name in names if every_block else ():
                _read(db.get_column_family(name), advance)
        finally:
            db.close()
    except Exception as error:  # rocksdict raises plain Exception
        raise Corrupt(f"the store cannot be read: {error}") from error


def _read(family: Rdict, advance: Callable[[int], None]) -> None:
    rows = family.iter()
    rows.seek_to_first()
    count = 0
    while rows.valid():
        rows.next()
        count += 1
        if count == _STEP:
            advance(count)
            count = 0
    rows.status()  # where a block is damaged the rows end as well
    advance(count)
