"""Which engine passed how many tests of which suite: a table at the end of every run that had any."""

from __future__ import annotations

import re
from collections import Counter

ENGINES = ("memory", "rocksdb", "cassandra", "bigtable")
SUITES = ("contract", "telemetry", "http")

_HTTP = re.compile(r"system/test_http_\w+\.py::.*\[(memory|rocksdb|cassandra|bigtable)[\]-]")
_CLASS = re.compile(r"contract/test_\w+\.py::Test(On)?(Memory|RocksDB|Cassandra|Bigtable)::")


def place(nodeid: str) -> tuple[str, str] | None:
    """Engine and suite of a test; None for the tests of no engine."""
    if found := _HTTP.search(nodeid):
        return found[1], "http"
    if found := _CLASS.search(nodeid):
        return found[2].lower(), "telemetry" if found[1] else "contract"
    return None


class Tally:
    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, nodeid: str, outcome: str) -> None:
        at = place(nodeid)
        if at is not None:
            self._counts[*at, outcome] += 1

    def lines(self) -> list[str]:
        if not self._counts:
            return []
        rows = [["engine", *SUITES], *([e, *(self._cell(e, suite) for suite in SUITES)] for e in ENGINES)]
        return ["  ".join(cell.ljust(28 if k else 10) for k, cell in enumerate(row)).rstrip() for row in rows]

    def _cell(self, engine: str, suite: str) -> str:
        counts = {outcome: self._counts[engine, suite, outcome] for outcome in ("passed", "failed", "skipped")}
        return ", ".join(f"{n} {outcome}" for outcome, n in counts.items() if n) or "-"
