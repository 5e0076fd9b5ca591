"""Blocks of messages that were received and are not acknowledged yet.

Rule 1: PUBACKs leave in the order their PUBLISHes came in (MQTT-4.6.0-2), whatever the order in which they are done: what is
done waits for what came before it.
Rule 2: what belongs to an earlier connection is never acknowledged on a later one: the broker delivers it again.
Rule 3: a block counts with all its bytes until the last of its messages is done, on whatever connection.
Safe to share between threads.
"""

from __future__ import annotations

import threading
from collections import deque

import numpy as np

from widerow.codec.mqtt import Publishes
from widerow.codec.mqtt.packets import pubacks
from widerow.model.arrays import Ints


class Block:
    """Messages that were received together. `messages` is the reader's; the rest is the window's."""

    __slots__ = ("connection", "done", "left", "messages", "received_us", "released")

    def __init__(self, messages: Publishes, connection: int, received_us: int) -> None:
        self.messages, self.connection, self.received_us = messages, connection, received_us
        self.done = np.zeros(len(messages), np.bool_)
        self.left = len(messages)
        self.released = 0


class Window:
    """What is under way between the broker and whoever makes it durable."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: deque[Block] = deque()
        self._ready: list[bytes] = []
        self.connection = 0
        self.held_bytes = 0

    def begin(self) -> int:
        """A new connection: nothing of the last one can be acknowledged any more. Its number."""
        with self._lock:
            self._blocks.clear()
            self._ready.clear()
            self.connection += 1
            return self.connection

    def add(self, messages: Publishes, received_us: int) -> Block:
        with self._lock:
            block = Block(messages, self.connection, received_us)
            self._blocks.append(block)
            self.held_bytes += len(messages.data)
            return block

    def is_stale(self, block: Block) -> bool:
        """Whether the broker will deliver it again, because the connection it came by has ended."""
        return block.connection != self.connection

    def done(self, block: Block, rows: Ints) -> bool:
        """These messages of a block need nothing more. Whether PUBACKs can be sent now that could not before."""
        with self._lock:
            new = len(rows) - int(np.count_nonzero(block.done[rows]))
            if not new:
                return False
            block.left -= new
            block.done[rows] = True
            if not block.left:
                self.held_bytes -= len(block.messages.data)
            return block.connection == self.connection and self._release()

    def _release(self) -> bool:
        before = len(self._ready)
        while self._blocks:
            block = self._blocks[0]
            rest = block.done[block.released :]
            count = len(rest) if not block.left else int(np.argmin(rest))
            if count:
                names = block.messages.identifier[block.released : block.released + count]
                self._ready.append(pubacks(names[names > 0]))
                block.released += count
            if block.left:
                break
            self._blocks.popleft()
        return len(self._ready) > before

    def take(self) -> bytes:
        """PUBACKs to be sent now."""
        with self._lock:
            ready, self._ready = self._ready, []
        return b"".join(ready)

    def is_empty(self) -> bool:
        """Whether everything of this connection is done, and its PUBACKs were taken."""
        return not self._blocks and not self._ready
