"""Settings for every test."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

from contract.tally import Tally

# Kernels compile on their first call, which no deadline should judge; speed is measured in bench/.
settings.register_profile("widerow", deadline=None, print_blob=True)
settings.load_profile("widerow")

# Real Cassandra, Bigtable, Kafka and mosquitto, for the tests that ask for them.
pytest_plugins = ("servers.fixtures",)


@pytest.fixture
def bigtable_host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """BIGTABLE_EMULATOR_HOST names an emulator: the one that it named already, or the one of this run."""
    if "BIGTABLE_EMULATOR_HOST" not in os.environ:
        monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", request.getfixturevalue("bigtable_server").address)


_tally = pytest.StashKey[Tally]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_tally] = Tally()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" or report.outcome != "passed":
        item.config.stash[_tally].add(report.nodeid, report.outcome)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = terminalreporter.config.stash[_tally].lines()
    if lines:
        terminalreporter.section("engines")
        for line in lines:
            terminalreporter.write_line(line)
