"""Reports as Kafka's messages, ours and others'.

Ours: an Arrow stream (the cells form, a version per report) of devices of one tenant and one partition, keyed by the first
device. Others': JSON, a report or an array of them, keyed `tenant/device`. Headers say which it is.
Rule 1: no message is larger than `max_bytes`; only a report that is by itself has to be refused.
Rule 2: within a partition and a lane the order of reports is kept.
Rule 3: what is decoded twice gives the same reports, with the same times and versions: those that bring none get the time
that Kafka gave to the message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from widerow.codec.arrow import encode_arrow
from widerow.ingest.kafka.partition import key_of, partitions_of
from widerow.model.arrays import Codes, Flags, Ints, lengths
from widerow.model.batch import Batch, Cells
from widerow.model.names import Coded
from widerow.pipeline.job import Lane

FORMAT, TENANT, VERSION = "widerow-format", "widerow-tenant", "widerow-version-us"
"""Headers: `arrow` or `json`; whose reports these are; the sender's clock: no version in the message is later."""
ARROW, JSON = b"arrow", b"json"

Header: TypeAlias = tuple[str, str | bytes | None]

_PER_REPORT, _PER_CELL = 48, 20
"""About how many bytes Arrow takes beside texts."""


@dataclass(frozen=True, slots=True, eq=False)
class Outgoing:
    """A message to be sent, and the reports that it holds, by their places in the batch."""

    lane: Lane
    partition: int
    key: bytes
    value: bytes
    rows: Ints


def headers_of(tenant: str, sent_us: int) -> list[Header]:
    """The headers of our messages. `sent_us`: not before any version in them."""
    return [(FORMAT, ARROW), (TENANT, tenant.encode()), (VERSION, b"%d" % sent_us)]


def messages_of(
    tenant: str, batch: Batch, late: Flags, partitions: Mapping[Lane, int], max_bytes: int
) -> tuple[list[Outgoing], Ints]:
    """A batch as messages, and the reports that are too large to travel. `late` ones take the lane of the backlog."""
    out: list[Outgoing] = []
    too_large: list[Ints] = []
    for lane, chosen in ((Lane.LIVE, ~late), (Lane.BACKFILL, late)):
        if not chosen.any():
            continue
        rows = np.flatnonzero(chosen)
        target = partitions_of(tenant, batch.device.names, partitions[lane])[batch.device.codes[rows]]
        order = np.argsort(target, kind="stable")
        rows, target = rows[order], target[order]
        ordered = batch.take(rows)
        for start, stop in _runs(target, _sizes(ordered), max_bytes):
            _encode(_Part(tenant, ordered, rows, lane, int(target[start]), max_bytes), start, stop, out, too_large)
    return out, np.concatenate(too_large) if too_large else np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """What the messages of a run have in common."""

    tenant: str
    batch: Batch
    rows: Ints
    lane: Lane
    partition: int
    max_bytes: int


def _encode(part: _Part, start: int, stop: int, out: list[Outgoing], too_large: list[Ints]) -> None:
    """One message, or, where the estimate was wrong, several."""
    value = encode_arrow(_between(part.batch, start, stop))
    if len(value) <= part.max_bytes:
        key = key_of(part.tenant, part.batch.device[start])
        out.append(Outgoing(part.lane, part.partition, key, value, part.rows[start:stop]))
    elif stop - start == 1:
        too_large.append(part.rows[start:stop])
    else:
        middle = (start + stop) // 2
        _encode(part, start, middle, out, too_large)
        _encode(part, middle, stop, out, too_large)


def _runs(target: Codes, sizes: Ints, max_bytes: int) -> Sequence[tuple[int, int]]:
    """Reports of one partition that fit into one message, by estimate."""
    first = np.flatnonzero(np.append(True, target[1:] != target[:-1]))
    total = np.append(0, np.cumsum(sizes))
    # Counted from the start of each partition, a new message begins whenever another `room` is full.
    room = max(1, max_bytes * 3 // 4)
    run = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(target))))
    part = (total[1:] - total[first][run]) // room
    new = np.append(True, (run[1:] != run[:-1]) | (part[1:] != part[:-1]))
    cuts = np.append(np.flatnonzero(new), len(target)).tolist()
    return list(pairwise(cuts))


def _sizes(batch: Batch) -> Ints:
    """About how many bytes each report takes. A text that many share is counted for each: rather too many."""
    cells = batch.cells
    texts = np.append(lengths(cells.texts.offsets), 0)[cells.text] + _PER_CELL
    summed = np.append(0, np.cumsum(texts))
    per_report: Ints = summed[cells.offsets[1:]] - summed[cells.offsets[:-1]]
    per_report += lengths(batch.device.names.offsets)[batch.device.codes] + _PER_REPORT
    return per_report


def _between(batch: Batch, start: int, stop: int) -> Batch:
    """The reports from one place up to another, without a copy."""
    cells = batch.cells
    return Batch(
        Coded(batch.device.names, batch.device.codes[start:stop]),
        batch.time_us[start:stop],
        batch.version_us[start:stop],
        batch.position[start:stop],
        Cells(cells.offsets[start : stop + 1], cells.names, cells.name, cells.kind, cells.number, cells.texts, cells.text),
    )
