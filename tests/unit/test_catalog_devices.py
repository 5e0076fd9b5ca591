"""Devices: registration and its quota, revisions, bulk upserts, restarts. On the memory engine and on RocksDB."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unit.registering import ACME, KINDS, NOW_US, codes_of, limited, register, store
from widerow.catalog.devices import Devices
from widerow.catalog.online import Online, Status, Told
from widerow.catalog.registration import DEVICE_LIMIT, KNOWN, UNKNOWN_DEVICE, Registered
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.engine.rows import Rows
from widerow.model.arrays import Flags
from widerow.model.device import Device, Profile
from widerow.model.errors import Conflict, NotFound, Rejected, Unavailable
from widerow.model.names import NO_NAMES, Names
from widerow.model.tenant import LimitMode, Limits, Tenant
from widerow.model.times import SECOND, ManualClock
from widerow.schema.table import Table
from widerow.schema.tables import TABLES

CLOSED = Tenant(name="acme", registers_devices=False)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_US)


@pytest.fixture(params=KINDS)
def engine(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Iterator[Engine]:
    with store(request.param, clock, tmp_path) as engine:
        yield engine


@pytest.fixture
def devices(engine: Engine, clock: ManualClock) -> Devices:
    return Devices(engine, clock)


def test_the_first_report_registers_a_device(devices: Devices) -> None:
    first = devices.register(ACME, Names.of(["a", "b"]))
    assert (codes_of(first), len(first.added)) == ([KNOWN, KNOWN], 2)
    again = devices.register(ACME, Names.of(["b", "c"]))
    assert (codes_of(again), len(again.added)) == ([KNOWN, KNOWN], 1)
    assert devices.get("acme", "a") == Device(name="a", created_us=NOW_US, revision=1)
    assert devices.count("acme") == 3


def test_names_may_repeat_and_be_anything_printable(devices: Devices) -> None:
    names = ["Conveyor/Batch Qty", "ns=2;s=Temp", "Kühlung", "ns=2;s=Temp", "\U0010ffff", "x" * 256]
    registered = devices.register(ACME, Names.of(names))
    assert (codes_of(registered), len(registered.added)) == ([KNOWN] * 6, 5)
    assert {d.name for d in devices.list("acme").devices} == set(names)


def test_no_names_are_no_work(devices: Devices) -> None:
    assert len(devices.register(ACME, NO_NAMES).codes) == 0


def test_names_that_no_report_uses_are_not_registered(devices: Devices) -> None:
    registered = devices.register(ACME, Names.of(["a", "b"]), np.array([False, True]))
    assert (codes_of(registered), len(registered.added)) == ([KNOWN, KNOWN], 1)
    assert [d.name for d in devices.list("acme").devices] == ["b"]


def test_tenants_do_not_share_devices(devices: Devices) -> None:
    register(devices, ACME, "a")
    assert register(devices, Tenant(name="other", registers_devices=False), "a") == [UNKNOWN_DEVICE]
    with pytest.raises(NotFound):
        devices.get("other", "a")


def test_a_tenant_that_does_not_register_refuses_unknown_devices(devices: Devices) -> None:
    devices.create(CLOSED, Device(name="a"))
    assert register(devices, CLOSED, "x", "a", "y") == [UNKNOWN_DEVICE, KNOWN, UNKNOWN_DEVICE]
    assert devices.count("acme") == 1


def test_a_device_made_after_it_was_refused_is_known_at_once(devices: Devices) -> None:
    assert register(devices, CLOSED, "x") == [UNKNOWN_DEVICE]
    devices.create(CLOSED, Device(name="x"))
    assert register(devices, CLOSED, "x") == [KNOWN]


def test_a_device_made_by_another_process_is_known_within_the_refresh_interval(
    devices: Devices, engine: Engine, clock: ManualClock
) -> None:
    assert register(devices, CLOSED, "x") == [UNKNOWN_DEVICE]
    Devices(engine, clock).create(CLOSED, Device(name="x"))
    assert register(devices, CLOSED, "x") == [UNKNOWN_DEVICE]
    clock.time_us += 10 * SECOND
    assert register(devices, CLOSED, "x") == [KNOWN]


def test_the_limit_is_filled_to_the_last_place(devices: Devices) -> None:
    assert register(devices, limited(3), "a", "b", "c", "d") == [KNOWN, KNOWN, KNOWN, DEVICE_LIMIT]
    assert register(devices, limited(3), "d", "a") == [DEVICE_LIMIT, KNOWN]
    assert register(devices, limited(4), "d") == [KNOWN]
    assert register(devices, limited(2), "a", "e") == [KNOWN, DEVICE_LIMIT]
    assert devices.count("acme") == 4


def test_in_shadow_all_are_registered_and_those_beyond_the_limit_are_told_once(devices: Devices) -> None:
    shadow = Tenant(name="acme", limits=Limits(devices=3), limit_modes={"devices": LimitMode.SHADOW})

    def check(tenant: Tenant, names: str, beyond: str) -> None:
        registered = devices.register(tenant, Names.of(list(names)))
        assert codes_of(registered) == [KNOWN] * len(names)
        told = np.zeros(len(names), np.bool_) if registered.beyond is None else registered.beyond
        assert "".join(name for name, is_beyond in zip(names, told.tolist(), strict=True) if is_beyond) == beyond

    check(shadow, "ab", "")
    check(shadow, "dbced", "ce")  # `d` takes the last place
    check(shadow, "abcdef", "f")
    check(replace(shadow, limit_modes={"devices": LimitMode.OFF}), "g", "")
    check(ACME, "h", "")
    assert devices.count("acme") == 8


def test_deleting_a_device_frees_its_place_and_makes_it_unknown(devices: Devices) -> None:
    register(devices, limited(2), "a", "b")
    assert register(devices, limited(2), "c") == [DEVICE_LIMIT]
    assert devices.delete("acme", "a").name == "a"
    assert register(devices, limited(2), "c") == [KNOWN]
    assert register(devices, limited(2), "a") == [DEVICE_LIMIT]
    with pytest.raises(NotFound):
        devices.delete("acme", "a")
    assert devices.count("acme") == 2


def test_a_deleted_device_can_come_back(devices: Devices) -> None:
    register(devices, ACME, "a")
    devices.delete("acme", "a")
    assert devices.register(ACME, Names.of(["a"])).added.to_list() == ["a"]
    assert devices.count("acme") == 1


def test_the_roster_does_not_keep_the_dead(devices: Devices) -> None:
    register(devices, ACME, "stays")
    for i in range(1100):
        register(devices, ACME, f"d{i}")
        devices.delete("acme", f"d{i}")
    known = devices._registration._rosters["acme"]._known
    assert known is not None
    assert len(known.table) < 200
    assert register(devices, CLOSED, "stays", "d3") == [KNOWN, UNKNOWN_DEVICE]


def test_racing_registrations_fill_the_limit_exactly(devices: Devices) -> None:
    """20 threads offer 20 x 40 names, half of them shared, for 500 places."""
    tenant = limited(500)
    batches = [Names.of([f"own-{t}-{i}" for i in range(40)] + [f"shared-{i}" for i in range(40)]) for t in range(20)]
    results: dict[int, Registered] = {}
    start = threading.Barrier(20)

    def run(t: int) -> None:
        start.wait()
        results[t] = devices.register(tenant, batches[t])

    in_threads(20, run)
    stored = {d.name for d in devices.list("acme").devices}
    assert len(stored) == devices.count("acme") == 500 == sum(len(r.added) for r in results.values())
    for t, names in enumerate(batches):
        accepted = {name for name, code in zip(names.to_list(), codes_of(results[t]), strict=True) if code == KNOWN}
        assert accepted <= stored


def test_racing_registrations_and_deletions_keep_the_count_true(devices: Devices) -> None:
    tenant = limited(10)

    def run(t: int) -> None:
        for i in range(10):
            name = f"d-{t}-{i}"
            if register(devices, tenant, name) == [KNOWN]:
                assert devices.count("acme") <= 10
                devices.delete("acme", name)

    in_threads(20, run)
    assert devices.count("acme") == 0
    assert devices.list("acme").devices == ()


def test_creating_counts_towards_the_limit(devices: Devices) -> None:
    made = devices.create(limited(1), Device(name="a", type="pump", tags={"floor": "2"}, profile=Profile(reports_per_s=2)))
    assert devices.get("acme", "a") == made
    assert (made.revision, made.created_us, made.tags) == (1, NOW_US, {"floor": "2"})
    with pytest.raises(Rejected, match=r"limits\.devices allows \(1\)") as caught:
        devices.create(limited(1), Device(name="b"))
    assert caught.value.code == "device-limit"
    with pytest.raises(Conflict, match="exists already"):
        devices.create(limited(1), Device(name="a"))


def test_what_may_not_be_stored_is_refused(devices: Devices) -> None:
    def check(device: Device, code: str) -> None:
        with pytest.raises(Rejected) as caught:
            devices.create(ACME, device)
        assert caught.value.code == code

    check(Device(name=""), "name")
    check(Device(name="a\nb"), "name")
    check(Device(name="a", location="x" * 257), "field")
    check(Device(name="a", tags={"": "x"}), "name")
    check(Device(name="a", tags={str(i): "" for i in range(65)}), "field")


def test_an_update_names_the_revision_it_saw(devices: Devices) -> None:
    register(devices, ACME, "a")
    changed = devices.update("acme", "a", lambda d: replace(d, location="hall"), expected=1)
    assert changed == Device(name="a", location="hall", created_us=NOW_US, revision=2) == devices.get("acme", "a")
    with pytest.raises(Conflict):
        devices.update("acme", "a", lambda d: replace(d, location="roof"), expected=1)
    with pytest.raises(Conflict):
        devices.delete("acme", "a", expected=1)
    assert register(devices, CLOSED, "a") == [KNOWN]
    with pytest.raises(Rejected):
        devices.update("acme", "a", lambda d: replace(d, type="\x07"))
    with pytest.raises(NotFound):
        devices.update("acme", "b", lambda d: d)


def test_racing_updates_of_one_device_all_happen(devices: Devices) -> None:
    register(devices, ACME, "a")

    def run(t: int) -> None:
        for _ in range(5):
            devices.update("acme", "a", lambda d: replace(d, tags={**d.tags, f"{t}-{len(d.tags)}": "x"}))

    in_threads(10, run)
    assert len(devices.get("acme", "a").tags) == 50
    assert devices.get("acme", "a").revision == 51


def test_a_bulk_upsert_says_what_became_of_each_device(devices: Devices) -> None:
    register(devices, ACME, "old", "same")
    given = [
        Device(name="new", type="pump"),
        Device(name="old", type="fan"),
        Device(name="bad\x00"),
        Device(name="new", type="valve"),
        Device(name="same"),
        Device(name="over"),
    ]
    results = devices.apply(limited(3), given)
    assert [(r.outcome, r.code) for r in results] == [
        ("created", ""),
        ("updated", ""),
        ("refused", "name"),
        ("refused", "conflict"),
        ("updated", ""),
        ("refused", "device-limit"),
    ]
    assert [r.name for r in results] == [d.name for d in given]
    assert results[0].device == devices.get("acme", "new")
    assert results[1].device == devices.get("acme", "old") == Device(name="old", type="fan", created_us=NOW_US, revision=2)
    assert devices.get("acme", "same").revision == 1
    assert [r.outcome for r in devices.apply(limited(3), given[:2])] == ["updated", "updated"]
    assert devices.get("acme", "old").revision == 2
    assert devices.apply(ACME, []) == []


def test_a_restart_knows_every_device_and_the_count(devices: Devices, engine: Engine, clock: ManualClock) -> None:
    names = Names.of([f"d{i}" for i in range(2000)])
    devices.register(ACME, names)
    devices.delete("acme", "d7")
    again = Devices(engine, clock)
    codes = again.register(CLOSED, names).codes
    assert np.flatnonzero(codes).tolist() == [7]
    assert again.count("acme") == 1999
    assert register(Devices(engine, clock), limited(2000), "x", "y") == [KNOWN, DEVICE_LIMIT]


def test_processes_that_share_a_store_read_it_again_when_due(devices: Devices, engine: Engine, clock: ManualClock) -> None:
    sharing = Devices(engine, clock, reload_us=60 * SECOND)
    register(sharing, ACME, "a", "b")
    devices.delete("acme", "a")
    clock.time_us += 60 * SECOND
    assert register(sharing, CLOSED, "a", "b") == [UNKNOWN_DEVICE, KNOWN]
    assert sharing.count("acme") == 1


def test_deleting_all_leaves_nothing(devices: Devices) -> None:
    register(devices, ACME, "a", "b")
    register(devices, Tenant(name="other"), "a")
    devices.delete_all("acme")
    assert (devices.count("acme"), devices.count("other")) == (0, 1)
    assert register(devices, CLOSED, "a") == [UNKNOWN_DEVICE]


class FailsAfterwards(MemoryEngine):
    """Inserts the first row only, then fails: what a timeout in the middle looks like."""

    failing = False

    def insert(self, table: Table, rows: Rows) -> Flags:
        if not self.failing:
            return super().insert(table, rows)
        super().insert(table, rows.take(np.array([0])))
        raise Unavailable("timed out")


def test_a_write_whose_outcome_is_unknown_does_not_spoil_the_count(clock: ManualClock) -> None:
    engine = FailsAfterwards(clock)
    engine.apply(TABLES)
    devices = Devices(engine, clock)
    register(devices, limited(3), "a")
    engine.failing = True
    with pytest.raises(Unavailable):
        register(devices, limited(3), "b", "c")
    engine.failing = False
    assert devices.count("acme") == 2
    assert register(devices, limited(3), "x", "y", "b") == [KNOWN, DEVICE_LIMIT, KNOWN]


@pytest.mark.parametrize("tenant", [CLOSED, limited(1)])
@pytest.mark.parametrize("stored", [100, 3000])
def test_thousands_of_names_that_must_be_refused_are_looked_for_at_once(
    devices: Devices, engine: Engine, clock: ManualClock, stored: int, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few devices there are: those that another process registered are found among them."""
    other = Devices(engine, clock)
    other.register(ACME, Names.of([f"d{i}" for i in range(stored)]))
    assert devices.count("acme") == stored
    other.register(ACME, Names.of(["late-1", "late-2"]))
    names = ["late-2", *(f"x{i}" for i in range(2500)), "late-1", "d7"]
    asked: list[str] = []

    def counted(how: str, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        asked.append(how)
        return call(*args, **named)

    for how in ("scan", "get"):
        monkeypatch.setattr(engine, how, partial(counted, how, getattr(engine, how)))
    codes = codes_of(devices.register(tenant, Names.of(names)))
    refused = DEVICE_LIMIT if tenant.registers_devices else UNKNOWN_DEVICE
    assert codes == [KNOWN] + [refused] * 2500 + [KNOWN, KNOWN]
    assert asked == ["scan"]
    assert codes_of(devices.register(tenant, Names.of(names))) == codes
    assert asked == ["scan"], "a moment later, none is looked for"
    assert devices.count("acme") == stored + 2


def in_threads(n: int, run: object) -> None:
    """Run in n threads; what fails in one fails here."""
    assert callable(run)
    errors: list[BaseException] = []

    def guarded(i: int) -> None:
        try:
            run(i)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_what_a_device_told_last_counts_whatever_arrives_when() -> None:
    engine = MemoryEngine(ManualClock(NOW_US))
    engine.apply(TABLES)
    online = Online(engine)
    assert online.of("acme", "a") is None
    online.tell([Status("acme", "a", True, NOW_US + SECOND, NOW_US + SECOND)])
    online.tell([Status("acme", "a", False, NOW_US, NOW_US)])  # an older word, delivered again
    online.tell([Status("other", "a", False, NOW_US + 2 * SECOND, NOW_US + 2 * SECOND)])
    assert online.of("acme", "a") == Told(True, NOW_US + SECOND)
    online.tell([Status("acme", "a", False, NOW_US + 3 * SECOND, NOW_US + 3 * SECOND)])
    assert online.of("acme", "a") == Told(False, NOW_US + 3 * SECOND)
    online.forget("acme", ["a"], NOW_US + 4 * SECOND)
    assert online.of("acme", "a") is None
    assert online.of("other", "a") == Told(False, NOW_US + 2 * SECOND)
    online.forget_all("other", NOW_US + 4 * SECOND)
    assert online.of("other", "a") is None
    with pytest.raises(Rejected):
        online.tell([Status("acme", "a\n", True, NOW_US, NOW_US)])
