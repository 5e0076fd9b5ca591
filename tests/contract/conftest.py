"""For the suites that every engine runs: their asserts are explained, and their skips are named in `skips.py` or fail."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from contract.skips import SKIPS

# The contract lives in the package, where pytest would not explain a failed assert without being asked to.
pytest.register_assert_rewrite("widerow.engine.contract")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.skipped and isinstance(item, pytest.Function) and item.cls is not None:
        known = SKIPS.get((item.cls.__name__, item.originalname))
        if known is None:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} skipped itself, and tests/contract/skips.py does not say that it may"
        else:
            report.longrepr = (str(item.path), 0, f"Skipped: {known}")
    return report
