"""Erased data stays erased: after a restart, and when the same reports come again with their old versions."""

from __future__ import annotations

from pathlib import Path

import httpx

from widerow.codec.arrow import encode_arrow
from widerow.config import Config, Store
from widerow.model.batch import Report, batch_of
from widerow.model.tenant import Tenant
from widerow.model.times import MINUTE, SECOND, whole_ms
from widerow.model.token import Role
from widerow.server.run import running
from widerow.service import Service

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}


def test_what_was_erased_does_not_come_back(tmp_path: Path) -> None:
    config = Config(store=Store(url=f"rocksdb:{tmp_path}", reserve_mib=0))
    with Service.open(config) as service:
        tenant = service.create_tenant(Tenant(name="acme"))
        token, _ = service.catalog.tokens.create(Role.ADMIN, tenant=tenant.name)
        now_us = service.clock.now_us()
        version_us = whole_ms(now_us - SECOND)
        old = [Report(d, now_us - i * MINUTE, {"x": float(i)}, {}, version_us) for d in ("gone", "kept") for i in range(3)]
        replay = encode_arrow(batch_of(old))
        with running(service) as url, client(url, token) as http:
            assert http.post("/v1/write", content=replay, headers=ARROW).status_code == 204
            assert points(http, "gone") == 3
            assert http.delete("/v1/devices/gone").status_code == 204
            assert http.get("/v1/devices/gone/series").status_code == 404
            check_replay(http, replay)
    with Service.open(config) as service, running(service) as url, client(url, token) as http:
        check_replay(http, replay)
        service.house.purge()
        check_replay(http, replay)
        fresh = {"device": "gone", "time": (now_us - 5 * MINUTE) // 1000, "values": {"x": 7}}
        assert http.post("/v1/write", json=fresh).status_code == 204
        assert points(http, "gone") == 1


def client(url: str, token: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30)


def check_replay(http: httpx.Client, replay: bytes) -> None:
    """The same reports with their old versions: those of the erased device are refused, and none of it can be read."""
    answer = http.post("/v1/write", content=replay, headers=ARROW)
    assert answer.status_code == 207
    assert answer.json()["accepted"] == answer.json()["refused"] == 3
    assert {r["code"] for r in answer.json()["refusals"]} == {"erased"}
    latest = http.post("/v1/latest", json={"devices": ["gone", "kept"]}).json()["series"]
    assert {series["device"] for series in latest} == {"kept"}
    assert points(http, "kept") == 3


def points(http: httpx.Client, device: str) -> int:
    answer = http.get(f"/v1/devices/{device}/series", params={"start": "-1h", "end": "+1m"})
    return sum(len(series["points"]) for series in answer.json()["series"])
