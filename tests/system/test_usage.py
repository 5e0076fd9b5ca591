"""What tenants use is recorded where they use it, on every engine."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from system.conftest import Site, now_ms
from widerow.cli.commands import app
from widerow.config import Prices
from widerow.model.times import DAY, HOUR, TimeSpan
from widerow.model.token import Role
from widerow.query import going


def recorded(site: Site, tenant: str) -> dict[str, float]:
    """All of the last hours together."""
    now_us = site.service.clock.now_us()
    site.service.usage.flush()
    total: dict[str, float] = {}
    for hour in site.service.recorded.hours(tenant, TimeSpan(now_us - 3 * HOUR, now_us + HOUR)).values():
        for name, value in hour.items():
            total[name] = total.get(name, 0.0) + value
    return total


def test_reports_and_questions_are_recorded_by_tenant(site: Site) -> None:
    before, others = recorded(site, "acme"), recorded(site, "umbra")
    now = now_ms()
    reports = [{"device": f"u-{i}", "time": now - i, "values": {"a": 1, "b": 2}} for i in range(3)]
    reports.append({"device": "u-0", "time": now + DAY // 1000, "values": {"a": 1}})
    answer = site.client(Role.WRITE).post("/v1/write", json=reports)
    assert answer.status_code == 207
    question = site.client(Role.READ).get("/v1/devices/u-0/series")
    assert question.status_code == 200
    after = recorded(site, "acme")
    used = {name: after[name] - before.get(name, 0.0) for name in after}
    assert (used["offered"], used["accepted"], used["values"], used["refused:future"]) == (4, 3, 6, 1)
    assert used["received_bytes"] == len(answer.request.content)
    assert used["written_bytes"] == 3 * (41 + len("acme") + len("u-0") + 2 * 8)
    assert (used["questions"], used["rows_read"], used["answered_bytes"]) == (1, 2, len(question.content))
    assert used["question_seconds"] > 0
    assert recorded(site, "umbra") == others


def test_seconds_of_live_reports_and_backlog_are_told_apart(site: Site) -> None:
    now = now_ms()
    old = [{"device": "u-9", "time": now - 7_200_000 - i, "values": {"a": 1}} for i in range(5)]
    live = [{"device": "u-9", "time": now - i, "values": {"a": 1}} for i in range(2)]
    for body in (old, live):
        assert site.client(Role.WRITE, "umbra").post("/v1/write", json=body).status_code == 204
    site.service.usage.flush()
    now_us = site.service.clock.now_us()
    hours = list(site.service.recorded.seconds("umbra", TimeSpan(now_us - 3 * HOUR, now_us + HOUR)))
    assert (sum(hour.live.sum() for hour in hours), sum(hour.backlog.sum() for hour in hours)) == (2, 5)


def test_usage_is_answered_by_hour_and_by_day_with_its_sum(site: Site) -> None:
    site.write("u-1", {"a": 1.0})
    client = site.client(Role.READ)
    answer = client.get("/v1/usage", params={"start": "-3h"}).json()
    assert (answer["tenant"], answer["step"]) == ("acme", "hour")
    assert 3 <= len(answer["usage"]) <= 4
    for name in ("offered", "accepted", "refused", "values", "questions", "received_bytes", "stored_reports"):
        assert answer["total"][name] == sum(step[name] for step in answer["usage"]), name
    assert answer["total"]["accepted"] >= 1
    assert answer["stored"]["total"] == sum(answer["stored"][level] for level in ("raw", "minute", "hour", "day")) > 0
    days = client.get("/v1/usage", params={"start": "-3h", "step": "day"}).json()
    assert sum(day["accepted"] for day in days["usage"]) >= answer["total"]["accepted"]
    table = list(csv.DictReader(io.StringIO(client.get("/v1/usage", headers={"Accept": "text/csv"}).text)))
    assert sum(int(row["accepted"]) for row in table) >= answer["total"]["accepted"]
    assert client.get("/v1/usage", params={"start": "-400d"}).json()["error"]["code"] == "span"
    others = site.client(Role.READ, "umbra").get("/v1/usage", params={"start": "-3h"}).json()
    assert others["tenant"] == "umbra"
    assert client.get("/v1/usage", params={"tenant": "umbra"}).status_code == 403


def test_the_command_line_shows_usage(site: Site) -> None:
    site.write("u-1", {"a": 1.0})
    options = ["--server", site.url, "--token", site.token(Role.OPERATOR)]
    shown = CliRunner().invoke(app, ["tenant", "usage", "acme", "--last", "3h", *options])
    assert shown.exit_code == 0, shown.output
    assert "stored now: " in shown.stdout
    assert "total" in shown.stdout
    result = CliRunner().invoke(app, ["tenant", "usage", "acme", "--last", "7d", "--json", *options])
    answer = json.loads(result.stdout)
    assert (answer["step"], len(answer["usage"])) == ("day", 8)
    wrong = CliRunner().invoke(app, ["tenant", "usage", "acme", "--last", "ever", *options])
    assert (wrong.exit_code, "--last" in wrong.output) == (2, True)


def test_what_is_used_has_its_price(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    prices = Prices(gib_month=3.0, gib_written=5.0, gib_read=7.0, million_reports=11.0)
    monkeypatch.setattr(site.service, "config", replace(site.service.config, prices=prices))
    total = site.client(Role.READ).get("/v1/usage", params={"start": "-3h"}).json()["total"]
    cost = total["cost"]
    assert cost["written"] == pytest.approx(total["written_bytes"] / (1 << 30) * 5, abs=1e-8)
    assert cost["read"] == pytest.approx(total["answered_bytes"] / (1 << 30) * 7, abs=1e-8)
    assert cost["reports"] == pytest.approx(total["accepted"] / 1e6 * 11, abs=1e-8)
    assert cost["total"] == pytest.approx(sum(cost[part] for part in ("stored", "written", "read", "reports")), abs=1e-8)


def test_what_a_limit_would_have_done_can_be_asked(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What would go is told where that can be known within seconds; here it must be, on a slow machine, too.
    monkeypatch.setattr(going, "_COST", replace(going._COST, timeout_s=60.0))
    operator = site.client(Role.OPERATOR)
    reports = [{"device": f"u-{i}", "time": now_ms(), "values": {"a": 1}} for i in range(10)]  # a second has room for one
    assert site.client(Role.WRITE).post("/v1/write", json=reports).status_code == 204
    site.service.usage.flush()
    offered = operator.get("/v1/usage", params={"start": "-3h", "tenant": "acme"}).json()["total"]["offered"]
    path = "/v1/admin/tenants/acme/whatif"
    narrow = operator.post(path, json={"limits": {"writes_per_s": 1, "writes_burst": 1, "devices": 1}, "last": "3h"}).json()
    assert offered >= narrow["writes"]["offered"] > 0  # what was refused for what it is never came to a limit
    assert 0 < narrow["writes"]["refused"] < narrow["writes"]["offered"]
    assert sum(hour["refused"] for hour in narrow["writes"]["hours"]) == narrow["writes"]["refused"]
    (devices,) = narrow["now"]
    assert devices["limit"] == "devices"
    site.service.usage.asked("acme", rows_read=100_000, answered_bytes=0, seconds=0.1)
    site.service.usage.flush()
    answer = operator.post(path, json={"limits": {"query_cost_per_s": 1, "series": 1}, "last": "3h"}).json()
    assert answer["reads"]["rows"] >= 100_000
    assert sum(hour["over"] for hour in answer["reads"]["hours"]) == answer["reads"]["over"] >= 100_000 - 3610
    (series,) = answer["now"]
    assert (series["limit"], series["allowed"]) == ("series", 1), "also of a tenant whose series nobody counts"
    site.write("u-old", {"a": 1.0}, time_ms=now_ms() - 2 * DAY // 1000)
    (raw,) = operator.post(path, json={"retention": {"raw": "1d"}}).json()["retention"]
    assert (raw["level"], raw["retention"], raw["becomes"]) == ("raw", "30d", "1d")
    assert raw["rows"] >= 1
    wide = operator.post(path, json={"limits": {"writes_per_s": 1_000_000}}).json()
    assert (wide["writes"]["refused"], wide["writes"]["hours"]) == (0, [])
    assert operator.get("/v1/admin/tenants/acme").json()["limits"]["writes_per_s"] == 0, "nothing is changed"
    assert site.client(Role.ADMIN).post(path, json={}).status_code == 403
    proposed = tmp_path / "proposed.toml"
    proposed.write_text("[limits]\nwrites_per_s = 1\n")
    options = ["--server", site.url, "--token", site.token(Role.OPERATOR)]
    shown = CliRunner().invoke(app, ["tenant", "whatif", "acme", "--limits", str(proposed), *options])
    assert shown.exit_code == 0, shown.output
    assert "would have been refused" in shown.stdout
