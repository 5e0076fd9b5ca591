"""`verify` and `repair` over HTTP and from the command line, and what an operator sees of rolling that is held back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from system.conftest import config_at
from widerow.cli.commands import app
from widerow.config import Config
from widerow.model.errors import Corrupt
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MINUTE, MS, ManualClock, SystemClock, TimeSpan, format_time
from widerow.model.token import Role
from widerow.rollup.repair import Repairer
from widerow.rollup.verify import Finding, Kind
from widerow.schema.rollups import HOURS, MINUTES, fleet
from widerow.schema.shards import shard_of
from widerow.server import verify
from widerow.server.run import running
from widerow.service import Service

DAY_US = SystemClock().now_us() // DAY * DAY - 2 * DAY
HOUR_US = DAY_US + 5 * HOUR
DEVICES = [f"press-{n:02}" for n in range(20)]


@dataclass
class Served:
    config: Config
    service: Service
    url: str
    token: str

    def post(self, **form: Any) -> dict[str, Any]:
        answer = httpx.post(
            f"{self.url}/v1/admin/verify", json=form, headers={"Authorization": f"Bearer {self.token}"}, timeout=30
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def tamper(self, level: Any = HOURS, device: str = DEVICES[7]) -> None:
        tenant = self.service.catalog.tenants.get("acme")
        now_us = self.service.clock.now_us()
        bad = Finding(Kind.WRONG, device, level, HOUR_US, "temp", right=b"\xff nonsense", version_us=now_us - now_us % MS)
        Repairer(self.service.engine, self.service.pyramid.rollups).mend(tenant, [bad], read_us=now_us)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Two days of twenty devices, rolled."""
    config = config_at(tmp_path)
    with Service.open(config) as service:
        tenant = service.create_tenant(Tenant(name="acme"))
        service.create_tenant(Tenant(name="empty"))
        token, _ = service.catalog.tokens.create(Role.ADMIN, tenant="acme")
        with running(service, socket_path=tmp_path / "serve.sock") as url:
            reports = [
                {"device": device, "time": (HOUR_US + i * 20 * MINUTE) // MS, "values": {"temp": i / 4, "flow": i}}
                for device in DEVICES
                for i in (0, 1, 4, 72)
            ]
            sent = httpx.post(f"{url}/v1/write", json=reports, headers={"Authorization": f"Bearer {token}"}, timeout=30)
            assert sent.status_code == 204, sent.text
            for unit in service.pyramid.marks.pending():
                service.pyramid.roller.roll(tenant, unit)
            for unit in service.pyramid.roller.days.pending():
                service.pyramid.roller.roll_day(tenant, unit)
            yield Served(config, service, url, token)


def run(*arguments: str, code: int | None = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert code is None or result.exit_code == code, result.output
    return result.stdout, result.stderr


def test_a_slice_a_call_until_all_is_done(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_LONGEST_US", 0)
    served.tamper()
    form = {"start": format_time(DAY_US), "end": format_time(DAY_US + 2 * DAY)}
    parts = [served.post(**form)]
    while parts[-1]["next"] is not None:
        parts.append(served.post(**form, after=parts[-1]["next"]))
    assert [part["device_days"] for part in parts] == [16, 16, 4, 4, 0, 0], "two days of the fleet come last"
    assert {part["of"] for part in parts} == {40}
    assert {level: sum(part["checked"][level] for part in parts) for level in ("minute", "hour", "day")} == {
        "minute": 20 * 2 * 4,
        "hour": 20 * 2 * 3,
        "day": 20 * 2 * 2,
    }
    (finding,) = [finding for part in parts for finding in part["findings"]]
    assert finding == {
        "kind": "wrong",
        "tenant": "acme",
        "device": DEVICES[7],
        "level": "hour",
        "start": format_time(HOUR_US),
        "metric": "temp",
        "frozen": False,
        "mendable": True,
        "note": "its bytes cannot be decoded",
        "repaired": False,
    }


def test_a_call_that_is_put_wrongly_is_refused(served: Served) -> None:
    def check(status: int, code: str, **form: Any) -> None:
        headers = {"Authorization": f"Bearer {served.token}"}
        answer = httpx.post(f"{served.url}/v1/admin/verify", json=form, headers=headers, timeout=30)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)

    check(400, "field", repair="yes")
    check(400, "field", spam=1)
    check(400, "cursor", after="nonsense")
    check(400, "cursor", after="1.nonsense\u00fc")
    check(404, "not-found", device="nosuch")
    check(400, "span", start="now", end="-1d")


def test_the_command_line_names_and_mends_it(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEROW_URL", served.url)
    monkeypatch.setenv("WIDEROW_TOKEN", served.token)
    _, notes = run("verify")
    assert "checked records: 160 of minutes, 120 of hours, 80 of days" in notes
    served.tamper()
    served.tamper(MINUTES, DEVICES[3])
    table, error = run("verify", "--start", "-3d", code=1)
    assert (table.count(DEVICES[7]), table.count(DEVICES[3]), len(table.splitlines())) == (1, 1, 4)
    assert "error: rollups: 2 records" in error
    only, _ = run("verify", "--device", DEVICES[3], "--json", code=1)
    assert [finding["level"] for finding in json.loads(only)["findings"]] == ["minute"]
    done, _ = run("repair", "--json")
    report = json.loads(done)
    assert (report["wrong"], report["repaired"]) == (2, 2)
    assert [finding["repaired"] for finding in report["findings"]] == [True, True]
    assert json.loads(run("verify", "--json")[0])["wrong"] == 0


@pytest.mark.parametrize("most_devices", [2_000, 0], ids=["by day", "by hour"])
def test_what_the_fleet_says_is_verified_and_mended(
    served: Served, monkeypatch: pytest.MonkeyPatch, most_devices: int
) -> None:
    monkeypatch.setattr(verify, "_WHOLE_DAYS", most_devices)
    pyramid, tenant = served.service.pyramid, served.service.catalog.tenants.get("acme")
    for unit in pyramid.roller.fleet.pending():
        pyramid.fleet.roll(tenant, unit)
    span = TimeSpan(HOUR_US, HOUR_US + 1)
    (rows,) = pyramid.fleet.store.hours(tenant, [""], span, metrics=["temp"])
    cells = replace(rows.cells, texts=Names.of_bytes([b"\xff nonsense"]), text=np.zeros(1, np.int32))
    now_us = served.service.clock.now_us()
    bad = replace(rows, version_us=np.array([now_us - now_us % MS]), cells=cells)
    served.service.engine.write([(fleet(tenant.retention.hour_us), bad)])
    options = ("--server", served.url, "--token", served.token, "--start", format_time(DAY_US))
    report = json.loads(run("verify", *options, "--json", code=1)[0])
    (found,) = report["findings"]
    assert (found["level"], found["device"], found["type"], found["shard"]) == ("fleet", "*", "", None)
    assert (found["start"], found["metric"], found["note"]) == (format_time(HOUR_US), "temp", "its bytes cannot be decoded")
    shards = len({shard_of(device) for device in DEVICES})
    assert report["checked"]["fleet"] == 3 * 2 * (shards + 1), "hours, metrics; the shards and all of them"
    assert json.loads(run("verify", *options, "--device", DEVICES[0], "--json")[0])["checked"]["fleet"] == 0
    assert "repaired: 1 records" in run("repair", *options)[1]
    assert f"{report['checked']['fleet']} of the fleet" in run("verify", *options)[1]
    (after,) = pyramid.fleet.store.hours(tenant, [""], span, metrics=["temp"])
    assert after.cells.texts.bytes_at(int(after.cells.text[0])) == rows.cells.texts.bytes_at(int(rows.cells.text[0]))


def test_an_operator_verifies_all_tenants_through_the_store(served: Served, tmp_path: Path) -> None:
    served.tamper()
    served.service.close()
    store = ("--store", f"rocksdb:{tmp_path / 'store'}")
    found = json.loads(run("verify", *store, "--json", code=1)[0])
    assert [(f["tenant"], f["device"]) for f in found["findings"]] == [("acme", DEVICES[7])]
    run("repair", *store)
    run("verify", *store)


def test_rolling_that_is_held_back_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the status, the metrics, the log and doctor: late first, then in danger. What is in the margin is kept."""
    config = config_at(tmp_path)
    config = replace(config, rollup=replace(config.rollup, enabled=0))
    now_us = SystemClock().now_us()
    clock = ManualClock(now_us - 34 * DAY)
    with Service.open(config, clock, rolls=True) as service, running(service, socket_path=tmp_path / "serve.sock") as url:
        tenant = service.create_tenant(Tenant(name="acme"))
        token, _ = service.catalog.tokens.create(Role.OPERATOR)
        headers = {"Authorization": f"Bearer {token}"}
        report = {"device": "a", "time": clock.now_us() // MS, "values": {"temp": 1}}
        sent = httpx.post(f"{url}/v1/write?tenant=acme", json=report, headers=headers, timeout=30)
        assert sent.status_code == 204
        for passed_us, behind_s, margin_s, verdict, code in (
            (5 * HOUR, (3 * 3600, 5 * 3600), (7 * 86_400, 7 * 86_400), "warn", None),
            (34 * DAY, (33 * 86_400, 34 * 86_400), (2 * 86_400, 3 * 86_400), "fail", 1),
        ):
            clock.time_us = now_us - 34 * DAY + passed_us
            status = httpx.get(f"{url}/v1/status", headers=headers, timeout=30).json()["rollups"]
            assert status["pending"] == status["levels"]["hour"]["pending"] == 1
            assert behind_s[0] <= status["behind_s"] <= behind_s[1]
            assert margin_s[0] <= status["margin_s"] <= margin_s[1]
            assert "rollups: level hour is" in caplog.text
            caplog.clear()
            exposition = httpx.get(f"{url}/metrics", headers=headers, timeout=30).text
            assert 'widerow_rollup_pending_windows{level="hour"} 1.0' in exposition
            checked = json.loads(run("doctor", "--server", url, "--token", token, "--json", code=code)[0])
            (rollups,) = [check for check in checked["checks"] if check["name"] == "rollups"]
            assert rollups["verdict"] == verdict
        (unit,) = service.pyramid.marks.pending()
        service.pyramid.roller.roll(tenant, unit)
        assert service.pyramid.rollups.read(tenant, ["a"], HOURS, TimeSpan(now_us - 35 * DAY, now_us)) != []


def test_what_cannot_be_told_or_read_is_said_stays_and_fails_the_commands(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    telemetry, tenant = served.service.telemetry, served.service.catalog.tenants.get("acme")
    span, asked = TimeSpan(HOUR_US, HOUR_US + HOUR), ["--start", format_time(DAY_US), "--end", format_time(DAY_US + 1)]
    to = ["--server", served.url, "--token", served.token, *asked]
    before = served.service.pyramid.rollups.read(tenant, DEVICES, HOURS, span)
    really = telemetry.read_many

    def without(tenant: Tenant, devices: list[str], *given: Any, **more: Any) -> Any:
        """The reports of one device are gone, those of another cannot be read."""
        if DEVICES[5] in devices and given[0].start_us == HOUR_US:
            raise Corrupt("a block cannot be read")
        return really(tenant, [name for name in devices if name != DEVICES[3]], *given, **more)

    monkeypatch.setattr(telemetry, "read_many", without)
    said, notes = run("verify", *to, code=1)
    assert ("cannot tell" in said, "unreadable" in said, "a block" in said) == (True, True, False)
    assert "unreadable: 1 windows" in notes
    said, notes = run("repair", *to, "--json", code=1)
    report = json.loads(said)
    assert (report["repaired"], report["unreadable"], report["cannot_tell"]) == (0, 1, report["wrong"] - 1)
    assert {f["device"] for f in report["findings"]} == {DEVICES[3], DEVICES[5]}
    after = served.service.pyramid.rollups.read(tenant, DEVICES, HOURS, span)
    assert [rows.version_us.tolist() for rows in after] == [rows.version_us.tolist() for rows in before]
