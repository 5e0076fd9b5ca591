"""Damages an embedded store in every way a disk does, again and again, and looks whether anything is lost silently.

    python -m tests.system.foul [--tables 200] [--logs 200] [--files 50] [--seed S]

A store is filled through a `Service`: part of it is in table files, the rest in the log, as a kill leaves it. Then in copies
of it single bits are flipped, of table files and of logs, and any files removed or cut short. Each copy is opened and read
in every way: whole tables, partitions, first cells, single keys.
Rule: what is read is all that was written, or the answer is `corrupt`. Nothing is answered short.
Exit code 1: something was, with the file and the place. The test suite runs a short version of the same.
"""

from __future__ import annotations

import argparse
import logging
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from widerow.config import Config, Store
from widerow.engine.port import Engine
from widerow.engine.rocksdb import RocksEngine, RocksSettings
from widerow.engine.rows import Key
from widerow.migrate.checksum import Contents
from widerow.migrate.copy import tables_to_copy
from widerow.model.batch import Report, batch_of
from widerow.model.device import Device
from widerow.model.errors import Corrupt
from widerow.model.tenant import Tenant
from widerow.model.times import MS, SECOND, SystemClock
from widerow.schema.table import Table
from widerow.service import Service

ACME = Tenant(name="acme")
DEVICES = tuple(f"press-{n}" for n in range(12))
REFUSED, UNREADABLE, HARMLESS = "refused to open", "read as corrupt, the rest right", "harmless, all there"
SHORT, STRANGE = "ANSWERED SHORT OR WRONG", "FAILED WITH ANOTHER ERROR"
OUTCOMES = (REFUSED, UNREADABLE, HARMLESS, SHORT, STRANGE)
WAYS = ("whole", "partitions", "first", "keys")
_SMALL = RocksSettings(cache_bytes=1 << 20, write_buffer_bytes=8 << 20, reserve_bytes=0)


@dataclass
class Fouled:
    """What became of so many copies."""

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    """By the kind of damage."""
    violations: list[str] = field(default_factory=list)

    def summary(self) -> str:
        lines = []
        for kind, outcomes in self.outcomes.items():
            lines.append(f"{kind}: {outcomes.total()}")
            lines += [f"  {outcomes[outcome]:5}  {outcome}" for outcome in OUTCOMES if outcomes[outcome]]
        return "\n".join(lines)


class Foul:
    """A store, what it holds, and copies of it that are damaged."""

    def __init__(self, folder: Path, reports: int, seed: int) -> None:
        self._folder, self._chance, self._clock = folder, random.Random(seed), SystemClock()
        self._store = fill(folder / "store", reports, self._chance)
        engine = RocksEngine(self._fresh(), clock=self._clock, settings=_SMALL)
        self._tables = tables_to_copy(engine, self._clock)
        self._keys = {table.name: _keys(engine, table) for table in self._tables}
        self._wanted = {(table.name, way): self._read(engine, table, way) for table in self._tables for way in WAYS}
        engine.close()
        self.found = Fouled()

    def flip(self, kind: str, pattern: str, times: int) -> None:
        """Single bits of files whose name fits."""
        for _ in range(times):
            folder = self._fresh()
            files = [file for file in sorted(folder.glob(pattern)) if file.stat().st_size]
            file = self._chance.choices(files, [file.stat().st_size for file in files])[0]
            content = bytearray(file.read_bytes())
            bit = self._chance.randrange(8 * len(content))
            content[bit // 8] ^= 1 << bit % 8
            file.write_bytes(content)
            self._look(kind, folder, f"bit {bit} of {file.name} ({len(content):,} bytes)")

    def spoil_files(self, kind: str, times: int) -> None:
        """Any file, removed or cut short."""
        for _ in range(times):
            folder = self._fresh()
            file = self._chance.choice([file for file in sorted(folder.iterdir()) if file.name != "LOG"])
            size = file.stat().st_size
            kept = self._chance.randrange(size) if size and self._chance.random() < 0.5 else None
            if kept is None:
                file.unlink()
            else:
                file.write_bytes(file.read_bytes()[:kept])
            self._look(kind, folder, f"{file.name} {'missing' if kept is None else f'cut at {kept:,} of {size:,}'}")

    def _fresh(self) -> Path:
        copy = self._folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self._store, copy)
        return copy

    def _look(self, kind: str, folder: Path, what: str) -> None:
        outcome, said = self._outcome(folder)
        self.found.outcomes.setdefault(kind, Counter())[outcome] += 1
        if outcome in (SHORT, STRANGE):
            self.found.violations.append(f"{what}: {outcome.lower()}: {said}")

    def _outcome(self, folder: Path) -> tuple[str, str]:
        try:
            engine = RocksEngine(folder, clock=self._clock, settings=_SMALL)
        except Corrupt as error:
            return REFUSED, str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            return STRANGE, f"{type(error).__name__} on opening: {error}"
        unreadable = 0
        try:
            for (name, way), wanted in self._wanted.items():
                table = next(table for table in self._tables if table.name == name)
                try:
                    if self._read(engine, table, way) != wanted:
                        return SHORT, f"{name}, {way}"
                except Corrupt:
                    unreadable += 1
        except Exception as error:  # noqa: BLE001
            return STRANGE, f"{type(error).__name__} on reading: {error}"
        finally:
            engine.close()
        return (UNREADABLE if unreadable else HARMLESS), ""

    def _read(self, engine: Engine, table: Table, way: str) -> Contents:
        engine.apply([table])
        found, keys = Contents(), self._keys[table.name]
        partitions = list(dict.fromkeys(key[: len(table.partition)] for key in keys))
        if way == "whole":
            chunks = engine.scan(table, None)
        elif way == "partitions":
            chunks = engine.scan(table, partitions)
        elif way == "first" or table.sparse:
            chunks = engine.scan(table, partitions, first=True)
        else:
            chunks = engine.scan(table, keys)
        for rows in chunks:
            found.add(table, rows)
        return found


def _keys(engine: Engine, table: Table) -> list[Key]:
    return [rows.key(table, i) for rows in engine.scan(table, None) for i in range(len(rows))]


def fill(folder: Path, reports: int, chance: random.Random) -> Path:
    """A store as a process leaves it that was killed: with everything acknowledged, and half of it in the log alone."""
    live = folder.with_name("live")
    with Service.open(Config(store=Store(url=f"rocksdb:{live}", reserve_mib=0)), SystemClock()) as service:
        service.catalog.tenants.create(ACME)
        for device in DEVICES:
            service.save_device(ACME, Device(name=device))
        now_us = service.clock.now_us() // SECOND * SECOND
        for half in range(2):
            for start in range(0, reports, 200):
                batch = [_report(half * reports + start + i, now_us, chance) for i in range(min(200, reports - start))]
                service.telemetry.write(ACME, batch_of(batch))
            if not half:
                _flush(service.engine)
        shutil.copytree(live, folder, ignore=shutil.ignore_patterns("*.sock", "LOG*"))
    shutil.rmtree(live)
    return folder


def _report(number: int, now_us: int, chance: random.Random) -> Report:
    values = {"temperature": chance.random(), "load": chance.random(), "state": chance.choice(("run", "idle", "halt"))}
    return Report(DEVICES[number % len(DEVICES)], now_us - number * 7 * SECOND, values, {"shift": "late"}, MS)


def _flush(engine: Engine) -> None:
    assert isinstance(engine, RocksEngine)
    for name in engine.db.names():
        family = engine.db.family(name)
        assert family is not None
        family.flush()


def run(folder: Path, *, tables: int, logs: int, files: int, seed: int, reports: int = 3_000) -> Fouled:
    foul = Foul(folder, reports, seed)
    foul.flip("bits of table files", "*.sst", tables)
    foul.flip("bits of logs", "*.log", logs)
    foul.flip("bits of MANIFEST and CURRENT", "[MC][AU]*", max(1, files // 2) if files else 0)
    foul.spoil_files("files missing or cut short", files)
    return foul.found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.system.foul", description="Damage a store, and see what it says.")
    parser.add_argument("--tables", type=int, default=200, help="flipped bits of table files")
    parser.add_argument("--logs", type=int, default=200, help="flipped bits of logs")
    parser.add_argument("--files", type=int, default=50, help="files that are missing or cut short")
    parser.add_argument("--seed", type=int, help="choices of an earlier run")
    options = parser.parse_args(arguments)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    logging.disable(logging.CRITICAL)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="widerow-foul-") as folder:
        found = run(Path(folder), tables=options.tables, logs=options.logs, files=options.files, seed=seed)
    print(found.summary())
    print(f"{time.monotonic() - began_s:.0f} s")
    if found.violations:
        print(f"{len(found.violations)} VIOLATIONS", *found.violations, sep="\n  ")
        return 1
    print("every damage was detected or harmless; nothing was answered short")
    return 0


if __name__ == "__main__":
    sys.exit(main())
