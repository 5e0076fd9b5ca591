"""A disk that fills up under a running server, is freed again, and what the server makes of it.

    PYTHONPATH=tests unshare --mount [--map-root-user] python -m system.disk_full FOLDER RESERVE_MIB

Runs in a mount namespace of its own, where it may mount a small tmpfs and from which nothing stays behind. Prints what it
saw; exit code 1 with the reason if a rule was broken:
Rule 1: a full disk is answered by 507 (or 503), nothing else. The process lives, says that it is not ready, and still reads.
Rule 2: when there is room again, writing resumes by itself, without a restart.
Rule 3: nothing acknowledged is lost: while the disk is full, when it no longer is, and after a restart.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from system.cycles import compare, report
from system.ledger import Ledger
from system.victim import Victim
from system.writers import Load, Slice, sending

DISK_MIB = 112
BALLAST_MIB = 72
"""What is freed in the end. What is left without it is filled by reports, within a few seconds."""
FILLER = 4
"""The shape of reports that fill a disk."""
SIZES = (1, 10, 40)
"""Reports in a body."""
_FULL_WITHIN_S = 40.0
_TOLD_WITHIN_S = 20.0
_RESUMES_WITHIN_S = 10.0
_SLICE_US = 3_600_000_000


class Broken(Exception):
    """A rule was."""


class DiskFull:
    """The whole story, in order."""

    def __init__(self, folder: Path, reserve_mib: int) -> None:
        settings = {"WIDEROW_STORE_RESERVE_MIB": str(reserve_mib)}
        self.ballast = folder / "ballast"
        self.ledger = Ledger()
        self.victim = Victim(folder / "store", settings=settings)
        self.slice = Slice(time.time_ns() // 1000 - 2 * _SLICE_US, _SLICE_US, itertools.count(1))
        self.chance = random.Random(1)

    def run(self) -> None:
        with self.ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, BALLAST_MIB << 20)
        with self.victim:
            self.victim.start()
            self.fill()
            self.check("while the disk was full", settle=False)
            self.make_room()
            self.check("after room was made", settle=False)
            self.victim.stop(signal.SIGTERM, within_s=10)
            self.victim.start()
            self.check("after a restart", settle=True)
        print(f"{self.ledger.acknowledged} reports acknowledged, {self.ledger.unanswered} refused, none lost")

    def fill(self) -> None:
        """Report until the disk is full, and on until the server says so."""
        load = self.load()
        with sending(load, self.chance):
            wait(lambda: load.statuses[507] >= 5, _FULL_WITHIN_S, lambda: f"the disk was never full: {load.statuses}")
            began_s = time.monotonic()
            # A request that was held up may be the first reason, and small reports still fit between refused ones.
            wait(
                lambda: self.victim.is_degraded_by("writes to the store fail"),
                _TOLD_WITHIN_S,
                lambda: f"a full disk is not said to be why: {self.victim.health()}, answers were {dict(load.statuses)}",
            )
            told_s = time.monotonic() - began_s
        expect(self.victim.runs(), f"the server died of a full disk:\n{self.victim.log()[-2000:]}")
        expect(not load.problems, "; ".join(load.problems))
        print(f"full: answers were {dict(load.statuses)}, health told after {told_s:.1f} s")

    def make_room(self) -> None:
        """Delete the ballast while reports are being refused: they are to be taken again."""
        load = self.load()
        with sending(load, self.chance):
            wait(
                lambda: load.statuses[507] + load.statuses[503] >= 5,
                _FULL_WITHIN_S,
                lambda: f"not full any more: {load.statuses}",
            )
            before = load.statuses[204]
            self.ballast.unlink()
            began_s = time.monotonic()
            wait(
                lambda: load.statuses[204] > before + 5,
                _RESUMES_WITHIN_S,
                lambda: f"writing did not resume: {load.statuses}\n{self.victim.log()[-2000:]}",
            )
            resumed_s = time.monotonic() - began_s
        # All of them would fill the disk again before it was healthy for long enough to be called ready.
        little = self.load(sizes=(1,))
        with sending(little, self.chance, count=1):
            wait(
                lambda: self.victim.health()[0] == 200,
                _RESUMES_WITHIN_S,
                lambda: f"it writes again, and is not ready: {self.victim.health()}, answers were {dict(little.statuses)}",
            )
        problems = load.problems + little.problems
        expect(not problems, "; ".join(problems))
        print(f"room again: writing resumed after {resumed_s:.1f} s, then answers were {dict(little.statuses)}")

    def load(self, sizes: Sequence[int] = SIZES) -> Load:
        return Load(self.victim, self.ledger, self.slice, shapes=(FILLER,), sizes=sizes, refusals=frozenset({503, 507}))

    def check(self, when: str, *, settle: bool) -> None:
        wrong = compare(self.victim, self.ledger, self.slice.start_us, self.slice.stop_us, settle=settle)
        expect(not wrong, f"{when}:\n{report(wrong)}")


def wait(happened: Callable[[], bool], within_s: float, otherwise: Callable[[], str]) -> None:
    deadline_s = time.monotonic() + within_s
    while not happened():
        expect(time.monotonic() < deadline_s, otherwise())
        time.sleep(0.05)


def expect(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise Broken(otherwise)


def main(folder: Path, reserve_mib: int) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", folder], check=True)
    try:
        DiskFull(folder, reserve_mib).run()
    except Broken as error:
        sys.exit(f"broken: {error}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
