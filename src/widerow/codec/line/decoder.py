"""The decoder of line protocol: bodies in, batches and refusals out. It does no I/O and asks no clock."""

from __future__ import annotations

import threading
from collections.abc import Sequence

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
from widerow.model.tenant import ANY_NUMBER

_FIRST_SCRATCH_BYTES = 1 << 16
_KEPT_SCRATCH_BYTES = 1 << 22
"""Arrays for larger bodies are given back after the call."""
_MAX_CAPACITY = 1 << 26
_SLOW = 4
"""A line costs plain Python so many times what its bytes cost in JSON."""


class LineDecoder:
    """Decodes bodies. Safe to share between threads; one is enough for a process.

    It remembers the series it has seen, about `capacity` of them, so that a regular line costs no Python. When the table
    is full a new one is started; decodes under way finish with the one they have.
    """

    def __init__(self, naming: LineNaming = LineNaming(), *, capacity: int = 1 << 18) -> None:  # noqa: B008
        if not 1 <= capacity <= _MAX_CAPACITY:
            raise ConfigError(f"line.capacity {capacity}: give 1 to {_MAX_CAPACITY}")
        self._naming = naming
        self._capacity = capacity
        self._memory = Memory(naming, capacity)
        self._swap = threading.Lock()
        self._threads = threading.local()

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
        scratch = self._scratch(memoryview(body).nbytes)
        scratch.begin(body, unit_us, now_us, max_values)
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
        memory = self._memory
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
            memory = self._successor(memory)
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
                learned = memory.learn_series(news[0])
            else:
                learned = all(memory.learn_key(family, key) for key in news)
            if not learned:
                return True
            if len(news) == MAX_NEWS:
                scratch.skip_line()

    def _successor(self, memory: Memory) -> Memory:
        """The memory to use after a full one: new, unless another thread was faster."""
        with self._swap:
            if self._memory is memory:
                self._memory = Memory(self._naming, self._capacity)
            return self._memory

    def _scratch(self, body_bytes: int) -> Scratch:
        kept: Scratch | None = getattr(self._threads, "scratch", None)
        if kept is not None and kept.body_bytes >= body_bytes:
            return kept
        size = max(_FIRST_SCRATCH_BYTES, 1 << (body_bytes - 1).bit_length() if body_bytes else 0)
        scratch = Scratch(size, entries_room(self._capacity))
        if size <= _KEPT_SCRATCH_BYTES:
            self._threads.scratch = scratch
        return scratch


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
