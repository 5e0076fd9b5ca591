"""The HTTP API without a server: requests of this process are answered in it, by the same code, and no socket is opened.

Rule 1: what a request is answered here it is answered over the wire, byte for byte: refusals, limits and forms included.
Rule 2: who is in the process is its owner, and therefore an operator, as on the local socket.
Rule 3: streams are for connections: there are none here.
Rule 4: nobody waits for ever. Requests that are under way when the transport closes get an answer that says so.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from typing import Any

import httpx
import uvloop
from starlette.types import Message, Scope

from widerow.server.app import App
from widerow.server.call import Front
from widerow.server.routes import ROUTES
from widerow.service import Service


class InsideTransport(httpx.BaseTransport):
    """What `httpx.Client` takes for a connection. Safe to share between threads. The service stays its owner's to close."""

    def __init__(self, service: Service) -> None:
        self._app = App(Front(service, "in process"), local=True, routes=[route for route in ROUTES if not route.streams])
        self._loop = uvloop.new_event_loop()
        self._lock, self._closed = threading.Lock(), False
        self._thread = threading.Thread(target=self._loop.run_forever, name="inside")
        self._thread.start()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        with self._lock:
            if self._closed:
                raise httpx.ConnectError("the store was closed", request=request)
            future = asyncio.run_coroutine_threadsafe(self._answer(_scope(request), body), self._loop)
        try:
            status, headers, content = future.result(request.extensions.get("timeout", {}).get("read"))
        except TimeoutError:
            future.cancel()
            raise httpx.ReadTimeout("no answer in time", request=request) from None
        except CancelledError:
            raise httpx.ReadError("the store was closed", request=request) from None
        return httpx.Response(status, headers=headers, content=content, request=request)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._app.close()

    async def _answer(self, scope: Scope, body: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        start, *parts = sent
        return start["status"], start.get("headers", []), b"".join(part.get("body", b"") for part in parts)

    async def _cancel_all(self) -> None:
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _scope(request: httpx.Request) -> dict[str, Any]:
    """The request as ASGI describes one."""
    path, _, query = request.url.raw_path.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": path.decode("latin-1"),
        "raw_path": path,
        "root_path": "",
        "query_string": query,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": None,
        "server": None,
    }
