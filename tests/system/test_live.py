"""The overview as a stream: over real connections, for as long as the token is good and the server runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from system.conftest import Site, config_at, now_ms
from widerow.model.tenant import Tenant
from widerow.model.token import Role
from widerow.server.run import running
from widerow.service import Service

Event = tuple[str, dict[str, Any]]


def events(answer: httpx.Response) -> Iterator[Event]:
    """Until the end of the stream."""
    name = ""
    for line in answer.iter_lines():
        kind, _, content = line.partition(": ")
        if kind == "event":
            name = content
        elif kind == "data":
            yield name, msgspec.json.decode(content)


@contextmanager
def listening(client: httpx.Client, **parameters: str) -> Iterator[Iterator[Event]]:
    with client.stream("GET", "/v1/live", params=parameters) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        yield events(answer)


def test_a_stream_shows_what_was_just_sent(site: Site) -> None:
    with listening(site.client(Role.READ)) as stream:
        name, first = next(stream)
        assert (name, first["scope"], first["role"]) == ("overview", "acme", "read")
        report = {"time": now_ms(), "values": {"a": 1.0}}
        site.client(Role.WRITE).post("/v1/write", json=[{"device": f"live-{i}", **report} for i in range(7)])
        for _, found in stream:
            if found["devices"]["online"] >= first["devices"]["online"] + 7 and found["figures"]["ingestion_rate"]["now"]:
                break
            assert found["time"] > first["time"]


def test_streams_of_a_scope_share_an_overview_and_a_tenant_gets_its_own(site: Site) -> None:
    site.write("hidden-from-acme", {"a": 1.0}, tenant="umbra")
    with listening(site.client(Role.OPERATOR)) as one, listening(site.client(Role.OPERATOR)) as other:
        (_, first), (_, second) = next(one), next(other)
        times = {first["time"], second["time"], next(one)[1]["time"], next(other)[1]["time"]}
        assert len(times) < 4
        assert first["scope"] == "all"
    with listening(site.client(Role.ADMIN)) as stream:
        assert "umbra" not in str(next(stream))
    assert site.client(Role.ADMIN).get("/v1/live", params={"tenant": "umbra"}).status_code == 403
    with listening(site.client(Role.OPERATOR), tenant="umbra") as stream:
        assert next(stream)[1]["scope"] == "umbra"


@pytest.mark.rest  # some seconds
def test_a_stream_ends_when_its_token_is_revoked(site: Site) -> None:
    secret, token = site.service.catalog.tokens.create(Role.READ, tenant="acme")
    with (
        httpx.Client(base_url=site.url, headers={"Authorization": f"Bearer {secret}"}, timeout=30) as client,
        listening(client) as stream,
    ):
        assert next(stream)[0] == "overview"
        site.client(Role.ADMIN).delete(f"/v1/admin/tokens/{token.id}")
        *_, last = stream
    assert last == ("bye", {"reason": "the token is no longer good"})


@pytest.fixture
def one_stream(tmp_path: Path) -> Iterator[tuple[Service, str]]:
    """A server of its own that allows one stream, and an operator's token."""
    config = config_at(tmp_path)
    with Service.open(replace(config, http=replace(config.http, max_streams=1))) as service:
        service.catalog.tenants.create(Tenant(name="acme"))
        secret, _ = service.catalog.tokens.create(Role.OPERATOR)
        yield service, secret


def test_streams_are_bounded_and_stopping_the_server_ends_them(one_stream: tuple[Service, str]) -> None:
    service, secret = one_stream
    with running(service) as url:
        client = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {secret}"}, timeout=30)
        heard = events(client.send(client.build_request("GET", "/v1/live"), stream=True))
        assert next(heard)[0] == "overview"
        refused = client.get("/v1/live")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        assert "http.max_streams" in refused.text
    assert list(heard)[-1] == ("bye", {"reason": "the server stops"})
    client.close()


def test_a_place_is_free_again_when_its_client_has_gone(one_stream: tuple[Service, str]) -> None:
    service, secret = one_stream
    with running(service) as url, httpx.Client(base_url=url, headers={"Authorization": f"Bearer {secret}"}) as client:
        for _ in range(3):
            until_s = time.monotonic() + 10
            while True:
                with client.stream("GET", "/v1/live") as answer:
                    if answer.status_code == 200:
                        assert next(events(answer))[0] == "overview"
                        break
                assert time.monotonic() < until_s
                time.sleep(0.05)
