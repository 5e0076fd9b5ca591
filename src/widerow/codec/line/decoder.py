"""The decoder of line protocol: bodies in, batches and refusals out. It does no I/O and asks no clock."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from widerow.codec.decoded import Decoded
from widerow.codec.line.cut import line_spans
from widerow.codec.line.join import joined, lines_batch
from widerow.codec.line.kernel import DONE, MAX_NEWS, NEW_SERIES, NO_ROOM
from widerow.codec.line.memory import Memory, entries_room
from widerow.codec.line.naming import LineNaming
from widerow.codec.line.scratch import Scratch
from widerow.codec.line.slow import UNIT_US, Fault, Line, LineReader
from widerow.codec.looking import Looking
from widerow.model.arrays import Ints
from widerow.model.batch import Batch
from widerow.model.errors import ConfigError, Refusal, Rejected
from widerow.model.tenant import ANY_NUMBER, Tenant

_FIRST_SCRATCH_BYTES = 1 << 16
_KEPT_SCRATCH_BYTES = 1 << 22
"""Arrays for larger bodies are given back after the call."""
_MAX_CAPACITY = 1 << 26
_CAPACITY = 1 << 18
_MOST_DECODERS = 8
_SLOW = 4
"""A line costs plain Python so many times what its bytes cost in JSON."""


class Table:
    """What decoders share: the memory of the series they have seen, about `capacity` of them, and each thread's arrays.

    When the memory is full a new one is started; decodes under way finish with the one they have.
    """

    def __init__(self, capacity: int) -> None:
        if not 1 <= capacity <= _MAX_CAPACITY:
            raise ConfigError(f"line.capacity {capacity}: give 1 to {_MAX_CAPACITY}")
        self.memory = Memory(capacity)
        self._capacity = capacity
        self._swap = threading.Lock()
        self._threads = threading.local()
        self._scopes = itertools.count(1)

    def scope(self) -> int:
        """A new scope, for what one decoder remembers and no other understands."""
        return next(self._scopes) << 32

    def successor(self, memory: Memory) -> Memory:
        """The memory to use after a full one: new, unless another thread was faster."""
        with self._swap:
            if self.memory is memory:
                self.memory = Memory(self._capacity)
            return self.memory

    def scratch(self, body_bytes: int) -> Scratch:
        kept: Scratch | None = getattr(self._threads, "scratch", None)
        if kept is not None and kept.body_bytes >= body_bytes:
            return kept
        size = max(_FIRST_SCRATCH_BYTES, 1 << (body_bytes - 1).bit_length() if body_bytes else 0)
        scratch = Scratch(size, entries_room(self._capacity))
        if size <= _KEPT_SCRATCH_BYTES:
            self._threads.scratch = scratch
        return scratch


class LineDecoders:
    """The decoders of a process: one for all tenants that name alike. They share a table, so together they need no more.

    After eight other namings one is learned anew. Safe to share between threads.
    """

    def __init__(self, naming: LineNaming = LineNaming(), *, capacity: int = _CAPACITY) -> None:  # noqa: B008
        self._naming = naming
        table = Table(capacity)
        self._known = lru_cache(maxsize=_MOST_DECODERS)(lambda naming: LineDecoder(naming, table=table))

    def of(self, tenant: Tenant | None) -> LineDecoder:
        """The one that names as the tenant says, and by default as the process does."""
        own = self._naming
        if tenant is not None and (tenant.device_tags or tenant.attribute_tags):
            own = LineNaming(
                device_tags=tenant.device_tags or own.device_tags,
                metric=own.metric,
                attribute_tags=tenant.attribute_tags or own.attribute_tags,
            )
        return self._known(own)


class LineDecoder:
    """Decodes bodies. Safe to share between threads. It remembers the series it has seen, so that a regular line costs no
    Python.
    """

    def __init__(
        self,
        naming: LineNaming = LineNaming(),  # noqa: B008
        *,
        capacity: int = _CAPACITY,
        table: Table | None = None,
    ) -> None:
        self._naming = naming
        self._table = table or Table(capacity)
        self._scope = self._table.scope()

    def decode(
        self,
        body: bytes | bytearray | memoryview,
        *,
        precision: str = "ns",
        now_us: int,
        version_us: int,
        max_values: int = ANY_NUMBER,
    ) -> Decoded:
        """Every line is in the batch or in one refusal, comments and blank lines aside.

        `now_us` is the time of lines that bring none. `max_values`: a line with more fields and tags is refused, and none of
        its fields is remembered. Raises `Rejected` for a precision that does not exist, and TooLarge.
        """
        if precision not in UNIT_US:
            raise Rejected(f"precision {precision!r}: use ns, us, ms, s, m or h")
        unit_us = UNIT_US[precision]
        scratch = self._table.scratch(memoryview(body).nbytes)
        scratch.begin(body, unit_us, now_us, max_values, self._scope)
        parts = self._scan(scratch, version_us)
        odd = scratch.odd_lines()
        if not len(odd):
            return Decoded(joined(parts))
        lines, refusals = _judged(odd, memoryview(body), LineReader(self._naming, unit_us, now_us, max_values), max_values)
        if lines:
            parts.append(lines_batch(lines, version_us))
        return Decoded(joined(parts), tuple(refusals))

    def _scan(self, scratch: Scratch, version_us: int) -> list[Batch]:
        """Run the kernel over the body; a part for each memory that was filled on the way, and the rest."""
        parts: list[Batch] = []
        memory = self._table.memory
        filled_at = -1
        while scratch.scan(memory, may_learn=False) != DONE:
            with memory.lock:
                full = self._learn(scratch, memory)
            if not full:
                break
            if scratch.at == filled_at:  # not even a new memory has room for this line
                scratch.skip_line()
                continue
            filled_at = scratch.at
            parts.append(scratch.take_part(memory, version_us))
            memory = self._table.successor(memory)
        parts.append(scratch.take_part(memory, version_us))
        return [part for part in parts if len(part)] or parts[:1]

    def _learn(self, scratch: Scratch, memory: Memory) -> bool:
        """Read on, remembering what is new, to the end of the body (False) or of the room (True). Needs the lock."""
        while True:
            status = scratch.scan(memory, may_learn=True)
            if status in (DONE, NO_ROOM):
                return status == NO_ROOM
            family, news = scratch.news()
            if status == NEW_SERIES:
                learned = memory.learn_series(news[0], self._naming, self._scope)
            else:
                learned = memory.learn_keys(family, news, self._naming)
            if not learned:
                return True
            if len(news) == MAX_NEWS:
                scratch.skip_line()


def _judged(
    odd: Ints, body: memoryview, reader: LineReader, max_values: int
) -> tuple[list[tuple[int, Line]], list[Refusal]]:
    """What plain Python makes of the lines that the kernel left."""
    lines: list[tuple[int, Line]] = []
    refusals: list[Refusal] = []

    def refuse(code: str, reason: str, numbers: Sequence[int]) -> None:
        where = f"line {numbers[0] + 1}: " if len(numbers) == 1 else ""
        refusals.append(Refusal(code, where + reason, numbers))

    looking, body = Looking(max_values, refuse), body.cast("B")
    for start, stop, number in looking.at(odd):
        try:
            lines.append((number, reader.read(bytes(body[start:stop]))))
        except Fault as fault:
            refusals.append(fault.refusal(number))
            looking.wrong(_SLOW * (stop - start))
    return lines, refusals


def warm_up() -> None:
    """Compile every kernel of this package, or load it from the cache. For set-up: no request should wait for it."""
    decoder = LineDecoder(capacity=1)
    body = b'm,device=a,t=b f=1,g="x"\nm,device=b,t=c f=1 5\nm,de\\ vice=a f=1\n'
    decoder.decode(body, now_us=0, version_us=0)
    line_spans(body, np.zeros(1, np.int64))
