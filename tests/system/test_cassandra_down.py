"""A node that stops answering, dies and comes back, under writes: bounded waits, flat memory, nothing acknowledged lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.cassandra import Cassandra
from servers.fixtures import had
from widerow.engine.cassandra import CassandraEngine, CassandraSettings
from widerow.engine.contract.plain import Shape, keys, logical, sparse_rows
from widerow.engine.contract.tables import SPARSE
from widerow.engine.rows import Key
from widerow.model.errors import Unavailable
from widerow.model.times import MS, SystemClock

TIMEOUT_S = 2.0
SLACK_S = 3.0
ROWS = 20
AT = ("p", 0)


@pytest.fixture
def server() -> Iterator[Cassandra]:
    """A node of its own: it is mistreated."""
    with had(lambda: Cassandra(commitlog_sync="batch")) as server:
        yield server


class Writer(threading.Thread):
    """Writes a few rows after another, and remembers what was acknowledged and how long each failure took."""

    def __init__(self, engine: CassandraEngine) -> None:
        super().__init__()
        self._engine = engine
        self._stop_now = threading.Event()
        self.acknowledged: list[int] = []
        self.failures_s: list[float] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        n = 0
        while not self._stop_now.is_set():
            rows: list[tuple[Key, Shape]] = [((*AT, n + i), {"t": float(n + i), "u": "x"}) for i in range(ROWS)]
            began_s = time.monotonic()
            try:
                self._engine.write([(SPARSE, sparse_rows(SPARSE, rows, version_us=MS))])
                self.acknowledged.append(n)
            except Unavailable:
                self.failures_s.append(time.monotonic() - began_s)
                time.sleep(0.05)
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                self.error = error
                return
            n += ROWS

    def end(self) -> None:
        self._stop_now.set()
        self.join(30)
        assert not self.is_alive()
        assert self.error is None

    def goes_on(self, within_s: float) -> None:
        """Wait until something more is acknowledged."""
        before, deadline = len(self.acknowledged), time.monotonic() + within_s
        while len(self.acknowledged) == before:
            assert time.monotonic() < deadline, f"nothing was acknowledged for {within_s} s"
            time.sleep(0.05)


@pytest.mark.slow
def test_a_node_that_hangs_and_dies_costs_time_and_nothing_else(server: Cassandra) -> None:
    settings = CassandraSettings(hosts=(server.host,), port=server.port, keyspace="down", timeout_s=TIMEOUT_S)
    engine = CassandraEngine(settings, clock=SystemClock())
    writer = Writer(engine)
    try:
        engine.apply([SPARSE])
        writer.start()
        writer.goes_on(10)
        before_kib = resident_kib()

        server.pause()
        time.sleep(20)
        assert len(writer.failures_s) >= 3, "a node that hangs is noticed"
        server.resume()
        writer.goes_on(30)

        server.kill()
        failed = len(writer.failures_s)
        time.sleep(5)
        assert len(writer.failures_s) > failed, "a node that died is noticed"
        server.restart()
        writer.goes_on(60)
    finally:
        if writer.is_alive():
            writer.end()
    try:
        assert max(writer.failures_s) < TIMEOUT_S + SLACK_S
        assert resident_kib() - before_kib < 64 << 10
        there = {key[0] for key in keys(logical(engine, SPARSE, [AT])[AT])}
        lost = [n + i for n in writer.acknowledged for i in range(ROWS) if n + i not in there]
        assert not lost
    finally:
        engine.close()


def resident_kib() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])
