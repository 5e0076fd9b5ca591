"""CORS: scripts of the configured origins may read answers; to others, and without origins, nothing is said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from widerow.config import Config, Http, Store, build
from widerow.model.errors import ConfigError
from widerow.model.token import Role
from widerow.server.run import running
from widerow.service import Service

OURS, OTHER = "https://app.example.com", "https://evil.example.com"


@contextmanager
def served(*origins: str) -> Iterator[httpx.Client]:
    config = Config(http=Http(cors_origins=origins), store=Store(url="memory:"))
    with Service.open(config) as service, running(service) as url:
        secret, _ = service.catalog.tokens.create(Role.OPERATOR)
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {secret}"}, timeout=30) as client:
            yield client


def preflight(
    client: httpx.Client, origin: str, method: str = "PATCH", headers: str = "authorization,if-match"
) -> httpx.Response:
    asked = {"Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers}
    return client.options("/v1/admin/tenants", headers=asked)


def cors_of(response: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith("access-control-")}


def test_without_origins_no_header_is_sent_and_options_is_no_method() -> None:
    with served() as client:
        for response in (client.get("/v1/status", headers={"Origin": OURS}), preflight(client, OURS)):
            assert not cors_of(response)
            assert "origin" not in response.headers.get("vary", "").lower()
        assert preflight(client, OURS).status_code == 405


def test_a_configured_origin_may_ask_and_read_with_a_token_and_without_cookies() -> None:
    with served(OURS, "http://localhost:3000") as client:
        for origin in (OURS, "http://localhost:3000"):
            allowed = preflight(client, origin)
            assert allowed.status_code == 200
            assert allowed.headers["access-control-allow-origin"] == origin
            assert "PATCH" in allowed.headers["access-control-allow-methods"]
            assert {"authorization", "if-match"} <= set(allowed.headers["access-control-allow-headers"].lower().split(", "))
            for response in (
                client.get("/v1/status", headers={"Origin": origin}),
                client.post("/write", content="m,device=d x=1", headers={"Origin": origin}),
                client.get("/v1/none", headers={"Origin": origin}),
                client.get("/v1/status", headers={"Origin": origin, "Authorization": "Bearer none"}),
            ):
                assert response.headers["access-control-allow-origin"] == origin, response
                assert "retry-after" in response.headers["access-control-expose-headers"].lower()
                assert response.headers["vary"] == "Origin"
                assert "access-control-allow-credentials" not in response.headers


def test_another_origin_is_not_allowed() -> None:
    with served(OURS) as client:
        for origin in (OTHER, "null", OURS.upper(), f"{OURS}.evil.com", f"{OURS}:8443", "http://app.example.com"):
            for response in (client.get("/v1/status", headers={"Origin": origin}), preflight(client, origin)):
                assert "access-control-allow-origin" not in response.headers, (origin, response)
        assert client.get("/v1/status").status_code == 200
        assert preflight(client, OTHER).status_code == 400


def test_a_header_or_a_method_that_is_not_known_is_refused_before_it_is_sent() -> None:
    with served(OURS) as client:
        assert preflight(client, OURS, method="TRACE").status_code == 400
        assert preflight(client, OURS, headers="x-strange").status_code == 400


@pytest.mark.parametrize(
    "origin", ["*", "null", "app.example.com", f"{OURS}/", f"{OURS}/page", "https://*.example.com", "https://A.com", ""]
)
def test_what_is_no_origin_stops_the_start(origin: str) -> None:
    with pytest.raises(ConfigError, match=r"http\.cors_origins"):
        build({"http": {"cors_origins": [origin]}}, {})


def test_origins_come_from_the_environment_too() -> None:
    config = build({}, {"WIDEROW_HTTP_CORS_ORIGINS": f"{OURS}, http://[::1]:3000"})
    assert config.http.cors_origins == (OURS, "http://[::1]:3000")
