"""Dead letters in the store: by tenant and day, the newest first.

Rule: a letter's cells are written together, with one version; what is refused again replaces them together.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np

from widerow.engine.port import Engine, Span
from widerow.engine.rows import Key, Rows, key_columns
from widerow.model.batch import CellKind, Cells
from widerow.model.errors import NotFound
from widerow.model.names import Names
from widerow.model.times import DAY, Clock, bucket_start
from widerow.pipeline.letter import Filed, id_at, is_id, pack, partition_of, unpack
from widerow.schema.tables import DEAD_LETTERS, LETTER_SHARDS, MOST_LETTER_DAYS

_LETTER, _BYTES, _BODY = "letter", "bytes", "body"
_KINDS = (CellKind.TEXT, CellKind.NUMBER, CellKind.RECORD)
_OVERHEAD = 128
"""What a letter counts for besides its texts: its key, its expiry."""


def weight(filed: Filed) -> int:
    """The bytes that a letter counts for."""
    return len(filed.body) + len(pack(filed.letter)) + _OVERHEAD


class LetterStore:
    """Safe to share between threads."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock

    def put(self, letters: Sequence[tuple[str, Filed]], keep_us: int) -> None:
        """Letters of tenants, with their bodies. Durable on return."""
        keys = [(*partition_of(tenant, filed.id), filed.id) for tenant, filed in letters]
        texts = [text for _, filed in letters for text in (pack(filed.letter).encode(), filed.body)]
        n = len(letters)
        number = np.full((n, 3), np.nan)
        number[:, 1] = [weight(filed) for _, filed in letters]
        text = np.full((n, 3), -1, np.int32)
        text[:, ::2] = np.arange(2 * n).reshape(n, 2)
        cells = Cells(
            np.arange(n + 1, dtype=np.int64) * 3,
            Names.of((_LETTER, _BYTES, _BODY)),
            np.tile(np.arange(3, dtype=np.int32), n),
            np.tile(np.array(_KINDS, np.uint8), n),
            number.ravel(),
            Names.of_bytes(texts),
            text.ravel(),
        )
        version_us = np.array([filed.version_us for _, filed in letters], np.int64)
        expire_us = np.array([filed.filed_us + keep_us for _, filed in letters], np.int64)
        rows = Rows(key_columns(DEAD_LETTERS.key, keys), version_us, expire_us, cells)
        self._engine.write([(DEAD_LETTERS, rows)])

    def find(self, tenant: str, letter_id: str) -> Filed | None:
        """A letter with its body."""
        if not is_id(letter_id):
            return None
        key = (*partition_of(tenant, letter_id), letter_id)
        found = [filed for rows in self._engine.scan(DEAD_LETTERS, [key]) for filed in _letters(rows)]
        return found[0] if found else None

    def get(self, tenant: str, letter_id: str) -> Filed:
        found = self.find(tenant, letter_id)
        if found is None:
            raise NotFound(f"no dead letter {letter_id[:80]!r}")
        return found

    def newest(self, tenant: str, *, start_us: int = 0, stop_us: int | None = None, before: str = "") -> Iterator[Filed]:
        """Letters filed in [start, stop), those that come behind `before`; without their bodies, the newest first."""
        low = id_at(start_us) if start_us else None
        high = min(filter(None, (before, id_at(stop_us) if stop_us is not None else "")), default=None)
        span = Span(low, high)
        days: dict[int, list[Key]] = {}
        # Most days have none: one look at all of them spares a look at each.
        for rows in self._engine.scan(DEAD_LETTERS, self._partitions(tenant), span, limit=1, columns=(_BYTES,)):
            for i in range(len(rows)):
                partition = rows.key(DEAD_LETTERS, i)[:-1]
                days.setdefault(int(partition[-1]), []).append(partition)
        for day in sorted(days, reverse=True):
            shards = [self._of_partition(partition, span) for partition in days[day]]
            yield from heapq.merge(*shards, key=lambda filed: filed.id, reverse=True)

    def _of_partition(self, partition: Key, span: Span) -> Iterator[Filed]:
        for rows in self._engine.scan(DEAD_LETTERS, [partition], span, columns=(_LETTER,)):
            yield from _letters(rows)

    def weight_of_day(self, tenant: str, time_us: int) -> int:
        """What the letters of that day count for."""
        day = bucket_start(time_us, DAY)
        partitions: list[Key] = [(tenant, shard, day) for shard in range(LETTER_SHARDS)]
        return int(sum(rows.cells.number.sum() for rows in self._engine.scan(DEAD_LETTERS, partitions, columns=(_BYTES,))))

    def remove(self, tenant: str, filed: Filed) -> None:
        """Repeating is harmless."""
        span = Span(filed.id, f"{filed.id}\0")
        version_us = max(filed.version_us, self._clock.version_us())
        self._engine.delete(DEAD_LETTERS, [partition_of(tenant, filed.id)], span, version_us=version_us)

    def remove_all(self, tenant: str, *, start_us: int = 0, stop_us: int | None = None) -> None:
        """All letters filed in [start, stop)."""
        span = Span(id_at(start_us) if start_us else None, id_at(stop_us) if stop_us is not None else None)
        self._engine.delete(DEAD_LETTERS, self._partitions(tenant), span, version_us=self._clock.version_us())

    def _partitions(self, tenant: str) -> list[Key]:
        """All that may hold letters. Clocks differ, so tomorrow's belong to them."""
        today = bucket_start(self._clock.now_us(), DAY)
        days = range(today + DAY, today - (MOST_LETTER_DAYS + 1) * DAY, -DAY)
        return [(tenant, shard, day) for day in days for shard in range(LETTER_SHARDS) if day >= 0]


def _letters(rows: Rows) -> Iterator[Filed]:
    """Rows that hold `letter`, and perhaps `body`."""
    cells = rows.cells
    names, texts = cells.names.to_list(), cells.texts.to_bytes_list()
    for i in range(len(rows)):
        found = {
            names[int(cells.name[c])]: texts[int(cells.text[c])]
            for c in range(int(cells.offsets[i]), int(cells.offsets[i + 1]))
            if cells.kind[c] != CellKind.NUMBER
        }
        if _LETTER in found:
            letter_id = str(rows.key(DEAD_LETTERS, i)[-1])
            letter = unpack(letter_id, found[_LETTER].decode())
            yield Filed(letter_id, letter, int(rows.version_us[i]), found.get(_BODY, b""))
