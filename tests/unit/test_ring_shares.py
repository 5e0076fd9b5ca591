"""The part of Cassandra's ring that each node has."""

from __future__ import annotations

import pytest

from widerow.engine.cassandra.look import ring_shares

QUARTER = 1 << 62


def test_a_node_has_the_tokens_from_the_one_before_to_its_own() -> None:
    assert ring_shares([(-QUARTER, "a"), (0, "b"), (QUARTER, "a")]) == {"a": 0.75, "b": 0.25}


def test_one_token_has_the_whole_ring() -> None:
    assert ring_shares([(5, "a")]) == {"a": 1.0}


def test_the_parts_add_up_to_the_ring() -> None:
    ring = [(-(1 << 63), "a"), (-7, "b"), (3, "c"), ((1 << 63) - 1, "b")]
    assert sum(ring_shares(ring).values()) == pytest.approx(1)
