"""A store's schema: made once, brought up step by step, refused when it is newer in kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from widerow.catalog.devices import Devices
from widerow.catalog.records import Records
from widerow.catalog.store import SCHEMA, bring_up, outline, stored_version, tables_of
from widerow.catalog.tenants import Tenants
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.engine.rocksdb import RocksEngine
from widerow.engine.rows import rows_of
from widerow.model.batch import Report, batch_of
from widerow.model.device import Device
from widerow.model.errors import ConfigError
from widerow.model.tenant import Retention, Tenant
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.rollup.marks import Marks
from widerow.rollup.roll import Roller
from widerow.rollup.store import Rollups
from widerow.rollup.versions import Versions
from widerow.schema.rollups import HOURS
from widerow.schema.tables import DEVICE_VERSIONS, DEVICES, LAST_SEEN, TABLES
from widerow.telemetry.store import Telemetry, TelemetrySettings

CLOCK = ManualClock(1_800_000_000_000_000)
ACME = Tenant(name="acme")
TABLES_1_0 = tuple(table for table in TABLES if table != DEVICE_VERSIONS)


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


@contextmanager
def release_1_0(path: Path, patch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """A store as release 1.0 opens it, which knows neither the table of histories nor a step beyond itself."""
    engine = RocksEngine(path, clock=CLOCK)
    with patch.context() as of_1_0:
        of_1_0.setattr("widerow.catalog.store.TABLES", TABLES_1_0)
        bring_up(engine, (1, 0), {})
        yield engine
    engine.close()


@contextmanager
def release_1_1(path: Path) -> Iterator[Engine]:
    engine = RocksEngine(path, clock=CLOCK)
    bring_up(engine, (1, 1))
    yield engine
    engine.close()


def moved_by_1_0(engine: Engine, place: str) -> None:
    """A change as 1.0 makes it: of the device's row alone."""
    Records(engine, DEVICES, Device, "device").update(("acme",), "d", lambda d: replace(d, location=place), None)


def history(engine: Engine) -> list[str]:
    return [state.device.location for state in Devices(engine, CLOCK).history("acme", "d")]


def test_a_store_of_1_0_is_brought_to_1_1_and_keeps_its_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with release_1_0(tmp_path, monkeypatch) as engine:
        assert stored_version(engine) == (1, 0)
        assert not engine.outline([DEVICE_VERSIONS])[0].exists
        Devices(engine, CLOCK).create(ACME, Device(name="d", location="hall"))
    for _ in range(2):
        with release_1_1(tmp_path) as engine:
            assert stored_version(engine) == (1, 1)
            assert all(definition.exists for definition in engine.outline(TABLES))
            assert history(engine) == ["hall"]
    with release_1_1(tmp_path) as engine:
        Devices(engine, CLOCK).update("acme", "d", lambda d: replace(d, location="roof"))
        assert history(engine) == ["roof", "hall"]


def test_release_1_0_still_runs_on_a_store_of_1_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with release_1_1(tmp_path) as engine:
        Devices(engine, CLOCK).create(ACME, Device(name="d", location="hall"))
        Devices(engine, CLOCK).update("acme", "d", lambda d: replace(d, location="roof"))
    with release_1_0(tmp_path, monkeypatch) as engine:
        assert stored_version(engine) == (1, 1), "it does not take the store back"
        assert Devices(engine, CLOCK).get("acme", "d").location == "roof"
        moved_by_1_0(engine, "yard")
    with release_1_1(tmp_path) as engine:
        assert history(engine) == ["yard", "hall"], "what 1.0 replaced is missing, nothing else"
        Devices(engine, CLOCK).update("acme", "d", lambda d: replace(d, location="cellar"))
        assert history(engine) == ["cellar", "yard", "hall"]


def test_the_outline_names_the_classes_of_every_tenant(engine: Engine) -> None:
    assert not any(definition.exists for definition in outline(engine, None))
    bring_up(engine)
    tenants = Tenants(engine, CLOCK)
    tenants.create(Tenant(name="acme", retention=Retention(raw_us=7 * DAY)))
    missing = [definition.table for definition in outline(engine, tenants) if not definition.exists]
    assert missing == [
        "telemetry_1w",
        "telemetry_30d",
        "telemetry_1min_90d",
        "telemetry_hourly_365d",
        "telemetry_daily_forever",
        "fleet_telemetry_hourly_365d",
        "fleet_partials_hourly_365d",
        "telemetry_by_tenant_365d",
        "telemetry_by_tenant_daily_forever",
        "stored_hourly_365d",
        "stored_daily_forever",
    ]
    engine.apply(tables_of(tenants))
    assert all(definition.exists for definition in outline(engine, tenants))


def test_what_a_release_without_rollups_stored_is_rolled_up_later(tmp_path: Path) -> None:
    """Every hour that has reports is marked, whatever the width of its bucket."""
    now_us = CLOCK.time_us
    for engine in (MemoryEngine(CLOCK), RocksEngine(tmp_path, clock=CLOCK)):
        bring_up(engine, (1, 1), {})
        tenant = Tenants(engine, CLOCK).create(Tenant(name="acme", retention=Retention(raw_us=7 * DAY)))
        settings = TelemetrySettings(max_future_us=HOUR, refresh_us=SECOND)
        telemetry = Telemetry(engine, CLOCK, settings)
        old_us = now_us - now_us % (6 * HOUR) - 5 * HOUR
        times = {"a": [old_us, old_us + 3 * HOUR], "b": [old_us + 90 * MINUTE]}
        for device, some in times.items():
            telemetry.write(tenant, batch_of([Report(device, at, {"x": 1.0}, {}, now_us) for at in some]))
        bring_up(engine)
        assert stored_version(engine) == SCHEMA
        site = Roller(
            engine,
            telemetry,
            Rollups(engine, CLOCK, telemetry.erasure),
            (marks := Marks(engine, CLOCK)),
            CLOCK,
            versions=Versions(CLOCK, lambda _: None),
        )
        site.recover()
        for unit in sorted(marks.pending()):
            site.roll(tenant, unit)
        for device, some in times.items():
            found = Rollups(engine, CLOCK, telemetry.erasure).read(tenant, [device], HOURS, TimeSpan(0, now_us))
            hours = sorted(hour for rows in found for hour in np.asarray(rows.keys["start_us"]).tolist())
            assert hours == sorted(at - at % HOUR for at in some)
        engine.close()
