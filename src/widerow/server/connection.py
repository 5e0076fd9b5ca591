"""A client's connection: uvicorn's, with a say in when others give way to what comes over it, and when it is read.

Rule 1: whatever comes is announced before anything is done about it (`Pressure.knock`).
Rule 2: who was told that it sends too much (`read_later`) is not read again before the next pause of everybody else, and all
of them then, one after the other; `LONGEST_S` later in any case. What it sends meanwhile waits in the network: none is lost.
What is refused in a pause keeps nobody waiting, and of requests that follow one another each costs half.
Runs on the event loop's thread alone, hence no lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LONGEST_S = 0.02
"""Where there is no pause. Whoever shares its connection with a client that sends too much waits that long, too."""
_LOOK_S = 0.003
_READ_LATER = "read_later"


def read_later(scope: Scope) -> None:
    """What the client of this request sends next is nothing that others should give way to: it was told so."""
    put_off = scope.get("state", {}).get(_READ_LATER)
    if put_off is not None:  # there is a connection
        put_off()


class PutOff:
    """Connections that are put off until the next pause."""

    def __init__(self, is_urgent: Callable[[], bool]) -> None:
        self._is_urgent = is_urgent
        self._connections: list[HttpToolsProtocol] = []
        self._until_s = 0.0

    def add(self, connection: HttpToolsProtocol) -> None:
        connection.flow.pause_reading()
        self._connections.append(connection)
        if len(self._connections) == 1:
            loop = connection.loop
            self._until_s = loop.time() + LONGEST_S
            loop.call_later(_LOOK_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._is_urgent() and loop.time() < self._until_s:
            loop.call_later(_LOOK_S, self._look, loop)
            return
        connections, self._connections = self._connections, []
        for connection in connections:
            if not connection.transport.is_closing():
                connection.flow.resume_reading()


def connection_class(knock: Callable[[], None], is_urgent: Callable[[], bool]) -> type[HttpToolsProtocol]:
    """For one event loop. `knock`: something has come. `is_urgent`: whether there is something that others give way to."""
    put_off = PutOff(is_urgent)

    class Connection(HttpToolsProtocol):
        _read_later = False

        def data_received(self, data: bytes) -> None:
            knock()
            super().data_received(data)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.scope["state"][_READ_LATER] = self._was_refused

        def _was_refused(self) -> None:
            self._read_later = True

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self._read_later:
                self._read_later = False
                # What was sent without waiting for answers has been read already.
                if not self.pipeline and not self.transport.is_closing():
                    put_off.add(self)

    return Connection
