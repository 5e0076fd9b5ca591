"""Acknowledgements leave in the order messages came, in whatever order they are done, and never across connections."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from widerow.codec.mqtt import Publishes, Scanner, packets
from widerow.ingest.mqtt.window import Window


def block_of(identifiers: list[int]) -> Publishes:
    stream = b"".join(packets.publish(b"t", b"x", identifier=name, qos=1 if name else 0) for name in identifiers)
    found = Scanner(100).scan(np.frombuffer(stream, np.uint8).copy(), 0, len(stream)).publishes
    assert found is not None
    return found


def identifiers_of(sent: bytes) -> list[int]:
    return [int(name) for name in np.frombuffer(sent, ">u2")[1::2]]


BLOCKS = st.lists(st.lists(st.integers(0, 65_535), min_size=1, max_size=6), min_size=1, max_size=5)


@given(BLOCKS, st.randoms())
def test_acknowledgements_leave_in_the_order_of_arrival(parts: list[list[int]], rng: object) -> None:
    window = Window()
    window.begin()
    blocks = [window.add(block_of(part), 0) for part in parts]
    order = [(b, row) for b, part in enumerate(parts) for row in range(len(part))]
    arrived = [name for part in parts for name in part]
    places = list(range(len(order)))
    rng.shuffle(places)  # type: ignore[attr-defined]
    done: set[int] = set()
    sent: list[int] = []
    for place in places:
        b, row = order[place]
        window.done(blocks[b], np.array([row]))
        window.done(blocks[b], np.array([row]))  # twice is harmless
        done.add(place)
        sent += identifiers_of(window.take())
        prefix = next((k for k in range(len(order)) if k not in done), len(order))
        assert sent == [name for name in arrived[:prefix] if name]
    assert window.is_empty()
    assert window.held_bytes == 0


@given(BLOCKS, BLOCKS)
def test_nothing_of_an_earlier_connection_is_acknowledged_on_a_later_one(old: list[list[int]], new: list[list[int]]) -> None:
    window = Window()
    window.begin()
    before = [window.add(block_of(part), 0) for part in old]
    window.done(before[0], np.arange(len(old[0])))  # done, and its PUBACKs not taken when the connection ends
    window.begin()
    after = [window.add(block_of(part), 0) for part in new]
    for block in [*before, *after]:
        assert window.is_stale(block) == (block in before)
        window.done(block, np.arange(len(block.messages)))
    assert identifiers_of(window.take()) == [name for part in new for name in part if name]
    assert window.held_bytes == 0
