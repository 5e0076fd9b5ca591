"""An emulator that hangs, or cannot be reached, and comes back, under writes: bounded waits, nothing acknowledged lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import awake
from servers.bigtable import INSTANCE, PROJECT, Bigtable
from servers.cable import Cable
from servers.fixtures import had
from system.outage import Writer, resident_kib
from widerow.engine.bigtable import BigtableEngine, BigtableSettings
from widerow.engine.contract.tables import SPARSE
from widerow.model.times import SystemClock

TIMEOUT_S = 2.0
SLACK_S = 3.0


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bigtable]:
    """An emulator of its own: it is mistreated. It keeps everything in memory, so it cannot be killed here."""
    with had(Bigtable) as server:
        monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", server.address)
        yield server


@pytest.mark.rest
def test_a_server_that_hangs_costs_time_and_nothing_else(server: Bigtable) -> None:
    check_outages(server.pause, server.resume)


@pytest.mark.rest
def test_a_connection_that_is_cut_costs_time_and_nothing_else(server: Bigtable, monkeypatch: pytest.MonkeyPatch) -> None:
    with Cable(server.address) as cable:
        monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", cable.address)
        check_outages(cable.cut, cable.restore)


def check_outages(begin: Callable[[], None], end: Callable[[], None]) -> None:
    settings = BigtableSettings(deadline_s=TIMEOUT_S)
    engine = BigtableEngine(PROJECT, INSTANCE, "down", clock=SystemClock(), settings=settings)
    writer = Writer(engine)
    try:
        engine.apply([SPARSE])
        writer.start()
        writer.goes_on(60)  # the first write compiles kernels
        before_kib = resident_kib()
        for _ in range(2):
            failed = len(writer.failures_s)
            begin()
            awake.sleep(8)
            assert len(writer.failures_s) >= failed + 2, "an outage is noticed"
            end()
            writer.goes_on(15)
        writer.survived(TIMEOUT_S + SLACK_S, before_kib)
    finally:
        if writer.is_alive():
            writer.end()
        engine.close()
