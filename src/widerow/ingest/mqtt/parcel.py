"""Messages on their way from a block to the pipeline: what is known of them, however often they are tried or divided."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from widerow.codec.mqtt import Publishes
from widerow.ingest.mqtt.window import Block
from widerow.model.arrays import Ints
from widerow.model.names import Coded

_ARRAY = ord("[")


@dataclass(slots=True)
class Parcel:
    """Messages of one tenant that came in one block."""

    tenant: str
    block: Block
    rows: Ints
    devices: Coded
    version_us: int
    first_us: Ints
    """For each message the time of its first report, if it brings none: see `ingest.stamps`."""
    tries: int = 0
    admitted: bool = False
    """Its limits let it pass when it was tried before."""
    in_order: bool = False
    """Its version is what `Order` gave it."""

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, which: Ints) -> Parcel:
        return replace(self, rows=self.rows[which], devices=self.devices.take(which), first_us=self.first_us[which])


def reports_at_most(messages: Publishes, rows: Ints) -> Ints:
    """How many reports each message may hold. Each report of an array opens two braces, at least."""
    counts = np.ones(len(rows), np.int64)
    arrays = (messages.data[messages.payload_at[rows]] == _ARRAY) & (messages.payload_size[rows] > 0)
    for i in np.flatnonzero(arrays).tolist():
        counts[i] = max(1, messages.payload(int(rows[i])).count(b"{") // 2)
    return counts
