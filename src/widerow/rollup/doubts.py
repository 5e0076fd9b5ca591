"""What was erased and may still be in what was rolled from it, as one process knows it.

Rule 1: an erasure is in doubt from the moment its mark is known, whichever process made it, until this process knows which
windows are to be rolled again because of it.
Rule 2: whoever plans an answer asks for doubts first and for marks then: what is settled between the two is marked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace

from widerow.model.times import DAY, HOUR, TimeSpan
from widerow.rollup.dirt import Dirt
from widerow.schema.shards import SHARDS, shard_of
from widerow.telemetry.erasure import Mark

_ALL_SHARDS = frozenset(range(SHARDS))


class Doubts:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: dict[tuple[str, Mark], None] = {}

    def add(self, tenant: str, mark: Mark) -> None:
        with self._lock:
            self._marks[tenant, _undone(mark)] = None

    def settle(self, doubts: Iterable[tuple[str, Mark]]) -> None:
        """What these erased has left rollups, and what follows from it is known to be marked."""
        with self._lock:
            for tenant, mark in doubts:
                self._marks.pop((tenant, _undone(mark)), None)

    def all(self) -> list[tuple[str, Mark]]:
        with self._lock:
            return [*self._marks]

    def of(self, tenant: str) -> list[Mark]:
        with self._lock:
            return [mark for name, mark in self._marks if name == tenant]

    def shards(self, tenant: str) -> tuple[tuple[TimeSpan, frozenset[int]], ...]:
        """The shards that the fleet's hours cannot be asked about, over spans: one of each."""
        found: dict[TimeSpan, frozenset[int]] = {}
        for mark in self.of(tenant):
            shards = frozenset([shard_of(mark.device)]) if mark.device else _ALL_SHARDS
            found[mark.span] = found.get(mark.span, frozenset()) | shards
        return tuple(found.items())

    def dirt(self, tenant: str, devices: Sequence[str]) -> Dirt:
        """The windows of devices that are only erased in part: their records are hidden whole. Of those within an erased
        span nothing is left.
        """
        named = frozenset(devices)
        marks = [mark for mark in self.of(tenant) if not mark.whole and (not mark.device or mark.device in named)]
        edges = {edge_us for mark in marks for edge_us in (mark.span.start_us, mark.span.stop_us)}
        hours = (edge_us - edge_us % HOUR for edge_us in edges if edge_us % HOUR)
        return Dirt.of(hours, (edge_us - edge_us % DAY for edge_us in edges if edge_us % DAY))


def _undone(mark: Mark) -> Mark:
    """As it was made: a process may learn of a mark when it is done already."""
    return replace(mark, done_us=0)
