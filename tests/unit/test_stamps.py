"""Times for reports without one: distinct, in order, and never far from the receipt."""

from __future__ import annotations

import numpy as np

from widerow.codec.mqtt.packets import publish
from widerow.codec.mqtt.scan import Scanner
from widerow.ingest.mqtt.parcel import reports_at_most
from widerow.ingest.stamps import Stamps, dated, timeless
from widerow.model.batch import Report, batch_of
from widerow.model.times import MINUTE

NOW = 1_800_000_000_000_000


def test_reports_have_the_microseconds_before_they_were_received() -> None:
    stamps = Stamps()
    assert stamps.take(NOW, 50) == NOW - 50
    assert stamps.take(NOW + MINUTE, 1) == NOW + MINUTE - 1


def test_no_two_reports_have_the_same_also_if_they_come_in_the_same_instant() -> None:
    stamps = Stamps()
    assert [stamps.take(NOW, 10), stamps.take(NOW, 5), stamps.take(NOW + 3, 40), stamps.take(NOW + 60, 4)] == [
        NOW - 10,
        NOW,
        NOW + 5,
        NOW + 56,
    ]


def test_a_clock_that_was_set_back_is_believed() -> None:
    stamps = Stamps()
    stamps.take(NOW, 10)
    assert stamps.take(NOW - MINUTE, 10) == NOW - MINUTE - 10


def test_reports_of_a_message_without_a_time_get_a_microsecond_each() -> None:
    received = {"widerow_time": "received"}
    batch = batch_of([Report("d", at, {"v": 1}, received if at == NOW else {}) for at in (NOW, NOW - 9, NOW, NOW, NOW)])
    rows = timeless(batch, NOW)
    assert rows.tolist() == [0, 2, 3, 4]
    message = np.array([0, 0, 1, 1])
    assert dated(batch, rows, message, np.array([100, 200])).time_us.tolist() == [100, NOW - 9, 101, 200, 201]


def test_an_array_reserves_a_microsecond_for_each_report_and_others_one() -> None:
    body = b"".join(publish(b"t", payload) for payload in (b"{}", b"[" + b",".join([b'{"values":{"a":1}}'] * 3) + b"]", b""))
    messages = Scanner(1 << 20).scan(np.frombuffer(body, np.uint8).copy(), 0, len(body)).publishes
    assert messages is not None
    assert reports_at_most(messages, np.arange(3)).tolist() == [1, 3, 1]
