"""Nothing acknowledged is lost: short versions of `make crash`, and the proofs that these tests can fail."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from servers.cache import Missing
from servers.fixtures import had
from system.cycles import Run, report, store_in
from system.ledger import Ledger, Place, Sending, cells_of
from system.unsynced import driver

LAUNCHER = Path(driver.__file__).with_name("launcher.py")
DEVICE = ("acme", "press-1")


def compiler() -> str:
    if (found := driver.compiler()) is None:
        raise Missing("unsynced writes cannot be dropped without a C compiler: install gcc")
    return found


def mistreat(folder: Path, mode: str, cycles: int, program: list[str] | None = None) -> Run:
    victim, watch = store_in(folder, mode, program or [])
    if watch and program:
        watch.fates = ("gone",)  # a tail that is torn off may, once in a while, have held nothing
    run = Run(victim, cycles, random.Random(), watch)
    with victim:
        seen = 0
        for cycle in run.go():
            print(cycle)
            if watch and not program and cycle.acknowledged:  # one that is killed while it recovers may sync nothing
                assert any(forgotten.syncs for forgotten in run.forgotten[seen:]), "the shim saw no sync"
            seen = len(run.forgotten)
    return run


@pytest.mark.rest
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    run = mistreat(tmp_path, "kill", 3)
    assert not run.violations, report(run.violations)
    assert run.ledger.acknowledged > 100


def test_what_was_acknowledged_survives_the_loss_of_all_that_was_not_synced(tmp_path: Path) -> None:
    had(compiler)
    run = mistreat(tmp_path, "unsynced", 2)
    assert not run.violations, report(run.violations)
    assert run.ledger.acknowledged > 100
    assert run.forgotten, "the shim forgot nothing"


def test_a_server_that_acknowledges_before_it_syncs_is_caught(tmp_path: Path) -> None:
    had(compiler)
    run = mistreat(tmp_path, "unsynced", 1, [sys.executable, str(LAUNCHER)])
    assert run.violations
    # A correction that is lost shows as a changed report; if the token is lost, nothing can be asked any more.
    caught = ("lost", "changed", "broken: the answer was 401")
    assert all(violation.startswith(caught) for violation in run.violations), report(run.violations)


def test_what_was_not_synced_is_gone_and_what_was_is_there(tmp_path: Path) -> None:
    had(compiler)
    program = """if True:
        import os, signal, sys
        os.chdir(sys.argv[1])
        here = os.getcwd()
        folder = os.open(here, os.O_RDONLY)

        def write(name, data, sync):
            file = os.open(f"{here}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(file, data)
            if sync:
                os.fsync(file)
            return file

        log = write("log", b"synced", True)
        os.write(log, b" and not synced")
        write("never", b"never synced", False)
        write("pointer", b"old", True)
        write("doomed", b"removed, perhaps", True)
        write("cut", b"12345", True)
        os.fsync(folder)
        write("late", b"synced, but its name is not", True)
        write("next", b"new", True)
        os.rename(f"{here}/next", f"{here}/pointer")
        os.unlink(f"{here}/doomed")
        os.truncate(os.open(f"{here}/cut", os.O_RDWR), 2)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    seen: dict[str, set[bytes]] = {}
    for seed in range(8):
        watch = driver.Watch(tmp_path / f"{seed}", tmp_path / f"scratch-{seed}")
        done = subprocess.run([sys.executable, "-c", program, watch.folder], env=os.environ | watch.arm(), check=False)
        assert done.returncode == -9
        forgotten = watch.forget(random.Random(seed))
        assert forgotten.bytes["log"] == len(b" and not synced")
        for file in watch.folder.iterdir():
            seen.setdefault(file.name, set()).add(file.read_bytes())
    assert seen.keys() == {"log", "never", "pointer", "doomed", "cut"}
    assert seen["pointer"] == {b"old"}
    assert seen["doomed"] == {b"removed, perhaps"}
    assert seen["cut"] == {b"12"}
    assert all(data.startswith(b"synced") and data != b"synced and not synced" for data in seen["log"])
    assert {b"synced", b"synced" + bytes(15)} < seen["log"], "gone, zeros and torn should all have come up"
    assert {b"", bytes(12)} < seen["never"]


def judged(ledger: Ledger, seen: dict[int, dict[str, float | str]], *, settle: bool = False) -> list[str]:
    return [line.partition(":")[0] for line in ledger.judge(*DEVICE, seen, 0, 1_000, settle=settle)]


def test_the_ledger_tells_lost_changed_and_invented() -> None:
    ledger = Ledger()
    sure, unsure = (Place(*DEVICE, 10), Sending(1, 2)), (Place(*DEVICE, 20), Sending(2, 1))
    ledger.sending([sure, unsure])
    ledger.acknowledge([sure])

    def check(seen: dict[int, dict[str, float | str]], want: list[str]) -> None:
        assert judged(ledger, seen) == want

    check({10: cells_of(1, 2)}, [])
    check({10: cells_of(1, 2), 20: cells_of(2, 1)}, [])
    check({}, ["lost"])
    check({20: cells_of(2, 1)}, ["lost"])
    check({10: cells_of(1, 1)}, ["changed"])  # a part of the report
    check({10: cells_of(2, 2)}, ["changed"])  # another's values
    check({10: cells_of(1, 2), 20: cells_of(2, 0)}, ["changed"])  # a part of what was not answered
    check({10: cells_of(1, 2), 30: cells_of(3, 0)}, ["invented"])


def test_the_ledger_wants_the_later_of_two_acknowledged_corrections() -> None:
    ledger = Ledger()
    first, second, third = ((Place(*DEVICE, 10), Sending(serial, shape)) for serial, shape in ((1, 2), (2, 0), (3, 1)))
    for sending in (first, second, third):
        ledger.sending([sending])
    ledger.acknowledge([first, second])
    assert judged(ledger, {10: cells_of(1, 2) | cells_of(2, 0)}) == []
    assert judged(ledger, {10: cells_of(1, 2) | cells_of(3, 1)}) == []
    assert judged(ledger, {10: cells_of(1, 2)}) == ["changed"]


def test_what_a_restarted_server_shows_may_not_change_later() -> None:
    ledger = Ledger()
    there, absent = (Place(*DEVICE, 10), Sending(1, 0)), (Place(*DEVICE, 20), Sending(2, 0))
    ledger.sending([there, absent])
    assert judged(ledger, {10: cells_of(1, 0)}, settle=True) == []
    assert judged(ledger, {}) == ["lost"]
    assert judged(ledger, {10: cells_of(1, 0), 20: cells_of(2, 0)}) == ["changed"]
