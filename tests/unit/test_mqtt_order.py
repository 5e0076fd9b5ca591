"""Versions for messages that contradict others: the later one wins, and nobody else is written twice."""

from __future__ import annotations

import numpy as np

from widerow.ingest.mqtt import order as order_module
from widerow.ingest.mqtt.order import Order
from widerow.model.names import Coded
from widerow.model.times import MS

V = 1_800_000_000_000_000


def again(
    order: Order, devices: str, version_us: int, contradicting: list[int], tenant: str = "acme", *, expected: bool = False
) -> list[tuple[list[int], int, bool]]:
    """Devices are letters, one for each message; versions are told in milliseconds behind `V`."""
    good = np.setdiff1d(np.arange(len(devices)), contradicting)
    bad = np.array(contradicting, np.int64)
    found = order.again(tenant, Coded.of(list(devices)), version_us, good, bad, expected=expected)
    return [(positions.tolist(), (given_us - V) // MS, admitted) for positions, given_us, admitted in found]


def test_each_that_contradicts_has_a_version_and_those_behind_it_share_one() -> None:
    assert again(Order(), "ababaaab", V, [2, 6]) == [([2], 1, False), ([4, 5], 2, True), ([6], 3, False)]


def test_devices_do_not_wait_for_each_other() -> None:
    assert again(Order(), "abcab", V, [3, 4]) == [([3], 1, False), ([4], 1, False)]


def test_what_was_received_later_is_behind_what_was_given_to_its_device_before() -> None:
    order = Order()
    assert not order.is_ahead(V)
    order.expect()
    assert order.is_ahead(V + MS)
    again(order, "aaaa", V, [1, 2, 3], expected=True)
    assert order.is_ahead(V + 3 * MS)
    assert not order.is_ahead(V + 4 * MS)
    assert again(order, "bab", V + MS, []) == [([1], 4, True)]
    assert again(order, "a", V + MS, [], tenant="other") == []
    assert again(order, "aa", V + 2 * MS, [1]) == [([0], 5, True), ([1], 6, False)]
    assert order.is_ahead(V + 6 * MS)
    assert not order.is_ahead(V + 7 * MS)
    assert again(order, "ab", V + 7 * MS, []) == []


def test_what_was_received_before_is_not_put_behind_because_it_was_stored_later() -> None:
    order = Order()
    again(order, "aaaa", V + 2 * MS, [1, 2, 3])
    assert again(order, "ab", V, []) == []
    assert again(order, "aa", V, [1]) == [([1], 1, False)]
    assert again(order, "a", V + 3 * MS, []) == [([0], 6, True)]


def test_what_it_knows_is_bounded() -> None:
    order = Order()
    for i in range(order_module._MOST_DEVICES + 5):
        again(order, "aa", V, [1], tenant=f"t{i}")
    assert len(order._given) == order_module._MOST_DEVICES
    assert again(order, "a", V + MS, [], tenant="t4") == []
    assert again(order, "a", V + MS, [], tenant="t5") == [([0], 2, True)]
