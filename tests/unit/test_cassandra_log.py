"""What the driver says of errors, which it raises as well, takes a line."""

from __future__ import annotations

import logging

import pytest

from widerow.engine.cassandra.cluster import Brief


def test_an_error_of_the_driver_is_a_line_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    log, brief = logging.getLogger("cassandra.cluster"), Brief()
    log.addFilter(brief)
    try:
        log.error("Error preparing query for host %s:", "10.0.0.1", exc_info=TimeoutError("nobody answers"))
        log.warning("Host %s is down", "10.0.0.1")
    finally:
        log.removeFilter(brief)
    assert "Traceback" not in caplog.text
    assert caplog.messages == [
        "Error preparing query for host 10.0.0.1: TimeoutError: nobody answers",
        "Host 10.0.0.1 is down",
    ]
