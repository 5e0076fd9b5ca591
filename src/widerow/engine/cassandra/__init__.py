"""The engine on Apache Cassandra. `physical` says what the tables look like there; `engine` is the port."""

from widerow.engine.cassandra.cluster import CassandraSettings
from widerow.engine.cassandra.engine import CassandraEngine

__all__ = ["CassandraEngine", "CassandraSettings"]
