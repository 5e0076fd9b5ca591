"""Telling webhooks: each notice is one signed request, tried again until it is taken or given up.

Rule 1: a request is `POST`, JSON, with `Widerow-Timestamp` (seconds) and, if the webhook has a secret, `Widerow-Signature`:
`sha256=` and the HMAC-SHA256 of the timestamp, a full stop and the body.
Rule 2: it goes to the one address that was checked (`alerts.address`). Redirects are not followed. It takes `TIMEOUT_S` at
the most, and of the answer `MOST_ANSWER` bytes are read.
Rule 3: a notice is tried `len(PAUSES_S) + 1` times. One webhook's notices are sent one after the other, in order.
Rule 4: `MOST_WAITING` notices wait, `MOST_OF_ONE` of them for one webhook. A notice that does not fit is not taken
(`submit`), and stays owed in the store. One that waits already is not taken twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import httpx

from widerow.alerts.address import Network, chosen, host_and_port
from widerow.alerts.book import Webhook
from widerow.model.errors import WiderowError
from widerow.ops.counters import Counters

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
MOST_ANSWER = 16 << 10
MOST_WAITING = 1_000
MOST_OF_ONE = 50
PAUSES_S = (1.0, 2.0, 5.0, 15.0, 60.0, 180.0)
"""Five minutes in all."""

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one attempt."""

    delivered: bool
    status: int | None = None
    reason: str = ""
    forbidden: bool = False
    """The address may not be reached: trying again is of no use."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, by the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def signature(secret: str, timestamp: int, body: bytes) -> str:
    return "sha256=" + hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


async def send(
    webhook: Webhook, body: bytes, timestamp: int, allowed: Sequence[Network], resolver: Resolve = resolve
) -> Sent:
    """One attempt. Never raises but for being cancelled."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await _send(webhook, body, timestamp, allowed, resolver)
    except WiderowError as error:
        return Sent(delivered=False, reason=str(error), forbidden=True)
    except TimeoutError:
        return Sent(delivered=False, reason=f"no answer within {TIMEOUT_S:g} s")
    except (OSError, httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        return Sent(delivered=False, reason=f"{type(error).__name__}: {error}"[:200])


async def _send(webhook: Webhook, body: bytes, timestamp: int, allowed: Sequence[Network], resolver: Resolve) -> Sent:
    host, port = host_and_port(webhook.url)
    address = chosen(host, await resolver(host, port), allowed)
    url = httpx.URL(webhook.url).copy_with(host=str(address))
    headers = {
        "Host": httpx.URL(webhook.url).netloc.decode(),
        "Content-Type": "application/json",
        "User-Agent": "widerow",
        "Widerow-Timestamp": str(timestamp),
    }
    if webhook.secret:
        headers["Widerow-Signature"] = signature(webhook.secret, timestamp, body)
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=TIMEOUT_S) as client:
        request = client.build_request("POST", url, content=body, headers=headers, extensions={"sni_hostname": host})
        answer = await client.send(request, stream=True)
        try:
            read = 0
            async for chunk in answer.aiter_raw():
                read += len(chunk)
                if read > MOST_ANSWER:
                    break
        finally:
            await answer.aclose()
    if answer.is_success:
        return Sent(delivered=True, status=answer.status_code)
    why = "redirects are not followed" if answer.is_redirect else "it did not take the notice"
    return Sent(delivered=False, status=answer.status_code, reason=f"status {answer.status_code}: {why}")


@dataclass(frozen=True, slots=True)
class Notice:
    body: bytes
    webhook: Callable[[], Webhook | None]
    """As it is when it is sent; None: it was removed."""
    key: tuple[str, str]
    """Of the webhook: notices of one key go one after the other."""
    about: str
    """Two of a key that are about the same are the same notice."""
    done: Callable[[], None]
    """Called when it was delivered or given up."""


class Courier:
    """A thread that sends. Safe to share between threads."""

    def __init__(
        self,
        counters: Counters,
        now_s: Callable[[], float],
        allowed: Sequence[Network],
        *,
        resolver: Resolve = resolve,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        self._counters, self._now_s, self._allowed = counters, now_s, allowed
        self._resolver, self._pauses_s = resolver, pauses_s
        self._lock, self._waiting = threading.Lock(), dict[tuple[str, str], set[str]]()
        """By key: what the notices that wait are about."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._thread: threading.Thread | None = None
        self._stopping = False

    def submit(self, notice: Notice) -> bool:
        """Take it, if there is room or it waits already."""
        with self._lock:
            waiting = self._waiting.get(notice.key, set())
            if notice.about in waiting:
                return True
            full = len(waiting) >= MOST_OF_ONE or sum(map(len, self._waiting.values())) >= MOST_WAITING
            if self._stopping or full:
                return False
            self._waiting.setdefault(notice.key, set()).add(notice.about)
            asyncio.run_coroutine_threadsafe(self._deliver(notice), self._started())
        return True

    def try_once(self, webhook: Webhook, body: bytes) -> Sent:
        """One attempt now; the caller waits for it."""
        with self._lock:
            if self._stopping:
                return Sent(delivered=False, reason="this process is stopping")
            attempt = asyncio.run_coroutine_threadsafe(self._attempt(webhook, body), self._started())
        return attempt.result(TIMEOUT_S + 5)

    def stop(self) -> None:
        """Notices that were not delivered stay owed."""
        with self._lock:
            self._stopping = True
            loop, thread = self._loop, self._thread
        if loop and thread:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _started(self) -> asyncio.AbstractEventLoop:
        """The thread is there when there is something to send: most processes have no webhooks."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name="webhooks")
            self._thread.start()
        return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            while pending := asyncio.all_tasks(loop):  # a task that is cancelled may have begun others
                for task in pending:
                    task.cancel()
                loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())  # `done` of a notice may be under way
            loop.close()

    async def _deliver(self, notice: Notice) -> None:
        lock = self._locks.setdefault(notice.key, asyncio.Lock())
        try:
            async with lock:
                result = await self._until_taken(notice)
            self._counters.alert_notices.labels(result).inc()
            await asyncio.to_thread(notice.done)
        except Exception:
            log.exception("a notice was not delivered")
        finally:
            with self._lock:
                self._waiting[notice.key].discard(notice.about)
                if not self._waiting[notice.key]:
                    del self._waiting[notice.key]
                    self._locks.pop(notice.key, None)

    async def _until_taken(self, notice: Notice) -> str:
        for pause_s in (*self._pauses_s, None):
            webhook = notice.webhook()
            if webhook is None:
                return "failed"
            sent = await self._attempt(webhook, notice.body)
            if sent.delivered:
                return "delivered"
            if sent.forbidden or pause_s is None:
                log.warning("webhook %s: %s; the notice is given up", webhook.name, sent.reason)
                return "refused" if sent.forbidden else "failed"
            log.info("webhook %s: %s; again in %gs", webhook.name, sent.reason, pause_s)
            await asyncio.sleep(pause_s)
        raise AssertionError("the last pause is none")

    async def _attempt(self, webhook: Webhook, body: bytes) -> Sent:
        return await send(webhook, body, int(self._now_s()), self._allowed, self._resolver)
