"""What each node of a cluster says of itself, in its virtual tables; those are of Cassandra 4 and later."""

from __future__ import annotations

from cassandra.query import SimpleStatement

from widerow.engine.cassandra.cluster import Connection, reported
from widerow.model.errors import ConfigError, Unavailable

_COMPACTIONS = "SELECT active_tasks, pending_tasks FROM system_views.thread_pools WHERE name = 'CompactionExecutor'"


def compactions(connection: Connection) -> int | None:
    """Compactions that run or wait, on all nodes that answer. None: no node says."""
    found = []
    for host in connection.metadata.all_hosts():
        if host.is_up is False:
            continue
        try:
            with reported():
                row = connection.send(SimpleStatement(_COMPACTIONS, is_idempotent=True), host).result().one()
        except (ValueError, ConfigError, Unavailable):  # an older release, a right that is missing, a node that is away
            continue
        if row is not None:
            found.append(sum(row))
    return sum(found) if found else None
