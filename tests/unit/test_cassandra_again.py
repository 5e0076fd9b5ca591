"""Which requests are asked again when a node gives up waiting for its replicas."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from widerow.engine.cassandra.cluster import AskAgain

PLAIN, CONDITIONAL = SimpleNamespace(is_idempotent=True), SimpleNamespace(is_idempotent=False)


def decided(ask: Any, query: object, retry_num: int) -> int:
    """As the driver asks: the query, then what it knows by name."""
    decision: tuple[int, None] = ask(query, consistency=6, required_responses=1, received_responses=0, retry_num=retry_num)
    return decision[0]


@pytest.mark.parametrize("name", ["on_read_timeout", "on_write_timeout"])
def test_what_may_be_repeated_is_asked_three_times(name: str) -> None:
    ask = getattr(AskAgain(), name)
    assert [decided(ask, PLAIN, n) for n in range(3)] == [AskAgain.RETRY, AskAgain.RETRY, AskAgain.RETHROW]


@pytest.mark.parametrize("name", ["on_read_timeout", "on_write_timeout"])
def test_what_depends_on_what_is_there_is_asked_once(name: str) -> None:
    assert decided(getattr(AskAgain(), name), CONDITIONAL, 0) == AskAgain.RETHROW


@pytest.mark.parametrize("name", ["on_unavailable", "on_request_error"])
def test_other_failures_are_told_at_once(name: str) -> None:
    assert decided(getattr(AskAgain(), name), PLAIN, 0) == AskAgain.RETHROW
