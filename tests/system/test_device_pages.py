"""Devices by what they do: sorted by their last report and rate, by state, searched and counted."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from system.conftest import Site, now_ms
from widerow.model.token import Role


@pytest.fixture(scope="module")
def fleet(site: Site) -> tuple[httpx.Client, int]:
    """Three devices that report, by a word of theirs: one often, one seldom, one that stopped; and one that never did."""
    at = now_ms()
    devices = [
        {"name": f"paged-{name}", "type": "paged", "location": "Hall Ä"} for name in ("fast", "slow", "gone", "never")
    ]
    admin = site.client(Role.ADMIN)
    assert admin.post("/v1/devices/batch", json={"devices": devices}).status_code == 200
    times = {
        "fast": [at - 30_000 + i * 100 for i in range(300)],
        "slow": [at - 60_000, at - 30_000, at],
        "gone": [at - 1_800_000, at - 1_200_000],
    }
    reports = [
        {"device": f"paged-{name}", "time": time_ms, "values": {"a": 1.0}}
        for name, each in times.items()
        for time_ms in each
    ]
    assert site.client(Role.WRITE).post("/v1/write", json=reports).status_code == 204
    site.client(Role.WRITE, "umbra").post("/v1/write", json={"device": "paged-of-umbra", "values": {"a": 1.0}})
    return site.client(Role.READ), at


def listed(client: httpx.Client, **parameters: Any) -> list[dict[str, Any]]:
    """The devices of all pages of two."""
    found: list[dict[str, Any]] = []
    after: dict[str, str] = {}
    while True:
        answer = client.get("/v1/devices", params={"q": "paged", "limit": 2, **parameters, **after})
        assert answer.status_code == 200, answer.text
        found += answer.json()["devices"]
        if answer.json()["next"] is None:
            return found
        after = {"after": answer.json()["next"]}


def names(devices: list[dict[str, Any]]) -> list[str]:
    return [device["name"].removeprefix("paged-") for device in devices]


def test_devices_are_sorted_by_name_last_report_and_rate(fleet: tuple[httpx.Client, int]) -> None:
    client, _ = fleet

    def check(sort: str, *want: str) -> None:
        assert names(listed(client, sort=sort)) == list(want)

    check("name", "fast", "gone", "never", "slow")
    check("-name", "slow", "never", "gone", "fast")
    check("-last_seen", "slow", "fast", "gone", "never")
    check("last_seen", "gone", "fast", "slow", "never")
    check("-rate", "fast", "slow", "gone", "never")


def test_states_are_what_the_devices_did(fleet: tuple[httpx.Client, int]) -> None:
    client, _ = fleet

    def check(state: str, *want: str) -> None:
        assert names(listed(client, state=state)) == list(want)

    check("online", "fast", "slow")
    check("stale", "gone", "never")
    check("hot")


def test_each_device_comes_with_its_activity(fleet: tuple[httpx.Client, int]) -> None:
    client, at = fleet
    found = {device["name"]: device["activity"] for device in listed(client, activity="true", sort="name")}
    slow, gone, fast = found["paged-slow"], found["paged-gone"], found["paged-fast"]
    assert slow["last_seen"].startswith(time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at / 1000)))
    assert (slow["online"], gone["online"], slow["hot"]) == (True, False, False)
    assert fast["reports_per_s"] == pytest.approx(10.0, rel=0.05)
    assert found["paged-never"] == {"last_seen": None, "reports_per_s": 0.0, "online": False, "hot": False}
    (plain,) = listed(client, q="paged-never")
    assert "activity" not in plain


def test_counts_are_those_of_the_devices_that_match(fleet: tuple[httpx.Client, int]) -> None:
    client, _ = fleet
    found = client.get("/v1/devices/counts", params={"q": "hall paged"}).json()
    assert found == {
        "total": 4,
        "online": 2,
        "stale": 2,
        "hot": 0,
        "types": [{"type": "paged", "count": 4}],
        "locations": [{"location": "Hall Ä", "count": 4}],
    }
    assert client.get("/v1/devices/counts", params={"type": "paged", "q": "FAST ä"}).json()["total"] == 1


def test_a_tenant_finds_no_device_of_another(site: Site, fleet: tuple[httpx.Client, int]) -> None:
    client, _ = fleet
    assert "of-umbra" not in names(listed(client, sort="-last_seen"))
    assert names(listed(site.client(Role.READ, "umbra"), sort="-rate")) == ["of-umbra"]
    for path in ("/v1/devices?sort=name", "/v1/devices/counts"):
        assert client.get(path, params={"tenant": "umbra"}).status_code == 403


def test_a_device_that_was_registered_or_deleted_a_moment_ago_is_found_or_gone(site: Site) -> None:
    admin = site.client(Role.ADMIN)
    for _ in range(3):
        assert admin.post("/v1/devices/batch", json={"devices": [{"name": "momentary"}]}).status_code == 200
        assert [one["name"] for one in listed(admin, q="momentary", sort="-rate")] == ["momentary"]
        assert admin.delete("/v1/devices/momentary").status_code == 204
        assert listed(admin, q="momentary", sort="name") == []


def test_a_device_may_have_the_name_of_the_counts(site: Site) -> None:
    admin = site.client(Role.ADMIN)
    assert admin.post("/v1/devices/batch", json={"devices": [{"name": "counts"}]}).status_code == 200
    assert admin.get("/v1/devices/%63ounts").json()["name"] == "counts"
    assert admin.patch("/v1/devices/counts", json={"type": "x"}).json()["type"] == "x"
    assert admin.delete("/v1/devices/counts").status_code == 204


def test_a_cursor_of_another_order_is_refused(fleet: tuple[httpx.Client, int]) -> None:
    client, _ = fleet
    after = client.get("/v1/devices", params={"q": "paged", "limit": 1, "sort": "rate"}).json()["next"]
    answer = client.get("/v1/devices", params={"sort": "name", "after": after})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "cursor")


def test_until_the_list_of_devices_is_made_a_page_has_its_order_or_is_refused(
    site: Site, fleet: tuple[httpx.Client, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = fleet
    monkeypatch.setattr(site.service.catalog.directories, "at_hand", lambda *_: None)
    for sort in ("name", "-name", "rate"):
        answer = client.get("/v1/devices", params={"type": "paged", "sort": sort, "limit": 2})
        assert (answer.status_code, answer.headers["retry-after"].isdigit()) == (503, True)
    found = client.get("/v1/devices", params={"type": "paged", "sort": "name", "limit": 4}).json()
    assert (names(found["devices"]), found["next"]) == (["fast", "gone", "never", "slow"], None)
    assert sorted(names(listed(client, q=[], type="paged"))) == ["fast", "gone", "never", "slow"]
