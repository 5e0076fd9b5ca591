"""A block: opened, asked what it has, and read in part. See docs/format/block.md.

Opening checks the directory; reading checks each page that it touches. What is wrong raises `Corrupt`.
Safe to share between threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from widerow.blocks.columns import CODED, NO_COLUMNS, PLAIN, Columns, Head, Kind
from widerow.blocks.layout import QUICK, Header, header_of, size_at
from widerow.blocks.quick import decode_quick
from widerow.model.arrays import Ints
from widerow.model.errors import Corrupt
from widerow.model.names import Names
from widerow.model.times import TimeSpan


@dataclass(frozen=True, slots=True)
class Where:
    """Rows in which a metric is a number from `low` to `high`."""

    metric: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Info:
    """A column, as people ask about it."""

    name: str
    part: str
    kind: Kind
    codec: str
    values: int
    bytes: int


class Block:
    """One block. Its devices and counts are known without reading any page."""

    def __init__(self, data: bytes) -> None:
        self.header: Final[Header] = header_of(data)
        if self.header.encoding != QUICK:
            raise Corrupt(f"a block of encoding {self.header.encoding}: was it written by a newer release?")
        self._whole = decode_quick(data, self.header)

    @property
    def devices(self) -> Names:
        return self._whole.devices

    @property
    def offsets(self) -> Ints:
        """Where the rows of each device begin, and where those of the last end."""
        return self._whole.offsets

    @property
    def metrics(self) -> list[str]:
        """Names of metrics and tags."""
        names = self._whole.names.to_list()
        return [names[name] for name in dict.fromkeys(head.name for head in self._whole.heads)]

    def infos(self) -> list[Info]:
        names = self._whole.names.to_list()
        return [
            Info(
                names[head.name],
                "" if head.part == PLAIN else names[head.part],
                head.kind,
                "plain",
                len(head.rows),
                len(head.rows) * (4 if head.kind in CODED else 8),
            )
            for head in self._whole.heads
        ]

    def part(self, first: int, last: int) -> Columns:
        """All of the devices `first` to `last - 1`."""
        return self._whole.part(first, last)

    def read(
        self,
        devices: Sequence[str] | None = None,
        metrics: Sequence[str] | None = None,
        span: TimeSpan | None = None,
        where: Where | None = None,
    ) -> Columns:
        """The rows of these devices within the span, with these metrics (and tags) alone.

        A row stays if none of the metrics is in it. `where`: rows that do not match are left out.
        """
        names = self._whole.names.to_list()
        wanted = None if metrics is None else {name for name, known in enumerate(names) if known in set(metrics)}
        asked = None if where is None else {name for name, known in enumerate(names) if known == where.metric}
        if asked is not None and not asked:
            return NO_COLUMNS
        found = self._chosen(None if devices is None else self._places(devices))
        keep = np.ones(len(found), np.bool_)
        if span is not None:
            keep &= (found.time_us >= span.start_us) & (found.time_us < span.stop_us)
        if where is not None and asked is not None:
            fits = np.zeros(len(found), np.bool_)
            for head in found.heads:
                if head.name in asked and head.part == PLAIN and head.kind not in CODED:
                    numbers = numbers_of(head)
                    fits[head.rows[(numbers >= where.low) & (numbers <= where.high)] - found.first_row] = True
            keep &= fits
        found = found.matching(keep)
        if wanted is None:
            return found
        heads = tuple(head for head in found.heads if head.name in wanted)
        return Columns(
            found.devices, found.offsets, found.time_us, found.version_us, found.names, heads, found.texts
        ).compacted()

    def _chosen(self, places: list[int] | None) -> Columns:
        if places is None:
            return self._whole
        rows = np.zeros(len(self._whole), np.bool_)
        if len(places) == 1:
            return self._whole.part(places[0], places[0] + 1)
        for place in places:
            rows[self.offsets[place] : self.offsets[place + 1]] = True
        return self._whole.matching(rows)

    def _places(self, devices: Sequence[str]) -> list[int]:
        """Where these devices are, of those that are here."""
        known = self.devices
        places = set()
        for device in devices:
            name, low, high = device.encode(), 0, len(known)
            while low < high:
                middle = (low + high) // 2
                low, high = (middle + 1, high) if known.bytes_at(middle) < name else (low, middle)
            if low < len(known) and known.bytes_at(low) == name:
                places.add(low)
        return sorted(places)


def numbers_of(head: Head) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The values as doubles."""
    return head.values.view(np.float64) if head.kind == Kind.NUMBER else head.values.astype(np.float64)


def blocks_in(data: bytes) -> Iterator[Block]:
    """Blocks that stand one behind the other."""
    at = 0
    while at < len(data):
        size = size_at(data, at)
        yield Block(data[at : at + size])
        at += size
