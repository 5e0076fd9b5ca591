"""A clock that jumped: what `doctor` says of it, and how an operator settles it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from system.conftest import config_at
from widerow.cli.commands import app
from widerow.config import Config, Store
from widerow.model.batch import Report, batch_of
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, ManualClock, SystemClock
from widerow.model.token import Role
from widerow.server.run import running
from widerow.service import Service


def doctor(store: Path, *more: str) -> dict[str, Any]:
    """What it says of the clock and the store."""
    result = CliRunner().invoke(app, ["doctor", "--json", "--store", f"rocksdb:{store}", *more])
    assert result.exit_code in (0, 1), result.output
    (found,) = [check for check in json.loads(result.stdout)["checks"] if check["name"] == "clock and store"]
    return dict(found)


@pytest.fixture
def jumped(tmp_path: Path) -> Config:
    """A store that was last open two days ago, as far as its machine can tell."""
    config = config_at(tmp_path)
    with Service.open(config, ManualClock(SystemClock().now_us() - 2 * DAY)) as service:
        service.create_tenant(Tenant(name="acme"))
    return config


def folder(config: Config) -> Path:
    return Path(config.store.url.removeprefix("rocksdb:"))


def test_doctor_tells_of_a_jump_until_an_operator_confirms_the_clock(jumped: Config) -> None:
    said = doctor(folder(jumped))
    assert said["verdict"] == "warn"
    assert "2d later" in said["found"]
    assert "--confirm-clock" in said["todo"]
    assert doctor(folder(jumped))["verdict"] == "warn", "a restart settles nothing"
    assert doctor(folder(jumped), "--confirm-clock")["verdict"] == "ok"
    assert doctor(folder(jumped))["verdict"] == "ok"


def test_a_running_server_is_told_through_its_socket_and_stays_ready(jumped: Config) -> None:
    with Service.open(jumped) as service, running(service, socket_path=folder(jumped) / "serve.sock") as url:
        assert httpx.get(f"{url}/health/ready").status_code == 200
        assert doctor(folder(jumped))["verdict"] == "warn"
        assert doctor(folder(jumped), "--confirm-clock")["verdict"] == "ok"
        assert service.clock_guard is not None
        assert service.clock_guard.trusts()
        tokens = {role: service.catalog.tokens.create(role, tenant=tenant)[0] for role, tenant in ROLES}
        for role, code in ((Role.OPERATOR, 204), (Role.ADMIN, 403)):
            answer = httpx.post(f"{url}/v1/admin/clock", headers={"Authorization": f"Bearer {tokens[role]}"})
            assert answer.status_code == code, answer.text
        assert "clock" not in httpx.get(f"{url}/v1/status", headers={"Authorization": f"Bearer {tokens[Role.ADMIN]}"}).json()


ROLES = ((Role.OPERATOR, ""), (Role.ADMIN, "acme"))


@pytest.mark.parametrize("settle", [lambda service: service.clock_guard.confirm(), None], ids=["confirmed", "not"])
def test_windows_are_dropped_only_by_a_clock_that_is_trusted(
    tmp_path: Path, settle: Callable[[Service], None] | None
) -> None:
    config, clock = Config(store=Store(url=f"rocksdb:{tmp_path}", reserve_mib=0)), ManualClock(1_800_000_000_000_000)
    with Service.open(config, clock) as service:
        service.house.stop()
        tenant = service.create_tenant(Tenant(name="acme"))
        service.telemetry.write(tenant, batch_of([Report("a", clock.time_us, {"x": 1.0}, {}, 0)]))
        clock.time_us += 40 * DAY
        if settle:
            settle(service)
        service.house.keep()
        assert service.engine.stats().windows == (0 if settle else 1)
        clock.time_us -= 40 * DAY
        assert service.queries.latest(tenant, ["a"]).number.tolist() == ([] if settle else [1.0])
