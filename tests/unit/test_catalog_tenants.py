"""Tenants: revisions, bounded staleness, retention epochs."""

from __future__ import annotations

import threading
from dataclasses import replace

import msgspec
import pytest

from widerow.catalog.tenants import MAX_EPOCHS, Tenants
from widerow.engine.memory import MemoryEngine
from widerow.model.errors import Conflict, Corrupt, NotFound, Rejected
from widerow.model.tenant import Limits, Retention, RetentionEpoch, Tenant
from widerow.model.times import DAY, MINUTE, MS, SECOND, ManualClock
from widerow.schema.shards import shard_of
from widerow.schema.tables import TABLES, TENANTS

NOW_US = 1_800_000_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_US)


@pytest.fixture
def engine(clock: ManualClock) -> MemoryEngine:
    engine = MemoryEngine(clock)
    engine.apply(TABLES)
    return engine


@pytest.fixture
def tenants(engine: MemoryEngine, clock: ManualClock) -> Tenants:
    return Tenants(engine, clock)


def titled(title: str) -> Tenant:
    return Tenant(name="acme", display_name=title)


def keep_raw(tenants: Tenants, raw_us: int) -> Tenant:
    return tenants.update("acme", lambda t: replace(t, retention=replace(t.retention, raw_us=raw_us)))


def test_what_is_created_is_read_back(tenants: Tenants) -> None:
    made = tenants.create(Tenant(name="acme", display_name="Acme", limits=Limits(devices=7), registers_devices=False))
    assert tenants.get("acme") == made
    assert (made.revision, made.created_us, made.limits.devices) == (1, NOW_US, 7)
    assert made.raw_epochs == (RetentionEpoch(0, 30 * DAY),)


def test_creating_twice_is_a_conflict(tenants: Tenants) -> None:
    tenants.create(titled("first"))
    with pytest.raises(Conflict, match="exists already"):
        tenants.create(titled("second"))
    assert tenants.get("acme").display_name == "first"


def test_what_may_not_be_stored_is_refused(tenants: Tenants) -> None:
    def check(tenant: Tenant, code: str) -> None:
        with pytest.raises(Rejected) as caught:
            tenants.create(tenant)
        assert caught.value.code == code

    check(Tenant(name="Acme Corp"), "name")
    check(Tenant(name="acme", display_name="a\x1b[2J"), "field")
    check(Tenant(name="acme", limits=Limits(devices=-1)), "field")
    assert tenants.list() == []


def test_an_unknown_tenant_is_not_found(tenants: Tenants) -> None:
    for name in ("nobody", "", "no\0body", "\ud800"):
        with pytest.raises(NotFound):
            tenants.get(name)
        with pytest.raises(NotFound):
            tenants.current(name, NOW_US)
    with pytest.raises(NotFound):
        tenants.update("nobody", lambda t: t)
    with pytest.raises(NotFound):
        tenants.delete("nobody")


def test_an_update_names_the_revision_it_saw(tenants: Tenants) -> None:
    tenants.create(titled("one"))
    two = tenants.update("acme", lambda t: replace(t, display_name="two"), expected=1)
    assert two.revision == 2
    with pytest.raises(Conflict, match="revision 2, not 1"):
        tenants.update("acme", lambda t: replace(t, display_name="late"), expected=1)
    with pytest.raises(Conflict):
        tenants.delete("acme", expected=1)
    assert tenants.get("acme") == two


def test_a_change_that_changes_nothing_leaves_the_revision_alone(tenants: Tenants) -> None:
    made = tenants.create(titled("one"))
    assert tenants.update("acme", lambda t: replace(t, display_name="one", revision=99)) == made


def test_of_many_updates_that_saw_the_same_revision_one_succeeds(tenants: Tenants) -> None:
    tenants.create(titled("as made"))
    outcomes: list[str] = []
    start = threading.Barrier(20)

    def run(i: int) -> None:
        start.wait()
        try:
            tenants.update("acme", lambda t: replace(t, display_name=str(i)), expected=1)
            outcomes.append(str(i))
        except Conflict:
            pass

    in_threads(20, run)
    assert outcomes == [tenants.get("acme").display_name]
    assert tenants.get("acme").revision == 2


def test_updates_without_a_revision_all_happen(engine: MemoryEngine, clock: ManualClock) -> None:
    """Two catalogues stand for two processes: only `put_if` is between them."""
    here, there = Tenants(engine, clock), Tenants(engine, clock)
    here.create(Tenant(name="acme"))

    def run(i: int) -> None:
        for _ in range(20):
            (here, there)[i % 2].update("acme", lambda t: replace(t, limits=Limits(devices=t.limits.devices + 1)))

    in_threads(8, run)
    assert here.get("acme").limits.devices == 160
    assert here.get("acme").revision == 161


def test_current_is_read_again_after_the_refresh_interval(engine: MemoryEngine, clock: ManualClock) -> None:
    here, there = Tenants(engine, clock, refresh_us=10 * SECOND), Tenants(engine, clock)
    here.create(titled("old"))
    assert here.current("acme", NOW_US).display_name == "old"
    there.update("acme", lambda t: replace(t, display_name="new"))
    assert here.current("acme", NOW_US + 10 * SECOND - 1).display_name == "old"
    assert here.current("acme", NOW_US + 10 * SECOND).display_name == "new"


def test_all_that_were_read_are_trusted_when_the_store_does_not_answer(tenants: Tenants, clock: ManualClock) -> None:
    made = [tenants.create(Tenant(name=name)) for name in ("acme", "quiet")]
    assert not tenants.trust("quiet", NOW_US)
    tenants.read_all()
    assert [tenants.at_hand(name, NOW_US) for name in ("acme", "quiet")] == made
    clock.time_us += MINUTE
    assert tenants.at_hand("quiet", clock.time_us) is None
    assert tenants.trust("quiet", clock.time_us)
    assert tenants.at_hand("quiet", clock.time_us) == made[1]
    assert not tenants.trust("nobody", clock.time_us)


def test_a_clock_set_back_does_not_prolong_what_is_remembered(engine: MemoryEngine, clock: ManualClock) -> None:
    here, there = Tenants(engine, clock), Tenants(engine, clock)
    here.create(titled("old"))
    here.current("acme", NOW_US)
    there.update("acme", lambda t: replace(t, display_name="new"))
    assert here.current("acme", NOW_US - DAY).display_name == "new"


def test_local_changes_show_at_once(tenants: Tenants) -> None:
    tenants.create(titled("old"))
    tenants.current("acme", NOW_US)
    tenants.update("acme", lambda t: replace(t, display_name="new"))
    assert tenants.current("acme", NOW_US).display_name == "new"
    tenants.delete("acme")
    with pytest.raises(NotFound):
        tenants.current("acme", NOW_US)


def test_a_changed_raw_retention_starts_ahead_of_every_report_that_can_come(
    engine: MemoryEngine, clock: ManualClock
) -> None:
    tenants = Tenants(engine, clock, refresh_us=10 * SECOND, max_future_us=10 * MINUTE)
    tenants.create(Tenant(name="acme"))
    clock.time_us = NOW_US + 1
    changed = keep_raw(tenants, 60 * DAY)
    ahead = RetentionEpoch(NOW_US + 10 * MINUTE + 20 * SECOND + MS, 60 * DAY)
    assert changed.raw_epochs == (RetentionEpoch(0, 30 * DAY), ahead)
    assert changed.raw_keep_us(ahead.from_us - 1) == 30 * DAY
    assert changed.raw_keep_us(ahead.from_us) == 60 * DAY


def test_epochs_follow_each_other_and_are_never_altered(tenants: Tenants, clock: ManualClock) -> None:
    tenants.create(Tenant(name="acme"))
    first = keep_raw(tenants, 60 * DAY).raw_epochs
    clock.time_us -= DAY  # a clock set back must not reorder them
    second = keep_raw(tenants, 30 * DAY).raw_epochs
    assert second[:2] == first
    assert second[2] == RetentionEpoch(first[1].from_us + MS, 30 * DAY)
    assert tenants.update("acme", lambda t: replace(t, raw_epochs=(), display_name="x")).raw_epochs == second


def test_the_history_of_retention_is_bounded(tenants: Tenants) -> None:
    tenants.create(Tenant(name="acme"))
    for i in range(MAX_EPOCHS - 1):
        keep_raw(tenants, (31 + i % 2) * DAY)
    with pytest.raises(Rejected, match="256 times"):
        keep_raw(tenants, 40 * DAY)


def test_tenants_are_listed_by_name(tenants: Tenants) -> None:
    for name in ("zeta", "acme", "mid-9"):
        tenants.create(Tenant(name=name))
    assert [t.name for t in tenants.list()] == ["acme", "mid-9", "zeta"]
    tenants.delete("mid-9")
    assert [t.name for t in tenants.list()] == ["acme", "zeta"]


def test_a_restart_keeps_everything(tenants: Tenants, engine: MemoryEngine, clock: ManualClock) -> None:
    tenants.create(Tenant(name="acme", retention=Retention(raw_us=2 * DAY)))
    changed = keep_raw(tenants, 3 * DAY)
    assert Tenants(engine, clock).current("acme", NOW_US) == changed


def test_bodies_evolve(tenants: Tenants, engine: MemoryEngine) -> None:
    """Unknown keys come from a newer version and are ignored; missing ones, from an older, get their defaults."""
    key = (shard_of("acme"), "acme")
    body = msgspec.json.encode({"display_name": "A", "limits": {"devices": 5, "wings": 2}, "colour": "red"}).decode()
    assert engine.put_if(TENANTS, key, {"body": body, "revision": 4.0}, None)
    assert tenants.get("acme") == Tenant(name="acme", display_name="A", limits=Limits(devices=5), revision=4)
    assert tenants.update("acme", lambda t: replace(t, display_name="B")).revision == 5


def test_a_body_that_cannot_be_read_is_corrupt(tenants: Tenants, engine: MemoryEngine) -> None:
    for i, body in enumerate(("{", "[]", '{"limits": 3}', '{"retention": {"raw_us": 1}}')):
        name = f"bad-{i}"
        assert engine.put_if(TENANTS, (shard_of(name), name), {"body": body, "revision": 1.0}, None)
        with pytest.raises(Corrupt, match=name):
            tenants.get(name)


def in_threads(n: int, run: object) -> None:
    assert callable(run)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
