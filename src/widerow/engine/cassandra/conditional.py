"""Conditional statements, a partition at a time.

Cassandra agrees on one conditional statement of a partition after another. Those that meet there push each other aside, and
after a second of that the server gives up. So one process never sends two at once to a partition, and sends many together:
a conditional batch takes as long as one statement. It is applied whole or not at all; where one of its conditions did not
hold, the statements are sent one by one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from typing import Any

from cassandra.query import BatchStatement, BatchType

from widerow.engine.cassandra.cluster import Connection
from widerow.engine.rows import Key
from widerow.model.errors import StoreUnavailable
from widerow.model.times import SECOND, about_duration

_STRIPES = 64
_BATCH_ROWS = 32
_BATCH_BYTES = 16 << 10
"""Servers refuse batches of 50 KiB by default."""


class Turns:
    """Who may send to which partitions. Safe to share between threads."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._locks = [threading.Lock() for _ in range(_STRIPES)]

    @contextmanager
    def at(self, table: str, partitions: Iterable[Key]) -> Iterator[None]:
        """Inside, no other thread sends conditional statements to these partitions. `Unavailable`: others take long."""
        deadline_s = time.monotonic() + self._timeout_s
        with ExitStack() as held:
            for stripe in sorted({hash((table, partition)) % _STRIPES for partition in partitions}):
                if not self._locks[stripe].acquire(timeout=max(0.0, deadline_s - time.monotonic())):
                    raise StoreUnavailable(
                        f"cassandra: others change {table} for {about_duration(self._timeout_s * SECOND)}"
                    )
                held.callback(self._locks[stripe].release)
            yield


def apply_each(connection: Connection, parts: Sequence[Sequence[tuple[int, Any]]]) -> list[int]:
    """Which of numbered conditional statements were applied; each part is one partition's."""
    applied, again = _in_turns(connection, [_cut(part) for part in parts])
    singly, _ = _in_turns(connection, [[[one] for one in part] for part in again])
    return applied + singly


def _in_turns(
    connection: Connection, parts: Sequence[Sequence[list[tuple[int, Any]]]]
) -> tuple[list[int], list[list[tuple[int, Any]]]]:
    """Send one batch to each partition, then the next; gives what was applied, and by partition what may still be."""
    applied: list[int] = []
    again: list[list[tuple[int, Any]]] = [[] for _ in parts]
    for turn in zip_longest(*parts):
        sent = [(part, batch) for part, batch in enumerate(turn) if batch is not None]
        for (part, batch), result in zip(sent, connection.execute_all(_statement(b) for _, b in sent), strict=True):
            if result.was_applied:
                applied += [number for number, _ in batch]
            elif len(batch) > 1:
                again[part] += batch
    return applied, [part for part in again if part]


def _statement(batch: Sequence[tuple[int, Any]]) -> Any:
    if len(batch) == 1:
        return batch[0][1]
    statement = BatchStatement(BatchType.UNLOGGED)  # within one partition, so atomic all the same
    for _, one in batch:
        statement.add(one)
    return statement


def _cut(statements: Iterable[tuple[int, Any]]) -> list[list[tuple[int, Any]]]:
    """Statements in batches that a server takes."""
    batches: list[list[tuple[int, Any]]] = []
    room = 0
    for number, one in statements:
        size = sum(len(value) for value in one.values)
        if not batches or len(batches[-1]) == _BATCH_ROWS or size > room:
            batches.append([])
            room = _BATCH_BYTES
        batches[-1].append((number, one))
        room -= size
    return batches
