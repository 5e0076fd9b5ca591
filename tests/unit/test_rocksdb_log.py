"""A log or MANIFEST that lost what was on the disk is refused; a write that was cut off is not."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from widerow.cli.commands import app
from widerow.engine.contract import START_US, sparse_rows
from widerow.engine.contract.tables import FIXED, SPARSE, V1, A
from widerow.engine.rocksdb import RocksEngine, RocksSettings
from widerow.engine.rocksdb.accept_loss import accept_loss
from widerow.engine.rocksdb.ledger import LEDGER, Claim, Ledger
from widerow.engine.rocksdb.log_format import BLOCK, append, records, whole
from widerow.engine.rocksdb.manifest import read_manifest
from widerow.engine.rows import rows_of
from widerow.model.errors import ConfigError, Corrupt
from widerow.model.times import ManualClock

KILLS = int(os.environ.get("WIDEROW_STORE_KILLS", "3"))
WRITES = 60
PER_WRITE = 40
SETTINGS = RocksSettings(write_buffer_bytes=8 << 20)


def opened(folder: Path) -> RocksEngine:
    engine = RocksEngine(folder, clock=ManualClock(START_US))
    engine.apply([SPARSE, FIXED])
    return engine


def write(engine: RocksEngine, number: int) -> None:
    noise = np.random.default_rng(number).random(PER_WRITE)
    rows = [((*A, number * PER_WRITE + i), {"x": float(noise[i])}) for i in range(PER_WRITE)]
    engine.write([(SPARSE, sparse_rows(SPARSE, rows, version_us=V1))])


def flush(engine: RocksEngine, *names: str) -> None:
    for name in names or engine.db.names():
        family = engine.db.family(name)
        assert family is not None
        family.flush()


def count(engine: RocksEngine) -> int:
    return sum(len(rows) for rows in engine.scan(SPARSE, None))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose process died: two logs, of which the older is still needed, and tables of another family."""
    folder = tmp_path_factory.mktemp("killed") / "store"
    engine = opened(folder)
    for number in range(WRITES):
        write(engine, number)
        if number == WRITES // 2:  # begins another log; SPARSE still needs the older
            engine.write([(FIXED, rows_of(FIXED, [(("a", "b"), {"size": 1.0})], version_us=V1))])
            flush(engine, FIXED.name)
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    engine.close()
    return copy


@pytest.fixture
def store(killed: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    shutil.copytree(killed, folder)
    return folder


def read_claim(folder: Path) -> Claim | None:
    ledger = Ledger(folder)
    try:
        return ledger.read()
    finally:
        ledger.close()


def logs(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.log") if file.stat().st_size)


def manifest(folder: Path) -> Path:
    return folder / (folder / "CURRENT").read_text().strip()


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def cut(file: Path, part: float) -> None:
    os.truncate(file, int(file.stat().st_size * part))


# -- the format


def test_whole_records_are_those_of_rocksdb_and_no_flipped_bit_is_one(store: Path) -> None:
    chance = random.Random(1)
    for file in (*logs(store), manifest(store)):
        content = file.read_bytes()
        size = len(content)
        assert whole(file, 0, size) == size, file
        for _ in range(200):
            bit = chance.randrange(8 * size)
            spoilt = bytearray(content)
            spoilt[bit // 8] ^= 1 << bit % 8
            file.write_bytes(spoilt)
            good = whole(file, 0, size)
            filler = not any(content[bit // 8 : (bit // 8 // BLOCK + 1) * BLOCK]) and BLOCK - bit // 8 % BLOCK < 7
            assert good <= bit // 8 or filler, f"{file.name}, bit {bit}"
        file.write_bytes(content)


def test_whole_records_are_found_from_any_of_them_on(store: Path) -> None:
    file = logs(store)[0]
    size = file.stat().st_size
    ends = {whole(file, 0, stop) for stop in range(0, size, 997)}
    assert len(ends) > 10
    assert {whole(file, end, size) for end in ends} == {size}
    os.truncate(file, size + 3 * BLOCK)
    assert whole(file, 0, size + 3 * BLOCK) == size, "zeros are no records"


def test_what_is_appended_to_a_manifest_is_read_back(store: Path) -> None:
    file = manifest(store)
    before = list(records(file))
    added = [bytes([i % 256]) * size for i, size in enumerate([0, 1, 5, 100, BLOCK - 50, BLOCK - 7, BLOCK, 3 * BLOCK])]
    with file.open("ab") as opened:
        opened.write(b"cut off")
    for record in added:
        append(file, record)
    assert list(records(file)) == before + added


def test_the_manifest_is_read_as_rocksdb_wrote_it(store: Path) -> None:
    state = read_manifest(manifest(store))
    assert set(state.names.values()) == {"default", SPARSE.name, FIXED.name}
    files = {f"{number:06}.sst" for files in state.files.values() for number in files}
    assert files == {file.name for file in store.glob("*.sst")}
    assert state.least_log <= int(logs(store)[0].stem)


# -- damage is refused


def length_bit_of_the_last_record(file: Path) -> None:
    size = file.stat().st_size
    last = max(end for stop in range(size - 5_000, size) if (end := whole(file, 0, stop)) < size)
    content = bytearray(file.read_bytes())
    content[last + 5] ^= 1
    file.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit at half of the log": lambda folder: flip(logs(folder)[-1]),
    "a flipped bit in the older log": lambda folder: flip(logs(folder)[0]),
    "a bit of the last length": lambda folder: length_bit_of_the_last_record(logs(folder)[-1]),
    "a log that ends early": lambda folder: cut(logs(folder)[-1], 0.6),
    "a log without its last byte": lambda folder: os.truncate(logs(folder)[-1], logs(folder)[-1].stat().st_size - 1),
    "an empty log": lambda folder: cut(logs(folder)[-1], 0),
    "a missing log": lambda folder: logs(folder)[-1].unlink(),
    "the older of two logs missing": lambda folder: logs(folder)[0].unlink(),
    "a MANIFEST cut in half": lambda folder: cut(manifest(folder), 0.5),
    "a flipped bit in the MANIFEST": lambda folder: flip(manifest(folder)),
    "a missing MANIFEST": lambda folder: manifest(folder).unlink(),
    "a CURRENT that names nothing": lambda folder: (folder / "CURRENT").write_text("MANIF"),
    "an older MANIFEST": lambda folder: (folder / "CURRENT").write_text("MANIFEST-000001\n"),
    "a missing table file": lambda folder: next(folder.glob("*.sst")).unlink(),
    "a table file that ends early": lambda folder: cut(next(folder.glob("*.sst")), 0.5),
    "a missing CURRENT": lambda folder: (folder / "CURRENT").unlink(),
}


def test_a_store_of_a_process_that_died_opens_with_everything(store: Path) -> None:
    assert len(logs(store)) == 2
    engine = opened(store)
    assert count(engine) == WRITES * PER_WRITE
    engine.close()
    engine = opened(store)
    assert count(engine) == WRITES * PER_WRITE
    engine.close()


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_refused_and_given_up_only_when_asked(what: str, store: Path) -> None:
    DAMAGE[what](store)
    before = {
        file.name: file.read_bytes() for file in store.iterdir() if file.name != LEDGER and file.suffix in (".sst", ".log")
    }
    for _ in range(2):
        with pytest.raises(Corrupt, match="--accept-loss"):
            opened(store)
    assert {name: (store / name).read_bytes() for name in before if (store / name).exists()} == before
    copy = store.with_name("kept")
    lost = accept_loss(store, copy, SETTINGS)
    assert lost
    assert copy.stat().st_mode & 0o777 == 0o700
    engine = opened(store)
    rows = count(engine)
    assert rows % PER_WRITE == 0, "whole writes"
    if "log" in what or "last length" in what or what == "a missing MANIFEST":
        assert rows < WRITES * PER_WRITE
    else:
        assert rows == WRITES * PER_WRITE
    write(engine, WRITES)
    engine.close()
    engine = opened(store)
    assert count(engine) == rows + PER_WRITE
    engine.close()


def test_a_refusal_names_the_file_the_place_and_what_lies_behind(store: Path) -> None:
    file = logs(store)[-1]
    size = file.stat().st_size
    flip(file)
    good = whole(file, 0, size)
    with pytest.raises(Corrupt, match=rf"{file.name} is damaged at offset {good:,}, and {size - good:,} bytes"):
        opened(store)


def test_nothing_is_given_up_of_a_store_that_is_whole_or_open(store: Path) -> None:
    copy = store.with_name("kept")
    assert accept_loss(store, copy, SETTINGS) == []
    assert not copy.exists()
    engine = opened(store)
    with pytest.raises(ConfigError, match="open in another process"):
        accept_loss(store, copy, SETTINGS)
    engine.close()


def test_doctor_fails_on_a_damaged_store_and_opens_it_when_told_to(store: Path) -> None:
    def doctor(*options: str) -> tuple[dict[str, str], str]:
        done = CliRunner().invoke(app, ["doctor", "--store", f"rocksdb:{store}", "--json", *options])
        return {check["name"]: check["verdict"] for check in msgspec.json.decode(done.stdout)["checks"]}, done.stderr

    damaged = logs(store)[-1].name
    flip(store / damaged)
    verdicts, said = doctor()
    assert verdicts["store"] == "fail"
    assert "lost" not in said
    verdicts, said = doctor("--accept-loss")
    assert verdicts["store"] == "ok"
    assert f"lost: {damaged} is damaged at offset" in said
    (copy,) = store.parent.glob("store-damaged-*")
    assert f"a copy of the damaged files is in {copy}" in said


# -- and nothing else is


@pytest.mark.parametrize("tail", [b"\0" * 100, b"cut off" * 30, b"\0" * 70_000], ids=["zeros", "garbage", "many zeros"])
def test_what_lies_behind_the_claim_may_end_anywhere(store: Path, tail: bytes) -> None:
    with logs(store)[-1].open("ab") as file:
        file.write(tail)
    engine = opened(store)
    assert count(engine) == WRITES * PER_WRITE
    engine.close()


def test_an_older_ledger_and_none_are_as_good(store: Path) -> None:
    ledger = (store / LEDGER).read_bytes()
    engine = opened(store)
    for number in range(WRITES, WRITES + 5):
        write(engine, number)
        flush(engine)
    engine.close()
    for content in (ledger, b"", os.urandom(500), ledger[:70_000]):
        (store / LEDGER).write_bytes(content)
        engine = opened(store)
        assert count(engine) == (WRITES + 5) * PER_WRITE
        engine.close()


def test_a_torn_write_of_the_ledger_leaves_the_claim_before(store: Path) -> None:
    newest = read_claim(store)
    assert newest is not None
    content = bytearray((store / LEDGER).read_bytes())
    content[newest.turn % 2 * (64 << 10) + 20] ^= 1
    (store / LEDGER).write_bytes(content)
    before = read_claim(store)
    assert before is not None
    assert before.turn == newest.turn - 1


VICTIM = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[2]]
from test_rocksdb_log import SETTINGS, START_US, SPARSE, FIXED, ManualClock, RocksEngine, write
engine = RocksEngine(Path(sys.argv[1]), clock=ManualClock(START_US), settings=SETTINGS)
engine.apply([SPARSE, FIXED])
print("open", flush=True)
number = int(sys.argv[3])
while True:
    write(engine, number)
    number += 1
    print(number, flush=True)
    if number % 7 == 0:
        engine.db.family(SPARSE.name if number % 2 else "default").flush(wait=False)
"""


def test_a_store_opens_with_everything_after_a_kill_at_any_moment(tmp_path: Path) -> None:
    folder, chance, acknowledged = tmp_path / "store", random.Random(KILLS), 0
    for kill in range(KILLS):
        arguments = [sys.executable, "-c", VICTIM, str(folder), str(Path(__file__).parent), str(acknowledged)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(60)):
                if not (line := process.stdout.readline()):
                    raise AssertionError(f"kill {kill}: it did not open")
                acknowledged = max(acknowledged, 0 if line == "open\n" else int(line))
            process.send_signal(signal.SIGKILL)
            for line in process.stdout:
                acknowledged = max(acknowledged, int(line) if line.strip().isdigit() and line.endswith("\n") else 0)
        engine = opened(folder)
        assert count(engine) >= acknowledged * PER_WRITE
        engine.close()
    assert acknowledged
