"""A server that refuses everything at once: what is sent to it costs the machine what sending costs, and hardly more.

    python -m bench.lib.nobody

It prints the address it listens at, and ends on SIGTERM. Only what `widerow.simulate.wire` sends is understood.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from typing import cast

_LENGTH = re.compile(rb"\r\nContent-Length: (\d+)\r\n")
_BODY = b'{"error":"nobody keeps this"}'
_ANSWER = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(_BODY),
    _BODY,
)


class Refusing(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._pending, self._left = cast("asyncio.Transport", transport), b"", 0

    def data_received(self, data: bytes) -> None:
        while data:
            if self._left:
                taken = min(self._left, len(data))
                data, self._left = data[taken:], self._left - taken
            else:
                head, mark, data = (self._pending + data).partition(b"\r\n\r\n")
                if not mark:
                    self._pending = head
                    return
                length = _LENGTH.search(head + b"\r\n")
                self._pending, self._left = b"", int(length[1]) if length else 0
            if not self._left:
                self._transport.write(_ANSWER)


async def serve() -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    server = await loop.create_server(Refusing, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await over.wait()
    server.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(serve()))
