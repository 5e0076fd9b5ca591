"""Messages of our own on their way to the broker, at quality of service 1.

Rule 1: what waits, to be sent or to be acknowledged, is bounded; what does not fit is dropped, and whoever sent it is told.
Rule 2: what was sent and not acknowledged when a connection ended is sent again on the next one, by its old identifier.
Safe to share between threads.
"""

from __future__ import annotations

import threading
from collections import deque

from widerow.codec.mqtt.packets import publish

_IDENTIFIERS = 65_535


class Outbox:
    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._queue: deque[tuple[bytes, bytes, bool]] = deque()
        self._sent: dict[int, tuple[bytes, bytes, bool]] = {}
        self._last = 0

    def put(self, topic: bytes, payload: bytes, *, retain: bool = False) -> bool:
        """False: there is no room."""
        with self._lock:
            if len(self._queue) + len(self._sent) >= self._most:
                return False
            self._queue.append((topic, payload, retain))
        return True

    def take(self, max_bytes: int, most_sent: int) -> bytes:
        """Packets to send now: about so many bytes, while fewer than `most_sent` are unacknowledged."""
        if not self._queue:
            return b""
        out, size = [], 0
        with self._lock:
            while self._queue and size < max_bytes and len(self._sent) < most_sent:
                message = self._queue.popleft()
                name = self._next()
                self._sent[name] = message
                out.append(_packet(message, name))
                size += len(out[-1])
        return b"".join(out)

    def again(self, *, dup: bool) -> bytes:
        """What is to be sent first on a new connection; `dup` if the broker may have it."""
        with self._lock:
            return b"".join(_packet(message, name, dup=dup) for name, message in self._sent.items())

    def identifier(self) -> int:
        """One that is not in use, for another packet."""
        with self._lock:
            return self._next()

    def _next(self) -> int:
        while True:
            self._last = self._last % _IDENTIFIERS + 1
            if self._last not in self._sent:
                return self._last

    def acknowledged(self, name: int) -> bytes | None:
        """The broker has it, or will never take it. Its topic; None if nobody knows of it."""
        with self._lock:
            message = self._sent.pop(name, None)
        return None if message is None else message[0]


def _packet(message: tuple[bytes, bytes, bool], name: int, *, dup: bool = False) -> bytes:
    topic, payload, retain = message
    return publish(topic, payload, identifier=name, qos=1, retain=retain, dup=dup)
