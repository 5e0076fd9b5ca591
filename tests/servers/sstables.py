"""What a node of Cassandra has on disk: tables flushed when told to, and their partitions as Cassandra's own tool sees them.

Rule 1: sizes are those of the data before compression, which is what Cassandra's own limits and warnings mean.
Rule 2: nobody writes to the table meanwhile. A partition that lies in several files is the sum of its parts, as it would be
after a compaction if none of them hid another.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .cassandra import Cassandra
from .process import Failed

_PERIOD_MS: Final = 200
_WITHIN_S: Final = 30.0
_FLUSHING: Final = ("MemtableFlushWriter", "MemtablePostFlush")


@dataclass(frozen=True, slots=True)
class Partition:
    """`key` has its parts joined by colons. `rows` are CQL rows."""

    key: str
    size_bytes: int
    rows: int


def flush(server: Cassandra, session: Any, keyspace: str, table: str) -> None:
    """Have what is in memory written to disk. By an option of the table, so that nothing but CQL is needed."""
    option = f"ALTER TABLE {keyspace}.{table} WITH memtable_flush_period_in_ms = "
    session.execute(f"{option}{_PERIOD_MS}")
    try:
        deadline_s = time.monotonic() + _WITHIN_S
        before: list[Path] = []
        while not before or before != _complete(server, keyspace, table) or _is_flushing(session):
            if time.monotonic() > deadline_s:
                raise Failed(f"{keyspace}.{table} is not on disk after {_WITHIN_S:g} s")
            before = _complete(server, keyspace, table)
            time.sleep(5 * _PERIOD_MS / 1000)
    finally:
        session.execute(f"{option}0")


def _is_flushing(session: Any) -> bool:
    """Whether the node still writes some table to disk: on a busy machine that takes longer than the period."""
    pools = session.execute("SELECT name, active_tasks, pending_tasks FROM system_views.thread_pools")
    return any(pool.active_tasks or pool.pending_tasks for pool in pools if pool.name in _FLUSHING)


def partitions(server: Cassandra, keyspace: str, table: str) -> list[Partition]:
    """Every partition of a table that is on disk."""
    files = [str(path) for path in _complete(server, keyspace, table)]
    found: dict[str, Partition] = {}
    for line in _csv(server.tool("SSTablePartitions", "--csv", "--min-size", "1", *files)):
        part = Partition(line["key"], int(line["size"]), int(line["rowCount"]))
        known = found.get(part.key, Partition(part.key, 0, 0))
        found[part.key] = Partition(part.key, known.size_bytes + part.size_bytes, known.rows + part.rows)
    return list(found.values())


def _csv(text: str) -> Iterable[dict[str, str]]:
    return csv.DictReader(text.splitlines())


def _complete(server: Cassandra, keyspace: str, table: str) -> list[Path]:
    """The data files that are written to their end: each has a table of contents then."""
    folder = server.folder / "data" / keyspace
    contents = sorted(folder.glob(f"{table}-*/*-TOC.txt"))
    return [path.with_name(path.name.replace("TOC.txt", "Data.db")) for path in contents]
