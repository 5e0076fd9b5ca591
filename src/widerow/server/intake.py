"""Bodies of requests, read within bounds.

Rule 1: a body that says it is too large is refused before it is read; one that does not say is read up to the limit.
Rule 2: all bodies that are being read hold at most `max_bytes_in_all`; beyond that, the newest is refused (`Overloaded`).
Bodies that arrive in one piece never wait, so only those that come in pieces are counted.
Runs on the event loop's thread alone, hence no lock.
"""

from __future__ import annotations

from starlette.types import Receive

from widerow.model.errors import Overloaded, Rejected, TooLarge, Unavailable


class Disconnected(Unavailable):
    """The sender went away before its request was complete. Nobody reads the answer."""


class Intake:
    def __init__(self, *, max_bytes: int, max_bytes_in_all: int) -> None:
        self.max_bytes, self._max_in_all = max_bytes, max_bytes_in_all
        self.held = 0

    def announced(self, content_length: bytes) -> None:
        """Refuse what announces itself as too large."""
        try:
            size = int(content_length)
        except ValueError:
            raise Rejected("content-length is no number", code="syntax") from None
        if size > self.max_bytes:
            raise self._too_large()

    async def read(self, receive: Receive) -> bytes:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected("the client went away")
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            body = await self._rest(body, receive)
        if len(body) > self.max_bytes:
            raise self._too_large()
        return body

    async def _rest(self, first: bytes, receive: Receive) -> bytes:
        parts, size = [first], len(first)
        self.held += size
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected("the client went away")
                part = message.get("body", b"")
                parts.append(part)
                size += len(part)
                self.held += len(part)
                if size > self.max_bytes:
                    raise self._too_large()
                if self.held > self._max_in_all and size < self.held:  # alone, a body may always come in
                    raise Overloaded(f"{self.held >> 20} MiB of requests are being read (pipeline.max_in_flight_mib)")
                if not message.get("more_body", False):
                    return b"".join(parts)
        finally:
            self.held -= size

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"the body has more than {self.max_bytes} bytes, as http.max_body_mib allows; send several smaller ones"
        )
