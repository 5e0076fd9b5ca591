"""A store's schema: made once, brought up step by step, refused when it is newer in kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from widerow.catalog.store import SCHEMA, bring_up, outline, stored_version, tables_of
from widerow.catalog.tenants import Tenants
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.engine.rows import rows_of
from widerow.model.errors import ConfigError
from widerow.model.tenant import Retention, Tenant
from widerow.model.times import DAY, MS, ManualClock
from widerow.schema.tables import LAST_SEEN

CLOCK = ManualClock(1_800_000_000_000_000)


@pytest.fixture
def engine() -> Engine:
    return MemoryEngine(CLOCK)


def test_a_new_store_has_our_version_and_opening_it_again_changes_nothing(engine: Engine) -> None:
    for _ in range(2):
        bring_up(engine)
        assert stored_version(engine) == SCHEMA


def test_an_older_store_goes_through_every_step_once(engine: Engine) -> None:
    bring_up(engine, (1, 0), {})
    ran: list[str] = []
    steps = {(1, 2): lambda _: ran.append("1.2"), (1, 1): lambda _: ran.append("1.1"), (2, 0): lambda _: ran.append("2.0")}
    bring_up(engine, (1, 2), steps)
    assert ran == ["1.1", "1.2"]
    bring_up(engine, (2, 0), steps)
    assert ran == ["1.1", "1.2", "2.0"]
    assert stored_version(engine) == (2, 0)


def test_a_step_that_fails_is_repeated(engine: Engine) -> None:
    bring_up(engine, (1, 0), {})
    tries: list[int] = []

    def step(_: Engine) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError

    with pytest.raises(OSError):
        bring_up(engine, (1, 1), {(1, 1): step})
    assert stored_version(engine) == (1, 0)
    bring_up(engine, (1, 1), {(1, 1): step})
    assert stored_version(engine) == (1, 1)


def test_the_release_before_runs_on_a_minor_change_and_refuses_a_major_one(engine: Engine) -> None:
    bring_up(engine, (1, 0), {})
    new = replace(LAST_SEEN, name="last_heard")
    bring_up(engine, (1, 1), {(1, 1): lambda e: e.apply([new])})
    bring_up(engine, (1, 0), {})
    assert stored_version(engine) == (1, 1)
    old = {"bucket": 1.0, "width_us": 1.0, "sub_buckets": 1.0, "keep_us": 1.0}
    engine.write([(LAST_SEEN, rows_of(LAST_SEEN, [(("t", 0, "d"), old)], version_us=MS))])
    assert engine.get(LAST_SEEN, ("t", 0, "d")) == old
    bring_up(engine, (2, 0), {(2, 0): lambda _: None})
    with pytest.raises(ConfigError, match="newer release"):
        bring_up(engine, (1, 1), {})


def test_the_outline_names_the_classes_of_every_tenant(engine: Engine) -> None:
    assert not any(definition.exists for definition in outline(engine, None))
    bring_up(engine)
    tenants = Tenants(engine, CLOCK)
    tenants.create(Tenant(name="acme", retention=Retention(raw_us=7 * DAY)))
    missing = [definition.table for definition in outline(engine, tenants) if not definition.exists]
    assert missing == ["telemetry_1w", "telemetry_30d"]
    engine.apply(tables_of(tenants))
    assert all(definition.exists for definition in outline(engine, tenants))
