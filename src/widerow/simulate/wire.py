"""A keep-alive HTTP/1.1 connection that costs the sender as little as possible.

A load driver shares the machine with what it measures. A request is one gathering write of a ready head and the body, and
a response is read by hand: about a fifth of the time `http.client` takes.
Rule: one request at a time on a connection, one thread at a time. After any error the connection is closed; the next
request opens a new one. Only what HTTP servers send to a simple client is understood: lengths, chunks, or until the end.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

Payload = bytes | bytearray | memoryview

_HEAD_LIMIT = 64 * 1024


class TransportError(Exception):
    """The connection failed: nobody knows whether the request was taken."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a server listens: host and port, or a Unix socket."""

    host: str
    port: int
    path: str = ""
    unix: str = ""

    @classmethod
    def of(cls, where: str) -> Target:
        """`http://host:port[/prefix]`, or the path of a Unix socket (also as `unix:PATH`)."""
        if where.startswith("unix:") or "://" not in where:
            return cls("localhost", 0, unix=where.removeprefix("unix:"))
        url = urlsplit(where)
        if url.scheme != "http" or not url.hostname:
            raise ValueError(f"{where!r}: give http://host:port or the path of a Unix socket")
        return cls(url.hostname, url.port or 80, url.path.rstrip("/"))


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """One connection to a server, opened when first needed."""

    def __init__(self, target: Target, headers: dict[str, str], timeout_s: float = 30.0) -> None:
        self._target, self._timeout_s = target, timeout_s
        # A name with a port as browsers send it; a Unix socket has no name, and any will do.
        host = f"{target.host}:{target.port}" if not target.unix else "localhost"
        lines = [f"Host: {host}", *(f"{name}: {value}" for name, value in headers.items())]
        self._fixed = ("\r\n".join(lines) + "\r\n").encode("latin-1")
        self._socket: socket.socket | None = None
        self._spare = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._spare = None, b""

    def request(self, method: str, path: str, body: Payload = b"", headers: str = "") -> Response:
        """Send and wait for the answer. `headers` are further whole lines, each ending in CRLF. Raises TransportError."""
        head = f"{method} {self._target.path}{path} HTTP/1.1\r\n{headers}Content-Length: {len(body)}\r\n".encode("latin-1")
        try:
            self._send(head + self._fixed + b"\r\n", body)
            return self._receive()
        except (OSError, ValueError) as error:
            self.close()
            raise TransportError(f"{type(error).__name__}: {error}") from error

    def _send(self, head: bytes, body: Payload) -> None:
        if self._socket is None:
            self._socket = self._open()
        sent = self._socket.sendmsg([head, body])
        if sent < len(head):
            self._socket.sendall(head[sent:])
            sent = len(head)
        if sent < len(head) + len(body):
            self._socket.sendall(memoryview(body)[sent - len(head) :])

    def _open(self) -> socket.socket:
        if self._target.unix:
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            opened.settimeout(self._timeout_s)
            try:
                opened.connect(self._target.unix)
            except OSError:
                opened.close()
                raise
            return opened
        opened = socket.create_connection((self._target.host, self._target.port), self._timeout_s)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened

    def _receive(self) -> Response:
        head = self._until(b"\r\n\r\n", _HEAD_LIMIT).decode("latin-1")
        status_line, _, rest = head.partition("\r\n")
        match = re.match(r"HTTP/1\.[01] (\d{3})", status_line)
        if match is None:
            raise ValueError(f"not an HTTP response: {status_line[:60]!r}")
        status = int(match[1])
        headers = {}
        for line in rest.split("\r\n"):
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if 100 <= status < 200:
            return self._receive()
        body = self._body(status, headers)
        if headers.get("connection", "").lower() == "close":
            self.close()
        return Response(status, headers, body)

    def _body(self, status: int, headers: dict[str, str]) -> bytes:
        if status in (204, 304):
            return b""
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return self._chunks()
        if "content-length" in headers:
            return self._exactly(int(headers["content-length"]))
        headers["connection"] = "close"
        parts = [self._spare]
        while part := self._read():
            parts.append(part)
        return b"".join(parts)

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self._until(b"\r\n", 1024).partition(b";")[0], 16):
            parts.append(self._exactly(size))
            self._exactly(2)
        while self._until(b"\r\n", _HEAD_LIMIT):
            pass  # trailers
        return b"".join(parts)

    def _until(self, mark: bytes, limit: int) -> bytes:
        data = self._spare
        while (at := data.find(mark)) < 0:
            if len(data) > limit:
                raise ValueError("the response's head is too long")
            part = self._read()
            if not part:
                raise ConnectionResetError("the server closed the connection")
            data += part
        self._spare = data[at + len(mark) :]
        return data[:at]

    def _exactly(self, size: int) -> bytes:
        parts, have = [self._spare], len(self._spare)
        while have < size:
            part = self._read()
            if not part:
                raise ConnectionResetError("the server closed the connection within a response")
            parts.append(part)
            have += len(part)
        data = b"".join(parts)
        self._spare = data[size:]
        return data[:size]

    def _read(self) -> bytes:
        if self._socket is None:
            raise ConnectionResetError("closed")
        return self._socket.recv(256 * 1024)
