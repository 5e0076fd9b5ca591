"""Streams of the overview without a network."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

from starlette.types import Message

from widerow.server.overview import Overviews
from widerow.server.streams import STOPPING, Streams


class Slow:
    """Overviews that take until they may."""

    def __init__(self) -> None:
        self.begun, self.may = threading.Event(), threading.Event()

    def of(self, tenant: str) -> bytes:  # noqa: ARG002
        self.begun.set()
        self.may.wait(20)
        return b'{"scope":"all"}'


def test_streams_say_goodbye_when_the_server_stops_also_those_that_wait_for_an_overview() -> None:
    slow, sent = Slow(), list[list[bytes]]([[], []])

    async def main() -> None:
        streams = Streams(cast("Overviews", slow), 2, 2)

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def check() -> None: ...

        def run(bodies: list[bytes]) -> asyncio.Task[None]:
            async def send(message: Any) -> None:
                bodies.append(message["body"])

            return asyncio.create_task(streams.run("", "operator", check, receive, send))

        tasks = [run(bodies) for bodies in sent]
        await asyncio.to_thread(slow.begun.wait, 20)
        streams.stop()  # the overview of the first is being made, that of the second waits for the thread
        slow.may.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 20)

    asyncio.run(main())
    assert [STOPPING.encode() in bodies[-1] for bodies in sent] == [True, True]
