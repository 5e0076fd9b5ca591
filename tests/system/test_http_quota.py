"""Limits over HTTP: what fits is kept, what does not is explained, and neighbours do not notice."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest

from system.conftest import Site, now_ms
from widerow.model.token import Role


@pytest.fixture
def tight(site: Site) -> str:
    """A tenant that may send five reports at once, and then one a second."""
    return limited(site)


def limited(site: Site, mode: str = "enforce", burst: int = 5) -> str:
    name = f"tight-{uuid4().hex[:8]}"
    form = {"name": name, "limits": {"writes_per_s": 1, "writes_burst": burst}, "limit_modes": {"writes_per_s": mode}}
    answer = site.client(Role.OPERATOR).post("/v1/admin/tenants", json=form)
    assert answer.status_code == 201, answer.text
    return name


def made(site: Site, **limits: int) -> str:
    """A tenant with other limits."""
    name = f"made-{uuid4().hex[:8]}"
    answer = site.client(Role.OPERATOR).post("/v1/admin/tenants", json={"name": name, "limits": limits})
    assert answer.status_code == 201, answer.text
    return name


def send(site: Site, devices: list[str], tenant: str = "acme") -> httpx.Response:
    start = now_ms()
    reports = [{"device": name, "time": start - i, "values": {"x": i}} for i, name in enumerate(devices)]
    return site.client(Role.OPERATOR).post("/v1/write", json=reports, params={"tenant": tenant})


def lines(site: Site, devices: list[str], tenant: str = "acme") -> httpx.Response:
    start = now_ms()
    body = "\n".join(f"m,device={name} x=1 {start - i}" for i, name in enumerate(devices))
    return site.client(Role.OPERATOR).post("/write", params={"precision": "ms", "tenant": tenant}, content=body)


def names_of(site: Site, tenant: str) -> set[str]:
    answer = site.client(Role.OPERATOR).get("/v1/devices", params={"tenant": tenant})
    return {device["name"] for device in answer.json()["devices"]}


def test_what_is_over_a_tenants_limit_is_refused_and_the_rest_is_kept(site: Site, tight: str) -> None:
    devices = [f"over-{i:03}" for i in range(100)]
    answer = send(site, devices, tight)
    assert answer.status_code == 207
    told = answer.json()
    assert (told["accepted"], told["refused"]) == (5, 95)
    first = told["refusals"][0]
    assert (first["index"], first["code"], first["limit"], first["allowed"]) == (5, "writes-limit", "writes_per_s", 1)
    assert 0 < first["retry_after_s"] <= 5
    assert 1 <= int(answer.headers["retry-after"]) <= 5
    assert names_of(site, tight) == set(devices[:5]), "what is refused registers nothing"
    statuses = [send(site, ["over-000"], tight).status_code for _ in range(20)]
    assert 429 in statuses, "when nothing fits"
    assert send(site, ["other"] * 50).status_code == 204, "its neighbour does not notice"


def test_a_batch_of_lines_is_kept_whole_or_refused_whole(site: Site, tight: str) -> None:
    assert lines(site, [f"line-{i}" for i in range(5)], tight).status_code == 204
    refused = lines(site, [f"line-{i}" for i in range(5, 10)], tight)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert "writes_per_s allows 1" in refused.json()["message"]
    assert names_of(site, tight) == {f"line-{i}" for i in range(5)}


def test_lines_that_are_sent_again_until_their_tenant_may_send_them_spend_nothing_of_their_devices(site: Site) -> None:
    tenant, operator = limited(site, burst=60), site.client(Role.OPERATOR)
    devices = [*["meter"] * 5, *["other"] * 50]
    assert lines(site, ["meter"], tenant).status_code == 204
    slow = operator.patch("/v1/devices/meter", params={"tenant": tenant}, json={"profile": {"max_reports_per_s": 0.05}})
    assert slow.status_code == 200, slow.text
    assert lines(site, ["other"] * 59, tenant).status_code == 204
    assert [lines(site, devices, tenant).status_code for _ in range(4)] == [429] * 4, "twenty, of a device that may send ten"
    wide = operator.patch(f"/v1/admin/tenants/{tenant}", json={"limits": {"writes_per_s": 1000}})
    assert wide.status_code == 200, wide.text
    while (answer := lines(site, devices, tenant)).status_code == 429:  # until it is known
        pass
    assert answer.status_code == 204, answer.text


def test_one_old_line_does_not_let_live_ones_spend_what_backlog_may(site: Site, tight: str) -> None:
    hours_ago = now_ms() - 2 * 3600_000

    def mixed(count: int) -> int:
        body = "\n".join([f"m,device=old x=1 {hours_ago}", *(f"m,device=new x=1 {now_ms() - i}" for i in range(count))])
        client = site.client(Role.OPERATOR)
        return client.post("/write", params={"precision": "ms", "tenant": tight}, content=body).status_code

    assert lines(site, ["new"] * 5, tight).status_code == 204
    assert mixed(4) == 429
    assert mixed(0) == 204, "backlog has a budget of its own"


def test_a_device_over_its_limit_is_refused_and_its_neighbours_are_kept(site: Site) -> None:
    admin = site.client(Role.ADMIN)
    assert send(site, ["mad", "calm"]).status_code == 204
    answer = admin.patch("/v1/devices/mad", json={"profile": {"max_reports_per_s": 0.01}})
    assert answer.status_code == 200, answer.text
    told = send(site, ["mad", "calm"] * 20)
    assert told.status_code == 207
    refusals = told.json()["refusals"]
    assert {(r["code"], r["limit"], r["allowed"]) for r in refusals} == {("device-rate", "device_reports_per_s", 0.01)}
    assert told.json()["refused"] == 10
    assert {r["index"] % 2 for r in refusals} == {0}
    mixed = lines(site, ["mad", "calm"])
    assert mixed.status_code == 400
    assert "dropped=1" in mixed.json()["message"]


def test_a_tenant_whose_storage_is_full_is_told_how_much_it_has_and_when_to_come_again(site: Site) -> None:
    tenant = made(site, storage_bytes=10)
    assert send(site, ["d"] * 3, tenant).status_code == 204, "what it has is not known yet"
    site.service.storage.refresh()
    answer = send(site, ["d"] * 3, tenant)
    assert answer.status_code == 429
    told = answer.json()
    assert (told["accepted"], told["refused"]) == (0, 3)
    fields = [(r["index"], r["code"], r["limit"], r["allowed"], r["retry_after_s"]) for r in told["refusals"]]
    assert fields == [(i, "storage-limit", "storage_bytes", 10, 60) for i in range(3)]
    assert told["refusals"][0]["seen"] > 10
    assert answer.headers["retry-after"] == "60"
    refused = lines(site, ["d"], tenant)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
    assert "limits.storage_bytes allows 10, saw" in refused.json()["message"]


def test_a_series_too_many_is_refused_with_its_limit_and_known_ones_are_kept(site: Site) -> None:
    tenant = made(site, series=2)
    assert send(site, ["a", "b"], tenant).status_code == 204
    site.service.house.learn_series()
    answer = send(site, ["a", "c", "b", "d"], tenant)
    assert answer.status_code == 207
    told = answer.json()
    assert (told["accepted"], told["refused"]) == (2, 2)
    fields = [(r["index"], r["code"], r["limit"], r["allowed"], r["seen"]) for r in told["refusals"]]
    assert fields == [(1, "series-limit", "series", 2, 3), (3, "series-limit", "series", 2, 3)]
    assert "retry-after" not in answer.headers, "waiting does not help"
    assert send(site, ["c"], tenant).status_code == 422
    assert lines(site, ["a", "c"], tenant).status_code == 400


def test_a_limit_in_shadow_refuses_nothing(site: Site) -> None:
    tenant = limited(site, "shadow")
    assert send(site, ["shadowed"] * 8, tenant).status_code == 204
    shown = site.client(Role.OPERATOR).get("/metrics").text
    assert f'widerow_reports_shadowed_total{{limit="writes_per_s",tenant="{tenant}"}} 3.0' in shown
    wrong = site.client(Role.OPERATOR).patch(f"/v1/admin/tenants/{tenant}", json={"limit_modes": {"writes_per_s": "maybe"}})
    assert wrong.status_code == 400
    assert "enforce, shadow, off" in wrong.json()["error"]["message"]
