"""Whatever is sent, the answer is never a fault of ours, and the log stays quiet."""

from __future__ import annotations

import json
import logging
import random
import socket
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx
import pytest

from system.conftest import OWN_DEVICE, Site, now_ms
from widerow.model.store import is_shared
from widerow.model.token import Role
from widerow.server.routes import ROUTES
from widerow.server.table import Route

NASTY = [
    "",
    " ",
    "%",
    "%00",
    "\x00",
    "\x7f",
    "a\nb",
    "../..",
    "/",
    "#",
    "-1",
    "1e999",
    "9" * 400,
    "NaN",
    "null",
    "now-99999999999999999999d",
    "9999-12-31T23:59:59Z",
    "0000-00-00",
    "😀" * 100,
    "\u202etxt",
    "'; DROP TABLE devices; --",
    "<script>alert(1)</script>",
    "x" * 5_000,
]
STORED = [NASTY[0], *(text for text in NASTY if any(odd in text for odd in "\x00\n/-'😀") or len(text) > 1_000)]
"""Those that are more to a store behind a network than a name as any other."""
BODIES: list[Any] = [
    *NASTY,
    None,
    True,
    0,
    -1,
    1e300,
    10**40,
    [],
    {},
    [[]],
    [{}],
    {"": 1},
    {"devices": NASTY},
    {"devices": [{"name": text} for text in NASTY]},
    {"devices": [None, {"name": "n", "tags": {text: text for text in NASTY}}, {"name": 5}]},
    {"devices": ["a"], "metrics": NASTY},
    {"name": "nasty", "limits": {"devices": -5}},
    {"name": "nasty", "retention": {"raw": "99999999999999999d"}},
    {"name": "nasty", "retention": {"raw": 10**30}},
    {"role": "read", "expires": "now-99999999999999999999d"},
    {"role": "device", "device": "\x00"},
    {"role": ["read"]},
    {"metric": "m", "start": "-1h", "end": 10**30},
    {"metric": "\x00", "start": 0, "end": "now"},
    {"kind": "gauge", "unit": "\x00"},
    {"profile": {"reports_per_s": -1}},
    {"profile": {"reports_per_s": 1e308}},
    {"tags": {"a": None, "b": 5}},
    {"device": "d", "time": {}, "values": {"a": 1}},
    {"device": ["d"], "values": {"a": 1}},
    {"device": "d", "values": []},
    {"device": "d", "values": {"a": 1}, "tags": {"a": "\x00"}},
    {"device": "d", "values": dict.fromkeys(NASTY, 1)},
]
READS = [route for route in ROUTES if route.method == "GET"]
CHANGES = [route for route in ROUTES if route.method in ("POST", "PATCH")]


def is_fine(status: int) -> bool:
    return status < 500


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Any:
    yield
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def path_of(route: Route, text: str) -> str:
    path = route.path
    for p in route.parameters:
        if p.place == "path":
            path = path.replace("{" + p.name + "}", quote(text, safe="") or "%20")
    return path


def status_of(client: httpx.Client, route: Route, url: str) -> int:
    if not route.streams:
        return client.get(url).status_code
    with client.stream("GET", url) as answer:  # it would go on
        return answer.status_code


@pytest.mark.parametrize("route", READS, ids=lambda route: route.id)
def test_no_parameter_makes_a_read_fail(site: Site, route: Route) -> None:
    site.write(OWN_DEVICE, {"a": 1})
    client = site.client(Role.OPERATOR)
    tenant = {"tenant": "acme"} if "tenant" in route.known() else {}
    for text in NASTY if not is_shared(site.service.config.store.url) else STORED:
        assert is_fine(status_of(client, route, f"{path_of(route, text)}?{urlencode(tenant)}")), text
        for name in route.known():
            query = urlencode({**tenant, name: text})
            assert is_fine(status_of(client, route, f"{path_of(route, OWN_DEVICE)}?{query}")), (name, text)


@pytest.mark.about_http
@pytest.mark.parametrize("route", CHANGES, ids=lambda route: route.id)
def test_no_body_makes_a_change_fail(site: Site, route: Route) -> None:
    site.write("nasty", {"nasty": 1})
    client = site.client(Role.OPERATOR)
    tenant = {"tenant": "acme"}
    for body in BODIES:
        text = json.dumps(body)
        answer = client.request(route.method, path_of(route, "nasty"), content=text, params=tenant)
        assert is_fine(answer.status_code), (text[:200], answer.text)
    for raw in (b"\xff", b'{"devices": ["\\ud800"]}', b'{"name": "\\udfff"}', b'{"a":' * 5_000, b"\x00" * 100):
        answer = client.request(route.method, path_of(route, "nasty"), content=raw, params=tenant)
        assert is_fine(answer.status_code), (raw[:50], answer.text)


def test_no_broken_report_makes_a_write_fail(site: Site) -> None:
    """A good body with a few bytes changed: refused or kept, never a fault."""
    chance = random.Random(7)
    client = site.client(Role.WRITE)
    report = {"device": "mutant", "time": now_ms(), "values": {"a": 1.5, "b": "text"}, "tags": {"c": "d"}}
    bodies = {
        "/v1/write": json.dumps([report] * 3).encode(),
        "/write": b'm,device=mutant,t=x a=1.5,b="text" 1700000000000\n' * 3,
    }
    for path, body in bodies.items():
        for _ in range(60):
            changed = bytearray(body)
            for _ in range(chance.randint(1, 4)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            answer = client.post(path, content=bytes(changed))
            assert is_fine(answer.status_code), bytes(changed)


@pytest.mark.about_http
@pytest.mark.parametrize(
    "request_text",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: nonsense\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET /v1/devices/\xc3\xbc HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"POST /v1/write HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /health/live HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: close, Upgrade\r\n\r\n",
    ],
)
def test_what_is_hardly_http_is_refused_and_others_are_served_on(site: Site, request_text: bytes) -> None:
    address = urlsplit(site.url)
    with socket.create_connection((address.hostname, address.port or 0), timeout=5) as connection:
        connection.sendall(request_text)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65_536)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4"))
    assert site.client(None).get("/health/live").status_code == 200
