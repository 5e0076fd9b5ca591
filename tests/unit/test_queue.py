"""The queue between fronts and writer: tenants apart, fair turns, bounded."""

from __future__ import annotations

import threading

import pytest

from widerow.model.errors import Overloaded, TenantBusy
from widerow.pipeline.queue import FairQueue


def queue(max_tenant_bytes: int = 60, quantum_bytes: int = 10) -> FairQueue[int]:
    return FairQueue(max_tenant_bytes=max_tenant_bytes, quantum_bytes=quantum_bytes)


def test_a_burst_waits_behind_itself_only() -> None:
    q = queue()
    for i in range(5):
        q.put("noisy", i, 10)
    q.put("quiet", 99, 10)
    assert q.take(20) == [("noisy", [0]), ("quiet", [99])]


def test_a_large_take_still_gives_everything_by_tenant_in_order() -> None:
    q = queue()
    for i in range(3):
        q.put("a", i, 10)
        q.put("b", 10 + i, 10)
    assert dict(q.take(1000)) == {"a": [0, 1, 2], "b": [10, 11, 12]}


def test_a_full_line_refuses_its_own_tenant_only() -> None:
    q = queue()
    q.put("a", 1, 60)
    with pytest.raises(TenantBusy, match="max_tenant_in_flight_mib"):
        q.put("a", 2, 1)
    q.put("b", 3, 40)


def test_a_line_is_full_until_something_is_released() -> None:
    q = queue()
    q.put("a", 1, 60)
    q.take(1000)
    with pytest.raises(TenantBusy):  # taken is not done
        q.put("a", 2, 1)
    q.release("a", 60)
    q.put("a", 2, 1)
    assert q.queued == 1


def test_an_item_larger_than_a_line_is_taken_when_the_line_is_empty() -> None:
    q = queue()
    q.put("a", 1, 1000)
    assert q.take(1) == [("a", [1])]


def test_a_closed_queue_gives_what_it_has_and_then_nothing() -> None:
    q = queue()
    q.put("a", 1, 1)
    q.close()
    with pytest.raises(Overloaded, match="stopping"):
        q.put("a", 2, 1)
    assert q.take(10) == [("a", [1])]
    assert q.take(10) == []


def test_takers_wait_for_work() -> None:
    q = queue()
    got: list[list[tuple[str, list[int]]]] = []
    taker = threading.Thread(target=lambda: got.append(q.take(10)))
    taker.start()
    q.put("a", 7, 1)
    taker.join(5)
    assert got == [[("a", [7])]]
