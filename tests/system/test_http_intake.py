"""Bodies that come slowly, or not to their end, or wait: what they hold is bounded, and others are served meanwhile."""

from __future__ import annotations

import gzip
import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from system.conftest import config_at
from widerow.config import Http, Pipeline, Query
from widerow.model.tenant import Tenant
from widerow.model.token import Role
from widerow.server.routes import ROUTES
from widerow.server.run import running
from widerow.service import Service

MIB = 1 << 20
BODY_MIB, TENANT_MIB, ALL_MIB = 8, 12, 24
PAUSE_S = 2
PATIENCE_S = 30


@dataclass
class Small:
    """A server with little room, which its connections outlive by no means."""

    service: Service
    url: str
    stack: ExitStack

    def token(self, tenant: str, role: Role) -> str:
        return self.service.catalog.tokens.create(role, tenant=tenant)[0]

    def client(self, tenant: str, role: Role) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token(tenant, role)}"}
        return self.stack.enter_context(httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S))

    def opened(self, request: str, *, length: int, token: str = "") -> socket.socket:
        """A connection on which a request has begun: its head is sent, nothing of its body."""
        address = urlsplit(self.url)
        connection = socket.create_connection((address.hostname or "", address.port or 0), timeout=PATIENCE_S)
        self.stack.enter_context(connection)
        head = [f"{request} HTTP/1.1", "Host: x", f"Content-Length: {length}", "Content-Type: application/json"]
        head += [f"Authorization: Bearer {token}"] if token else []
        connection.sendall("\r\n".join([*head, "", ""]).encode())
        return connection


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    config = replace(
        config_at(tmp_path),
        http=Http(max_body_mib=BODY_MIB, body_timeout_s=PAUSE_S),
        pipeline=Pipeline(max_in_flight_mib=ALL_MIB, max_tenant_in_flight_mib=TENANT_MIB),
        query=Query(at_once=1, long_at_once=1, max_wait_s=60),
    )
    with Service.open(config) as service, ExitStack() as stack:
        for tenant in ("acme", "umbra"):
            service.catalog.tenants.create(Tenant(name=tenant))
        with running(service) as url:
            yield Small(service, url, stack)


def answer_of(connection: socket.socket) -> tuple[int, str, bytes]:
    """Status, head and body of an answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _more(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    text = head.decode().lower()
    length = int(text.partition("content-length: ")[2].partition("\r\n")[0] or 0)
    while len(body) < length:
        body += _more(connection)
    return int(head.split()[1]), text, body


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    assert data, "hung up before there was an answer"
    return data


def code_of(body: bytes) -> str:
    code: str = json.loads(body)["error"]["code"]
    return code


def report(size: int) -> bytes:
    """One report, in so many bytes."""
    text = json.dumps({"device": "d", "time": time.time_ns() // 1_000_000, "values": {"a": 1}})
    return text.encode().ljust(size)


def written(small: Small, token: str, size: int = MIB) -> int:
    """The status of a report that comes in several pieces."""
    body = report(size)
    connection = small.opened("POST /v1/write", length=size, token=token)
    connection.sendall(body[: size // 2])
    time.sleep(0.05)
    connection.sendall(body[size // 2 :])
    return answer_of(connection)[0]


def test_bodies_that_nobody_asked_for_take_no_room(small: Small) -> None:
    writer, reader = small.token("acme", Role.WRITE), small.token("umbra", Role.READ)
    asking = []
    for path in ("/ping", "/health/ready", "/", "/v1/devices"):
        asking.append(small.opened(f"GET {path}", length=BODY_MIB * MIB, token=reader))
        asking[-1].sendall(b" " * (BODY_MIB * MIB - 1))
    assert written(small, writer) == 204
    assert [answer_of(connection)[0] in (200, 204) for connection in asking] == [True] * 4


def test_a_route_that_needs_no_token_takes_no_body() -> None:
    assert [route.id for route in ROUTES if route.roles is None and route.body is not None] == []


def test_a_body_that_never_begins_is_given_up(small: Small) -> None:
    connection = small.opened("POST /v1/write", length=100, token=small.token("acme", Role.WRITE))
    status, head, body = answer_of(connection)
    assert (status, code_of(body)) == (408, "body-timeout")
    assert "after 0 bytes" in body.decode()
    assert "connection: close" in head
    assert connection.recv(1) == b""


def test_a_body_that_does_not_go_on_is_given_up_and_its_room_is_free(small: Small) -> None:
    size, token = BODY_MIB * MIB, small.token("acme", Role.WRITE)
    stalled = [small.opened("POST /v1/write", length=size, token=token) for _ in range(TENANT_MIB // BODY_MIB)]
    lines = small.opened("POST /api/v2/write", length=MIB, token=token)
    for connection in stalled:
        connection.sendall(report(size)[:-1])
    lines.sendall(b" " * (MIB - 1))
    for connection in stalled:
        status, head, body = answer_of(connection)
        assert (status, code_of(body)) == (408, "body-timeout")
        assert "retry-after: 1" in head
        assert "connection: close" in head
        assert connection.recv(1) == b""
    assert answer_of(lines)[0] == 503
    assert written(small, token, size) == 204


def test_a_body_that_comes_slowly_but_steadily_comes_in(small: Small) -> None:
    body, pieces = report(32 << 10), 2 * PAUSE_S * 2
    connection = small.opened("POST /v1/write", length=len(body), token=small.token("acme", Role.WRITE))
    for i in range(pieces):
        connection.sendall(body[i * len(body) // pieces : (i + 1) * len(body) // pieces])
        time.sleep(0.5)
    assert answer_of(connection)[0] == 204


def test_who_sends_a_byte_now_and_then_is_given_up(small: Small) -> None:
    connection = small.opened("POST /v1/write", length=BODY_MIB * MIB, token=small.token("acme", Role.WRITE))
    connection.sendall(b" " * (1 << 18))
    given_up_s = time.monotonic() + PATIENCE_S
    while not select.select([connection], [], [], 0.2)[0] and time.monotonic() < given_up_s:
        connection.sendall(b" ")
    status, _, body = answer_of(connection)
    assert (status, code_of(body)) == (408, "body-timeout")


def test_one_tenant_leaves_room_for_others(small: Small) -> None:
    size, token = BODY_MIB * MIB, small.token("acme", Role.WRITE)
    greedy = [small.opened("POST /v1/write", length=size, token=token) for _ in range(ALL_MIB // BODY_MIB)]
    for connection in greedy:
        connection.sendall(report(size)[:-1])
    assert written(small, small.token("umbra", Role.WRITE)) == 204
    statuses = sorted(answer_of(connection)[0] for connection in greedy)
    assert statuses.count(429) >= 1
    assert set(statuses) <= {408, 429}


def test_only_reports_and_batches_of_devices_may_be_as_large_as_any_body() -> None:
    large = {route.id for route in ROUTES if route.body is not None and route.body.max_bytes is None}
    assert large == {"POST /v1/write", "POST /write", "POST /api/v2/write", "POST /v1/devices/batch"}
    assert max(route.body.max_bytes or 0 for route in ROUTES if route.body is not None) == 4 * MIB


def test_a_body_larger_than_its_route_takes_is_refused_by_name(small: Small) -> None:
    client = small.client("acme", Role.ADMIN)

    def check(method: str, path: str, content: bytes, by: str, **headers: str) -> None:
        answer = client.request(method, path, content=content, headers=headers)
        assert (answer.status_code, code_of(answer.content)) == (413, "too-large")
        assert f"as {by} allows" in answer.json()["error"]["message"]

    def spaces(size: int) -> bytes:
        return b"{}".ljust(size + 1)

    zipped = {"Content-Encoding": "gzip"}
    check("POST", "/v1/query", spaces(4 * MIB), "POST /v1/query")
    check("POST", "/v1/query", gzip.compress(spaces(4 * MIB)), "POST /v1/query", **zipped)
    check("POST", "/v1/latest", spaces(4 * MIB), "POST /v1/latest")
    check("PATCH", "/v1/devices/d", spaces(MIB), "PATCH /v1/devices/{device}")
    check("POST", "/v1/deadletters/replay", spaces(MIB), "POST /v1/deadletters/replay")
    check("POST", "/v1/devices/batch", spaces(BODY_MIB * MIB), "http.max_body_mib")
    check("POST", "/v1/write", spaces(BODY_MIB * MIB), "http.max_body_mib")


def test_as_many_devices_as_may_be_asked_about_fit(small: Small) -> None:
    client = small.client("acme", Role.ADMIN)
    longest = [f"{i:0256}" for i in range(10_000)]
    assert client.post("/v1/latest", json={"devices": longest}).status_code == 200
    batch = json.dumps({"devices": [{"name": "d"}]}).encode().ljust(BODY_MIB * MIB)
    assert client.post("/v1/devices/batch", content=batch).status_code == 200


def test_bodies_of_requests_that_wait_for_their_turn_are_counted(small: Small) -> None:
    token, size = small.token("acme", Role.READ), 4 * MIB - 1_000
    busy = small.service.slots.ask("umbra")
    body = json.dumps({"devices": ["d"]}).encode().ljust(size)
    asked = [small.opened("POST /v1/latest", length=size, token=token) for _ in range(TENANT_MIB // 4 + 1)]
    for connection in asked:
        connection.sendall(body)
    refused, _, _ = select.select(asked, [], [], PATIENCE_S)
    status, _, said = answer_of(refused[0])
    assert (status, code_of(said)) == (429, "tenant-busy")
    short = small.opened("POST /v1/latest", length=17, token=token)
    short.sendall(b'{"devices":["d"]}')
    assert written(small, small.token("umbra", Role.WRITE)) == 204
    busy.end()
    waited = [connection for connection in asked if connection is not refused[0]]
    assert [answer_of(connection)[0] for connection in [*waited, short]] == [200] * 4
    assert written(small, small.token("acme", Role.WRITE), BODY_MIB * MIB) == 204
