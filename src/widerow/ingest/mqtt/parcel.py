"""Messages on their way from a block to the pipeline: what is known of them, however often they are tried or divided."""

from __future__ import annotations

from dataclasses import dataclass, replace

from widerow.ingest.mqtt.window import Block
from widerow.model.arrays import Ints
from widerow.model.names import Coded


@dataclass(slots=True)
class Parcel:
    """Messages of one tenant that came in one block."""

    tenant: str
    block: Block
    rows: Ints
    devices: Coded
    version_us: int
    first_us: int
    """The time of the block's first message, and a microsecond more for each one behind it: for reports without a time."""
    tries: int = 0
    admitted: bool = False
    """Its limits let it pass when it was tried before."""
    in_order: bool = False
    """Its version is what `Order` gave it."""

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, which: Ints) -> Parcel:
        return replace(self, rows=self.rows[which], devices=self.devices.take(which))
