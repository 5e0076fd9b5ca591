"""The dashboard's overview: the figures of those who ask, and of nobody else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from system.conftest import Site, now_ms
from widerow.model.token import Role

TENANT_FIGURES = {
    "ingestion_rate",
    "metrics_rate",
    "refused_rate",
    "quota_rejections",
    "hot_partitions",
    "devices_online",
}


def until(ask: Callable[[], Any], good: Callable[[Any], bool], patience_s: float = 20.0) -> Any:
    """The first good answer."""
    until_s = time.monotonic() + patience_s
    while not good(found := ask()):
        assert time.monotonic() < until_s, found
        time.sleep(0.2)
    return found


def overview(client: httpx.Client, **parameters: str) -> dict[str, Any]:
    answer = client.get("/v1/overview", params=parameters)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_an_overview_has_the_figures_of_what_was_just_sent(site: Site) -> None:
    at = now_ms()
    reports = [{"device": f"overview-{i}", "time": at, "values": {"a": 1.0, "b": 2.0}} for i in range(20)]
    ahead = [{"device": "overview-0", "time": at + 3_600_000, "values": {"a": 1.0}}]
    answer = site.client(Role.WRITE).post("/v1/write", json=reports + ahead)
    assert answer.status_code == 207, answer.text
    reader = site.client(Role.READ)
    found = until(lambda: overview(reader), lambda one: bool(one["refusals"] and one["figures"]["refused_rate"]["now"]))
    assert (found["scope"], found["role"]) == ("acme", "read")
    assert found["figures"].keys() == TENANT_FIGURES
    figures = {name: figure["now"] for name, figure in found["figures"].items()}
    assert figures["ingestion_rate"] >= 20 * figures["refused_rate"] * 0.99
    assert figures["devices_online"] == found["devices"]["online"] >= 20
    assert found["devices"]["total"] == found["devices"]["online"] + found["devices"]["stale"]
    assert "future" in [one["code"] for one in found["refusals"]]
    assert [len(figure["minutes"]) for figure in found["figures"].values()] == [60] * len(TENANT_FIGURES)


def test_an_operator_sees_all_tenants_and_the_process(site: Site) -> None:
    for tenant in ("acme", "umbra"):
        site.write("overview-both", {"a": 1.0}, tenant=tenant)
    operator = site.client(Role.OPERATOR)
    found = until(lambda: overview(operator), lambda one: {"acme", "umbra"} <= {t["name"] for t in one["tenants"]})
    assert found["scope"] == "all"
    assert {stage["name"]: stage["state"] for stage in found["stages"]}["mqtt"] == "unused"
    assert found["store"]["healthy"] is True
    assert found["figures"]["ingestion_latency_p99"]["limit"] == 0.05
    assert found["figures"]["batch_size_avg"]["limit"] is None  # at so few reports a second it is not judged
    assert overview(operator, tenant="umbra")["scope"] == "umbra"
    assert operator.get("/v1/overview", params={"tenant": "nobody"}).status_code == 404


@pytest.mark.parametrize("role", [Role.READ, Role.ADMIN])
def test_a_tenant_sees_nothing_of_another_in_its_overview(site: Site, role: Role) -> None:
    site.write("only-umbra-has-this", {"a": 1.0}, tenant="umbra")
    client = site.client(role)
    text = client.get("/v1/overview").text
    assert "umbra" not in text
    found = overview(client)
    assert ([tenant["name"] for tenant in found["tenants"]], found["stages"], found["store"]) == (["acme"], [], None)
    assert client.get("/v1/overview", params={"tenant": "umbra"}).status_code == 403
