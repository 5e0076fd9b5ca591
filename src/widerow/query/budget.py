"""What one question may cost: rows that are read, bytes of the answer, time.

Rule 1: a limit refuses, it never cuts: an answer is whole or there is none.
Rule 2: what can be known before reading is checked then; the rest while it goes on, between one read and the next.
Rule 3: that is also where a question sees that nobody waits for it any more.
A refusal names the limit, what it allows, what the question came to, and what to ask instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from widerow.admit.cost import Meter
from widerow.admit.question_slots import Slot
from widerow.engine.rows import Rows
from widerow.model.errors import QueryLimit, Unavailable
from widerow.model.tenant import Tenant
from widerow.model.times import SECOND, Clock, about_duration

POINT_BYTES = 32
"""What a point takes in an answer, at least: its time, its value and what is around them."""

ROW_BYTES = 256
"""What a row takes in memory while it is worked on, about; ..."""
CELL_BYTES = 320
"""... each of its cells; ..."""
ENTRY_BYTES = 384
"""... and the statistics of a metric in a step, with their sketch."""

_TODO = "ask for a coarser step, a shorter span or fewer devices"


def held_bytes(chunks: Iterable[Rows]) -> int:
    """What rows take in memory while they are worked on, about."""
    return sum(len(rows) * ROW_BYTES + len(rows.cells) * CELL_BYTES for rows in chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySettings:
    max_rows: int = 10_000_000
    max_answer_bytes: int = 64 << 20
    max_work_bytes: int = 512 << 20
    """Of memory, about, while the answer is worked out."""
    timeout_s: float = 30.0
    readers: int = 1
    """Threads that read for one question. Where the store is in this process one is as fast, and others wait less for it."""


class Budget:
    """Of one question. Safe to share between the threads that work on it."""

    def __init__(
        self,
        settings: QuerySettings,
        tenant: Tenant,
        now_s: Callable[[], float] = time.monotonic,
        *,
        slot: Slot | None = None,
        meter: Meter | None = None,
    ) -> None:
        """`slot`: the place of its request. `meter`: what counts the rows it reads."""
        self._slot, self._meter = slot, meter
        limits = tenant.limits
        self._rows, self._rows_limit = settings.max_rows, "query.max_rows"
        if limits.query_rows:
            self._rows, self._rows_limit = limits.query_rows, "limits.query_rows"
        self._seconds, self._seconds_limit = settings.timeout_s, "query.timeout_s"
        if limits.query_seconds:
            self._seconds, self._seconds_limit = float(limits.query_seconds), "limits.query_seconds"
        self._bytes, self._work, self.readers = settings.max_answer_bytes, settings.max_work_bytes, settings.readers
        self._now_s, self._begun_s = now_s, now_s()
        self._lock = threading.Lock()
        self._stopped = False
        self._asked_us: int | None = None
        self._answer_bytes = 0
        self.read = 0

    def asked_us(self, clock: Clock) -> int:
        """When this was first asked for. What is still kept is decided by that, the same for all parts of a question: the
        clock goes on between one read and the next.
        """
        with self._lock:
            if self._asked_us is None:
                self._asked_us = clock.now_us()
            return self._asked_us

    def stop(self) -> None:
        """The question has failed, or nobody waits for the answer: whoever still works on it should not go on."""
        self._stopped = True

    def expect(self, rows: int) -> None:
        """So many rows may have to be read."""
        if rows > self._rows:
            raise QueryLimit(f"this may read {rows:,} rows", self._rows_limit, self._rows, rows, _TODO)

    def spend(self, rows: int, *, held_bytes: int | None = None) -> None:
        """So many rows were read; `held_bytes`: of these and others that are still in memory. Also looks at the time."""
        held_bytes = rows * ROW_BYTES if held_bytes is None else held_bytes
        total = self._add(rows, held_bytes)
        if total > self._rows:
            raise QueryLimit(f"this reads more than {self._rows:,} rows", self._rows_limit, self._rows, total, _TODO)
        self.hold(held_bytes)
        self.check()

    def hold(self, size: int) -> None:
        """So many bytes are in memory before there is an answer, or are about to be."""
        if size > self._work:
            raise QueryLimit(
                f"on the way to an answer this takes {size >> 20:,} MiB of memory or more (at most {self._work >> 20:,})",
                "query.max_answer_mib",
                self._bytes >> 20,
                -(-size // (1 << 20)),
                "name the metrics, or " + _TODO,
            )

    def count(self, rows: int) -> None:
        """The same for answers that are cut into pages, and never too large."""
        self._add(rows, rows * ROW_BYTES)
        self.check()

    def _add(self, rows: int, held_bytes: int) -> int:
        with self._lock:
            self.read += rows
            total = self.read
        if self._meter is not None:
            self._meter.count(rows)
        if self._slot is not None:
            self._slot.bytes = self._answer_bytes + held_bytes
        return total

    def check(self) -> None:
        """Whether there is time left."""
        if self._stopped:
            raise Unavailable("the question was given up")
        if self._slot is not None:
            self._slot.check()
        took_s = self._now_s() - self._begun_s
        if took_s > self._seconds:
            raise QueryLimit(
                f"this takes more than {about_duration(self._seconds * SECOND)}",
                self._seconds_limit,
                self._seconds,
                round(took_s, 3),
                _TODO,
            )

    def points(self, count: int) -> None:
        """The answer has so many points, or more."""
        self.answer(count * POINT_BYTES)

    def answer(self, size: int) -> None:
        """The answer takes so many bytes, or more."""
        self._answer_bytes = size
        if self._slot is not None:
            self._slot.bytes = size
        if size > self._bytes:
            raise QueryLimit(
                f"the answer takes {size >> 20:,} MiB or more",
                "query.max_answer_mib",
                self._bytes >> 20,
                -(-size // (1 << 20)),
                _TODO,
            )
