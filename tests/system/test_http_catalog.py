"""Devices, metrics, tenants and tokens over HTTP."""

from __future__ import annotations

import csv
import io
import json
import time
from dataclasses import replace
from typing import Any

import pytest

from system.conftest import Site, now_ms
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.model.token import Role
from widerow.schema.tables import DEVICE_VERSIONS


def test_a_device_is_changed_key_by_key(site: Site) -> None:
    site.write("patched", {"a": 1})
    client = site.client()
    first = client.patch("/v1/devices/patched", json={"type": "pump", "tags": {"hall": "3", "row": "1"}})
    assert first.status_code == 200
    second = client.patch("/v1/devices/patched", json={"location": "Linz", "tags": {"row": None}}).json()
    assert (second["type"], second["location"], second["tags"]) == ("pump", "Linz", {"hall": "3"})
    unknown = client.patch("/v1/devices/patched", json={"colour": "red"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (400, "field")


def test_what_was_read_can_be_sent_back(site: Site) -> None:
    site.write("returned", {"a": 1})
    client = site.client()
    shown = client.get("/v1/devices/returned").json()
    assert client.patch("/v1/devices/returned", json=shown).json() == shown
    assert client.post("/v1/devices/batch", json={"devices": [shown]}).json()["updated"] == 1


def test_a_change_to_something_else_than_was_read_is_refused(site: Site) -> None:
    site.write("tagged", {"a": 1})
    client = site.client()
    etag = client.get("/v1/devices/tagged").headers["ETag"]
    changed = client.patch("/v1/devices/tagged", json={"type": "one"}, headers={"If-Match": etag})
    assert changed.status_code == 200
    assert changed.headers["ETag"] != etag
    stale = client.patch("/v1/devices/tagged", json={"type": "two"}, headers={"If-Match": etag})
    assert (stale.status_code, stale.json()["error"]["code"]) == (412, "conflict")
    assert client.delete("/v1/devices/tagged", headers={"If-Match": etag}).status_code == 412
    assert client.delete("/v1/devices/tagged", headers={"If-Match": '"nonsense"'}).status_code == 412
    assert client.delete("/v1/devices/tagged", headers={"If-Match": changed.headers["ETag"]}).status_code == 204


def test_a_stale_delete_erases_nothing(site: Site) -> None:
    site.write("spared-by-etag", {"a": 1})
    client = site.client()
    assert client.patch("/v1/devices/spared-by-etag", json={"type": "pump"}).status_code == 200
    assert client.delete("/v1/devices/spared-by-etag", headers={"If-Match": '"1"'}).status_code == 412
    assert site.values("spared-by-etag") == {"a": 1.0}
    assert len(states(site, "spared-by-etag")) == 2


def states(site: Site, device: str) -> list[dict[str, Any]]:
    """What a reader is shown of a device's history."""
    answer = site.client(Role.READ).get(f"/v1/devices/{device}/history")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["states"]
    return found


def test_a_device_shows_what_it_was_and_when(site: Site) -> None:
    site.write("moved", {"a": 1})
    client = site.client()
    (first,) = states(site, "moved")
    assert (first["revision"], first["from"], first["until"]) == (1, first["created"], None)
    client.patch("/v1/devices/moved", json={"location": "Hall 1", "tags": {"line": "L1"}})
    client.patch("/v1/devices/moved", json={"location": "Hall 1"})
    client.post("/v1/devices/batch", json={"devices": [{"name": "moved", "location": "Hall 2"}]})
    shown = states(site, "moved")
    assert [(s["revision"], s["location"], s["tags"]) for s in shown] == [
        (3, "Hall 2", {}),
        (2, "Hall 1", {"line": "L1"}),
        (1, "", {}),
    ]
    assert [s["until"] for s in shown] == [None, shown[0]["from"], shown[1]["from"]]
    assert first["created"] == shown[2]["from"] < shown[1]["from"] < shown[0]["from"]
    current = client.get("/v1/devices/moved").json()
    assert {**shown[0], "placement": [], "online": None} == {**current, "from": shown[0]["from"], "until": None}
    table = client.get("/v1/devices/moved/history", headers={"Accept": "text/csv"}).text.splitlines()
    assert len(table) == 4
    assert {"revision", "from", "until", "location"} <= set(table[0].split(","))
    assert client.get("/v1/devices/never-seen/history").status_code == 404


def test_a_device_whose_hardware_is_swapped_stays_the_device_it_was(site: Site) -> None:
    site.write("place", {"a": 1})
    client = site.client()
    assert client.get("/v1/devices/place").json()["hardware"] == []
    for hardware, note in (("SN-1", ""), ("SN-2", "burnt out"), ("SN-2", "told twice")):
        answer = client.post("/v1/devices/place/swap", json={"hardware": hardware, "note": note})
        assert answer.status_code == 200, answer.text
    site.write("place", {"a": 2})
    assert site.values("place") == {"a": 2.0}
    now, before = client.get("/v1/devices/place").json()["hardware"]
    assert (now["id"], now["note"], before["id"]) == ("SN-2", "burnt out", "SN-1")
    assert now["since"] > before["since"]
    assert [[h["id"] for h in s["hardware"]] for s in states(site, "place")] == [["SN-2", "SN-1"], ["SN-1"], []]
    client.post("/v1/devices/batch", json={"devices": [{"name": "place", "location": "Hall 2"}]})
    form = client.get("/v1/devices/place").json()
    assert [h["id"] for h in form["hardware"]] == ["SN-2", "SN-1"], "another description is not another piece"
    assert client.patch("/v1/devices/place", json=form).status_code == 200
    assert client.patch("/v1/devices/place", json={"hardware": []}).json()["error"]["code"] == "field"
    for bad in (
        {},
        {"hardware": ""},
        {"hardware": "SN-3", "since": "2999-01-01T00:00:00Z"},
        {"hardware": "SN-3", "since": "-9d"},
    ):
        assert client.post("/v1/devices/place/swap", json=bad).status_code == 400, bad
    assert client.post("/v1/devices/place/swap", json={"hardware": "x"}, headers={"If-Match": '"1"'}).status_code == 412
    assert client.post("/v1/devices/never-seen/swap", json={"hardware": "x"}).status_code == 404


def test_a_device_shows_how_it_is_stored_and_what_it_sends(site: Site) -> None:
    client = site.client()
    for n in range(3):
        site.write("watched", {"a": n, "b": 1}, time_ms=now_ms() - n * 1_000_000)
    shown = client.get("/v1/devices/watched/placement").json()
    assert (shown["bucket"], shown["sub_buckets"], shown["epochs"]) == ("1h", 1, [])
    assert 0 < shown["observed"]["reports_per_s"] < 0.01
    assert shown["observed"]["values_per_report"] == 2
    assert client.patch("/v1/devices/watched", json={"profile": {"reports_per_s": 5}}).status_code == 200
    shown = client.get("/v1/devices/watched/placement").json()
    assert shown["bucket"] == "1h", "the epoch is still to come"
    assert [(e["bucket"], e["reason"]) for e in shown["epochs"]] == [("15m", "declared rate: 5 reports/s")]
    assert shown["epochs"] == client.get("/v1/devices/watched").json()["placement"]
    assert client.get("/v1/devices/never-seen/placement").status_code == 404


def test_a_history_has_ten_former_states_and_ends_with_its_device(site: Site) -> None:
    site.write("restless", {"a": 1})
    client = site.client()
    for n in range(25):
        assert client.patch("/v1/devices/restless", json={"location": f"{n}"}).status_code == 200
    assert [s["location"] for s in states(site, "restless")] == [str(24 - n) for n in range(11)]
    assert all(s["from"] for s in states(site, "restless"))
    assert sum(map(len, site.service.engine.scan(DEVICE_VERSIONS, [("acme", "restless")]))) <= 20
    assert client.delete("/v1/devices/restless").status_code == 204
    assert client.get("/v1/devices/restless/history").status_code == 404
    assert not [rows for rows in site.service.engine.scan(DEVICE_VERSIONS, [("acme", "restless")]) if len(rows)]
    site.write("restless", {"a": 1})
    assert [s["location"] for s in states(site, "restless")] == [""]
    for n in range(12):
        assert client.patch("/v1/devices/restless", json={"location": f"again {n}"}).status_code == 200
    assert [s["location"] for s in states(site, "restless")] == [f"again {11 - n}" for n in range(11)]
    site.service.house.purge()
    assert len(states(site, "restless")) == 11


def test_a_deleted_tenant_leaves_no_history(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("widerow.service._HEARD", 0)  # there are no other processes to wait for
    service = site.service
    tenant = service.create_tenant(Tenant(name="left"))
    service.catalog.devices.register(tenant, Names.of(["a", "b"]))
    for name in ("a", "b"):
        service.catalog.devices.update("left", name, lambda device: replace(device, location="hall"))
    service.delete_tenant("left")
    service.house.purge()
    tenants = {
        rows.key(DEVICE_VERSIONS, i)[0] for rows in service.engine.scan(DEVICE_VERSIONS, None) for i in range(len(rows))
    }
    assert "left" not in tenants
    tenant = service.create_tenant(Tenant(name="left"))
    service.catalog.devices.register(tenant, Names.of(["a"]))
    service.catalog.devices.update("left", "a", lambda device: replace(device, location="roof"))
    assert [state.device.location for state in service.catalog.devices.history("left", "a")] == ["roof", ""]
    service.delete_tenant("left")


def test_a_declared_rate_gives_a_device_other_buckets(site: Site) -> None:
    site.write("fast", {"a": 1})
    client = site.client()
    assert client.get("/v1/devices/fast").json()["placement"] == []
    profile = {"profile": {"reports_per_s": 5}}
    placement = client.patch("/v1/devices/fast", json=profile).json()["placement"]
    assert [(epoch["bucket"], epoch["sub_buckets"]) for epoch in placement] == [("15m", 1)]
    assert client.patch("/v1/devices/fast", json={**profile, "type": "pump"}).json()["placement"] == placement
    heavier = client.patch("/v1/devices/fast", json={"profile": {"metrics_per_report": 100}}).json()
    assert [(epoch["bucket"], epoch["sub_buckets"]) for epoch in heavier["placement"]] == [("15m", 1), ("15m", 8)]
    too_much = client.patch("/v1/devices/fast", json={"profile": {"reports_per_s": 1e6}})
    assert (too_much.status_code, too_much.json()["error"]["code"]) == (400, "profile")
    batch = client.post("/v1/devices/batch", json={"devices": [{"name": "slow", "profile": {"reports_per_s": 0.001}}]})
    assert batch.json()["created"] == 1
    assert client.get("/v1/devices/slow").json()["placement"][0]["bucket"] == "6h"


def test_a_batch_stores_the_good_and_names_the_bad(site: Site) -> None:
    client = site.client()

    def check(devices: list[Any], status: int, outcomes: list[str]) -> None:
        answer = client.post("/v1/devices/batch", json={"devices": devices})
        assert answer.status_code == status
        assert [result["outcome"] for result in answer.json()["results"]] == outcomes
        assert [result["index"] for result in answer.json()["results"]] == list(range(len(devices)))

    check([{"name": "batch-1", "type": "fan"}, {"name": "batch-2"}], 200, ["created", "created"])
    check([{"name": "batch-1"}, {"name": "a\nb"}, {"name": "batch-3", "tags": 7}, 5], 207, ["updated"] + ["refused"] * 3)
    check([{}], 422, ["refused"])
    assert client.get("/v1/devices/batch-1").json()["type"] == ""
    assert client.get("/v1/devices/batch-3").status_code == 404


def test_pages_of_devices_join_to_the_whole(site: Site) -> None:
    names = {f"page-{i:03d}" for i in range(25)}
    client = site.client()
    assert client.post("/v1/devices/batch", json={"devices": [{"name": name} for name in names]}).status_code == 200
    seen: list[str] = []
    parameters = {"prefix": "page-", "limit": "10"}
    while True:
        page = client.get("/v1/devices", params=parameters).json()
        seen += [device["name"] for device in page["devices"]]
        if page["next"] is None:
            break
        parameters["after"] = page["next"]
    assert len(seen) == 25
    assert set(seen) == names


def test_a_deleted_device_takes_its_data_along_and_may_come_back_empty(site: Site) -> None:
    at = site.write("phoenix", {"old": 1})
    assert site.client().delete("/v1/devices/phoenix").status_code == 204
    assert site.client().get("/v1/devices/phoenix/latest").status_code == 404
    site.write("phoenix", {"new": 2}, time_ms=at + 1)
    assert site.values("phoenix") == {"new": 2.0}


def test_metrics_are_described_by_their_first_report_and_by_people(site: Site) -> None:
    site.write("described", {"flow_total": 1, "mode": "eco"})
    client = site.client()
    kinds = {metric["name"]: metric["kind"] for metric in client.get("/v1/metrics").json()["metrics"]}
    assert (kinds["flow_total"], kinds["mode"]) == ("counter", "text")
    patched = client.patch("/v1/metrics/flow_total", json={"unit": "m3", "description": "since start"})
    assert (patched.json()["unit"], patched.json()["revision"]) == ("m3", 2)
    assert client.patch("/v1/metrics/flow_total", json={}, headers={"If-Match": '"1"'}).status_code == 412
    assert client.delete("/v1/metrics/flow_total").status_code == 204
    assert client.get("/v1/metrics/flow_total").status_code == 404


def test_a_metric_is_erased_over_a_span_of_one_device(site: Site) -> None:
    at = now_ms() - 10_000
    for i in range(4):
        site.write("wiped", {"a": i, "b": i}, time_ms=at + 1000 * i)
        site.write("spared", {"a": i}, time_ms=at + 1000 * i)
    form = {"device": "wiped", "metric": "a", "start": at + 1000, "end": at + 3000}
    assert site.client().post("/v1/admin/erase", json=form).status_code == 204

    def values(device: str, metric: str) -> list[float]:
        answer = site.client(Role.READ).get(f"/v1/devices/{device}/series", params={"metrics": metric}).json()
        return [value for _, value in answer["series"][0]["points"]]

    assert values("wiped", "a") == [0, 3]
    assert values("wiped", "b") == [0, 1, 2, 3]
    assert values("spared", "a") == [0, 1, 2, 3]


def test_a_tenant_is_made_limited_and_deleted(site: Site) -> None:
    operator = site.client(Role.OPERATOR)
    made = operator.post("/v1/admin/tenants", json={"name": "brief", "limits": {"devices": 1}, "retention": {"raw": "7d"}})
    assert made.status_code == 201
    assert made.headers["Location"] == "/v1/admin/tenants/brief"
    assert operator.post("/v1/admin/tenants", json={"name": "brief"}).status_code == 409
    assert operator.post("/v1/admin/tenants", json={"name": "No Slug"}).status_code == 400
    token = operator.post("/v1/admin/tokens", json={"role": "write", "tenant": "brief"}).json()["token"]
    writer = site.client(None)
    writer.headers["Authorization"] = f"Bearer {token}"
    reports = [{"device": name, "values": {"a": 1}} for name in ("one", "two")]
    limited = writer.post("/v1/write", json=reports)
    assert limited.status_code == 207
    assert limited.json()["refusals"][0]["code"] == "device-limit"
    etag = operator.get("/v1/admin/tenants/brief").headers["ETag"]
    raised = operator.patch("/v1/admin/tenants/brief", json={"limits": {"devices": 2}}, headers={"If-Match": etag})
    assert raised.json()["limits"]["devices"] == 2
    assert operator.patch("/v1/admin/tenants/brief", json={}, headers={"If-Match": etag}).status_code == 412
    assert writer.post("/v1/write", json=reports).status_code == 204
    assert operator.delete("/v1/admin/tenants/brief").status_code == 204
    assert writer.post("/v1/write", json=reports).status_code == 401
    deadline = time.monotonic() + 10
    while operator.get("/v1/admin/tenants/brief").status_code != 404:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_reports_carry_the_attributes_their_tenant_wants_stored(site: Site) -> None:
    operator = site.client(Role.OPERATOR)
    operator.post("/v1/admin/tenants", json={"name": "mapped", "row_attributes": ["location", "type"]})
    token = operator.post("/v1/admin/tokens", json={"role": "admin", "tenant": "mapped"}).json()["token"]
    client = site.client(None)
    client.headers["Authorization"] = f"Bearer {token}"
    described = [{"name": "there", "location": "Linz", "type": "pump"}, {"name": "nowhere"}]
    assert client.post("/v1/devices/batch", json={"devices": described}).status_code == 200
    reports = [{"device": name, "values": {"a": 1}, "tags": {"shift": "2"}} for name in ("there", "nowhere")]
    assert client.post("/v1/write", json=reports).status_code == 204
    for name, tags in (("there", {"location": "Linz", "shift": "2", "type": "pump"}), ("nowhere", {"shift": "2"})):
        answer = client.get(f"/v1/devices/{name}/series", params={"tags": "true"}, headers={"Accept": "text/csv"})
        shown = list(csv.DictReader(io.StringIO(answer.text)))
        assert [{k: v for k, v in json.loads(row["tags"]).items() if k != "widerow_time"} for row in shown] == [tags]


def test_tokens_are_made_listed_and_revoked(site: Site) -> None:
    client = site.client()
    made = client.post("/v1/admin/tokens", json={"role": "device", "device": "press/7", "expires": "+90d"})
    assert made.status_code == 201
    token = made.json()
    assert (token["tenant"], token["device"]) == ("acme", "press/7")
    listed = {entry["id"]: entry for entry in client.get("/v1/admin/tokens").json()["tokens"]}
    assert listed[token["id"]] == {key: value for key, value in token.items() if key != "token"}
    assert client.delete(f"/v1/admin/tokens/{token['id']}").status_code == 204
    assert client.delete(f"/v1/admin/tokens/{token['id']}").status_code == 404


def test_an_operator_makes_tokens_of_any_tenant_that_exists(site: Site) -> None:
    client = site.client(Role.OPERATOR)
    assert client.post("/v1/admin/tokens", json={"role": "read"}).status_code == 400
    assert client.post("/v1/admin/tokens", json={"role": "read", "tenant": "nobody"}).status_code == 404
    assert client.post("/v1/admin/tokens?tenant=umbra", json={"role": "read"}).json()["tenant"] == "umbra"
    assert client.post("/v1/admin/tokens", json={"role": "operator"}).json()["tenant"] == ""
    assert {token["tenant"] for token in client.get("/v1/admin/tokens").json()["tokens"]} >= {"", "acme", "umbra"}
