"""A client's connection: uvicorn's, within limits.

Rule 1: what comes besides bodies is bounded before it is parsed to its end. A head (request line and headers) of more than
`MAX_HEAD_BYTES` or `MAX_LINES` lines is refused with 431 and the connection closed; so are trailers. The parser tells of a
header when it is complete, which is too late, so bytes are counted here: those that are neither a body's nor end a head.
Rule 2: a head that is not complete after `HEAD_TIMEOUT_S` ends the connection. It counts from the first byte, and on a new
connection from the beginning.
Rule 3: there are at most `http.max_connections` over TCP, and `http.max_connections_per_address` from one address. More are
refused with 503, which is logged once a minute. The local socket is exempt.
Runs on the event loop's thread alone, hence no lock.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from widerow.config import Http
from widerow.model.errors import Overloaded, WiderowError
from widerow.server.failures import HeadTimeout, HeadTooLarge, failure

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 << 10
MAX_LINES = 200
HEAD_TIMEOUT_S = 10.0
_PIECE = 8 << 10
"""So many bytes are parsed before they are looked at again."""
_SWEEP_S = 1.0
_SAY_AGAIN_S = 60.0


class Door:
    """Counts connections, and knows those whose head is awaited."""

    def __init__(self, http: Http, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._most, self._most_of_one = _affordable(http.max_connections), http.max_connections_per_address
        self._open = 0
        self._by_address: Counter[str] = Counter()
        self._awaited: dict[Connection, float] = {}
        """Until when; the earliest first."""
        self._sweeping = False
        self._said_s: dict[str, float] = {}

    def enter(self, address: str) -> str:
        """Why a connection is refused; empty: it is counted."""
        if self._open >= self._most:
            return self._full("http.max_connections", f"{self._open} connections are open")
        if self._most_of_one and self._by_address[address] >= self._most_of_one:
            return self._full("http.max_connections_per_address", f"{self._most_of_one} connections are open from {address}")
        self._open += 1
        self._by_address[address] += 1
        return ""

    def leave(self, address: str) -> None:
        self._open -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _full(self, setting: str, what: str) -> str:
        now_s = self._loop.time()
        if now_s >= self._said_s.get(setting, 0.0):
            self._said_s[setting] = now_s + _SAY_AGAIN_S
            log.warning("%s, which is as many as %s allows: more are refused", what, setting)
        return f"too many connections are open ({setting})"

    def await_head(self, connection: Connection) -> None:
        self._awaited.setdefault(connection, self._loop.time() + HEAD_TIMEOUT_S)
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_later(_SWEEP_S, self._sweep)

    def has_head(self, connection: Connection) -> None:
        self._awaited.pop(connection, None)

    def _sweep(self) -> None:
        now_s = self._loop.time()
        for connection in [one for one, until_s in self._awaited.items() if until_s <= now_s]:
            del self._awaited[connection]
            connection.give_up()
        self._sweeping = bool(self._awaited)
        if self._sweeping:
            self._loop.call_later(_SWEEP_S, self._sweep)


class Connection(HttpToolsProtocol):
    """One of a `Door`: see `connection_class`."""

    door: Door
    exempt: bool
    _address: str | None = None
    """Of a connection that is counted."""
    _in_head = False
    _other_bytes = 0
    """That came since there was anything of a body, or the end of a head."""
    _body_left = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self.exempt:
            address = self.client[0] if self.client else ""
            if why := self.door.enter(address):
                self._refuse(Overloaded(why))
                return
            self._address = address
        self.door.await_head(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.door.has_head(self)
        if self._address is not None:
            self.door.leave(self._address)
            self._address = None

    def data_received(self, data: bytes) -> None:
        view, start = memoryview(data), 0
        while start < len(view) and not self.transport.is_closing():
            piece = view[start : start + max(_PIECE, self._body_left)]
            start += len(piece)
            self._other_bytes += len(piece)
            super().data_received(piece)  # type: ignore[arg-type]
            if self._other_bytes > MAX_HEAD_BYTES or (self.headers and len(self.headers) > MAX_LINES):
                self._refuse(HeadTooLarge.of(MAX_HEAD_BYTES, MAX_LINES))
        if self._in_head and not self.transport.is_closing():
            self.door.await_head(self)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._other_bytes, self._body_left = True, 0, 0

    def on_headers_complete(self) -> None:
        lines = len(self.headers)
        if lines > MAX_LINES or (self._other_bytes > MAX_HEAD_BYTES // 2 and self._head_bytes() > MAX_HEAD_BYTES):
            self._refuse(HeadTooLarge.of(MAX_HEAD_BYTES, MAX_LINES))
            raise _Refused
        self._in_head, self._other_bytes = False, 0
        self.door.has_head(self)
        for name, value in self.headers:
            if name == b"content-length":
                self._body_left = int(value)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._other_bytes = 0
        self._body_left = max(0, self._body_left - len(body))
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():  # otherwise it is told already
            super().send_400_response(msg)

    def give_up(self) -> None:
        """Its head did not come in time."""
        if self._in_head:
            self._refuse(HeadTimeout(f"the head of the request was not complete after {HEAD_TIMEOUT_S:g}s"))
        else:
            self.transport.close()

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _refuse(self, error: WiderowError) -> None:
        """Answer and close; or close alone, where an answer has begun."""
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            failed = failure(error)
            headers = [*self.server_state.default_headers, *failed.headers]
            if not any(name == b"connection" for name, _ in headers):
                headers.append((b"connection", b"close"))
            head = [b"HTTP/1.1 %d %b" % (failed.status, HTTPStatus(failed.status).phrase.encode())]
            head += [b"%b: %b" % header for header in headers]
            self.transport.write(b"\r\n".join([*head, b"", failed.body]))
        self.transport.close()


class _Refused(Exception):
    """Ends the parsing of what was refused."""


def connection_class(door: Door, *, exempt: bool) -> type[Connection]:
    """For uvicorn, which makes one of each connection. `exempt`: they are not counted."""
    fields: dict[str, Any] = {"door": door, "exempt": exempt}
    return type("Connection", (Connection,), fields)


def _affordable(wanted: int) -> int:
    """How many connections there may be: no more than half of the files that the system lets this process open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * wanted <= hard or soft < hard < 2 * wanted:
        soft = min(hard, 2 * wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft // 2 < wanted:
        log.warning(
            "%d files may be open, so %d connections are taken instead of the %d of http.max_connections: raise `ulimit -n`",
            soft,
            soft // 2,
            wanted,
        )
    return min(wanted, soft // 2)
