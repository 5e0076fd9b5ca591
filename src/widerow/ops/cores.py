"""Which core a thread runs on.

The event loop and the committer take turns holding the GIL. On two cores every turn moves their data from one core's cache
to the other's: at 50 lines a request that doubled the CPU time of both. So the two share a core; what works without the GIL
(decoders, readers, RocksDB's own threads) may use all. Linux only; elsewhere nothing happens.
"""

from __future__ import annotations

import os
from collections.abc import Set as AbstractSet


def allowed_cores() -> AbstractSet[int]:
    """Where the calling thread may run, and so the threads it makes."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def stay_on(cores: AbstractSet[int]) -> None:
    """Keep the calling thread on these cores."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def shared_core(cores: AbstractSet[int]) -> AbstractSet[int]:
    """The one core that this process's Python shares. Processes choose different ones."""
    ordered = sorted(cores)
    return {ordered[os.getpid() % len(ordered)]} if ordered else set()
