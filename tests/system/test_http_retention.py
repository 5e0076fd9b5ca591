"""Retention that changes while data is there, on each engine: shorter at once, longer from then on, never by surprise."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from system.conftest import Site, now_ms
from widerow.cli.commands import app
from widerow.model.times import DAY, HOUR, MS
from widerow.model.token import Role

DAY_MS, HOUR_MS = DAY // MS, HOUR // MS
TENANT = "/v1/admin/tenants/brief"
AGES = (20, 5, 1)
"""Days ago that each device reported something."""
ALL = ("raw", "30s", "1m", "1h", "1d", "fleet")


@pytest.fixture(scope="module")
def operator(site: Site) -> httpx.Client:
    """Three devices with reports of three days, all of it rolled up; and one device whose last word is the oldest."""
    client = site.client(Role.OPERATOR)
    assert client.post("/v1/admin/tenants", json={"name": "brief"}).status_code == 201
    begin = now_ms() // DAY_MS * DAY_MS + 6 * HOUR_MS
    reports = [
        {"device": f"d{d}", "time": begin - age * DAY_MS + i * HOUR_MS // 4, "values": {"n": age, "state": "on"}}
        for d in range(3)
        for age in AGES
        for i in range(8)
    ]
    reports.append({"device": "gone", "time": begin - AGES[0] * DAY_MS, "values": {"n": 1}})
    assert client.post("/v1/write", params={"tenant": "brief"}, json=reports).status_code == 204
    service = site.service
    tenant, roller = service.catalog.tenants.get("brief"), service.pyramid.roller
    for unit in sorted(u for u in set(service.pyramid.marks.units()) if u.tenant == "brief"):
        roller.roll(tenant, unit)
    for unit in sorted(u for u in roller.days.pending() if u.tenant == "brief"):
        roller.roll_day(tenant, unit)
    late = {"device": "d0", "time": begin - AGES[0] * DAY_MS + 1, "values": {"n": AGES[0]}}  # its hour is not rolled again
    assert client.post("/v1/write", params={"tenant": "brief"}, json=late).status_code == 204
    return client


def shown(client: httpx.Client, **question: Any) -> list[int]:
    """How many days ago what is shown of d0 was said."""
    path = "/v1/fleet/series" if question.pop("fleet", False) else "/v1/devices/d0/series"
    params = {"tenant": "brief", "start": "-25d", "metrics": "n", "agg": "max", **question}
    answer = client.get(path, params={name: value for name, value in params.items() if value is not None})
    assert answer.status_code == 200, answer.text
    return sorted({int(value) for series in answer.json()["series"] for _, value in series["points"]})


def everywhere(client: httpx.Client) -> dict[str, list[int]]:
    return {
        "raw": shown(client, agg=None),
        "30s": shown(client, step="30s"),
        "1m": shown(client, step="1m"),
        "1h": shown(client, step="1h"),
        "1d": shown(client, step="1d"),
        "fleet": shown(client, fleet=True, step="1h"),
    }


def test_a_shorter_retention_is_confirmed_holds_at_once_and_stays_when_it_is_longer_again(
    site: Site, operator: httpx.Client
) -> None:
    assert everywhere(operator) == {level: [1, 5, 20] for level in ALL}
    latest = {"tenant": "brief"}
    assert operator.get("/v1/devices/gone/latest", params=latest).json()["series"]

    # Raw and minutes alone: not before it is confirmed.
    shorter = {"retention": {"raw": "3d", "minute": "10d"}}
    refused = operator.patch(TENANT, json=shorter)
    assert refused.status_code == 409
    error = refused.json()["error"]
    assert error["code"] == "confirmation-needed"
    assert "confirm=true" in error["message"]
    assert [(g["level"], g["retention"], g["becomes"]) for g in error["goes"]] == [
        ("raw", "30d", "3d"),
        ("minute", "90d", "10d"),
    ]
    assert [(g["devices"], g["days"], g["rows"]) for g in error["goes"]] == [(4, 2, 3 * 2 * 8 + 2), (4, 1, 3 * 8 + 2)]
    for g in error["goes"]:
        assert g["reaches_back_to"] < g["would_reach_back_to"]
    assert everywhere(operator)["raw"] == [1, 5, 20]
    command = ["tenant", "set", "brief", "--retention", "raw=3d", "--retention", "minute=10d"]
    where = ["--server", site.url, "--token", site.token(Role.OPERATOR)]
    asked = CliRunner().invoke(app, [*command, *where])
    assert (asked.exit_code, asked.stdout) == (2, "")
    assert "would reach back to" in asked.stderr
    assert "give --yes" in asked.stderr
    assert everywhere(operator)["raw"] == [1, 5, 20]
    done = CliRunner().invoke(app, [*command, *where, "--yes"])
    assert (done.exit_code, done.stderr) == (0, "tenant brief is changed\n")
    assert everywhere(operator) == {
        "raw": [1],
        "30s": [1],
        "1m": [1, 5],
        "1h": [1, 5, 20],
        "1d": [1, 5, 20],
        "fleet": [1, 5, 20],
    }
    assert operator.get("/v1/devices/gone/latest", params=latest).json()["series"] == []

    # All levels, confirmed in the body.
    all_levels = {"retention": dict.fromkeys(("raw", "minute", "hour", "day"), "3d")}
    assert operator.patch(TENANT, json=all_levels).status_code == 409
    assert operator.patch(TENANT, params={"confirm": "false"}, json=all_levels).status_code == 409
    assert operator.patch(TENANT, json={**all_levels, "confirm": True}).status_code == 200
    assert everywhere(operator) == {level: [1] for level in ALL}
    gone = operator.get("/v1/devices/d0/series", params={"tenant": "brief", "start": "-25d", "step": "1d", "agg": "max"})
    assert gone.json()["missing"]

    # Longer needs no confirmation, and brings nothing back.
    longer = {"retention": {"raw": "30d", "minute": "90d", "hour": "365d", "day": "forever"}}
    assert operator.patch(TENANT, json=longer).status_code == 200
    assert everywhere(operator) == {level: [1] for level in ALL}


def test_what_takes_nothing_away_needs_no_confirmation(operator: httpx.Client) -> None:
    assert operator.post("/v1/admin/tenants", json={"name": "empty"}).status_code == 201
    assert operator.patch("/v1/admin/tenants/empty", json={"retention": {"raw": "1h"}}).status_code == 200
    assert operator.patch(TENANT, json={"display_name": "Brief"}).status_code == 200
    assert operator.patch(TENANT, json={"retention": {"raw": "29d"}}).status_code == 200, "all of it is younger"
    assert operator.patch(TENANT, json={"confirm": 1}).status_code == 400
