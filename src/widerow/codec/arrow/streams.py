"""Many Arrow streams at once: those of our own making are decoded as one, which costs little more than one of them.

Rule 1: what is wrong with a stream is its own; its neighbours are kept.
Rule 2: positions count the rows of all streams, one after the other; a stream that cannot be read counts as one row.
Rule 3: reports stay in the order of the streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from widerow.codec.arrow.decode import decode_table
from widerow.codec.arrow.encode import CELLS_FORMAT, FORMAT_KEY
from widerow.codec.arrow.stream import MAX_BYTES, MAX_REPORTS, read_table
from widerow.codec.decoded import Decoded
from widerow.model.arrays import Ints
from widerow.model.batch import Batch, batch_of
from widerow.model.errors import REFUSAL_CODES, Refusal, Rejected
from widerow.model.merge import merge
from widerow.model.times import whole_ms

_OURS = ["device", "time", "version_us", "cells"]


@dataclass(frozen=True, slots=True, eq=False)
class Streams:
    """The reports of many streams."""

    batch: Batch
    refusals: tuple[Refusal, ...]
    starts: Ints
    """The position of the first row of each."""
    unread: frozenset[int]
    """Those that could not be read at all."""


def decode_streams(bodies: Sequence[bytes], stamps_us: Sequence[int], *, latest_us: int) -> Streams:
    """Thread-safe. Reports without a time or a version get the stamp of their stream. `latest_us`: see `decode_arrow`."""
    reading = _Reading(latest_us)
    for i, (body, stamp_us) in enumerate(zip(bodies, stamps_us, strict=True)):
        reading.open(i, body, stamp_us)
    return reading.finish()


class _Reading:
    def __init__(self, latest_us: int) -> None:
        self._latest_us = latest_us
        self._starts: list[int] = []
        self._position = 0
        self._together: list[tuple[int, Any, int]] = []
        self._alone: list[tuple[int, Any, int]] = []
        self._batches: list[Batch] = []
        self._refusals: list[Refusal] = []
        self._unread: set[int] = set()

    def open(self, i: int, body: bytes, stamp_us: int) -> None:
        self._starts.append(self._position)
        try:
            table = read_table(body, MAX_REPORTS, MAX_BYTES)
        except Rejected as error:
            self._fail(i, error)
            self._position += 1
            return
        like = self._together[0][1].schema if self._together else table.schema
        group = self._together if _is_ours(table) and table.schema.equals(like) else self._alone
        group.append((i, table, stamp_us))
        self._position += max(1, table.num_rows)

    def finish(self) -> Streams:
        if len(self._together) > 1:
            try:
                self._decode_together()
            except Rejected:  # one of them spoils it: they are told apart
                self._alone += self._together
        else:
            self._alone += self._together
        for i, table, stamp_us in self._alone:
            try:
                version_us = whole_ms(stamp_us)
                latest_us = max(self._latest_us, version_us)
                decoded = decode_table(table, now_us=stamp_us, version_us=version_us, latest_us=latest_us)
            except Rejected as error:
                self._fail(i, error)
            else:
                self._add(decoded, self._starts[i] + np.arange(table.num_rows))
        return Streams(self._batch(), tuple(self._refusals), np.array(self._starts, np.int64), frozenset(self._unread))

    def _decode_together(self) -> None:
        tables = [table for _, table, _ in self._together]
        decoded = decode_table(
            pa.concat_tables(tables).unify_dictionaries(), now_us=0, version_us=0, latest_us=self._latest_us
        )
        self._add(decoded, np.concatenate([self._starts[i] + np.arange(table.num_rows) for i, table, _ in self._together]))

    def _add(self, decoded: Decoded, positions: Ints) -> None:
        """What was decoded; `positions` are those of its rows."""
        batch = decoded.batch
        self._batches.append(replace(batch, position=positions[batch.position].astype(np.int32)))
        self._refusals += [
            Refusal(r.code, r.reason, positions[np.asarray(r.positions, np.int64)].tolist()) for r in decoded.refusals
        ]

    def _fail(self, i: int, error: Rejected) -> None:
        self._unread.add(i)
        code = error.code if error.code in REFUSAL_CODES else "syntax"
        self._refusals.append(Refusal(code, str(error), [self._starts[i]]))

    def _batch(self) -> Batch:
        if not self._batches:
            return batch_of([])
        if len(self._batches) == 1:
            return self._batches[0]
        merged = replace(merge(self._batches), position=np.concatenate([batch.position for batch in self._batches]))
        return merged.take(np.argsort(merged.position, kind="stable"))


def _is_ours(table: Any) -> bool:
    """In the cells form, with a time and a version for every report: nothing of it depends on its stream."""
    return (
        table.schema.names == _OURS
        and (table.schema.metadata or {}).get(FORMAT_KEY) == CELLS_FORMAT
        and not any(table.column(i).null_count for i in range(3))
    )
