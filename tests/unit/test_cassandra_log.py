"""What the driver says of statements that it could not prepare, which it raises as well, takes a line."""

from __future__ import annotations

import logging

import pytest

from widerow.engine.cassandra.cluster import Brief


def test_what_could_not_be_prepared_is_a_line_and_other_errors_keep_their_trace(caplog: pytest.LogCaptureFixture) -> None:
    log, brief = logging.getLogger("cassandra.cluster"), Brief()
    log.addFilter(brief)
    try:
        log.error("Error preparing query for host %s:", "10.0.0.1", exc_info=TimeoutError("nobody answers"))
        assert "Traceback" not in caplog.text
        try:
            int("host")
        except ValueError:
            log.exception("Unexpected: %s", "10.0.0.1")
    finally:
        log.removeFilter(brief)
    assert "Traceback" in caplog.text
    assert caplog.messages == [
        "Error preparing query for host 10.0.0.1: TimeoutError: nobody answers",
        "Unexpected: 10.0.0.1",
    ]
