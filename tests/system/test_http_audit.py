"""What admins and operators change is written down, on every engine."""

from __future__ import annotations

from typing import Any

import httpx

from system.conftest import Site
from widerow.catalog.audit import Audit
from widerow.model.token import Role


def actions(client: httpx.Client, **params: Any) -> list[dict[str, Any]]:
    answer = client.get("/v1/admin/audit", params=params)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["actions"]
    return found


def test_who_did_what_is_recorded_with_its_outcome(site: Site) -> None:
    admin, operator = site.client(), site.client(Role.OPERATOR)
    site.write("audited", {"a": 1})
    assert admin.patch("/v1/devices/audited", json={"location": "Hall 3"}).status_code == 200
    assert admin.patch("/v1/devices/audited", json={"location": "Hall 4"}, headers={"If-Match": '"1"'}).status_code == 412
    assert site.local().patch("/v1/admin/tenants/acme", json={"limits": {"devices": 77}}).status_code == 200
    assert admin.post("/v1/devices/audited/swap", json={"hardware": "SN-1"}).status_code == 200
    assert actions(admin)[0]["changes"] == ["hardware: - -> SN-1"]
    made = admin.post("/v1/admin/tokens", json={"role": "read", "description": "line 3"}).json()
    assert admin.get("/v1/devices/audited").status_code == 200
    assert admin.post("/v1/admin/verify", json={"start": "-1h"}).status_code == 200
    assert site.client(Role.READ).patch("/v1/devices/audited", json={"location": "x"}).status_code == 403
    token, _, tenant, refused, changed, *_ = actions(admin)
    own = next(t["id"] for t in admin.get("/v1/admin/tokens").json()["tokens"] if t["role"] == "admin")
    assert (changed["by"], changed["role"], changed["tenant"]) == (f"token {own}", "admin", "acme")
    assert (changed["what"], changed["about"]) == ("PATCH /v1/devices/{device}", "audited")
    assert changed["changes"] == ['location: "" -> Hall 3']
    assert (changed["before"], changed["after"], changed["outcome"]) == (1, 2, "done")
    assert (refused["outcome"], refused["after"]) == ("conflict", None)
    assert (tenant["by"], tenant["role"], tenant["tenant"]) == ("local socket", "operator", "acme")
    assert tenant["changes"] == ["limits.devices: 0 -> 77"]
    assert (token["about"], token["changes"]) == (made["id"], ["role: read", "description: line 3"])
    assert made["token"] not in admin.get("/v1/admin/audit").text
    assert [a["id"] for a in actions(operator)[:5]] == [a["id"] for a in actions(admin)[:5]]


def test_a_tenant_sees_its_own_log_and_operators_see_all(site: Site) -> None:
    operator = site.client(Role.OPERATOR)
    assert operator.post("/v1/admin/tenants", json={"name": "shortlived"}).status_code == 201
    assert operator.delete("/v1/admin/tenants/shortlived").status_code == 204
    assert [a["what"].split()[0] for a in actions(operator, tenant="shortlived")] == ["DELETE", "POST"]
    assert "shortlived" not in site.client(Role.ADMIN, "umbra").get("/v1/admin/audit").text
    assert site.client(Role.ADMIN, "umbra").get("/v1/admin/audit", params={"tenant": "acme"}).status_code == 403
    assert site.client(Role.READ).get("/v1/admin/audit").status_code == 403


def test_the_log_comes_in_pages_and_as_a_table(site: Site) -> None:
    admin = site.client()
    for n in range(5):
        assert (
            admin.post("/v1/devices/batch", json={"devices": [{"name": f"paged-{n}"}, {"name": "bad\n"}]}).status_code == 207
        )
    page = admin.get("/v1/admin/audit", params={"limit": 3}).json()
    rest = admin.get("/v1/admin/audit", params={"limit": 2, "after": page["next"]}).json()
    newest = [*page["actions"], *rest["actions"]]
    assert [a["id"] for a in newest] == [a["id"] for a in actions(admin)[:5]]
    assert all(a["changes"] == ["devices: 2 entries", "1 created", "1 refused"] for a in newest)
    table = admin.get("/v1/admin/audit", params={"limit": 3}, headers={"Accept": "text/csv"}).text
    assert len(table.splitlines()) == 4
    assert actions(admin, end="-1d") == []
    assert admin.get("/v1/admin/audit", params={"after": "nonsense"}).status_code == 400


def test_an_action_that_cannot_be_recorded_is_done_all_the_same(site: Site) -> None:
    class Broken:
        def write(self, *_: object) -> None:
            raise OSError("no space left")

    service, failures = site.service, "widerow_audit_failures_total"
    good, before = service.audit, service.counters.registry.get_sample_value(failures) or 0
    service.audit = Audit(Broken(), service.clock, service.counters)  # type: ignore[arg-type]
    try:
        assert site.client().post("/v1/devices/batch", json={"devices": [{"name": "unrecorded"}]}).status_code == 200
    finally:
        service.audit = good
    assert site.client().get("/v1/devices/unrecorded").status_code == 200
    assert service.counters.registry.get_sample_value(failures) == before + 1
