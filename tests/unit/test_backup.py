"""Backups of an embedded store, taken and restored in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from rocksdict import Checkpoint, Rdict

from widerow.backup import folder as folders
from widerow.backup import restore as restoring
from widerow.backup.check import check
from widerow.backup.erased import Ledger
from widerow.backup.folder import BackupFolder, Manifest
from widerow.backup.restore import Restored, restore
from widerow.backup.running import LINKS, Backups
from widerow.catalog.catalog import Catalog
from widerow.catalog.store import bring_up
from widerow.config import Config, Store
from widerow.engine.open import open_engine
from widerow.engine.rocksdb import RocksEngine, database
from widerow.model.batch import Report, batch_of
from widerow.model.errors import ConfigError, Conflict, Corrupt, NotFound
from widerow.model.names import Names
from widerow.model.store import RESTORING
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, MINUTE, SECOND, SystemClock, TimeSpan
from widerow.telemetry.store import Telemetry, TelemetrySettings

ACME = Tenant(name="acme")
START_US = SystemClock().now_us() // SECOND * SECOND - 600 * SECOND

GOLDEN = {
    "store.json": b'{"format":1,"store":"8f14e45fceea167a"}',
    "backups/000007.json": (
        b'{"sha256":"1edce7b79d57512dab095bd6b178049f5e3489d8ce9c14eba2bc6173e4bd9ba9","manifest":{"'
        b'format":1,"number":7,"store":"8f14e45fceea167a","mark_us":1795058252123456,"finished_us":1'
        b'795058259000000,"copied_bytes":16,"files":{"CURRENT":{"bytes":16,"sha256":"9c283f6e81028b9'
        b'eb0760d918ee4bc0aa256ed3b926393c1734c760c4bd724fd","stamp":""}}}}'
    ),
    "objects/9c283f6e81028b9eb0760d918ee4bc0aa256ed3b926393c1734c760c4bd724fd": b"MANIFEST-000005\n",
    "erased.log": (
        b'a18de4d3 {"tenant":"acme","mark":{"rollups":"","device_id":"press-7","metric_name":"","sta'
        b'rt_us":0.0,"stop_us":9007199254740992.0,"version_us":1795058252000000.0,"done_us":0.0,"cla'
        b'sses":"2592000000000"}}\n'
        b'2b837fff {"known_us":1795058252123456}\n'
    ),
}
"""A folder as the release that introduced them wrote it."""


def config_at(path: Path) -> Config:
    return replace(Config(), store=replace(Store(), url=f"rocksdb:{path}", cache_mib=16, write_buffer_mib=16, reserve_mib=0))


class Opened:
    """A store as a process has it open, without the threads of a service."""

    def __init__(self, path: Path) -> None:
        self.engine = open_engine(config_at(path), SystemClock())
        bring_up(self.engine)
        self.clock = self.engine.clock
        self.telemetry = Telemetry(self.engine, self.clock, TelemetrySettings(max_future_us=MINUTE, refresh_us=MINUTE))
        self.catalog = Catalog(self.engine, self.clock)
        self.backups = Backups(self.engine, self.clock, path)
        self.telemetry.erasure.recorded = self.backups.erased

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def erase(self, **what: Any) -> None:
        self.telemetry.erase(ACME, **what)

    def delete_device(self, name: str) -> None:
        self.catalog.devices.delete("acme", name, first=lambda: self.erase(device=name))

    def delete_tenant(self) -> None:
        self.erase()
        self.catalog.tenants.delete("acme")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Opened]:
    with Opened(tmp_path / "store") as store:
        store.catalog.tenants.create(ACME)
        yield store


@pytest.fixture
def dest(tmp_path: Path) -> BackupFolder:
    return BackupFolder(tmp_path / "backups")


def write(store: Opened, device: str, *values: float, metric: str = "temp") -> None:
    version_us = store.clock.version_us()
    reports = [Report(device, START_US + i * SECOND, {metric: value}, {}, version_us) for i, value in enumerate(values)]
    store.catalog.devices.register(ACME, Names.of((device,)))
    store.telemetry.write(ACME, batch_of(reports))


def values(store: Opened, device: str, metric: str = "temp") -> list[float]:
    span = TimeSpan(START_US, START_US + 600 * SECOND)
    found = store.telemetry.read_many(ACME, [device], span, metrics=[metric])
    return sorted(float(number) for rows in found for number in rows.cells.number)


def back_up(store: Opened, dest: BackupFolder) -> Manifest:
    store.backups.start(dest.path)
    finish(store.backups)
    error = store.backups.state()["last_error"]
    assert error is None, error
    return dest.manifest()


def finish(backups: Backups) -> None:
    thread = backups._thread
    if thread is not None:
        thread.join()


def restored(dest: BackupFolder, path: Path, number: int | None = None) -> Restored:
    return restore(dest, dest.manifest(number), path, SystemClock(), lambda _n: None, audit_days=1)


# -- taking


def test_a_restored_backup_has_what_the_store_had(store: Opened, dest: BackupFolder, tmp_path: Path) -> None:
    write(store, "press-1", 1, 2, 3)
    back_up(store, dest)
    write(store, "press-1", 4, 5, 6)
    restored(dest, tmp_path / "copy")
    with Opened(tmp_path / "copy") as copy:
        assert values(copy, "press-1") == [1, 2, 3]
        assert [tenant.name for tenant in copy.catalog.tenants.list()] == ["acme"]


def test_a_second_backup_copies_only_what_is_new(store: Opened, dest: BackupFolder) -> None:
    write(store, "press-1", *range(300))
    first = back_up(store, dest)
    write(store, "press-2", 1)
    second = back_up(store, dest)
    shared = {file.sha256 for file in first.files.values()} & {file.sha256 for file in second.files.values()}
    assert shared
    assert second.copied_bytes < first.copied_bytes == first.bytes


def test_files_of_one_name_and_other_contents_are_kept_apart(store: Opened, dest: BackupFolder, tmp_path: Path) -> None:
    write(store, "press-1", 1, 2, 3)
    back_up(store, dest)
    for path, extra in (("one", 7.0), ("other", 8.0)):
        restored(dest, tmp_path / path, 1)
        with Opened(tmp_path / path) as copy:
            write(copy, "press-2", extra)
            back_up(copy, dest)
    one, other = dest.manifest(2), dest.manifest(3)
    repeated = [name for name in one.files if name in other.files and one.files[name].sha256 != other.files[name].sha256]
    assert any(name.endswith(".sst") for name in repeated)
    for number, extra in ((2, 7.0), (3, 8.0)):
        restored(dest, tmp_path / f"again-{number}", number)
        with Opened(tmp_path / f"again-{number}") as copy:
            assert values(copy, "press-2") == [extra]


def test_the_folder_of_links_goes_and_so_does_what_a_kill_left(store: Opened, dest: BackupFolder, tmp_path: Path) -> None:
    back_up(store, dest)
    links = tmp_path / "store" / LINKS
    assert not links.exists()
    links.mkdir()
    (links / "000001.sst").write_bytes(b"left")
    store.engine.close()
    with Opened(tmp_path / "store"):
        assert not links.exists()


def test_a_run_that_ends_half_way_leaves_no_backup_and_its_copies(
    store: Opened, dest: BackupFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, "press-1", 1, 2, 3)
    real, count = BackupFolder.add, 0

    def fails_later(self: BackupFolder, source: Path, stamp: str, advance: Callable[[int], None]) -> object:
        nonlocal count
        count += 1
        if count > 5:
            raise OSError(5, "Input/output error", str(source))
        return real(self, source, stamp, advance)

    with monkeypatch.context() as patch:
        patch.setattr(BackupFolder, "add", fails_later)
        store.backups.start(dest.path)
        finish(store.backups)
    error = store.backups.state()["last_error"]
    assert error["code"] == "file"
    assert dest.numbers() == []
    done = back_up(store, dest)
    assert done.number == 1
    assert 0 < done.copied_bytes < done.bytes


def test_one_backup_at_a_time(store: Opened, dest: BackupFolder) -> None:
    with dest.held():
        store.backups.start(dest.path)
        finish(store.backups)
    assert store.backups.state()["last_error"]["code"] == "conflict"
    assert back_up(store, dest).number == 1


def test_a_folder_with_something_else_in_it_is_refused(store: Opened, dest: BackupFolder) -> None:
    dest.path.mkdir()
    (dest.path / "holiday.jpg").write_bytes(b"x")
    store.backups.start(dest.path)
    finish(store.backups)
    assert store.backups.state()["last_error"]["code"] == "conflict"
    assert (dest.path / "holiday.jpg").exists()


def test_the_backups_of_another_store_are_refused(store: Opened, dest: BackupFolder, tmp_path: Path) -> None:
    back_up(store, dest)
    with Opened(tmp_path / "other") as other:
        other.backups.start(dest.path)
        finish(other.backups)
        assert other.backups.state()["last_error"]["code"] == "conflict"


def test_state_tells_the_last_success_also_after_a_restart(store: Opened, dest: BackupFolder, tmp_path: Path) -> None:
    done = back_up(store, dest)
    store.engine.close()
    with Opened(tmp_path / "store") as again:
        state = again.backups.state()
    assert (state["state"], state["last_success"]["number"], state["last_error"]) == ("idle", done.number, None)
    assert state["last_success"]["to"] == str(dest.path)


def test_folders_of_backups_and_restored_stores_are_closed_to_others(
    store: Opened, dest: BackupFolder, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        back_up(store, dest)
        restored(dest, tmp_path / "copy")
    finally:
        os.umask(before)
    for path in (dest.path, tmp_path / "copy"):
        assert path.stat().st_mode & 0o777 == 0o700


def test_everything_is_flushed_before_the_checkpoint(
    store: Opened, dest: BackupFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which holds up all threads for as long as it has to flush."""
    write(store, "press-1", *range(100))
    unflushed = []

    def watched(db: Rdict) -> Checkpoint:
        unflushed.append(store.engine.db.sum_property("rocksdb.num-entries-active-mem-table"))  # type: ignore[attr-defined]
        return Checkpoint(db)

    monkeypatch.setattr(database, "Checkpoint", watched)
    back_up(store, dest)
    assert unflushed == [0]


# -- what stays


def test_keeping_some_removes_older_backups_and_what_only_they_had(
    store: Opened, dest: BackupFolder, tmp_path: Path
) -> None:
    for value in (1.0, 2.0, 3.0):
        write(store, "press-1", value)
        back_up(store, dest)
    with dest.held():
        assert dest.prune(1) == [1, 2]
    assert dest.numbers() == [3]
    wanted = {file.sha256 for file in dest.manifest().files.values()}
    assert {entry.name for entry in (dest.path / "objects").iterdir()} == wanted
    restored(dest, tmp_path / "copy")
    with Opened(tmp_path / "copy") as copy:
        assert values(copy, "press-1") == [3]


def test_a_damaged_object_is_found_and_copied_anew(store: Opened, dest: BackupFolder) -> None:
    write(store, "press-1", *range(100))
    made = back_up(store, dest)
    check(dest, made, thorough=True, advance=lambda _n: None)
    largest = max((file for name, file in made.files.items() if name.endswith(".sst")), key=lambda file: file.bytes)
    data = bytearray(dest.object(largest).read_bytes())
    data[len(data) // 3] ^= 1
    dest.object(largest).write_bytes(data)
    with pytest.raises(Corrupt):
        check(dest, made, thorough=True, advance=lambda _n: None)
    check(dest, back_up(store, dest), thorough=True, advance=lambda _n: None)


def test_a_block_that_was_damaged_before_the_backup_is_found(store: Opened, dest: BackupFolder, tmp_path: Path) -> None:
    write(store, "press-1", *range(500))
    made = back_up(store, dest)
    name, largest = max(made.files.items(), key=lambda item: item[1].bytes if item[0].endswith(".sst") else 0)
    data = bytearray(dest.object(largest).read_bytes())
    data[50] ^= 1
    forged = tmp_path / name
    forged.write_bytes(data)
    damaged, _ = dest.add(forged, "", lambda _n: None)
    manifest = msgspec.structs.replace(made, number=2, files={**made.files, name: damaged})
    check(dest, manifest, thorough=False, advance=lambda _n: None)
    with pytest.raises(Corrupt, match="cannot be read"):
        check(dest, manifest, thorough=True, advance=lambda _n: None)


def test_a_manifest_that_was_changed_is_refused(store: Opened, dest: BackupFolder) -> None:
    back_up(store, dest)
    file = dest.path / "backups" / "000001.json"
    file.write_bytes(file.read_bytes().replace(b'"number":1', b'"number":2'))
    with pytest.raises(Corrupt):
        dest.manifest()


def test_a_damaged_manifest_keeps_no_backup_from_being_made(store: Opened, dest: BackupFolder, tmp_path: Path) -> None:
    write(store, "press-1", 1)
    first = back_up(store, dest)
    (dest.path / "backups" / "000001.json").write_bytes(b"{}")
    assert back_up(store, dest).number == 2
    assert all(dest.has(file) for file in first.files.values())  # nobody knows what it had
    restored(dest, tmp_path / "copy")
    with Opened(tmp_path / "copy") as copy:
        assert values(copy, "press-1") == [1]


def test_a_backup_that_is_not_there_is_named(dest: BackupFolder) -> None:
    with pytest.raises(NotFound):
        dest.manifest()


def test_folders_of_the_first_format_stay_readable(tmp_path: Path) -> None:
    folder = BackupFolder(tmp_path)
    for name, data in GOLDEN.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    manifest = folder.manifest()
    assert (manifest.number, manifest.store, manifest.mark_us, manifest.bytes) == (
        7,
        "8f14e45fceea167a",
        1795058252123456,
        16,
    )
    assert folder.has(manifest.files["CURRENT"])
    (erased,), known_us = Ledger(folder.erased).read()
    assert (erased.tenant, erased.mark["device_id"], known_us) == ("acme", "press-7", 1795058252123456)


# -- restoring


def test_a_restore_goes_into_an_empty_folder_only(store: Opened, dest: BackupFolder, tmp_path: Path) -> None:
    back_up(store, dest)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "notes.txt").write_text("mine")
    with pytest.raises(Conflict):
        restored(dest, tmp_path / "copy")
    assert [entry.name for entry in (tmp_path / "copy").iterdir()] == ["notes.txt"]


def test_nobody_opens_a_restore_that_is_not_finished(
    store: Opened, dest: BackupFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, "press-1", 1, 2, 3)
    back_up(store, dest)
    back_up(store, dest)
    copied, path = 0, tmp_path / "copy"

    def interrupted(source: Path, target: Path, file: folders.StoredFile, advance: Callable[[int], None]) -> None:
        nonlocal copied
        copied += 1
        if copied == 5:
            raise KeyboardInterrupt
        folders.copy(source, target, file, advance)

    with monkeypatch.context() as patch:
        patch.setattr(restoring, "copy", interrupted)
        with pytest.raises(KeyboardInterrupt):
            restored(dest, path)
    with pytest.raises(ConfigError, match="not finished"):
        Opened(path)
    with pytest.raises(Conflict, match="part of backup 2"):
        restored(dest, path, 1)
    before = {entry.name: entry.stat().st_ino for entry in path.glob("*.sst")}
    restored(dest, path)
    assert not (path / RESTORING).exists()
    assert all((path / name).stat().st_ino == inode for name, inode in before.items())
    with Opened(path) as copy:
        assert values(copy, "press-1") == [1, 2, 3]


def test_a_restore_that_ends_while_it_erases_goes_on(
    store: Opened, dest: BackupFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, "press-1", 1)
    back_up(store, dest)
    store.delete_device("press-1")
    with monkeypatch.context() as patch:
        patch.setattr(restoring, "erase_again", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            restored(dest, tmp_path / "copy")
    with pytest.raises(ConfigError, match="not finished"):
        Opened(tmp_path / "copy")
    assert restored(dest, tmp_path / "copy").erased == 1
    with Opened(tmp_path / "copy") as copy:
        assert values(copy, "press-1") == []


def test_a_damaged_object_is_not_restored(store: Opened, dest: BackupFolder, tmp_path: Path) -> None:
    made = back_up(store, dest)
    victim = dest.object(next(file for name, file in made.files.items() if name.endswith(".sst")))
    victim.write_bytes(bytes(reversed(victim.read_bytes())))
    with pytest.raises(Corrupt):
        restored(dest, tmp_path / "copy")
    with pytest.raises(ConfigError):
        Opened(tmp_path / "copy")


# -- what was erased


def test_what_was_erased_after_the_backup_stays_erased(store: Opened, dest: BackupFolder, tmp_path: Path) -> None:
    write(store, "press-1", 1, 2, 3)
    write(store, "press-2", 4, 5, 6)
    write(store, "press-3", 7)
    back_up(store, dest)
    store.delete_device("press-1")
    store.erase(metric="temp", device="press-2", span=TimeSpan(START_US, START_US + SECOND))
    done = restored(dest, tmp_path / "copy")
    assert done.erased == 2
    with Opened(tmp_path / "copy") as copy:
        assert values(copy, "press-1") == []
        assert values(copy, "press-2") == [5, 6]
        assert values(copy, "press-3") == [7]
        assert [device.name for device in copy.catalog.devices.list("acme").devices] == ["press-2", "press-3"]


def test_a_tenant_that_was_deleted_after_the_backup_stays_deleted(store: Opened, dest: BackupFolder, tmp_path: Path) -> None:
    write(store, "press-1", 1)
    back_up(store, dest)
    store.delete_tenant()
    restored(dest, tmp_path / "copy")
    with Opened(tmp_path / "copy") as copy:
        assert copy.catalog.tenants.find("acme") is None
        assert values(copy, "press-1") == []


def test_a_device_that_came_back_before_the_backup_is_restored(store: Opened, dest: BackupFolder, tmp_path: Path) -> None:
    write(store, "press-1", 1)
    back_up(store, dest)
    store.delete_device("press-1")
    write(store, "press-1", 2)
    back_up(store, dest)
    assert restored(dest, tmp_path / "copy").erased == 0
    with Opened(tmp_path / "copy") as copy:
        assert values(copy, "press-1") == [2]


def test_what_comes_after_a_restore_is_newer_than_what_was_erased(store: Opened, dest: BackupFolder, tmp_path: Path) -> None:
    """Though the store's clock was ahead when it was erased, and was not when it was backed up."""
    write(store, "press-1", 1)
    back_up(store, dest)
    store.clock.cover(store.clock.version_us() + DAY)
    store.delete_device("press-1")
    restored(dest, tmp_path / "copy")
    (erased,) = Ledger(dest.erased).read()[0]
    with closing(RocksEngine(tmp_path / "copy", clock=SystemClock())) as engine:
        assert engine.clock.version_us() > float(erased.mark["version_us"])


def test_restore_says_up_to_when_erasures_are_known(store: Opened, dest: BackupFolder, tmp_path: Path) -> None:
    write(store, "press-1", 1)
    back_up(store, dest)
    at_backup = Ledger(dest.erased).read()[1]
    store.delete_device("press-1")
    known_us = restored(dest, tmp_path / "copy").erased_known_us
    assert at_backup is not None
    assert known_us is not None
    assert at_backup < known_us <= store.clock.now_us()


def test_a_folder_that_cannot_be_reached_keeps_nothing_from_being_erased(
    store: Opened, dest: BackupFolder, tmp_path: Path
) -> None:
    write(store, "press-1", 1)
    write(store, "press-2", 2)
    back_up(store, dest)
    dest.path.rename(tmp_path / "away")
    store.delete_device("press-1")
    assert values(store, "press-1") == []
    assert store.backups.state()["ledgers"][0]["trouble"]
    (tmp_path / "away").rename(dest.path)
    store.delete_device("press-2")  # which brings up what was missed
    assert store.backups.state()["ledgers"] == [{"folder": str(dest.path), "trouble": None}]
    assert len(Ledger(dest.erased).read()[0]) == 2


def test_a_restored_store_does_not_write_to_the_ledger_of_its_backup(
    store: Opened, dest: BackupFolder, tmp_path: Path
) -> None:
    write(store, "press-1", 1)
    back_up(store, dest)
    restored(dest, tmp_path / "drill")
    with Opened(tmp_path / "drill") as drill:
        drill.delete_device("press-1")
        assert drill.backups.state()["ledgers"] == []
    assert Ledger(dest.erased).read()[0] == []


def test_a_ledger_goes_on_behind_half_a_line(store: Opened, dest: BackupFolder) -> None:
    write(store, "press-1", 1)
    back_up(store, dest)
    with dest.erased.open("ab") as file:
        file.write(b'0badf00d {"tenant":"ac')
    store.delete_device("press-1")
    assert [erased.tenant for erased in Ledger(dest.erased).read()[0]] == ["acme"]


def test_a_ledger_that_was_changed_is_not_believed(store: Opened, dest: BackupFolder, tmp_path: Path) -> None:
    write(store, "press-1", 1)
    back_up(store, dest)
    store.delete_device("press-1")
    dest.erased.write_bytes(dest.erased.read_bytes().replace(b"press-1", b"press-2"))
    with pytest.raises(Corrupt):
        restored(dest, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_damaged_ledger_is_written_anew_by_the_next_backup(store: Opened, dest: BackupFolder) -> None:
    write(store, "press-1", 1)
    back_up(store, dest)
    store.delete_device("press-1")
    dest.erased.write_bytes(dest.erased.read_bytes().replace(b"press-1", b"press-2"))
    back_up(store, dest)
    assert [erased.mark["device_id"] for erased in Ledger(dest.erased).read()[0]] == ["press-1"]
    assert dest.erased.with_name("erased.log.damaged").exists()
