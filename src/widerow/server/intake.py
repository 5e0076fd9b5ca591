"""Bodies of requests, read within bounds.

Rule 1: a body that says it is too large is refused before it is read; one that does not say is read up to the limit.
Rule 2: all bodies that are being read, or whose requests wait to be answered (`waiting`), hold at most `max_bytes_in_all`,
those of one tenant `max_bytes_of_one`; beyond that, the newest is refused (`Overloaded`, `TenantBusy`).
Rule 3: a body comes steadily. It may pause for `pause_s`, less if it came slower than `LEAST_BYTES_PER_S` until then; one
that does not go on is given up (`Stalled`).
Bodies that arrive in one piece never wait to be read, so only those that come in pieces are refused for want of room; and
those of writes are counted by the pipeline once they are whole.
Runs on the event loop's thread alone, hence no lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.types import Receive

from widerow.codec.body import MAX_BODY, too_large
from widerow.model.errors import Overloaded, Rejected, Stalled, TenantBusy, TooLarge, Unavailable
from widerow.model.times import SECOND, about_duration

LEAST_BYTES_PER_S = 1024
"""8 kbit/s, and hardly any link is slower. Who sends a byte now and then keeps no room for it."""


class Disconnected(Unavailable):
    """The sender went away before its request was complete. Nobody reads the answer."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How large a body may be, before and after decompression, and what says so."""

    max_bytes: int
    by: str = MAX_BODY

    def exceeded(self) -> TooLarge:
        return too_large(self.max_bytes, self.by)


class Intake:
    def __init__(self, *, max_bytes: int, max_bytes_in_all: int, max_bytes_of_one: int, pause_s: float) -> None:
        self.limit = Limit(max_bytes)
        self._max_in_all, self._max_of_one, self._pause_s = max_bytes_in_all, max_bytes_of_one, pause_s
        self.held = 0
        self._held_of: dict[str, int] = {}

    def announced(self, content_length: bytes, limit: Limit | None = None) -> None:
        """Refuse what announces itself as too large."""
        limit = limit or self.limit
        try:
            size = int(content_length)
        except ValueError:
            raise Rejected("content-length is no number", code="syntax") from None
        if size > limit.max_bytes:
            raise limit.exceeded()

    async def read(self, receive: Receive, tenant: str, limit: Limit | None = None) -> bytes:
        """The whole body of a request of this tenant. `limit`: where it may have less than others."""
        limit = limit or self.limit
        try:
            async with asyncio.timeout(self._pause_s):
                body, more = await _part(receive)
        except TimeoutError:
            raise self._stalled(0) from None
        if more:
            body = await self._rest(body, receive, tenant, limit)
        if len(body) > limit.max_bytes:
            raise limit.exceeded()
        return body

    @contextmanager
    def waiting(self, tenant: str, body: bytes) -> Iterator[None]:
        """Counts a body that was read for as long as its request is not answered."""
        self._take(tenant, len(body))
        try:
            yield
        finally:
            self._give(tenant, len(body))

    async def _rest(self, part: bytes, receive: Receive, tenant: str, limit: Limit) -> bytes:
        parts: list[bytes] = []
        size, more, now_s = 0, True, asyncio.get_running_loop().time
        until_s = now_s() + self._pause_s
        try:
            async with asyncio.timeout_at(until_s) as pause:
                while True:
                    parts.append(part)
                    size += len(part)
                    self._take(tenant, len(part))
                    if size > limit.max_bytes:
                        raise limit.exceeded()
                    self._check_room(tenant, size)
                    if not more:
                        return b"".join(parts)
                    part, more = await _part(receive)
                    until_s = min(now_s() + self._pause_s, until_s + len(part) / LEAST_BYTES_PER_S)
                    pause.reschedule(until_s)
        except TimeoutError:
            raise self._stalled(size) from None
        finally:
            self._give(tenant, size)

    def _stalled(self, size: int) -> Stalled:
        return Stalled(
            f"after {size} bytes the body did not go on for {about_duration(self._pause_s * SECOND)}, "
            f"as http.body_timeout_s allows, or came slower than {LEAST_BYTES_PER_S} bytes a second; "
            "nothing was kept, send it again"
        )

    def _check_room(self, tenant: str, size: int) -> None:
        """Alone, a body may always come in."""
        if self.held > self._max_in_all and size < self.held:
            raise Overloaded(f"{self.held >> 20} MiB of requests are being read or wait (pipeline.max_in_flight_mib)")
        held = self._held_of[tenant]
        if held > self._max_of_one and size < held:
            raise TenantBusy(f"{held >> 20} MiB of this tenant are being read or wait (pipeline.max_tenant_in_flight_mib)")

    def _take(self, tenant: str, size: int) -> None:
        self.held += size
        self._held_of[tenant] = self._held_of.get(tenant, 0) + size

    def _give(self, tenant: str, size: int) -> None:
        self.held -= size
        left = self._held_of.pop(tenant, 0) - size
        if left:
            self._held_of[tenant] = left


async def _part(receive: Receive) -> tuple[bytes, bool]:
    """The next piece of a body, and whether there are more."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Disconnected("the client went away")
    return message.get("body", b""), message.get("more_body", False)
