"""Every route of the table, walked with every kind of token.

The list comes from the code: a route that is added and has no example here fails the first test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest

from system.conftest import OWN_DEVICE, Site, now_ms
from widerow.alerts.alert import Alert
from widerow.alerts.book import Silence, Webhook
from widerow.alerts.rule import Rule
from widerow.alerts.state import State
from widerow.model.token import Role
from widerow.server.routes import ROUTES
from widerow.server.table import Route

pytestmark = pytest.mark.about_http

SECRET = "umbra-marker"
"""Part of every name and text of tenant umbra; acme must never see it."""


@dataclass(frozen=True)
class Example:
    """A request that a route answers well, for whoever may make it."""

    path: str
    json: Any = None
    content: str | None = None


REPORT = {"device": OWN_DEVICE, "values": {"a": 1}}
RULE = {"kind": "threshold", "metric": "{metric}", "above": 80, "fleet": True}
LINE = f"m,device={OWN_DEVICE} a=1"
EXAMPLES = {
    "POST /v1/write": Example("/v1/write", REPORT),
    "POST /write": Example("/write", content=LINE),
    "POST /api/v2/write": Example("/api/v2/write", content=LINE),
    "GET /v1/devices/{device}/series": Example("/v1/devices/{device}/series"),
    "GET /v1/devices/{device}/latest": Example("/v1/devices/{device}/latest"),
    "POST /v1/latest": Example("/v1/latest", {"devices": ["{device}"]}),
    "POST /v1/query": Example("/v1/query", {"devices": ["{device}"], "step": "1h"}),
    "GET /v1/fleet/series": Example("/v1/fleet/series"),
    "GET /v1/fleet/latest": Example("/v1/fleet/latest"),
    "GET /v1/devices/counts": Example("/v1/devices/counts"),
    "GET /v1/devices": Example("/v1/devices"),
    "POST /v1/devices/batch": Example("/v1/devices/batch", {"devices": [{"name": "batched"}]}),
    "GET /v1/devices/{device}": Example("/v1/devices/{device}"),
    "GET /v1/devices/{device}/history": Example("/v1/devices/{device}/history"),
    "GET /v1/devices/{device}/placement": Example("/v1/devices/{device}/placement"),
    "POST /v1/devices/{device}/swap": Example("/v1/devices/{device}/swap", {"hardware": "walked"}),
    "GET /v1/devices/{device}/controls": Example("/v1/devices/{device}/controls"),
    "PATCH /v1/devices/{device}/controls": Example("/v1/devices/{device}/controls", {"sample": "forbid"}),
    "GET /v1/hot": Example("/v1/hot"),
    "PATCH /v1/devices/{device}": Example("/v1/devices/{device}", {"location": "hall"}),
    "DELETE /v1/devices/{device}": Example("/v1/devices/{device}"),
    "GET /v1/metrics": Example("/v1/metrics"),
    "GET /v1/metrics/{metric}": Example("/v1/metrics/{metric}"),
    "PATCH /v1/metrics/{metric}": Example("/v1/metrics/{metric}", {"unit": "K"}),
    "DELETE /v1/metrics/{metric}": Example("/v1/metrics/{metric}"),
    "GET /v1/usage": Example("/v1/usage"),
    "GET /v1/alerts": Example("/v1/alerts"),
    "GET /v1/alerts/history": Example("/v1/alerts/history"),
    "GET /v1/alerts/rules": Example("/v1/alerts/rules"),
    "PUT /v1/alerts/rules/{name}": Example("/v1/alerts/rules/walked", RULE),
    "DELETE /v1/alerts/rules/{name}": Example("/v1/alerts/rules/walked"),
    "POST /v1/alerts/rules/preview": Example("/v1/alerts/rules/preview", RULE),
    "POST /v1/alerts/{id}/acknowledge": Example("/v1/alerts/{alert}/acknowledge", {"note": "seen"}),
    "GET /v1/alerts/silences": Example("/v1/alerts/silences"),
    "POST /v1/alerts/silences": Example("/v1/alerts/silences", {"device": "any", "until": "+1h"}),
    "DELETE /v1/alerts/silences/{id}": Example("/v1/alerts/silences/{silence}"),
    "GET /v1/alerts/webhooks": Example("/v1/alerts/webhooks"),
    "PUT /v1/alerts/webhooks/{name}": Example("/v1/alerts/webhooks/walked", {"url": "https://hooks.example.com/"}),
    "DELETE /v1/alerts/webhooks/{name}": Example("/v1/alerts/webhooks/walked"),
    "POST /v1/alerts/webhooks/{name}/test": Example("/v1/alerts/webhooks/none-such/test"),
    "GET /v1/deadletters": Example("/v1/deadletters"),
    "GET /v1/deadletters/{id}": Example("/v1/deadletters/{letter}"),
    "POST /v1/deadletters/replay": Example("/v1/deadletters/replay", {"ids": ["{letter}"]}),
    "DELETE /v1/deadletters": Example("/v1/deadletters?id={letter}"),
    "GET /v1/admin/keyspace": Example("/v1/admin/keyspace"),
    "GET /v1/admin/tenants": Example("/v1/admin/tenants"),
    "POST /v1/admin/tenants": Example("/v1/admin/tenants", {"name": "walked"}),
    "GET /v1/admin/tenants/{tenant}": Example("/v1/admin/tenants/{tenant}"),
    "PATCH /v1/admin/tenants/{tenant}": Example("/v1/admin/tenants/{tenant}", {"display_name": "walked"}),
    "DELETE /v1/admin/tenants/{tenant}": Example("/v1/admin/tenants/none-such"),
    "POST /v1/admin/tenants/{tenant}/whatif": Example("/v1/admin/tenants/{tenant}/whatif", {"last": "1d"}),
    "GET /v1/admin/tokens": Example("/v1/admin/tokens"),
    "POST /v1/admin/tokens": Example("/v1/admin/tokens", {"role": "read"}),
    "DELETE /v1/admin/tokens/{id}": Example("/v1/admin/tokens/{id}"),
    "POST /v1/admin/erase": Example("/v1/admin/erase", {"metric": "{metric}", "start": 0, "end": "now"}),
    "POST /v1/admin/clock": Example("/v1/admin/clock"),
    "GET /v1/admin/audit": Example("/v1/admin/audit"),
    "GET /v1/admin/backup": Example("/v1/admin/backup"),
    "POST /v1/admin/backup": Example("/v1/admin/backup", {"to": "/dev/null/backups"}),
    "POST /v1/admin/verify": Example("/v1/admin/verify", {"start": "-1h", "repair": True}),
    "GET /v1/status": Example("/v1/status"),
    "GET /v1/overview": Example("/v1/overview"),
    "GET /v1/live": Example("/v1/live"),
    "GET /metrics": Example("/metrics"),
    "GET /ping": Example("/ping"),
    "GET /health/live": Example("/health/live"),
    "GET /health/ready": Example("/health/ready"),
    "GET /openapi.json": Example("/openapi.json"),
    "GET /": Example("/"),
    "GET /ui/{file}": Example("/ui/main.js"),
}
PUBLIC = {"GET /ping", "GET /health/live", "GET /health/ready", "GET /openapi.json", "GET /", "GET /ui/{file}"}
LOCAL = {"POST /v1/admin/backup"}
"""Those that no token is good for: over the local socket alone."""
GUARDED = [route for route in ROUTES if route.roles is not None]


def ids(route: Route) -> str:
    return route.id


def send(client: httpx.Client, route: Route, names: dict[str, str], **parameters: str) -> httpx.Response:
    def filled(value: Any) -> Any:
        if isinstance(value, str):
            for name, real in names.items():
                value = value.replace("{" + name + "}", real)
            return value
        if isinstance(value, dict):
            return {key: filled(content) for key, content in value.items()}
        return [filled(content) for content in value] if isinstance(value, list) else value

    example = EXAMPLES[route.id]
    path, _, query = filled(example.path).partition("?")
    given = {**dict(parse_qsl(query)), **parameters}
    if route.streams:
        with client.stream(route.method, path, params=given) as answer:
            first = next(answer.iter_bytes()) if answer.status_code == 200 else answer.read()
            return httpx.Response(answer.status_code, headers=answer.headers, content=first)
    return client.request(route.method, path, json=filled(example.json), content=example.content, params=given)


def names_of(site: Site, tenant: str, mark: str) -> dict[str, str]:
    """A device, a metric, a token and a dead letter of a tenant, that exist."""
    device, metric = f"{mark}-device", f"{mark}-metric"
    site.write(device, {metric: f"{mark}-value", "n": 1}, tenant=tenant)
    site.client(Role.ADMIN, tenant).patch(f"/v1/devices/{device}", json={"tags": {"t": f"{mark}-tag"}})
    _, token = site.service.catalog.tokens.create(Role.READ, tenant=tenant, description=f"{mark}-token")
    site.client(Role.WRITE, tenant).post("/v1/write", content=f"{mark}-letter")
    site.service.dead_letters.settle()
    letter = next(site.service.dead_letters.store.newest(tenant)).id
    kept = _alerted(site, tenant, mark, device)
    return {"device": device, "metric": metric, "tenant": tenant, "id": token.id, "letter": letter, **kept}


def _alerted(site: Site, tenant: str, mark: str, device: str) -> dict[str, str]:
    """A rule, a webhook, an alert that fires and a silence of a tenant."""
    alerts, now_us = site.service.alerts, site.service.clock.now_us()
    rule = Rule(name="hot", kind="threshold", metric=f"{mark}-metric", above=1.0, summary=f"{mark}-summary")
    alerts.book.set_rule(tenant, rule)
    alerts.book.set_webhook(tenant, Webhook(name="ops", url=f"https://{mark}.example.com/", secret=f"{mark}-secret"))
    silence = Silence(name="0" * 16, until_us=now_us + 60_000_000, device=device, comment=f"{mark}-comment")
    alerts.book.add_silence(tenant, silence)
    alert = Alert(tenant=tenant, rule="hot", state="pending", since_us=now_us, device=device, source="http")
    alerts.board.saw(alert, State.FIRING, now_us)
    return {"alert": alert.id, "silence": silence.name}


def test_every_route_has_an_example_here() -> None:
    assert {route.id for route in ROUTES} == set(EXAMPLES)


def test_only_these_routes_are_public(site: Site) -> None:
    assert {route.id for route in ROUTES if route.roles is None} == PUBLIC
    for route in ROUTES:
        if route.roles is None:
            assert send(site.client(None), route, {}).status_code in (200, 204)


@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_without_a_good_token_there_is_no_answer(site: Site, route: Route) -> None:
    names = {"device": OWN_DEVICE, "metric": "a", "tenant": "acme", "id": "0" * 16, "letter": "none"}
    names |= {"alert": "none", "silence": "none"}
    bad = ["", "Bearer", "Bearer wr_wrong", f"Bearer wr_{'A' * 43}", "Basic Zm9v", "Digest x", "Bearer \xe4"]
    for header in bad:
        client = site.client(None)
        if header:
            client.headers["Authorization"] = header
        answer = send(client, route, names)
        assert answer.status_code == 401, header
        assert "Bearer" in answer.headers["WWW-Authenticate"]


@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_a_role_does_what_the_table_says_and_nothing_else(site: Site, route: Route) -> None:
    assert route.roles is not None
    names = names_of(site, "acme", "walk")
    for role in (Role.READ, Role.WRITE, Role.DEVICE, Role.ADMIN, Role.SCRAPE):
        answer = send(site.client(role), route, names)
        if role in route.roles:
            assert answer.status_code < 300 or answer.status_code == 404, answer.text
            names = names_of(site, "acme", "walk")
        else:
            assert answer.status_code == 403
            assert "role" in answer.text
    operator = send(site.client(Role.OPERATOR), route, names, **_named(route))
    allowed = operator.status_code < 300 or operator.status_code == 404
    assert operator.status_code == 403 if route.id in LOCAL else allowed, operator.text


def _named(route: Route) -> dict[str, str]:
    return {"tenant": "acme"} if "tenant" in route.known() else {}


@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_a_tenant_sees_nothing_of_another(site: Site, route: Route) -> None:
    """With its own token, asking for the other's things by their names, and naming the other outright."""
    names = names_of(site, "umbra", SECRET)
    # An admin who erases or deletes a name it does not have succeeds or not; what counts is that the other keeps it.
    for role in (Role.READ, Role.WRITE, Role.ADMIN, Role.DEVICE):
        plain = send(site.client(role, "acme"), route, names)
        # What was asked for may come back in an error; what the other stored may not.
        shown = plain.text.replace(names["device"], "").replace(names["metric"], "")
        assert SECRET not in shown, plain.text
        if "tenant" in route.known():
            assert send(site.client(role, "acme"), route, names, tenant="umbra").status_code == 403
    values = site.values(names["device"], tenant="umbra")
    assert values == {names["metric"]: f"{SECRET}-value", "n": 1.0}
    assert names["id"] in {token.id for token in site.service.catalog.tokens.list("umbra")}
    assert site.service.dead_letters.store.find("umbra", names["letter"]) is not None


def test_a_list_of_one_tenant_has_nothing_of_another(site: Site) -> None:
    names_of(site, "umbra", SECRET)
    paths = ("devices", "fleet/series", "fleet/latest", "metrics", "usage", "deadletters", "admin/tokens", "status")
    of_alerts = ("alerts", "alerts/history", "alerts/rules", "alerts/silences", "alerts/webhooks")
    for path in [f"/v1/{path}" for path in (*paths, *of_alerts)]:
        for accept in ("application/json", "text/csv"):
            answer = site.client(Role.ADMIN, "acme").get(path, headers={"Accept": accept})
            assert SECRET not in answer.text
            assert "umbra" not in answer.text


def test_a_device_token_writes_as_its_device_only(site: Site) -> None:
    client = site.client(Role.DEVICE)
    mine = {"device": OWN_DEVICE, "time": now_ms(), "values": {"mine": 1}}
    assert client.post("/v1/write", json=mine).status_code == 204
    theirs = client.post("/v1/write", json={**mine, "device": "someone"})
    assert theirs.status_code == 422
    assert theirs.json()["refusals"][0]["code"] == "wrong-device"
    both = client.post("/v1/write", json=[mine, {**mine, "device": "someone"}])
    assert both.status_code == 207
    assert site.client().get("/v1/devices/someone").status_code == 404


def test_an_operator_names_the_tenant(site: Site) -> None:
    client = site.client(Role.OPERATOR)
    report = {"device": "operated", "time": now_ms(), "values": {"a": 1}}
    unnamed = client.post("/v1/write", json=report)
    assert unnamed.status_code == 400
    assert "?tenant=" in unnamed.json()["error"]["message"]
    assert client.post("/v1/write?tenant=nobody", json=report).status_code == 404
    assert client.post("/v1/write?tenant=acme", json=report).status_code == 204
    assert client.get("/v1/devices/operated?tenant=acme").status_code == 200
    assert client.get("/v1/devices/operated?tenant=umbra").status_code == 404
    assert client.get("/v1/devices").status_code == 400
    assert client.get("/v1/devices?tenant=nobody").status_code == 404


def test_an_admin_makes_no_operators_and_no_tokens_of_others(site: Site) -> None:
    client = site.client(Role.ADMIN)
    assert client.post("/v1/admin/tokens", json={"role": "operator"}).status_code == 403
    assert client.post("/v1/admin/tokens", json={"role": "read", "tenant": "umbra"}).status_code == 403
    assert client.get("/v1/admin/tenants/umbra").status_code == 403
    assert client.patch("/v1/admin/tenants/acme", json={"limits": {"devices": 0}}).status_code == 403


def test_a_revoked_or_expired_token_is_refused_at_once(site: Site) -> None:
    made = site.client().post("/v1/admin/tokens", json={"role": "read"}).json()
    client = site.client(None)
    client.headers["Authorization"] = f"Bearer {made['token']}"
    assert client.get("/v1/devices").status_code == 200
    assert site.client().delete(f"/v1/admin/tokens/{made['id']}").status_code == 204
    assert client.get("/v1/devices").status_code == 401
    soon = site.service.clock.now_us() + 50_000
    secret, _ = site.service.catalog.tokens.create(Role.READ, tenant="acme", expires_us=soon)
    client.headers["Authorization"] = f"Bearer {secret}"
    while site.service.clock.now_us() < soon:
        pass
    assert client.get("/v1/devices").status_code == 401


def test_a_secret_is_shown_once(site: Site) -> None:
    made = site.client().post("/v1/admin/tokens", json={"role": "write", "description": "once"}).json()
    assert made["token"].startswith("wr_")
    assert made["token"] not in site.client().get("/v1/admin/tokens").text


def test_a_scrape_token_reads_metrics_and_nothing_else(site: Site) -> None:
    client = site.client(Role.SCRAPE)
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert "# HELP widerow_commits_total" in answer.text
    for path in ("/v1/devices", "/v1/status", "/v1/admin/tokens", "/v1/admin/keyspace", "/v1/tenants?tenant=acme"):
        assert client.get(path).status_code in (403, 404), path
    assert client.post("/v1/write?tenant=acme", json={"device": "d", "values": {"a": 1}}).status_code == 403


def test_only_operators_make_scrape_tokens(site: Site) -> None:
    form = {"role": "scrape"}
    assert site.client(Role.ADMIN).post("/v1/admin/tokens", json=form).status_code == 403
    made = site.client(Role.OPERATOR).post("/v1/admin/tokens", json=form)
    assert made.status_code == 201
    assert made.json()["tenant"] == ""
    with_tenant = site.client(Role.OPERATOR).post("/v1/admin/tokens", json={**form, "tenant": "acme"})
    assert with_tenant.status_code == 400
    assert "role scrape is for all tenants" in with_tenant.text
