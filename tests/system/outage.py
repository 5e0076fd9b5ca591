"""A writer that goes on while its store is mistreated, and remembers what was acknowledged."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from awake import Running
from widerow.engine.contract.plain import Shape, keys, logical, sparse_rows
from widerow.engine.contract.tables import SPARSE
from widerow.engine.port import Engine
from widerow.engine.rows import Key
from widerow.model.errors import Unavailable
from widerow.model.times import MS

ROWS = 20
AT: Key = ("p", 0)
MOST_GROWTH_KIB = 64 << 10


class Writer(threading.Thread):
    """Writes a few rows after another. Knows which were acknowledged, when it failed, and how long that took."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self._enough = threading.Event()
        self.acknowledged: list[int] = []
        self.failed_at_s: list[float] = []
        self.failures_s: list[float] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        n = 0
        while not self._enough.is_set():
            rows: list[tuple[Key, Shape]] = [((*AT, n + i), {"t": float(n + i), "u": "x"}) for i in range(ROWS)]
            began_s, running = time.monotonic(), Running()
            try:
                self._engine.write([(SPARSE, sparse_rows(SPARSE, rows, version_us=MS))])
                self.acknowledged.append(n)
            except Unavailable:
                self.failed_at_s.append(began_s)
                self.failures_s.append(running.seconds())
                time.sleep(0.05)
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                self.error = error
                return
            n += ROWS

    def end(self) -> None:
        self._enough.set()
        self.join(60)
        assert not self.is_alive()
        assert self.error is None

    def goes_on(self, within_s: float) -> None:
        """Wait until something more is acknowledged."""
        before, deadline = len(self.acknowledged), time.monotonic() + within_s
        while len(self.acknowledged) == before:
            assert self.error is None
            assert time.monotonic() < deadline, f"nothing was acknowledged for {within_s} s"
            time.sleep(0.05)

    def survived(self, longest_s: float, before_kib: int) -> None:
        """End it: no failure took longer than that, memory is about what it was, and nothing acknowledged is lost."""
        self.end()
        assert max(self.failures_s) < longest_s
        assert resident_kib() - before_kib < MOST_GROWTH_KIB
        assert not self.lost()

    def lost(self) -> list[int]:
        """Rows that were acknowledged and are not there."""
        there = self._read()
        return [n + i for n in self.acknowledged for i in range(ROWS) if n + i not in there]

    def _read(self) -> set[str | int]:
        """The rows that are there. Asked again if the machine stood still, which an impatient engine does not wait for."""
        while True:
            running = Running()
            try:
                return {key[0] for key in keys(logical(self._engine, SPARSE, [AT])[AT])}
            except Unavailable:
                if not running.stood_still_s():
                    raise


def resident_kib() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])
