"""For the suites that every engine runs: asserts are explained, and laws that are left out are in `left_out.py`."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from contract.left_out import LEFT_OUT

# The contract lives in the package, where pytest would not explain a failed assert without being asked to.
pytest.register_assert_rewrite("widerow.engine.contract")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if _why_left_out(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def _why_left_out(item: pytest.Item) -> str | None:
    if not isinstance(item, pytest.Function) or item.cls is None:
        return None
    return LEFT_OUT.get((item.cls.__name__, item.originalname))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.skipped and isinstance(item, pytest.Function) and item.cls is not None:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} skipped itself, and tests/contract/left_out.py does not say that it may"
    return report
