"""The way past damage: keep a copy, leave out what cannot be read, and make the rest a store again.

Rule 1: nothing is changed before the copy is complete.
Rule 2: a log is cut where its damage begins, and the logs behind it go: later writes build on earlier ones.
Rule 3: table files go only where the store does not open with them.
Rule 4: where the MANIFEST is damaged RocksDB finds out anew which table files there are. Rows that a compaction had removed,
and whose files were not deleted yet, may then be back.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from rocksdict import Options, Rdict, WriteBatch

from widerow.engine.rocksdb.check import Damage, damage, damaged_logs, may_create
from widerow.engine.rocksdb.database import Database, RocksSettings
from widerow.engine.rocksdb.faults import table_file
from widerow.engine.rocksdb.ledger import Claim, Ledger
from widerow.engine.rocksdb.log_format import append, records, whole
from widerow.engine.rocksdb.manifest import Fields, Manifest, read_manifest, without
from widerow.model.errors import Corrupt
from widerow.ops.folders import make_private


def accept_loss(folder: Path, copy_to: Path, settings: RocksSettings) -> list[str]:
    """What is lost now, a sentence each; nothing: the store was not damaged, and nothing was changed.

    `ConfigError`: a process has the store open.
    """
    ledger = Ledger(folder)
    try:
        found = _found(folder, ledger)
        if found:
            _keep(folder, copy_to)
        newest = max(folder.glob("MANIFEST-*"), key=_number, default=None)
        before = Manifest() if newest is None else read_manifest(newest)
        lost = list(_mended(folder, ledger, found, newest, before)) if found else []
    finally:
        ledger.close()
    lost += _opened(folder, copy_to, settings)
    if (folder / _ASIDE).exists():
        lost += _replayed(folder, settings, before)
        lost += [f"{file.name}, {file.stat().st_size:,} bytes" for file in sorted((folder / _ASIDE).glob("*.sst"))]
        shutil.move(folder / _ASIDE, copy_to)
    return lost


def _mended(folder: Path, ledger: Ledger, found: Sequence[Damage], newest: Path | None, before: Manifest) -> Iterator[str]:
    """Cut the logs, and make CURRENT name a MANIFEST that is whole."""
    claim = ledger.read() or Claim()
    yield from (str(each) for each in found if not each.file.endswith(".log"))
    yield from _cut_logs(folder, next(damaged_logs(folder, before.least_log, claim), None))
    if newest is None or not _holds(newest, claim):
        Rdict.repair(str(folder), Options(raw_mode=True))
        yield "the MANIFEST was made anew of the table files that there are"
    else:
        made = folder / "CURRENT.dbtmp"
        made.write_text(f"{newest.name}\n")
        made.replace(folder / "CURRENT")
    ledger.write((folder / "CURRENT").read_text().strip(), 0, {}, sync=True)


def _found(folder: Path, ledger: Ledger) -> list[Damage]:
    if (folder / "CURRENT").exists():
        return damage(folder, ledger.read())
    try:
        may_create(folder, ledger.read())
    except Corrupt:
        return [Damage("CURRENT", 0, 0, "is missing")]
    return []


def _keep(folder: Path, copy_to: Path) -> None:
    """All but the table files, which stay as they are."""
    make_private(copy_to)
    for file in folder.iterdir():
        if file.is_file() and file.suffix != ".sst":
            shutil.copy2(file, copy_to / file.name)


def _cut_logs(folder: Path, first: Damage | None) -> Iterator[str]:
    if first is None:
        return
    yield str(first)
    for log in sorted(folder.glob("*.log"), key=lambda file: int(file.stem)):
        if log.name == first.file:
            os.truncate(log, first.offset)
        elif int(log.stem) > int(first.file.partition(".")[0]):
            yield f"{log.name}, which follows it: {log.stat().st_size:,} bytes"
            log.unlink()


def _holds(manifest: Path, claim: Claim) -> bool:
    """Whether it has all that is claimed, or followed the one that had."""
    if manifest.name == claim.manifest:
        return whole(manifest, 0, claim.manifest_bytes) >= claim.manifest_bytes
    return not claim.manifest or _number(manifest) > _number(Path(claim.manifest))


def _number(manifest: Path) -> int:
    return int(manifest.name.removeprefix("MANIFEST-"))


def _opened(folder: Path, copy_to: Path, settings: RocksSettings) -> Iterator[str]:
    """Open and close the store; table files that keep it from opening are moved away."""
    while True:
        try:
            Database(folder, settings).close()
        except Corrupt as error:
            file = table_file(error)
            if file is None:
                raise
            if not copy_to.exists():
                _keep(folder, copy_to)
            yield _taken_out(folder, copy_to, file, error)
        else:
            return


def _taken_out(folder: Path, copy_to: Path, file: str, error: Corrupt) -> str:
    number, path = int(file.removesuffix(".sst")), folder / (folder / "CURRENT").read_text().strip()
    manifest = read_manifest(path)
    family = next((family for family, files in manifest.files.items() if number in files), None)
    if family is None:
        raise error
    append(path, without(number, manifest.files[family][number], family))
    size = 0
    if (folder / file).exists():
        size = (folder / file).stat().st_size
        shutil.move(folder / file, copy_to / file)
    return f"{file}, {size:,} bytes of {manifest.names.get(family, family)}: {error.__cause__ or error}"


# -- what RocksDB leaves out when it makes a MANIFEST anew: column families that were in the log alone

_DELETION, _VALUE, _NOTE, _DELETION_IN, _VALUE_IN = 0, 1, 3, 4, 5
"""What an entry of a log begins with. `_IN`: a column family follows."""
_BATCH_HEAD = 12
_ASIDE = "lost"
"""Where RocksDB puts the logs that it has read, and table files that it cannot read."""


def _replayed(folder: Path, settings: RocksSettings, before: Manifest) -> Iterator[str]:
    """Write them again. `before`: as much of the old MANIFEST as could be read, which has their names."""
    logs = sorted((folder / _ASIDE).glob("*.log"), key=lambda file: int(file.stem))
    db, ticket = Database(folder, settings), 0
    try:
        missing = {number: name for number, name in before.names.items() if db.family(name) is None}
        for record in (record for log in logs if int(log.stem) >= before.least_log for record in records(log)):
            batch = WriteBatch(raw_mode=True)
            with db.writing():
                for family, key, value in _entries(record):
                    if family in missing and value is None:
                        batch.delete(key, db.handle(missing[family]))
                    elif family in missing:
                        batch.put(key, value, db.handle(missing[family]))
                if len(batch):
                    ticket = db.write(batch)
        if ticket:
            db.wait_durable(ticket)
        if len(before.names) == 1:
            yield f"data of tables without a table file, which was in {len(logs)} logs alone"
    finally:
        db.close()


def _entries(record: bytes) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Column family, key and value, or None: the key is deleted."""
    fields = Fields(record)
    fields.at = _BATCH_HEAD
    while fields.more():
        kind = fields.number()
        if kind == _NOTE:
            fields.text()
            continue
        if kind not in (_DELETION, _VALUE, _DELETION_IN, _VALUE_IN):
            return
        family = fields.number() if kind in (_DELETION_IN, _VALUE_IN) else 0
        yield family, fields.text(), fields.text() if kind in (_VALUE, _VALUE_IN) else None
