"""`GET /v1/live`: the overview as a stream of server-sent events, for as long as the client listens.

Streams live in the event loop. The overview is made by one thread, once for all streams of a scope (`server.overview`).
Rule 1: there are `http.max_streams` of a process, and `http.max_streams_per_tenant` of a tenant. More are refused with 503.
Rule 2: the token is looked at every `_CHECK_S`. A stream whose token is no longer good ends with `event: bye`.
Rule 3: a stream ends when the server stops, and when its client takes nothing for `_PATIENCE_S`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec
from starlette.types import Message, Receive, Send

from widerow.model.errors import Forbidden, NotFound, Overloaded, Unauthorized, WiderowError
from widerow.server.overview import FRESH_S, Overviews, for_role

log = logging.getLogger(__name__)

_CHECK_S = 3.0
_PATIENCE_S = 10.0
_PING = b": ping\n\n"
EVENTS = "text/event-stream"
REVOKED, STOPPING = "the token is no longer good", "the server stops"


class Streams:
    """Those of a process. For the event loop alone."""

    def __init__(self, overviews: Overviews, most: int, most_of_one: int) -> None:
        self._overviews, self._most, self._most_of_one = overviews, most, most_of_one
        self._open: Counter[str] = Counter()
        self._stopping = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="live")

    def stop(self) -> None:
        """Say goodbye to all."""
        self._stopping.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def place(self, tenant: str) -> Iterator[None]:
        """Count a stream while it is open. `tenant`: empty for operators, who count together."""
        if self._open.total() >= self._most:
            raise Overloaded(f"{self._most} streams are open, which is as many as http.max_streams allows")
        if self._open[tenant] >= self._most_of_one:
            raise Overloaded(f"{self._most_of_one} streams are open, as many as http.max_streams_per_tenant allows")
        self._open[tenant] += 1
        try:
            yield
        finally:
            self._open[tenant] -= 1
            if not self._open[tenant]:
                del self._open[tenant]

    async def run(self, scope: str, role: str, check: Callable[[], Awaitable[object]], receive: Receive, send: Send) -> None:
        """Send until the end. The head of the answer has been sent. `check` raises when the token is no longer good."""
        loop = asyncio.get_running_loop()
        gone, stopped = loop.create_task(_gone(receive)), loop.create_task(self._stopping.wait())
        checked_s, last = loop.time(), b""
        try:
            while not gone.done():
                if stopped.done():
                    return await self._send(send, _bye(STOPPING), more=False)
                if loop.time() - checked_s >= _CHECK_S:
                    checked_s = loop.time()
                    if reason := await self._refused(check):
                        return await self._send(send, _bye(reason), more=False)
                made = await self._made(scope)
                news = made not in (b"", last)
                await self._send(send, _event(b"overview", for_role(made, role)) if news else _PING)
                last = made
                await asyncio.wait({gone, stopped}, timeout=FRESH_S, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            log.info("a stream was ended: its client took nothing for %d s", _PATIENCE_S)
        finally:
            gone.cancel()
            stopped.cancel()

    async def _made(self, scope: str) -> bytes:
        """Empty: there is none now."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._overviews.of, scope)
        except asyncio.CancelledError:  # the thread is gone
            if not self._stopping.is_set():
                raise
        except Exception:
            if not self._stopping.is_set():
                log.exception("the overview could not be made")
        return b""

    async def _refused(self, check: Callable[[], Awaitable[object]]) -> str:
        """Why the stream must end; empty: it may go on. A store that does not answer ends none."""
        try:
            await check()
        except (Unauthorized, Forbidden, NotFound):
            return REVOKED
        except WiderowError:
            return ""
        except (RuntimeError, asyncio.CancelledError):  # the threads are gone
            if not self._stopping.is_set():
                raise
        return ""

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            await send({"type": "http.response.body", "body": body, "more_body": more})


async def _gone(receive: Receive) -> None:
    """Until the client has closed the connection."""
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()


def _event(name: bytes, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, data)


def _bye(reason: str) -> bytes:
    return _event(b"bye", msgspec.json.encode({"reason": reason}))
