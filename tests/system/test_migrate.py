"""A store goes round all engines and comes back the same; a copy that is killed goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from servers.bigtable import Bigtable
from servers.cassandra import Cassandra
from widerow.catalog.lease import KEY
from widerow.config import Config, Store
from widerow.engine.open import open_engine
from widerow.migrate.copy import progress_of
from widerow.model.batch import Report, batch_of
from widerow.model.device import Device
from widerow.model.names import Names
from widerow.model.tenant import Retention, Tenant
from widerow.model.times import DAY, HOUR, MINUTE, MS, SystemClock, TimeSpan
from widerow.model.token import Role
from widerow.schema.tables import META
from widerow.service import Service

COMMAND = [sys.executable, "-m", "widerow.cli.main", "migrate"]


def filled(folder: Path, devices: int, reports: int) -> str:
    """An embedded store with corrections, texts, tags, two retention classes, changed devices and something erased."""
    url = f"rocksdb:{folder / 'store'}"
    with Service.open(replace(Config(), store=Store(url=url, cache_mib=16, write_buffer_mib=16, reserve_mib=0))) as service:
        now = service.clock.now_us() // MS * MS
        for name, days in (("acme", 30), ("umbra", 7)):
            tenant = service.create_tenant(Tenant(name=name, retention=Retention(raw_us=days * DAY)))
            service.catalog.tokens.create(Role.READ, tenant=name)
            service.catalog.devices.register(tenant, Names.of([f"press {d}/#ü" for d in range(devices)]))
            for d in range(devices):
                device = f"press {d}/#ü"
                sent = [
                    Report(device, now - n * MINUTE, {"temp": n + d / 7, "state": f"s{n % 3}"}, {"site": "a"}, now)
                    for n in range(reports)
                ]
                sent += [Report(device, r.time_us, {"temp": -1.0}, {}, now + MS) for r in sent[::5]]
                service.telemetry.write(tenant, batch_of(sent))
            for n in range(15):
                moved = [Device(name=f"press {d}/#ü", location=f"Hall {n}") for d in range(devices)]
                service.catalog.devices.apply(tenant, moved)
            service.delete_device(tenant, "press 0/#ü")
            service.telemetry.erase(tenant, metric="state", span=TimeSpan(now - 2 * HOUR, now - HOUR))
    return url


def migrate(source: str, target: str) -> dict[str, object]:
    ended = subprocess.run([*COMMAND, source, target, "--json"], capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, object] = json.loads(ended.stdout)
    return found


@pytest.fixture
def on_cassandra(cassandra_server: Cassandra) -> str:
    return cassandra_server.store_url(f"migrated_{uuid4().hex[:12]}")


@pytest.fixture
def on_bigtable(bigtable_server: Bigtable, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", bigtable_server.address)
    return bigtable_server.store_url(f"m{uuid4().hex[:8]}")


def test_a_store_goes_round_and_comes_back_the_same(tmp_path: Path, on_cassandra: str, on_bigtable: str) -> None:
    source = filled(tmp_path, devices=3, reports=100)
    back = f"rocksdb:{tmp_path / 'back'}"
    there = migrate(source, on_cassandra)
    assert there["same"] is True
    assert migrate(on_cassandra, on_bigtable) == there
    assert migrate(on_bigtable, back) == there
    with Service.open(replace(Config(), store=Store(url=back, cache_mib=16, write_buffer_mib=16, reserve_mib=0))) as service:
        tenant, now = service.catalog.tenants.get("acme"), service.clock.now_us()
        span = TimeSpan(now - DAY, now)
        points = service.queries.series(tenant, "press 1/#ü", span=span, limit=10_000).points
        assert len(points) == 100 + 61, "temp each minute; state but for what was erased of it"
        states = service.catalog.devices.history("acme", "press 1/#ü")
        assert [state.device.location for state in states] == [f"Hall {14 - n}" for n in range(11)]
        assert all(newer.from_us == older.until_us > 0 for newer, older in pairwise(states))


@pytest.mark.parametrize("engine", ["cassandra", "bigtable"])
def test_a_copy_that_was_killed_goes_on_where_it_was(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIDEROW_STORE_LEASE_S", "6")  # it leaves the target's lease, which the next one waits for
    source = filled(tmp_path, devices=6, reports=300)
    url = request.getfixturevalue(f"on_{engine}")
    config = replace(Config(), store=Store(url=url))
    first = subprocess.Popen([*COMMAND, source, url, "--no-verify"], stderr=subprocess.DEVNULL)
    target = open_engine(config, SystemClock())
    try:
        target.apply([META])
        deadline = time.monotonic() + 60
        while (found := progress_of(target)) is None or not found.table:
            assert time.monotonic() < deadline
            assert first.poll() is None
        first.send_signal(signal.SIGKILL)
        first.wait()
        found = progress_of(target)
        assert found is not None
        assert not found.done, "it was killed in the middle"
    finally:
        first.kill()
        target.close()
    assert migrate(source, url)["same"] is True
    assert migrate(url, f"rocksdb:{tmp_path / 'back'}")["same"] is True


def test_nobody_else_writes_to_either_store(tmp_path: Path, on_bigtable: str) -> None:
    source, back = filled(tmp_path, 1, 3), f"rocksdb:{tmp_path / 'back'}"

    def check(source: str, target: str, *words: str) -> None:
        refused = subprocess.run([*COMMAND, source, target], capture_output=True, text=True, timeout=100, check=False)
        assert refused.returncode == 1
        assert all(word in refused.stderr for word in (f"process {os.getpid()} on", *words)), refused.stderr

    with Service.open(replace(Config(), store=Store(url=on_bigtable, lease_s=15))):
        check(source, on_bigtable, "another process writes to this store")
        check(on_bigtable, back, "the source is being written to")
    migrate(source, on_bigtable)
    migrate(on_bigtable, back)
    engine = open_engine(replace(Config(), store=Store(url=on_bigtable)), SystemClock())
    engine.apply([META])
    assert engine.get(META, KEY) is None, "given up when the copy was done"
    engine.close()


def test_a_store_that_is_not_empty_is_no_target(tmp_path: Path) -> None:
    one, other = filled(tmp_path / "one", 1, 3), filled(tmp_path / "other", 1, 3)
    refused = subprocess.run([*COMMAND, one, other], capture_output=True, text=True, timeout=100, check=False)
    assert refused.returncode == 1
    assert "empty store" in refused.stderr
