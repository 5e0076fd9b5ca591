"""Dead letters over HTTP: found, shown, sent again after what was wrong is mended, and removed."""

from __future__ import annotations

import csv
import gzip
import io
import json
from base64 import b64decode
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from system.conftest import OWN_DEVICE, Site, now_ms
from widerow.model.tenant import Tenant
from widerow.model.token import Role

LETTERS = "/v1/deadletters"


@pytest.fixture(autouse=True)
def _nothing_left(site: Site) -> None:
    site.service.dead_letters.forget("acme")
    site.service.dead_letters.forget("umbra")


def listed(site: Site, **params: Any) -> list[dict[str, Any]]:
    answer = site.client().get(LETTERS, params=params)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["letters"]
    return found


def shown(site: Site, letter: str) -> dict[str, Any]:
    answer = site.client().get(f"{LETTERS}/{letter}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def replayed(site: Site, **form: Any) -> dict[str, Any]:
    answer = site.client().post(f"{LETTERS}/replay", json=form)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_body_that_cannot_be_read_is_found_with_its_reason_and_its_bytes(site: Site) -> None:
    client = site.client(Role.WRITE)
    for content in (b'{"device": "d"', b"\xff\xfe"):
        assert client.post("/v1/write?precision=s", content=content).status_code == 400
    packed = gzip.compress(b"neither")
    assert client.post("/v1/write", content=packed, headers={"Content-Encoding": "gzip"}).status_code == 400
    compressed, binary, text = listed(site)
    assert (text["code"], text["source"], text["precision"], text["reports"]) == ("syntax", "http", "s", 0)
    assert "not JSON" in text["reason"]
    assert (shown(site, text["id"])["body"], shown(site, text["id"])["body_form"]) == ('{"device": "d"', "text")
    assert b64decode(shown(site, binary["id"])["body"]) == b"\xff\xfe"
    assert compressed["encoding"] == "gzip"
    assert b64decode(shown(site, compressed["id"])["body"]) == packed
    assert listed(site, code="future") == []


def test_of_refused_reports_only_their_own_bytes_are_kept(site: Site) -> None:
    at = now_ms()
    reports = [
        {"device": "kept", "time": at, "values": {"a": 1}},
        {"device": "kept", "time": at + 86_400_000, "values": {"a": 2}},
        {"device": "", "time": at, "values": {"a": 3}},
    ]
    assert site.client(Role.WRITE).post("/v1/write", json=reports).status_code == 207
    by_code = {letter["code"]: shown(site, letter["id"]) for letter in listed(site)}
    assert set(by_code) == {"future", "name"}
    assert json.loads(by_code["future"]["body"]) == [reports[1]]
    assert (json.loads(by_code["name"]["body"]), by_code["name"]["positions"]) == ([reports[2]], [2])
    lines = f"m,device=kept a=1 {at}\nm a=2 {at}\nm,device=kept a=nan {at}"
    assert site.client(Role.WRITE).post("/write?precision=ms", content=lines).status_code == 400
    texts = {letter["code"]: shown(site, letter["id"])["body"] for letter in listed(site)[:2]}
    assert texts == {"device-missing": f"m a=2 {at}", "not-finite": f"m,device=kept a=nan {at}"}


def test_a_replay_after_the_fix_stores_the_reports_and_removes_the_letter(site: Site) -> None:
    device, other = f"unknown-{uuid4().hex[:8]}", f"unknown-{uuid4().hex[:8]}"
    tenants = site.service.catalog.tenants
    tenants.update("acme", lambda t: replace(t, registers_devices=False))
    try:
        at = now_ms()
        lines = f"m,device={device} a=1 {at}\nm,device={other} a=2"
        assert site.client(Role.WRITE).post("/write?precision=ms", content=lines).status_code == 400
        (letter,) = listed(site)
        assert (letter["code"], letter["reports"]) == ("unknown-device", 2)
        refused = replayed(site, ids=[letter["id"]])
        assert (refused["stored"], refused["refused"], refused["letters"][0]["code"]) == (0, 1, "unknown-device")
        site.client().post("/v1/devices/batch", json={"devices": [{"name": device}]})
        half = replayed(site, code="unknown-device")
        assert (half["stored"], half["refused"], half["reports"]) == (0, 1, 1)
        (left,) = listed(site)
        assert (left["id"], left["reports"], left["replays"]) == (letter["id"], 1, 2)
        assert shown(site, left["id"])["body"] == f"m,device={other} a=2"
        assert site.values(device) == {"m_a": 1.0}
        site.client().post("/v1/devices/batch", json={"devices": [{"name": other}]})
        assert replayed(site, all=True)["stored"] == 1
        assert listed(site) == []
        answer = site.client(Role.READ).get(f"/v1/devices/{other}/latest").json()
        assert answer["series"][0]["points"][0][0][:19] == letter["filed"][:19], "the time it came first"
    finally:
        tenants.update("acme", lambda t: replace(t, registers_devices=True))


def test_contradicting_reports_are_sent_again_only_when_asked_for(site: Site) -> None:
    device = f"torn-{uuid4().hex[:8]}"
    reports = [{"device": device, "time": now_ms(), "values": {"a": value}} for value in (1, 2)]
    assert site.client(Role.WRITE).post("/v1/write", json=reports).status_code == 207
    assert site.values(device) == {"a": 1.0}
    for form in ({"all": True}, {"code": "conflict"}):
        answer = replayed(site, **form)
        assert (answer["letters"], answer["conflicts"], answer["next"]) == ([], 1, None)
    assert len(listed(site)) == 1
    answer = replayed(site, all=True, conflicts=True)
    assert (answer["stored"], answer["conflicts"]) == (1, 0)
    assert site.values(device) == {"a": 2.0}, "it was asked for"


def test_a_device_token_gains_nothing_by_a_replay(site: Site) -> None:
    report = {"device": "someone-else", "time": now_ms(), "values": {"a": 1}}
    assert site.client(Role.DEVICE).post("/v1/write", json=report).status_code == 422
    (letter,) = listed(site)
    assert (letter["code"], letter["device"]) == ("wrong-device", OWN_DEVICE)
    assert replayed(site, all=True)["refused"] == 1
    assert site.client().get("/v1/devices/someone-else").status_code == 404


def test_a_letter_that_was_cut_says_so_and_is_not_sent_again(site: Site) -> None:
    assert site.client(Role.WRITE).post("/v1/write", content=b"[" + b" " * 100_000).status_code == 400
    (letter,) = listed(site)
    assert (letter["kept"], letter["bytes"]) == ("cut", 64 << 10)
    answer = replayed(site, all=True)["letters"][0]
    assert (answer["outcome"], "part" in answer["reason"]) == ("refused", True)
    assert len(listed(site)) == 1


def test_letters_come_in_pages_and_as_a_table(site: Site) -> None:
    for n in range(5):
        site.client(Role.WRITE).post("/v1/write", content=f"broken {n}")
        assert site.service.dead_letters.settle()
    first = site.client().get(LETTERS, params={"limit": 2}).json()
    rest = site.client().get(LETTERS, params={"after": first["next"]}).json()
    assert [len(first["letters"]), len(rest["letters"]), rest["next"]] == [2, 3, None]
    ids = [letter["id"] for letter in first["letters"] + rest["letters"]]
    assert ids == sorted(ids, reverse=True)
    table = site.client().get(LETTERS, headers={"Accept": "text/csv"}).text
    assert [row["id"] for row in csv.DictReader(io.StringIO(table))] == ids
    assert listed(site, since="-1h", until="-1m") == []
    bad = site.client().get(LETTERS, params={"after": "x"})
    assert (bad.status_code, bad.json()["error"]["code"]) == (400, "cursor")


def test_letters_are_removed_by_id_by_match_and_all_but_never_by_oversight(site: Site) -> None:
    write, admin = site.client(Role.WRITE), site.client()
    for n in range(3):
        write.post("/v1/write", content=f"broken {n}")
    write.post("/v1/write", json={"device": "d", "time": now_ms() + 86_400_000, "values": {"a": 1}})
    write.post("/v1/write", content="one more")
    ids = [letter["id"] for letter in listed(site, code="syntax")]
    assert admin.delete(LETTERS).status_code == 400
    assert admin.post(f"{LETTERS}/replay", json={}).status_code == 400
    assert admin.delete(LETTERS, params={"id": ids[:2]}).json() == {"deleted": 2, "more": False}
    assert admin.delete(LETTERS, params={"code": "future"}).json()["deleted"] == 1
    assert admin.delete(LETTERS, params={"until": "-1h"}).json()["deleted"] == 0
    assert {letter["id"] for letter in listed(site)} == set(ids[2:])
    assert admin.delete(LETTERS, params={"all": "true"}).json()["deleted"] == 2
    assert listed(site) == []
    gone = admin.get(f"{LETTERS}/{ids[0]}")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not-found")
    assert replayed(site, ids=[ids[0], "x"])["letters"] == [
        {"id": i, "outcome": "not-found", "accepted": 0} for i in sorted([ids[0], "x"])
    ]


def test_what_is_nobodys_fault_or_was_erased_leaves_no_letter(site: Site) -> None:
    client = site.client(Role.WRITE)
    assert client.post("/v1/write", content="x", headers={"Content-Type": "text/html"}).status_code == 415
    assert client.post("/v1/write", content="").status_code == 400
    assert site.client(Role.READ).post("/v1/write", content="x").status_code == 403
    assert listed(site) == []


def test_the_letters_of_a_deleted_tenant_are_gone_when_its_name_comes_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("widerow.service._HEARD", 0)  # there are no other processes to wait for
    name = f"brief-{uuid4().hex[:8]}"
    service = site.service
    service.create_tenant(Tenant(name=name))
    client = site.client(Role.OPERATOR)
    assert client.post(f"/v1/write?tenant={name}", content="broken").status_code == 400
    assert len(client.get(LETTERS, params={"tenant": name}).json()["letters"]) == 1
    service.delete_tenant(name)
    service.house.purge()
    assert list(service.dead_letters.store.newest(name)) == []
