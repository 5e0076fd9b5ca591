"""The audit log: what is recorded, what is left out, and how much of it there may be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.catalog.audit import EVERYTHING, MOST_CHANGES, Action, Audit, differences, shown_changes
from widerow.engine.memory import MemoryEngine
from widerow.model.errors import Unavailable
from widerow.model.times import DAY, HOUR, ManualClock
from widerow.ops.counters import Counters
from widerow.schema.tables import AUDIT
from widerow.server.auth import ADMINS
from widerow.server.routes import ROUTES

NOW = 1_800_000_000_123_456


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def engine(clock: ManualClock) -> MemoryEngine:
    engine = MemoryEngine(clock)
    engine.apply([AUDIT])
    return engine


def did(what: str, tenant: str = "acme") -> Action:
    return Action(by="token 1", role="admin", what=what, outcome="done", tenant=tenant)


def seen(audit: Audit, tenant: str, back_us: int = 30 * DAY) -> list[str]:
    return [r.action.what for r in audit.newest(tenant, start_us=NOW - back_us, stop_us=NOW + 900 * DAY)]


def test_actions_are_in_the_log_of_their_tenant_and_in_that_of_all_newest_first(
    engine: MemoryEngine, clock: ManualClock
) -> None:
    audit = Audit(engine, clock, Counters())
    for n, tenant in enumerate(("acme", "umbra", "", "acme")):
        audit.record(did(f"{n}", tenant))
        clock.time_us += 9 * HOUR
    assert seen(audit, "acme") == ["3", "0"]
    assert seen(audit, "umbra") == ["1"]
    assert seen(audit, EVERYTHING) == ["3", "2", "1", "0"]
    recorded = list(audit.newest("acme", start_us=NOW, stop_us=NOW + DAY))
    assert [r.time_us for r in recorded] == [NOW + 27 * HOUR, NOW][1:]
    first, *rest = audit.newest(EVERYTHING, start_us=NOW - DAY, stop_us=NOW + 9 * DAY)
    assert list(audit.newest(EVERYTHING, start_us=NOW - DAY, stop_us=NOW + 9 * DAY, before=first.id)) == rest


def test_actions_go_when_their_time_is_over(engine: MemoryEngine, clock: ManualClock) -> None:
    audit = Audit(engine, clock, Counters(), keep_us=2 * DAY)
    audit.record(did("first"))
    clock.time_us += DAY
    audit.record(did("second"))
    clock.time_us += DAY + HOUR
    assert seen(audit, "acme") == ["second"]
    assert sum(map(len, engine.scan(AUDIT, None))) == 2, "of the tenant, and of all"


def test_nothing_is_recorded_where_nothing_is_kept(engine: MemoryEngine, clock: ManualClock) -> None:
    Audit(engine, clock, Counters(), keep_us=0).record(did("first"))
    assert not sum(map(len, engine.scan(AUDIT, None)))


def test_a_day_has_so_many_actions_and_the_last_says_that_there_were_more(engine: MemoryEngine, clock: ManualClock) -> None:
    counters = Counters()
    audit = Audit(engine, clock, counters, most_a_day=3)
    for n in range(5):
        audit.record(did(f"{n}"))
        clock.time_us += 1
    assert sorted(seen(audit, "acme")) == ["0", "1", "2"]
    (last, *_) = audit.newest("acme", start_us=0, stop_us=NOW + DAY)
    assert "nothing is recorded" in last.action.reason
    assert counters.registry.get_sample_value("widerow_audit_dropped_total") == 4
    clock.time_us += DAY
    audit.record(did("next day"))
    assert "next day" in seen(audit, "acme")


def test_what_cannot_be_written_is_counted_and_logged_and_nothing_else(
    engine: MemoryEngine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counters = Counters()

    def fail(*_: object) -> None:
        raise Unavailable("the store is away")

    monkeypatch.setattr(engine, "write", fail)
    Audit(engine, clock, counters).record(did("lost"))
    assert counters.registry.get_sample_value("widerow_audit_failures_total") == 1
    assert "the store is away" in caplog.text
    assert '"what":"lost"' in caplog.text


def test_changes_are_told_by_what_they_were_and_are() -> None:
    old: dict[str, Any] = {"limits": {"devices": 0, "series": 1}, "tags": {"line": "L1"}, "location": "", "revision": 1}
    new: dict[str, Any] = {"limits": {"devices": 5, "series": 1}, "tags": {}, "location": "Hall 3", "revision": 2}
    assert sorted(differences(old, new)) == [
        "limits.devices: 0 -> 5",
        'location: "" -> Hall 3',
        "tags.line: L1 -> -",
        "tags: - -> {}",
    ]
    assert differences(old, old) == []


def test_secrets_are_left_out_and_long_things_shortened() -> None:
    given_ = {"token": "wr_abc", "a": {"password": "x", "api.key": "y"}, "devices": [{"name": "d"}] * 7, "text": "x" * 999}
    shown = shown_changes(given_)
    assert "devices: 7 entries" in shown
    assert not any(secret in " ".join(shown) for secret in ("wr_abc", ": x ", ": y"))
    assert max(map(len, shown)) < 300
    assert len(shown_changes({str(n): n for n in range(999)})) == MOST_CHANGES + 1


@given(st.dictionaries(st.text(max_size=5), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=9)))
def test_whatever_is_asked_for_can_be_recorded(asked: dict[str, Any]) -> None:
    clock = ManualClock(NOW)
    engine, counters = MemoryEngine(clock), Counters()
    engine.apply([AUDIT])
    audit = Audit(engine, clock, counters)
    audit.record(Action(by="t", role="admin", what="w", outcome="done", changes=tuple(shown_changes(asked))))
    assert counters.registry.get_sample_value("widerow_audit_failures_total") == 0
    assert len(seen(audit, EVERYTHING)) == 1


def test_every_route_of_admins_that_is_no_question_is_recorded() -> None:
    recorded = {route.id for route in ROUTES if route.changes}
    assert {
        "POST /v1/devices/batch",
        "PATCH /v1/devices/{device}",
        "DELETE /v1/devices/{device}",
        "POST /v1/devices/{device}/swap",
        "POST /v1/admin/tenants",
        "DELETE /v1/admin/tenants/{tenant}",
        "POST /v1/admin/tokens",
        "POST /v1/admin/erase",
        "POST /v1/deadletters/replay",
        "DELETE /v1/deadletters",
    } <= recorded
    assert all(route.roles is not None and route.roles <= ADMINS for route in ROUTES if route.id in recorded)
    assert "POST /v1/query" not in recorded


def test_what_tenants_do_leaves_room_for_operators(engine: MemoryEngine, clock: ManualClock) -> None:
    audit = Audit(engine, clock, Counters(), most_a_day=3)
    for n in range(5):
        audit.record(did(f"{n}"))
    audit.record(Action(by="token 2", role="operator", what="create tenant", outcome="done"))
    assert "create tenant" in seen(audit, EVERYTHING)
