"""The ledger of a folder of backups: every erasure of its store, so that a restored backup does not bring back what is gone.

Each line is a CRC-32 and a JSON text: a mark as the store has it, or the time up to which the ledger has every mark.
Rule 1: lines are only added. What a killed process left of a line is cut off by the next.
Rule 2: the time is written behind the marks it vouches for, so half a write vouches for nothing.
Rule 3: nothing is begun here: a folder that is not there, as on a disk that is not mounted, is an `OSError`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias
from zlib import crc32

import msgspec

from widerow.catalog.catalog import Catalog
from widerow.engine.port import Engine
from widerow.model.errors import Corrupt, NotFound
from widerow.model.times import MS
from widerow.schema.tables import ERASED
from widerow.telemetry.erasure import mark_of
from widerow.telemetry.facts import FactLog

log = logging.getLogger(__name__)

_Identity: TypeAlias = tuple[str, frozenset[tuple[str, float | str]]]


class Erased(msgspec.Struct, frozen=True):
    """An erase mark of a tenant, as the table `erased` has it, but for when it was off the disk."""

    tenant: str
    mark: dict[str, float | str]

    @property
    def identity(self) -> _Identity:
        return self.tenant, frozenset((name, value) for name, value in self.mark.items() if name != "done_us")


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    tenant: str = ""
    mark: dict[str, float | str] | None = None
    known_us: int | None = None


_LINE_DECODER = msgspec.json.Decoder(_Line)


class Ledger:
    """The file. One process writes to it, one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> tuple[list[Erased], int | None]:
        """All marks, and up to when they are all there are; None: nothing is known."""
        marks, known_us = [], None
        for number, text in enumerate(self._path.read_bytes().split(b"\n")[:-1], 1):
            checksum, _, body = text.partition(b" ")
            if checksum != b"%08x" % crc32(body):
                raise Corrupt(f"{self._path}, line {number}: its checksum is wrong, so its erasure is not known")
            line = _LINE_DECODER.decode(body)
            if line.mark is not None:
                marks.append(Erased(line.tenant, line.mark))
            if line.known_us is not None:
                known_us = max(line.known_us, known_us or 0)
        return marks, known_us

    def add(self, marks: Sequence[Erased], known_us: int) -> None:
        """Marks, with which the ledger is complete up to that time. On disk on return."""
        lines = [_Line(erased.tenant, erased.mark) for erased in marks]
        encoded = [msgspec.json.encode(line) for line in (*lines, _Line(known_us=known_us))]
        with self._path.open("r+b") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
                    file.seek(0, os.SEEK_END)
            file.write(b"".join(b"%08x %s\n" % (crc32(body), body) for body in encoded))
            file.flush()
            os.fsync(file.fileno())

    def bring_up(self, engine: Engine, now_us: int) -> None:
        """Add what the store has erased and the ledger does not know. A ledger that is damaged is put aside, and begun anew:
        the store knows all that is in it.
        """
        try:
            known = {erased.identity for erased in self.read()[0]}
        except Corrupt as error:
            log.warning("%s; it is written anew", error)
            self._path.replace(self._path.with_name(f"{self._path.name}.damaged"))
            self._path.touch(mode=0o600)
            known = set()
        self.add([erased for erased in erased_in(engine) if erased.identity not in known], now_us)


def erased_in(engine: Engine) -> Iterator[Erased]:
    """All marks of a store."""
    for rows in engine.scan(ERASED, None):
        for i in range(len(rows)):
            yield Erased(str(rows.key(ERASED, i)[0]), dict(rows.row(i)))


def erase_again(engine: Engine, marks: Sequence[Erased]) -> int:
    """Give a restored store the marks it does not have yet; how many those were. May be repeated.

    Devices and tenants that were deleted go from the catalog, too. Their bytes leave the disk when the store is served.
    """
    known = {erased.identity for erased in erased_in(engine)}
    log = FactLog(engine, ERASED, engine.clock, refresh_us=0, learn=lambda _tenant, _mark: None)
    catalog = Catalog(engine, engine.clock)
    added = 0
    for erased in marks:
        if erased.identity in known:
            continue
        engine.clock.cover(mark_of(erased.mark).version_us + MS)  # what the store receives from now on is newer
        _forget(catalog, erased)  # first: should this be interrupted, the mark is still to be added
        log.add(erased.tenant, str(erased.mark["device_id"]), erased.mark | {"done_us": 0.0})
        added += 1
    return added


def _forget(catalog: Catalog, erased: Erased) -> None:
    mark = mark_of(erased.mark)
    if not mark.whole:
        return
    try:
        if mark.device:
            catalog.devices.delete(erased.tenant, mark.device)
        else:
            catalog.tokens.revoke_all(erased.tenant)
            catalog.tenants.delete(erased.tenant)
    except NotFound:
        pass
