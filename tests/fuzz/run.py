"""Feeds hostile inputs to the decoders for as long as asked, with other inputs each time.

    python -m tests.fuzz.run [--count 1000000] [--seed N] [--only line,json,documents,arrow,mqtt,blocks]

A failure names the seed and count that repeat it. The test suite runs a short version of the same.
"""

from __future__ import annotations

import argparse
import importlib
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path

CODECS = ("line", "json", "documents", "arrow", "mqtt", "blocks")
SLICE = 20_000
"""Inputs between two lines of progress; also the most that must be run again to repeat a failure."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.fuzz.run", description="Hostile inputs for the decoders.")
    parser.add_argument("--count", type=int, default=1_000_000, help="inputs for each decoder")
    parser.add_argument("--seed", type=int, help="repeat an earlier run; another one each time otherwise")
    parser.add_argument("--only", default=",".join(CODECS), help="which decoders, separated by commas")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(CODECS):
        parser.error(f"--only: {', '.join(sorted(unknown))}: choose from {', '.join(CODECS)}")
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    for codec in chosen:
        run(codec, fuzzer(codec), options.count, seed)


def fuzzer(codec: str) -> Callable[[int, int], None]:
    """`fuzz_line(count, seed)` of tests/fuzz/line.py, and so on; they import `reference` from tests/."""
    tests = str(Path(__file__).resolve().parents[1])
    if tests not in sys.path:
        sys.path.insert(0, tests)
    found: Callable[[int, int], None] = getattr(importlib.import_module(f"fuzz.{codec}"), f"fuzz_{codec}")
    return found


def run(codec: str, fuzz: Callable[[int, int], None], count: int, seed: int) -> None:
    began_s = time.monotonic()
    done = 0
    while done < count:
        size = min(SLICE, count - done)
        try:
            fuzz(size, seed + done)
        except BaseException:
            print(f"\n{codec}: failed; repeat it with --only {codec} --seed {seed + done} --count {size}", flush=True)
            raise
        done += size
        rate = done / max(time.monotonic() - began_s, 1e-9)
        print(f"{codec}: {done:,} of {count:,} inputs, {rate:,.0f}/s", flush=True)


if __name__ == "__main__":
    main()
