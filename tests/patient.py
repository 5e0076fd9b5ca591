"""Cassandra for tests that are not about time: only a server that hangs is late.

A machine that is taken away for seconds makes a node exceed what a client waits by default, in tests about something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session

from servers.cassandra import PATIENCE_S, Cassandra
from widerow import config
from widerow.engine.cassandra import CassandraSettings

PATIENT = config.Cassandra(timeout_s=PATIENCE_S)
"""For the configuration of a service."""


def settings(server: Cassandra, keyspace: str) -> CassandraSettings:
    return CassandraSettings(hosts=(server.host,), port=server.port, keyspace=keyspace, timeout_s=PATIENCE_S)


@contextmanager
def cql(server: Cassandra) -> Iterator[Session]:
    """To look at what is stored with nothing of ours between."""
    profile = ExecutionProfile(request_timeout=PATIENCE_S)
    cluster = Cluster(
        [server.host],
        port=server.port,
        protocol_version=4,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=PATIENCE_S,
        control_connection_timeout=PATIENCE_S,
    )
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()
