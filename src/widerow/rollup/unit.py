"""What is rolled in one go."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Unit:
    """A window (an hour, a day) of a tenant's devices of one shard."""

    tenant: str
    start_us: int
    shard: int
