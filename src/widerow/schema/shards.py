"""How what a tenant has many of is spread over partitions. Stored: never change."""

from __future__ import annotations

import numpy as np

from widerow.model.arrays import Ints
from widerow.model.hashing import hash_names
from widerow.model.names import Names

SHARDS = 16


def shards_of(names: Names) -> Ints:
    """The shard of each name."""
    return (hash_names(names) % np.uint64(SHARDS)).astype(np.int64)


def shard_of(name: str) -> int:
    return int(shards_of(Names.of((name,)))[0])
