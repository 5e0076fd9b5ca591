"""A large body of backlog as small jobs, so that no commit of it holds others up.

The sender is answered once, when all pieces are done: with the sum of them; or with an error if one failed. Then nothing is
acknowledged, though other pieces may be stored, which repeating does not change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from widerow.model.arrays import Flags, Ints, lengths
from widerow.model.batch import Batch
from widerow.model.errors import Refusal, WiderowError
from widerow.model.names import Coded
from widerow.pipeline.job import Job, Lane, Outcome
from widerow.pipeline.lanes import PIECE_BYTES

_CELL_BYTES = 12
"""What a value takes in JSON: bodies that are packed better are cut by this."""


def pieces(job: Job, answer: Callable[[Job, Outcome], None], live: Flags | None = None) -> list[Job]:
    """The job in pieces; itself if it is small. The pieces have no permits: the job keeps its own until it is answered.

    `live` reports, if there are any among the old ones, are a piece of their own, the first: they take the other lane.
    """
    batch = job.batch
    assert batch is not None
    size = max(job.size, _CELL_BYTES * len(batch.cells))
    old = np.arange(len(batch)) if live is None else np.flatnonzero(~live)
    upto = np.zeros(len(old) + 1, np.int64)
    np.cumsum(lengths(batch.cells.offsets)[old], out=upto[1:])
    count = min(-(-size // PIECE_BYTES), len(old))
    cuts = np.searchsorted(upto, np.linspace(0, int(upto[-1]), count + 1)[1:-1])
    edges = np.unique([0, *cuts.tolist(), len(old)]).tolist()
    parts = [(Lane.BACKFILL, old[start:stop]) for start, stop in pairwise(edges)]
    if live is not None and live.any():
        parts.insert(0, (Lane.LIVE, np.flatnonzero(live)))
    if len(parts) <= 1:
        return [job]
    whole, made = _Whole(job, len(parts), answer), []
    for number, (lane, rows) in enumerate(parts):
        piece = replace(
            job,
            size=max(1, size * len(rows) // len(batch)),
            done=whole.settle,
            batch=_part(batch, rows),
            permit=None,
            lane=lane,
            refusals=[] if number else job.refusals,  # one of them brings what was refused before
            received_bytes=0 if number else job.received_bytes if job.received_bytes is not None else job.size,
        )
        made.append(piece)
    return made


class _Whole:
    """The job that the pieces are of. They are settled by one thread, and lock all the same: a sink may be another one."""

    def __init__(self, job: Job, left: int, answer: Callable[[Job, Outcome], None]) -> None:
        self._job, self._left, self._answer = job, left, answer
        self._accepted = 0
        self._refusals: list[Refusal] = []
        self._error: WiderowError | None = None
        self._lock = threading.Lock()

    def settle(self, outcome: Outcome) -> None:
        with self._lock:
            self._left -= 1
            self._accepted += outcome.accepted
            self._refusals += outcome.refusals
            self._error = self._error or outcome.error
            if self._left:
                return
        if self._error:
            self._answer(self._job, Outcome(error=self._error))
        else:
            self._answer(self._job, Outcome(self._accepted, self._refusals))


def _part(batch: Batch, rows: Ints) -> Batch:
    """Some reports, with dictionaries of their own: later stages look at every device and text that a batch names."""
    part = batch.take(rows)
    cells = part.cells
    text = _compact(Coded(cells.texts, cells.text))
    cells = type(cells)(cells.offsets, cells.names, cells.name, cells.kind, cells.number, text.names, text.codes)
    return Batch(_compact(part.device), part.time_us, part.version_us, part.position, cells)


def _compact(column: Coded) -> Coded:
    """The same texts, and none in the dictionary that is not used. Codes below 0 are no text."""
    used = np.unique(column.codes)
    used = used[used >= 0]
    if len(used) == len(column.names):
        return column
    place = np.full(len(column.names) + 1, -1, np.int32)  # the last is where -1 points
    place[used] = np.arange(len(used), dtype=np.int32)
    return Coded(column.names.take(used), place[column.codes])
