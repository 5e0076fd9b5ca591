"""When the embedded store is made, opened and refused."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from widerow.cli.connect import store_exists
from widerow.cli.demo_tokens import FILE
from widerow.engine.contract import START_US, sparse_rows
from widerow.engine.contract.tables import SPARSE, V1, A
from widerow.engine.rocksdb import RocksEngine
from widerow.engine.rocksdb.database import file_stats
from widerow.engine.rocksdb.faults import fault
from widerow.engine.rocksdb.ledger import LEDGER
from widerow.model.errors import ConfigError, Corrupt, StorageFull, StoreUnavailable
from widerow.model.times import ManualClock
from widerow.server.sockets import SOCKET


def opened(folder: Path) -> RocksEngine:
    return RocksEngine(folder, clock=ManualClock(START_US))


def made(folder: Path) -> Path:
    """A store with some rows in table files and some in the log."""
    for second in range(2):
        engine = opened(folder)
        engine.apply([SPARSE])
        engine.write([(SPARSE, sparse_rows(SPARSE, [((*A, second), {"x": 1.0})], version_us=V1))])
        engine.close()
    return folder


def test_a_file_that_goes_while_files_are_measured_is_left_out(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"12345")
    measured = file_stats(tmp_path)
    assert next(measured).st_size == 5
    for file in tmp_path.iterdir():
        file.unlink()
    assert list(measured) == []


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def count(engine: RocksEngine) -> int:
    return sum(len(rows) for rows in engine.scan(SPARSE, None))


# -- no store is made over another


def test_a_store_without_current_is_refused_every_time_and_loses_nothing(tmp_path: Path) -> None:
    folder = made(tmp_path / "store")
    current = (folder / "CURRENT").read_text()
    (folder / "CURRENT").unlink()
    before = names(folder)
    for _ in range(2):
        with pytest.raises(Corrupt, match=r"CURRENT is missing.*printf 'MANIFEST-.*from a backup"):
            opened(folder)
    assert names(folder) == before
    (folder / "CURRENT").write_text(current)
    engine = opened(folder)
    assert count(engine) == 2
    engine.close()


@pytest.mark.parametrize("left", ["000012.sst", "000013.log", "MANIFEST-000005", "IDENTITY"])
def test_no_store_is_made_beside_any_file_of_another(tmp_path: Path, left: str) -> None:
    (tmp_path / left).write_bytes(b"something")
    for _ in range(2):
        with pytest.raises(Corrupt, match="CURRENT is missing"):
            opened(tmp_path)
    assert (tmp_path / left).read_bytes() == b"something"


def test_what_is_left_of_a_store_counts_as_one_for_commands(tmp_path: Path) -> None:
    assert not store_exists(f"rocksdb:{tmp_path}")
    (tmp_path / "000012.sst").touch()
    assert store_exists(f"rocksdb:{tmp_path}")


def test_a_store_all_of_whose_files_are_gone_is_not_made_again(tmp_path: Path) -> None:
    folder = made(tmp_path / "store")
    for file in folder.iterdir():
        if file.name != LEDGER:
            file.unlink()
    with pytest.raises(Corrupt, match="CURRENT is missing"):
        opened(folder)


def test_no_store_is_made_among_the_files_of_others(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    for name in ("thesis.txt", "letters"):
        (folder / name).write_text("years of work")
    with pytest.raises(ConfigError, match=r"home holds something other than a store \(letters and 1 more\).*empty"):
        opened(folder)
    assert names(folder) == {"thesis.txt", "letters"}
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_store_is_made_beside_what_a_file_system_and_a_failed_start_leave(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    for name in (
        "LOCK",
        "LOG",
        "LOG.old.1795092578416575",
        "OPTIONS-000007",
        "000001.dbtmp",
        "rocksdict-config.json",
        LEDGER,
        SOCKET,
        FILE,
    ):
        (tmp_path / name).touch()
    (tmp_path / "OPTIONS-000007.dbtmp").touch()
    made(tmp_path)
    engine = opened(tmp_path)
    assert count(engine) == 2
    engine.close()


def test_making_a_store_may_be_cut_off_and_begun_again(tmp_path: Path) -> None:
    killed = (
        "import os, sys; from pathlib import Path; from widerow.engine.rocksdb import database; "
        "from widerow.engine.rocksdb.engine import RocksEngine; from widerow.model.times import ManualClock\n"
        "def die(*_): [Path(sys.argv[1], name).touch() for name in ('IDENTITY', 'MANIFEST-000001')]; os._exit(9)\n"
        "database.Rdict = die\nRocksEngine(Path(sys.argv[1]), clock=ManualClock(0))"
    )
    folder = tmp_path / "cut off"
    assert subprocess.run([sys.executable, "-c", killed, folder], check=False).returncode == 9
    assert "IDENTITY" in names(folder)
    assert "CURRENT" not in names(folder)
    engine = opened(folder)
    engine.apply([SPARSE])
    engine.close()


def test_a_store_of_an_older_release_has_no_ledger_and_gets_one(tmp_path: Path) -> None:
    folder = made(tmp_path / "store")
    (folder / LEDGER).unlink()
    engine = opened(folder)
    assert count(engine) == 2
    engine.close()
    assert LEDGER in names(folder)


# -- errors are told apart


def test_damage_in_a_folder_named_lock_is_not_another_process(tmp_path: Path) -> None:
    folder = made(tmp_path / "lock" / "block")
    (folder / "CURRENT").write_text("MANIFEST-000999\n")
    with pytest.raises(Corrupt, match="MANIFEST-000999"):
        opened(folder)


def test_a_store_that_is_open_is_refused_as_open_in_another_process(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    with pytest.raises(ConfigError, match="is open in another process"):
        opened(tmp_path)
    engine.close()
    opened(tmp_path).close()


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    holds = (
        "import sys, time; from pathlib import Path; from widerow.engine.rocksdb import RocksEngine; "
        "from widerow.model.times import ManualClock; e = RocksEngine(Path(sys.argv[1]), clock=ManualClock(0)); "
        "print('open', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", holds, tmp_path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(ConfigError, match="is open in another process"):
            opened(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    began_s = time.monotonic()
    opened(tmp_path).close()
    assert time.monotonic() < began_s + 5


def test_errors_of_the_driver_are_told_apart_by_what_rocksdb_says() -> None:
    def check(said: str, kind: type[Exception]) -> None:
        assert type(fault(Exception(said), Path("/a/lock"), "cannot open")) is kind, said

    check("IO error: While lock file: /a/lock/LOCK: Resource temporarily unavailable", ConfigError)
    check("IO error: While lock file: /a/lock/LOCK: Permission denied", StoreUnavailable)
    check("IO error: lock hold by current process, time 1: /a/LOCK: No locks available", ConfigError)
    check("Corruption: block checksum mismatch: stored = 1, computed = 2, type = 4 in /a/lock/000009.sst offset 0", Corrupt)
    check("IO error: No such file or directory: While open a file for random read: /a/lock/000009.sst", Corrupt)
    check("IO error: No space left on device: While appending to file: /a/lock/000008.log", StorageFull)
    check("IO error: While appending to file: /a/lock/000008.log: No space left on device", StorageFull)
    check("IO error: While pread: /a/lock/000009.sst: Input/output error", StoreUnavailable)
