"""Which tests `make test` runs, and which are left to `make test-rest`.

Rule 1: `make test` needs Python and make alone. A test that asks for a server of `tests/servers`, that calls `had` for a
program, or that runs on an engine behind a network is marked `rest` here. One that does so where this cannot see it fails.
Rule 2: a test that kills, pauses or takes long is marked `rest` by hand.
Rule 3: `make test` runs a law of Hypothesis with a quarter of its examples, 25 at most. The law is marked `law` as well, and
`make test-rest` runs it in full.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

ALONE = "not rest"
"""What `make test` passes to pytest's `-m`."""
QUICK = "quick"
"""The profile of Hypothesis that `make test` asks for."""
_ENGINES = frozenset({"cassandra", "bigtable"})
_FIXTURES = frozenset(
    {"cassandra_server", "cassandra_cluster", "bigtable_server", "bigtable_host", "kafka", "mosquitto", "browser"}
)
_CALLS = frozenset({"had", "Cassandra", "Bigtable", "Kafka", "Mosquitto", "Cluster", "Prometheus"})
_SETTINGS = "_hypothesis_internal_use_settings"  # there is no public way to give a law other settings than its own


def is_alone(config: pytest.Config) -> bool:
    """Whether this is `make test`."""
    return bool(config.option.markexpr == ALONE)


MARKS = (
    "rest: needs more than Python, or takes long; run by make test-rest, not by make test",
    "law: holds for whatever Hypothesis comes up with; make test tries less of it than make test-rest",
)


def pytest_configure(config: pytest.Config) -> None:
    for mark in MARKS:
        config.addinivalue_line("markers", mark)
    if is_alone(config):
        # What a test starts finds Python and nothing else, here as on a machine that has nothing else.
        os.environ["PATH"] = str(Path(sys.executable).parent)
        os.environ["PYTHON_ALONE"] = "1"


@pytest.hookimpl(tryfirst=True)  # before pytest chooses tests by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sort_out(items, quick=config.getoption("--hypothesis-profile", default=None) == QUICK)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and is_alone(item.config):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: {reason_of(report)}\n`make test` skips nothing: mark the test `rest`"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(reason_of(report) for report in terminalreporter.getreports("skipped"))
    if reasons:
        terminalreporter.section("not run on this machine")
        for reason, tests in reasons.items():
            terminalreporter.write_line(f"{tests} of the tests: {reason}")


def reason_of(report: pytest.TestReport) -> str:
    """Why a test was skipped."""
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return why.removeprefix("Skipped: ")


def sort_out(items: list[pytest.Item], *, quick: bool) -> None:
    """Mark the tests; with `quick`, also cut the examples of the laws."""
    cut: set[object] = set()
    for item in items:
        if isinstance(item, pytest.Function):
            if needs_more_than_python(item):
                item.add_marker(pytest.mark.rest)
            _sort_out_law(item, cut, quick=quick)


def needs_more_than_python(item: pytest.Function) -> bool:
    called = getattr(item, "callspec", None)
    if called and any(isinstance(value, str) and value in _ENGINES for value in called.params.values()):
        return True
    if not _FIXTURES.isdisjoint(item.fixturenames):
        return True
    return any(not _CALLS.isdisjoint(_loaded(function)) for function in _functions(item))


def _functions(item: pytest.Function) -> Iterator[Callable[..., Any]]:
    """The test and its fixtures."""
    yield item.function
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        yield definitions[-1].func


def _loaded(function: Callable[..., Any]) -> tuple[str, ...]:
    """The global names and attributes in the body of a function, annotations excepted."""
    code = getattr(function, "__code__", None)
    return code.co_names if code else ()


def fewer(examples: int) -> int:
    return max(1, min(25, examples // 4))


def _sort_out_law(item: pytest.Function, cut: set[object], *, quick: bool) -> None:
    if isinstance(getattr(item.cls, "settings", None), settings):
        law, name = item.cls, "settings"  # a state machine
    elif is_hypothesis_test(item.function):
        law, name = item.function, _SETTINGS
    else:
        return
    item.add_marker(pytest.mark.law)
    if quick and law not in cut:  # parametrised tests share theirs
        cut.add(law)
        full: settings = getattr(law, name)
        setattr(law, name, settings(full, max_examples=fewer(full.max_examples)))
