"""Copying a store: what is taken along, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from widerow.catalog.lease import KEY, Lease, Process
from widerow.catalog.store import bring_up
from widerow.catalog.tenants import Tenants
from widerow.config import Config, Store
from widerow.engine.memory import MemoryEngine
from widerow.engine.open import open_engine
from widerow.migrate.copy import copy
from widerow.model.errors import ConfigError, Conflict
from widerow.model.tenant import Tenant
from widerow.model.times import SECOND, ManualClock
from widerow.schema.tables import META
from widerow.service import Service


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


def source_with_a_tenant(clock: ManualClock) -> MemoryEngine:
    source = MemoryEngine(clock)
    bring_up(source)
    Tenants(source, clock).create(Tenant(name="acme"))
    return source


@pytest.mark.parametrize("writes", [True, False])
def test_an_unfinished_copy_is_not_served_and_a_finished_one_is(tmp_path: Path, writes: bool) -> None:
    clock = ManualClock(1_760_000_000 * SECOND)
    source, config = source_with_a_tenant(clock), Config(store=Store(url=f"rocksdb:{tmp_path}", reserve_mib=0))

    def go_on(*, to_the_end: bool) -> None:
        target = open_engine(config, clock)
        list(copy(source, target, clock, "memory:there", stop=lambda: not to_the_end))
        target.close()

    go_on(to_the_end=False)
    with pytest.raises(ConfigError, match=r"unfinished copy of memory:there.*widerow migrate"):
        Service.open(config, clock, writes=writes)
    go_on(to_the_end=True)
    with Service.open(config, clock, writes=writes) as service:
        assert [tenant.name for tenant in service.catalog.tenants.list()] == ["acme"]


def test_an_unfinished_copy_is_no_source_of_another() -> None:
    clock = ManualClock(1_760_000_000 * SECOND)
    source, half, target = source_with_a_tenant(clock), MemoryEngine(clock), MemoryEngine(clock)
    list(copy(source, half, clock, "memory:there", stop=lambda: True))
    with pytest.raises(Conflict, match="unfinished copy of memory:there"):
        list(copy(half, target, clock, "memory:half"))
