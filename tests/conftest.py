"""Settings for every test."""

from __future__ import annotations

import os
from functools import cache

import httpx._transports.default
import pytest
import typer.main
import typer.testing
from hypothesis import settings

from contract.tally import Tally

# Kernels compile on their first call, which no deadline should judge; speed is measured in bench/.
for profile in ("widerow", "quick"):
    settings.register_profile(profile, deadline=None, print_blob=True)
settings.load_profile("widerow")

# Real Cassandra, Bigtable, Kafka and mosquitto, for the tests that ask for them.
pytest_plugins = ("servers.fixtures", "halves", "pytester")


@pytest.fixture
def bigtable_host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """BIGTABLE_EMULATOR_HOST names an emulator: the one that it named already, or the one of this run."""
    if "BIGTABLE_EMULATOR_HOST" not in os.environ:
        monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", request.getfixturevalue("bigtable_server").address)


_tally = pytest.StashKey[Tally]()


class _Tallied:
    """Counts reports where they arrive: in this process, also when others run the tests."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._tally.add(report.nodeid, report.outcome)


def pytest_configure(config: pytest.Config) -> None:
    # typer makes all commands anew for each that a test runs, which takes half of its time.
    pytest.MonkeyPatch().setattr(typer.testing, "_get_command", cache(typer.main.get_command))
    # So does httpx: each client reads all certificates of the system, 40 ms long.
    pytest.MonkeyPatch().setattr(httpx._transports.default, "create_ssl_context", cache(httpx.create_ssl_context))
    config.stash[_tally] = tally = Tally()
    config.pluginmanager.register(_Tallied(tally))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = terminalreporter.config.stash[_tally].lines()
    if lines:
        terminalreporter.section("engines")
        for line in lines:
            terminalreporter.write_line(line)
