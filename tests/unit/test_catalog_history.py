"""What devices were before. On the memory engine and on RocksDB; the HTTP tests ask the same of every engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from widerow.catalog.devices import Devices
from widerow.catalog.history import KEPT, State
from widerow.catalog.records import Records
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.engine.rocksdb import RocksEngine
from widerow.engine.rows import Key, Row, Rows, rows_of
from widerow.model.device import Device, Profile
from widerow.model.errors import NotFound, Unavailable
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.model.times import SECOND, ManualClock, whole_ms
from widerow.schema.table import Table
from widerow.schema.tables import DEVICE_VERSIONS, DEVICES, TABLES

NOW_US = 1_800_000_000_000_000
ACME = Tenant(name="acme")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_US)


@pytest.fixture(params=["memory", "rocksdb"])
def engine(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Iterator[Engine]:
    engine: Engine = MemoryEngine(clock) if request.param == "memory" else RocksEngine(tmp_path / "db", clock=clock)
    engine.apply(TABLES)
    yield engine
    engine.close()


@pytest.fixture
def devices(engine: Engine, clock: ManualClock) -> Devices:
    return Devices(engine, clock)


def move(devices: Devices, clock: ManualClock, *places: str, name: str = "a") -> None:
    """Change its location, a second after what was before."""
    for place in places:
        clock.time_us += SECOND
        devices.update("acme", name, lambda d, place=place: replace(d, location=place))  # type: ignore[misc]


def stored(engine: Engine) -> list[Key]:
    """Every row of the history."""
    return [rows.key(DEVICE_VERSIONS, i)[1:] for rows in engine.scan(DEVICE_VERSIONS, None) for i in range(len(rows))]


def places(states: Sequence[State]) -> list[str]:
    return [state.device.location for state in states]


def test_what_was_replaced_is_shown_with_the_time_it_was_so(devices: Devices, clock: ManualClock) -> None:
    devices.create(ACME, Device(name="a", tags={"line": "L1"}, profile=Profile(reports_per_s=2)))
    move(devices, clock, "hall", "roof")
    states = devices.history("acme", "a")
    assert states[0].device == devices.get("acme", "a")
    assert places(states) == ["roof", "hall", ""]
    assert [state.device.revision for state in states] == [3, 2, 1]
    assert {state.device.tags["line"] for state in states} == {"L1"}
    assert states[-1].device.profile == Profile(reports_per_s=2)
    at = [NOW_US + i * SECOND for i in range(3)]
    assert [(state.from_us, state.until_us) for state in states] == [(at[2], 0), (at[1], at[2]), (at[0], at[1])]


def test_a_device_that_was_never_changed_has_its_current_state_alone(devices: Devices, engine: Engine) -> None:
    devices.register(ACME, Names.of(["a"]))
    assert devices.history("acme", "a") == [State(Device(name="a", created_us=NOW_US, revision=1), NOW_US, 0)]
    with pytest.raises(NotFound):
        devices.history("acme", "b")
    with pytest.raises(NotFound):
        devices.history("other", "a")
    assert stored(engine) == []


def test_the_last_ten_former_states_are_shown_and_few_more_are_stored(
    devices: Devices, clock: ManualClock, engine: Engine
) -> None:
    devices.register(ACME, Names.of(["a", "b"]))
    for n in range(45):
        move(devices, clock, f"{n}")
        assert places(devices.history("acme", "a"))[:-1] == [str(n - i) for i in range(min(n + 1, KEPT))]
        assert len(stored(engine)) <= 2 * KEPT
    states = devices.history("acme", "a")
    assert len(states) == 1 + KEPT
    for newer, older in pairwise(states):
        assert newer.from_us == older.until_us == older.from_us + SECOND


def test_what_changes_nothing_and_what_reports_register_is_no_history(
    devices: Devices, clock: ManualClock, engine: Engine
) -> None:
    devices.register(ACME, Names.of(["a", "b"]))
    devices.create(ACME, Device(name="c", type="pump"))
    devices.update("acme", "a", lambda d: replace(d, location=""))
    devices.apply(ACME, [Device(name="b"), Device(name="c", type="pump"), Device(name="d")])
    Devices(engine, clock).register(ACME, Names.of(["a", "b", "e"]))
    assert stored(engine) == []


def test_a_bulk_upsert_keeps_what_it_replaces(devices: Devices, clock: ManualClock, engine: Engine) -> None:
    names = [f"d{i}" for i in range(1500)]
    devices.register(ACME, Names.of(names))
    clock.time_us += SECOND
    results = devices.apply(ACME, [Device(name=n, type="pump" if i % 3 else "") for i, n in enumerate(names)])
    assert {result.outcome for result in results} == {"updated"}
    assert len(stored(engine)) == 1000
    assert len(devices.history("acme", "d0")) == 1
    assert [(s.device.type, s.from_us, s.until_us) for s in devices.history("acme", "d1499")] == [
        ("pump", NOW_US + SECOND, 0),
        ("", NOW_US, NOW_US + SECOND),
    ]


def test_racing_changes_leave_no_gap(devices: Devices) -> None:
    devices.register(ACME, Names.of(["a"]))
    threads = [
        threading.Thread(target=lambda t=t: devices.update("acme", "a", lambda d: replace(d, tags={**d.tags, f"{t}": ""})))
        for t in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    states = devices.history("acme", "a")
    assert [(state.device.revision, len(state.device.tags)) for state in states] == [(9 - i, 8 - i) for i in range(9)]


class FailsToPut(MemoryEngine):
    failing = False

    def put_if(self, table: Table, key: Key, row: Row | None, expected: Row | None) -> bool:
        if self.failing:
            raise Unavailable("timed out")
        return super().put_if(table, key, row, expected)


def test_a_change_that_failed_is_not_shown(clock: ManualClock) -> None:
    engine = FailsToPut(clock)
    engine.apply(TABLES)
    devices = Devices(engine, clock)
    devices.register(ACME, Names.of(["a"]))
    before = devices.history("acme", "a")
    engine.failing = True
    with pytest.raises(Unavailable):
        move(devices, clock, "hall")
    assert devices.history("acme", "a") == before
    engine.failing = False
    move(devices, clock, "roof")
    assert places(devices.history("acme", "a")) == ["roof", ""]
    assert devices.history("acme", "a")[1].until_us == clock.time_us


class DeletesFirst(MemoryEngine):
    """Another process deletes a device just before its history is written."""

    def write(self, changes: Sequence[tuple[Table, Rows]]) -> None:
        Devices(self, ManualClock(NOW_US)).delete("acme", "a")
        super().write(changes)


def test_a_change_that_finds_its_device_deleted_leaves_no_history(clock: ManualClock) -> None:
    engine = DeletesFirst(clock)
    engine.apply(TABLES)
    devices = Devices(engine, clock)
    devices.register(ACME, Names.of(["a"]))
    with pytest.raises(NotFound):
        move(devices, clock, "hall")
    assert stored(engine) == []
    Devices(engine, clock).register(ACME, Names.of(["a"]))
    assert [result.code for result in devices.apply(ACME, [Device(name="a", type="pump")])] == ["not-found"]
    assert stored(engine) == []


def test_a_device_that_was_deleted_and_came_back_begins_anew(devices: Devices, clock: ManualClock, engine: Engine) -> None:
    devices.register(ACME, Names.of(["a", "b"]))
    move(devices, clock, "hall", "roof", "yard")
    move(devices, clock, "kept", name="b")
    devices.delete("acme", "a")
    assert stored(engine) == [("b", 1)]
    clock.time_us += SECOND
    devices.register(ACME, Names.of(["a"]))
    assert places(devices.history("acme", "a")) == [""]
    move(devices, clock, "cellar")
    assert places(devices.history("acme", "a")) == ["cellar", ""]


def test_what_another_process_wrote_while_a_device_was_deleted_is_neither_shown_nor_left(
    devices: Devices, clock: ManualClock, engine: Engine
) -> None:
    devices.register(ACME, Names.of(["a"]))
    move(devices, clock, "hall", "roof", "yard")
    late = everything(engine)
    devices.delete("acme", "a")
    engine.write([(DEVICE_VERSIONS, rows_of(DEVICE_VERSIONS, late, version_us=whole_ms(clock.time_us)))])
    clock.time_us += SECOND
    devices.register(ACME, Names.of(["a"]))
    Records(engine, DEVICES, Device, "device").update(("acme",), "a", lambda d: replace(d, location="cellar"), None)
    assert places(devices.history("acme", "a")) == ["cellar"], "of the former life there are rows with smaller revisions"
    move(devices, clock, "attic")
    devices.forget_predecessors("acme", "a")
    assert stored(engine) == [("a", 2)]
    devices.delete("acme", "a")
    engine.write([(DEVICE_VERSIONS, rows_of(DEVICE_VERSIONS, late, version_us=whole_ms(clock.time_us)))])
    devices.forget_predecessors("acme", "a")
    assert stored(engine) == []


def test_a_change_by_a_release_without_history_leaves_a_gap(devices: Devices, clock: ManualClock, engine: Engine) -> None:
    devices.register(ACME, Names.of(["a"]))
    move(devices, clock, "hall")
    Records(engine, DEVICES, Device, "device").update(("acme",), "a", lambda d: replace(d, location="roof"), None)
    move(devices, clock, "yard")
    states = devices.history("acme", "a")
    assert places(states) == ["yard", "roof", ""]
    assert [state.from_us for state in states] == [clock.time_us, 0, NOW_US]


def test_deleting_all_devices_of_a_tenant_leaves_no_history(devices: Devices, engine: Engine) -> None:
    for tenant in ("acme", "other"):
        devices.register(Tenant(name=tenant), Names.of(["a", "b"]))
        for name in ("a", "b"):
            devices.update(tenant, name, lambda d: replace(d, location="hall"))
    devices.delete_all("acme")
    assert sorted(stored(engine)) == [("a", 1), ("b", 1)]
    assert places(devices.history("other", "a")) == ["hall", ""]


def everything(engine: Engine) -> list[tuple[Key, Row]]:
    return [
        (rows.key(DEVICE_VERSIONS, i), rows.row(i)) for rows in engine.scan(DEVICE_VERSIONS, None) for i in range(len(rows))
    ]
