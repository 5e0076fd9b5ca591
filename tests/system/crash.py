"""Kills the server again and again and looks for lost, changed or invented reports.

    python -m tests.system.crash --cycles N [--seed S] [--mode kill|unsynced]

kill: the process dies at once; what it gave to the operating system survives. unsynced: the machine dies; only what was
synced to the disk survives (see tests/system/unsynced). The store is kept and named if something was wrong.
Exit code 1: a violation, with the details. The test suite runs a short version of the same.
"""

from __future__ import annotations

import argparse
import importlib
import random
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from system.cycles import Cycle, Run

MODES = ("kill", "unsynced")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.system.crash", description="Kill the server, and see what it remembers.")
    parser.add_argument("--cycles", type=int, default=100, help="how often it is killed")
    parser.add_argument("--seed", type=int, help="choices of an earlier run; the moments still depend on the machine")
    parser.add_argument("--mode", choices=MODES, default="kill", help="what survives: what was written, or what was synced")
    options = parser.parse_args()
    if options.cycles < 1:
        parser.error("--cycles: give 1 or more")
    tests = str(Path(__file__).resolve().parents[1])
    if tests not in sys.path:
        sys.path.insert(0, tests)
    cycles = importlib.import_module("system.cycles")
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"mode {options.mode}, seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="widerow-crash-"))
    victim, watch = cycles.store_in(folder, options.mode)
    run: Run = cycles.Run(victim, options.cycles, random.Random(seed), watch)
    began_s = time.monotonic()
    with victim:
        for cycle in run.go():
            print(_line(cycle, options.cycles), flush=True)
    print(
        f"{run.ledger.acknowledged:,} reports acknowledged, {run.ledger.unanswered:,} sent and not answered, "
        f"{time.monotonic() - began_s:.0f} s"
    )
    if run.violations:
        print(f"{len(run.violations)} VIOLATIONS; the store is kept in {folder}\n{cycles.report(run.violations)}")
        return 1
    shutil.rmtree(folder)
    print("nothing acknowledged was lost or changed, nothing was invented")
    return 0


def _line(cycle: Cycle, of: int) -> str:
    extra = f"; {cycle.extra}" if cycle.extra else ""
    return (
        f"{cycle.number}/{of}: {cycle.acknowledged:,} acknowledged, {cycle.unanswered:,} not answered"
        f" in {cycle.load_s:.1f} s; restart {cycle.start_s:.1f} s, check {cycle.check_s:.1f} s{extra}"
    )


if __name__ == "__main__":
    sys.exit(main())
