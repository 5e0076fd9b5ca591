"""Copying a store: what is taken along, and what is not."""

from __future__ import annotations

import pytest

from widerow.catalog.lease import KEY, Lease, Process
from widerow.catalog.store import bring_up
from widerow.engine.memory import MemoryEngine
from widerow.migrate.copy import copy
from widerow.model.errors import Conflict
from widerow.model.times import SECOND, ManualClock
from widerow.schema.tables import META


def test_a_source_that_is_written_to_is_refused_and_its_lease_is_not_copied() -> None:
    clock = ManualClock(1_760_000_000 * SECOND)
    source, target = MemoryEngine(clock), MemoryEngine(clock)
    bring_up(source)
    assert Lease(source, clock, Process("a", "alpha", 7), length_us=30 * SECOND).take()
    with pytest.raises(Conflict, match="process 7 on alpha"):
        list(copy(source, target, clock, "memory:"))
    clock.time_us += 30 * SECOND
    list(copy(source, target, clock, "memory:"))
    assert source.get(META, KEY) is not None, "a source is only read"
    assert target.get(META, KEY) is None
