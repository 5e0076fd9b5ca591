"""`make test` and `make test-rest` share the tests out by what each test asks for, and nobody has to mark them."""

from __future__ import annotations

import os

import pytest

import halves

TESTS = """
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

@pytest.fixture
def kafka(): ...

@pytest.fixture
def broker(kafka): ...

@pytest.fixture
def certificate():
    had(lambda: program("openssl"))

@pytest.fixture(params=["memory", "rocksdb", "cassandra"])
def engine(request): ...

def test_plain(tmp_path): ...
def test_fixture(broker): ...
def test_program(certificate): ...
def test_own_server():
    with Mosquitto() as broker:
        ...
def test_engine(engine): ...

@given(st.integers())
def test_law(x): ...

@settings(max_examples=8)
@given(st.integers())
def test_short_law(x): ...

class Machine(RuleBasedStateMachine):
    @rule()
    def step(self): ...

TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=40)
"""


@pytest.fixture
def items(pytester: pytest.Pytester) -> dict[str, pytest.Item]:
    pytester.plugins = ["halves"]  # which knows the marks
    return {item.nodeid.partition("::")[2]: item for item in pytester.getitems(TESTS)}


def marked(items: dict[str, pytest.Item], mark: str) -> set[str]:
    return {name for name, item in items.items() if item.get_closest_marker(mark)}


def test_what_asks_for_more_than_python_is_left_to_the_rest(items: dict[str, pytest.Item]) -> None:
    halves.sort_out(list(items.values()), quick=False)
    assert marked(items, "rest") == {"test_fixture", "test_program", "test_own_server", "test_engine[cassandra]"}


def test_laws_are_run_by_both_with_fewer_examples_by_the_first(items: dict[str, pytest.Item]) -> None:
    halves.sort_out(list(items.values()), quick=True)
    assert marked(items, "law") == {"test_law", "test_short_law", "TestMachine::runTest"}
    law, short, machine = (items[name] for name in ("test_law", "test_short_law", "TestMachine::runTest"))
    assert isinstance(law, pytest.Function)
    assert isinstance(short, pytest.Function)
    assert isinstance(machine, pytest.Function)
    cut = [law.function._hypothesis_internal_use_settings, short.function._hypothesis_internal_use_settings]
    assert [settings.max_examples for settings in (*cut, machine.cls.settings)] == [25, 2, 10]


def test_a_skip_of_make_test_is_a_failure(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "PYTHON_ALONE"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # put back afterwards
    pytester.makepyfile("import pytest\ndef test_it(): pytest.skip('no compiler')")
    pytester.runpytest_inprocess("-p", "halves", "-m", "not rest").assert_outcomes(failed=1)
    pytester.runpytest_inprocess("-p", "halves").assert_outcomes(skipped=1)
