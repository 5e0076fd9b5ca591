"""Connections within limits: heads, trailers, slow ones, and how many there may be."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import pytest
import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from widerow.config import Http
from widerow.server import connection as module
from widerow.server.connection import MAX_HEAD_BYTES, MAX_LINES, Door, connection_class

KIB = 1 << 10


async def echo(_scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the number of bytes that came."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    body = b"%d" % size
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@dataclass
class Client:
    """Says what it likes, and reads what comes until the connection is closed or the answer is there."""

    connection: socket.socket

    def tell(self, data: bytes) -> bool:
        """False: the server has closed the connection before all was sent."""
        try:
            self.connection.sendall(data)
        except OSError:
            return False
        return True

    def read(self, until: bytes = b"") -> bytes:
        """Until these bytes have come; without any, until the connection is closed."""
        got = b""
        with suppress(ConnectionError):
            while (not until or until not in got) and (more := self.connection.recv(1 << 16)):
                got += more
        return got


@dataclass
class Site:
    port: int
    stack: ExitStack

    def client(self) -> Client:
        return Client(self.stack.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout=10)))


@contextmanager
def served(http: Http = Http(), *, exempt: bool = False) -> Iterator[Site]:  # noqa: B008
    """`echo`, on an event loop of its own."""
    loop, ready = uvloop.new_event_loop(), threading.Event()
    ports: list[int] = []

    async def start() -> asyncio.Server:
        made, state = connection_class(Door(http, loop), exempt=exempt), ServerState()
        config = uvicorn.Config(echo, http=made, log_config=None)
        server: asyncio.Server = await loop.create_server(lambda: made(config, state, {}, loop), "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()
        return server

    def run() -> None:
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(start())
        loop.run_forever()
        server.close()
        loop.run_until_complete(asyncio.sleep(0.01))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(10)
        with ExitStack() as stack:
            yield Site(ports[0], stack)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def refused(answer: bytes, status: int, code: str) -> bool:
    return answer.startswith(b"HTTP/1.1 %d " % status) and code.encode() in answer and b"connection: close" in answer


def endless(start: bytes, more: bytes) -> Callable[[Client], None]:
    """Megabytes of `more` behind a start, until the server has had enough."""

    def send(client: Client) -> None:
        said = client.tell(start)
        sent = 0
        while said and sent < 64 << 20:
            said = client.tell(more * (64 * KIB // len(more)))
            sent += 64 * KIB
        assert sent < 16 << 20, "it took all of it"

    return send


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "send",
    [
        pytest.param(endless(b"GET /", b"a" * 1024), id="URL"),
        pytest.param(endless(b"GET / HTTP/1.1\r\nX: ", b"a" * 1024), id="header"),
        pytest.param(endless(b"GET / HTTP/1.1\r\n", b"a" * 1024), id="name"),
        pytest.param(endless(b"GET / HTTP/1.1\r\n", b"X: " + b"a" * 1019 + b"\r\n"), id="headers"),
        pytest.param(endless(b"GET / HTTP/1.1\r\n", b"X:\r\n"), id="short headers"),
        pytest.param(endless(b"", b"\r\n"), id="empty lines"),
        pytest.param(endless(CHUNKED + b"1\r\na\r\n0\r\nX: ", b"a" * 1024), id="trailer"),
        pytest.param(endless(CHUNKED + b"1\r\na\r\n0\r\n", b"X: a\r\n\r\n"[:6]), id="trailers"),
        pytest.param(endless(CHUNKED + b"1;", b"a" * 1024), id="extension of a chunk"),
    ],
)
def test_what_has_no_end_is_refused_long_before_it(send: Callable[[Client], None]) -> None:
    with served() as site:
        send(site.client())
        other = site.client()
        assert other.tell(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert other.read(b"\r\n\r\n0").startswith(b"HTTP/1.1 200")


def test_a_head_may_have_64_kib_and_200_lines_and_no_more() -> None:
    def check(head: bytes, *, kept: bool) -> None:
        client = site.client()
        client.tell(head)
        answer = client.read(b"\r\n\r\n0" if kept else b"")
        if kept:
            assert answer.startswith(b"HTTP/1.1 200"), answer
        else:
            assert refused(answer, 431, "headers-too-large"), answer

    start, end = b"GET / HTTP/1.1\r\nHost: x\r\n", b"\r\n"
    with served() as site:
        check(start + b"X: " + b"a" * (MAX_HEAD_BYTES - 100) + b"\r\n" + end, kept=True)
        check(start + b"X: " + b"a" * MAX_HEAD_BYTES + b"\r\n" + end, kept=False)
        check(start + b"X: a\r\n" * (MAX_LINES - 1) + end, kept=True)
        check(start + b"X: a\r\n" * MAX_LINES + end, kept=False)
        check(b"GET /" + b"a" * MAX_HEAD_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n", kept=False)


def test_bodies_of_any_size_pass_and_requests_may_follow_each_other() -> None:
    size = 3 << 20
    sized = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + b"\r\n" * (size // 2)
    chunk = b"%x\r\n" % (100 * KIB) + b"a" * 100 * KIB + b"\r\n"
    chunks = CHUNKED + chunk * 10 + b"0\r\nTrailer: a\r\n\r\n"
    small = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na"
    with served() as site:
        client = site.client()
        for body, want in ((sized, size), (chunks, 1000 * KIB), (b"\r\n" + small, 1), (sized, size)):
            assert client.tell(body)
            assert client.read(b"\r\n\r\n%d" % want).startswith(b"HTTP/1.1 200")
        assert client.tell(small * 1_000 + small.replace(b"Host", b"Connection: close\r\nHost"))
        assert client.read().count(b"HTTP/1.1 200") == 1_001


def test_a_head_that_does_not_come_ends_the_connection_and_idle_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAD_TIMEOUT_S", 0.3)
    monkeypatch.setattr(module, "_SWEEP_S", 0.05)
    with served() as site:
        silent, slow, idle = site.client(), site.client(), site.client()
        assert slow.tell(b"GET / HTTP/1.1\r\nHo")
        assert idle.tell(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.read(b"\r\n\r\n0").startswith(b"HTTP/1.1 200")
        assert refused(slow.read(), 408, "header-timeout")
        assert silent.read() == b""
        assert idle.tell(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.read(b"\r\n\r\n0").startswith(b"HTTP/1.1 200")
        assert idle.tell(b"GET / HTTP/1.1\r\nHo")
        assert refused(idle.read(), 408, "header-timeout")


@pytest.mark.parametrize("http", [Http(max_connections=3), Http(max_connections_per_address=3)])
def test_more_connections_than_allowed_are_refused_and_logged_once(http: Http, caplog: pytest.LogCaptureFixture) -> None:
    def asked(client: Client) -> bytes:
        client.tell(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return client.read(b"\r\n\r\n0")

    with caplog.at_level(logging.WARNING, module.__name__), served(http) as site:
        first = [site.client() for _ in range(3)]
        assert all(asked(client).startswith(b"HTTP/1.1 200") for client in first)
        for _ in range(20):
            answer = site.client().read()
            assert refused(answer, 503, "overloaded")
            assert b"retry-after: 1" in answer
        assert len(caplog.records) == 1
        first[0].connection.close()
        again = site.client()
        assert asked(again).startswith(b"HTTP/1.1 200")


def test_the_local_socket_is_exempt() -> None:
    with served(Http(max_connections=1), exempt=True) as site:
        for _ in range(5):
            client = site.client()
            client.tell(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.read(b"\r\n\r\n0").startswith(b"HTTP/1.1 200")
