"""Times for reports without one: distinct, in order, and never far from the receipt."""

from __future__ import annotations

from widerow.ingest.mqtt.stamps import Stamps
from widerow.model.times import MINUTE

NOW = 1_800_000_000_000_000


def test_messages_have_the_microseconds_before_they_were_received() -> None:
    stamps = Stamps()
    assert stamps.take(NOW, 50) == NOW - 50
    assert stamps.take(NOW + MINUTE, 1) == NOW + MINUTE - 1


def test_no_two_messages_have_the_same_also_if_they_come_in_the_same_instant() -> None:
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
