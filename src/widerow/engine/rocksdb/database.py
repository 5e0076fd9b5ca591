"""The RocksDB handle: opening, column families, one durable write, and getting well again after a full disk.

Rule 1: a write returns after its log record is on disk. Writers that wait at the same time share one fsync.
Rule 2: after a failed write the handle is only read from: RocksDB keeps failing even when space has returned. The next
writer that finds room for recovery closes and reopens it; what was acknowledged is in the log and comes back.
Rule 3: iterators do not outlive a `reading()` block, so that reopening never waits for a slow reader.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rocksdict import (
    BlockBasedOptions,
    Cache,
    Checkpoint,
    ColumnFamily,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
)

from widerow.engine.port import TableSize
from widerow.engine.rocksdb.check import check_files, may_create, refuse_strangers, way_out
from widerow.engine.rocksdb.durable import Durable
from widerow.engine.rocksdb.families import is_windowed
from widerow.engine.rocksdb.faults import fault, table_file
from widerow.engine.rocksdb.ledger import Ledger
from widerow.model.errors import Corrupt, StorageFull, StoreUnavailable, Unavailable, WiderowError
from widerow.model.system import explained
from widerow.model.times import MS
from widerow.ops.folders import make_private

log = logging.getLogger(__name__)

_DEFAULT_WINDOW_BITS = -14
_FIGURE = re.compile(r"\s*([^;=]+)=(\d+);")
"""Of what RocksDB says about table files: `# entries=396; raw key size=19632; ...`."""
_SEQUENCE_BYTES = 8
"""What RocksDB puts behind each key of a table file."""
_RECOVERY_SLACK_BYTES = 8 << 20
"""What reopening writes besides the rows in memory: logs, a manifest, options, filters."""

_AT_A_TIME = 256

_CLOCK, _LAST_US = "store_clock", b"last_us"
"""Column family and key of the greatest version that this store was ever given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksSettings:
    """How much the embedded engine may take."""

    cache_bytes: int = 256 << 20
    """Memory for blocks that were read."""
    write_buffer_bytes: int = 256 << 20
    """Memory for what is in the log but not yet in table files, all tables together."""
    reserve_bytes: int = 64 << 20
    """Free disk below which writes are refused with `storage-full`."""
    background_jobs: int = 2


class Database:
    """Column families of one RocksDB, kept open. Safe to share between threads."""

    def __init__(self, path: Path, settings: RocksSettings) -> None:
        self.path = path
        self.settings = settings
        self.writes = 0
        self.syncs = 0
        self._gate = threading.Condition()
        self._readers = 0
        self._healthy = True
        self._is_open = False
        self._closed = False
        self._write_lock = threading.Lock()
        self._written = 0
        self._sync = threading.Condition()
        self._synced = 0
        self._failed = 0
        self._syncing = False
        self.damage: dict[str, str] = {}
        """Table files that could not be read since the store was opened, with RocksDB's words."""
        self._compacts = True
        self._cache = Cache(settings.cache_bytes)
        self.last_version_us: Callable[[], int] = lambda: 0
        """Tells the greatest version there is. It is kept with every write, in the same batch."""
        self._kept_version_us = 0
        try:
            refuse_strangers(path)
            make_private(path)
            before_us = self._written_us()
        except OSError as error:
            raise StoreUnavailable(f"cannot open {explained(error)}") from error
        self._ledger = Ledger(path)
        try:
            self._open()
            self.first_version_us = self._version_us(before_us)
            """No version is stored that is greater."""
        except BaseException:
            if self._is_open:
                self._release()
            self._ledger.close()
            raise

    def _open(self) -> None:
        self._families: dict[str, Rdict] = {}
        self._handles: dict[str, ColumnFamily] = {}
        claim = self._ledger.read()
        if may_create(self.path, claim):
            self._ledger.write("", 0, {}, sync=True)
        else:
            check_files(self.path, claim)
        try:
            names = Rdict.list_cf(str(self.path)) if (self.path / "CURRENT").exists() else ["default"]
            self._db = Rdict(str(self.path), self._options(""), {n: self._options(n) for n in names})
        except Exception as error:  # rocksdict raises plain Exception
            said = fault(error, self.path, f"cannot open {self.path}")
            raise (Corrupt(f"{said}. {way_out(self.path)}") if isinstance(said, Corrupt) else said) from error
        for name in names:
            self._attach(name)
        self._is_open = True
        self._durable = Durable(self.path, self._ledger, self._least_log())

    def _attach(self, name: str) -> None:
        self._families[name] = self._db.get_column_family(name)
        self._handles[name] = self._db.get_column_family_handle(name)

    def _options(self, family: str) -> Options:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_write_buffer_size(64 << 20)
        options.set_db_write_buffer_size(self.settings.write_buffer_bytes)
        options.set_max_write_buffer_number(4)
        options.set_max_total_wal_size(4 * self.settings.write_buffer_bytes)
        options.set_max_background_jobs(self.settings.background_jobs)
        # What is flushed will soon be compacted: quick to write and to read. The rest is kept small, at zstd's quick level:
        # the usual one takes a tenth more of the server's time to save a twentieth of the bytes.
        zstd = DBCompressionType.zstd()
        options.set_compression_per_level([DBCompressionType.lz4(), *[zstd] * 6])
        options.set_compression_options(_DEFAULT_WINDOW_BITS, 1, 0, 0)
        # Compaction that lags is caught up on; a stall would hold the GIL for as long.
        options.set_level_zero_slowdown_writes_trigger(40)
        options.set_level_zero_stop_writes_trigger(60)
        options.set_disable_auto_compactions(not self._compacts)
        options.set_bytes_per_sync(1 << 20)
        options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
        options.set_keep_log_file_num(4)
        options.set_max_log_file_size(8 << 20)
        table = BlockBasedOptions()
        table.set_block_size(16 << 10)
        if not is_windowed(family):  # whose rows are iterated over, never looked up by their keys
            table.set_bloom_filter(10, False)
        table.set_block_cache(self._cache)
        table.set_format_version(5)
        options.set_block_based_table_factory(table)
        return options

    def _written_us(self) -> int:
        """When any file here was last written; 0: there is no store yet."""
        if not (self.path / "CURRENT").exists():
            return 0
        return max((found.st_mtime_ns // 1000 for found in file_stats(self.path)), default=0)

    def _version_us(self, before_us: int) -> int:
        """What was kept. Releases that kept nothing took their versions from the clock that dates their files."""
        family = self._families.get(_CLOCK)
        try:
            kept = None if family is None else family.get(_LAST_US)
        except Exception as error:
            raise fault(error, self.path, f"cannot read the clock of {self.path}") from error
        return before_us - before_us % MS if kept is None else int.from_bytes(bytes(kept), "big")

    # -- reading

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """While inside, the handle stays. Keep it short, and leave no iterator behind."""
        with self._gate:
            if self._closed:
                raise Unavailable("the store is closed")
            if not self._is_open:  # never answer that there is nothing
                raise Unavailable("the store could not be reopened after a failed write; it is tried again")
            self._readers += 1
        try:
            yield
        finally:
            with self._gate:
                self._readers -= 1
                if not self._readers:
                    self._gate.notify_all()

    def family(self, name: str) -> Rdict | None:
        return self._families.get(name)

    def names(self) -> list[str]:
        return list(self._families)

    def check_read(self, at: RdictIter) -> None:
        """Ask an iterator that has ended: RocksDB ends it at what it cannot read as it does at the end of the data."""
        try:
            at.status()
        except Exception as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: Exception) -> WiderowError:
        """What to raise when the driver could not read. A damaged file is logged when it is first met."""
        file = table_file(error)
        if file is None:
            return fault(error, self.path, f"cannot read {self.path}")
        if file not in self.damage:
            self.damage[file] = str(error)  # no more of it is kept: its traceback holds iterators, and they the store
            log.error("%s of %s cannot be read: %s", file, self.path, str(error))
        return Corrupt(f"{file} of {self.path} cannot be read: {error}")

    # -- writing

    @contextlib.contextmanager
    def writing(self, *, needs_room: bool = True) -> Iterator[None]:
        """One writer at a time, on a healthy handle. (RocksDB's write holds the GIL anyway.)

        What gives room back (`needs_room=False`) may run on a full disk.
        """
        with self._write_lock:
            if self._closed:
                raise Unavailable("the store is closed")
            if needs_room:
                self._check_room()
            if not self._healthy:
                self._reopen()
            yield

    def handle(self, name: str) -> ColumnFamily:
        """Of a column family, made if it is new. Inside `writing`."""
        handle = self._handles.get(name)
        if handle is None:
            with self._reporting():
                self._db.create_column_family(name, self._options(name))
            self._attach(name)
            handle = self._handles[name]
        return handle

    def write(self, batch: WriteBatch) -> int:
        """Into log and memory, not yet synced. Inside `writing`. Gives a ticket for `wait_durable`."""
        version_us = self.last_version_us()
        if version_us > self._kept_version_us:
            batch.put(_LAST_US, version_us.to_bytes(8, "big"), self.handle(_CLOCK))
        with self._reporting():
            self._db.write(batch)
            self._durable.note_write(self._least_log)
        self._kept_version_us = version_us
        self.writes += 1
        self._written += 1
        return self._written

    def wait_durable(self, ticket: int) -> None:
        """Until the write of that ticket is on disk. Outside `writing`, so that the next write overlaps the fsync."""
        with self._sync:
            while True:
                # First: later tickets may be durable by now, on a new handle. That some fail needlessly is harmless.
                self._check_not_failed(ticket)
                if self._synced >= ticket:
                    return
                if not self._syncing:
                    self._syncing = True
                    break
                self._sync.wait()
        target = self._written
        try:
            with self._reporting(), self.reading():
                lengths = self._durable.lengths()
                self._db.flush_wal(True)
                self._durable.claim(lengths)
        except BaseException:
            with self._sync:
                self._syncing, self._failed = False, max(self._failed, target)
                self._sync.notify_all()
            raise
        with self._sync:
            self._syncing, self._synced = False, target
            self.syncs += 1
            self._sync.notify_all()
            self._check_not_failed(ticket)  # the handle was reopened before it was synced

    def check_kept(self, ticket: int) -> None:
        """After `wait_durable` of a later one: nothing was lost in between. A write of several parts is lost with any."""
        with self._sync:
            self._check_not_failed(ticket)

    def _check_not_failed(self, ticket: int) -> None:
        if self._failed >= ticket:
            raise Unavailable("the log could not be synced to disk; nothing of this write is acknowledged")

    def _least_log(self) -> int:
        return int(self._db.property_int_value("rocksdb.min-log-number-to-keep") or 0)

    def drop(self, name: str) -> int:
        """Drop a column family and its files. Inside `writing`. Gives the bytes it had on disk."""
        family = self._families.pop(name)
        size = int(family.property_int_value("rocksdb.total-sst-files-size") or 0)
        del self._handles[name], family
        with self._reporting():
            self._db.drop_column_family(name)
        return size

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn what rocksdict raises into ours, and remember that the handle is spoilt."""
        try:
            yield
        except (MemoryError, KeyboardInterrupt):
            raise
        except Unavailable:
            raise
        except Exception as error:
            self._healthy = False
            log.warning("rocksdb: %s", str(error))
            said = fault(error, self.path, "rocksdb")
            if not isinstance(said, Corrupt):
                raise said from error
            # What a compaction met: RocksDB then refuses all writes. Nothing of this write is lost that was acknowledged.
            self.unreadable(error)
            self._compacts = False
            raise StoreUnavailable(str(said)) from error

    def _check_room(self) -> None:
        free = free_bytes(self.path)
        if free < self.settings.reserve_bytes:
            raise StorageFull(
                f"{free >> 20} MiB free on the disk of {self.path}, less than the reserve of "
                f"{self.settings.reserve_bytes >> 20} MiB (store.reserve_mib): free some space",
                retry_after_s=5,
            )

    def _reopen(self) -> None:
        self._check_room_to_recover()
        with self._gate:
            self._gate.wait_for(lambda: not self._readers)
            log.warning("rocksdb: reopening %s after a failed write", self.path)
            if not self._compacts:
                log.error("rocksdb: reopening with automatic compaction off, since it met a damaged file")
            with self._sync:
                self._failed = max(self._failed, self._written)
            self._is_open = False
            self._kept_version_us = 0
            self._release()
            self._open()
            # What was written but not synced before the failure is in no acknowledgement; what survived of it is harmless.
            self._healthy = True

    def _check_room_to_recover(self) -> None:
        """Reopening turns all rows in memory into table files. If it fails half-way nobody can read: better not to begin."""
        in_memory = self.sum_property("rocksdb.cur-size-all-mem-tables")
        free, needed = free_bytes(self.path), in_memory + _RECOVERY_SLACK_BYTES
        if free < needed:
            raise StorageFull(
                f"the disk of {self.path} was full: writing resumes with {(needed >> 20) + 1} MiB free, {free >> 20} are",
                retry_after_s=5,
            )

    def _release(self) -> None:
        self._families.clear()
        self._handles.clear()
        with contextlib.suppress(Exception):  # a spoilt handle may complain; the log has everything acknowledged
            self._db.close()
        self._durable.close()

    def close(self) -> None:
        with self._write_lock, self._gate:
            if self._closed:
                return
            self._gate.wait_for(lambda: not self._readers)
            self._closed = True
            lengths = self._durable.lengths()
            with contextlib.suppress(Exception):
                self._db.flush_wal(True)
                self._durable.claim(lengths)
            self._release()
            self._ledger.close()

    # -- backups

    def link(self, folder: Path) -> None:
        """Make a folder on the same disk with a store as this one is now: links to its table files, copies of the rest.

        Everything is flushed first: that gives up the GIL. RocksDB's checkpoint, which flushes what is left, does not.
        """
        with self.reading():
            for family in list(self._families.values()):
                with contextlib.suppress(Exception):  # its window was dropped; or the checkpoint fails as well, and says why
                    family.flush()
            try:
                Checkpoint(self._db).create_checkpoint(str(folder))
            except Exception as error:
                raise Unavailable(f"rocksdb: no checkpoint of {self.path}: {error}") from error

    # -- figures

    def disk_bytes(self) -> int:
        return sum(found.st_size for found in file_stats(self.path))

    def sizes(self) -> dict[str, TableSize]:
        """By table, its windows together. Inside `reading`."""
        found: dict[str, tuple[int, int]] = {}
        for name, family in list(self._families.items()):
            file_bytes = int(family.property_int_value("rocksdb.total-sst-files-size") or 0)
            said = dict(_FIGURE.findall(family.property_value("rocksdb.aggregated-table-properties") or ""))
            entries, keys, values = (int(said.get(what, 0)) for what in ("# entries", "raw key size", "raw value size"))
            table = name.partition("@")[0]
            had = found.get(table, (0, 0))
            found[table] = had[0] + file_bytes, had[1] + keys + values - _SEQUENCE_BYTES * entries
        return {table: TableSize(*size) for table, size in found.items()}

    def cache_bytes(self) -> int:
        """What the cache of blocks holds, which all families share."""
        return int(self._cache.get_usage())

    def damage_found(self) -> tuple[str, ...]:
        """A sentence for each thing that is wrong."""
        found = tuple(f"{file} cannot be read: {said}" for file, said in list(self.damage.items()))
        return found if self._compacts else (*found, "automatic compaction is off, since it met a damaged file")

    def running_compactions(self) -> int:
        """Each family tells that of the whole store."""
        return max(
            (int(f.property_int_value("rocksdb.num-running-compactions") or 0) for f in list(self._families.values())),
            default=0,
        )

    def compactions(self) -> int:
        """Those that run, and one for each family that waits for its own. Inside `reading`."""
        return self.running_compactions() + self.sum_property("rocksdb.compaction-pending")

    def sum_property(self, name: str) -> int:
        return sum(int(f.property_int_value(name) or 0) for f in list(self._families.values()))


def items(db: Database, family: Rdict, low: bytes, high: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values in [low, high), in order. Inside `reading()` or `writing()`. `Corrupt`: some cannot be read."""
    options = ReadOptions()  # lives as long as this generator: the iterator only borrows its bound
    if high is not None:
        options.set_iterate_upper_bound(high)
    at = family.iter(options)
    at.seek(low)
    key, value, following = at.key, at.value, at.next
    while (found := key()) is not None:
        yield found, value()
        following()
    db.check_read(at)


def next_rows(rows: Iterator[tuple[bytes, bytes]], count: int) -> list[tuple[bytes, bytes]]:
    """Up to so many of them, a few at a time: one call for thousands keeps all other threads waiting for milliseconds."""
    out = list(islice(rows, min(count, _AT_A_TIME)))
    more = out
    while len(more) == _AT_A_TIME and len(out) < count:
        more = list(islice(rows, min(count - len(out), _AT_A_TIME)))
        out += more
    return out


def free_bytes(path: Path) -> int:
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def file_stats(path: Path) -> Iterator[os.stat_result]:
    """Of the files in a folder. RocksDB removes some at any time: one that is gone meanwhile is left out."""
    with os.scandir(path) as entries:
        files = [entry for entry in entries if entry.is_file()]
    for entry in files:
        with contextlib.suppress(FileNotFoundError):
            yield entry.stat()
