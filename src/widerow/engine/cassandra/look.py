"""Looking at a keyspace that is not ours, without changing anything in it or beside it.

Rule 1: every statement is a SELECT at consistency ONE. None is prepared: a node records prepared statements in a table.
Rule 2: few requests are under way at once; `sampling` bounds how much is read of a table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cassandra.query import SimpleStatement

from widerow.engine.cassandra.cluster import CassandraSettings, Connection, reported
from widerow.engine.cassandra.sampling import AT_ONCE, RING, Sampling, literal
from widerow.model.errors import ConfigError, Unavailable
from widerow.plan.sampled import Bounds, NodeFigures, Sample
from widerow.plan.shape import CLUSTERING, PARTITION, REGULAR, STATIC, Column, ForeignTable

CONSISTENCY = "ONE"
_MIB = 1 << 20


class Look:
    """A connection that reads."""

    def __init__(self, settings: CassandraSettings) -> None:
        self._connection = Connection(replace(settings, consistency=CONSISTENCY, in_flight=AT_ONCE))
        self.keyspace = settings.keyspace
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        metadata = self._connection.metadata
        if self.keyspace not in metadata.keyspaces:
            there = sorted(name for name in metadata.keyspaces if not name.startswith("system"))
            raise ConfigError(f"cassandra: there is no keyspace {self.keyspace!r}; there are {', '.join(there) or 'none'}")
        if not str(metadata.partitioner).endswith("Murmur3Partitioner"):
            raise ConfigError(
                f"cassandra: the partitioner is {metadata.partitioner}; only Murmur3Partitioner can be sampled"
            )

    def close(self) -> None:
        self._connection.close()

    def tables(self) -> list[ForeignTable]:
        """Those of the keyspace, by name."""
        found = self._connection.metadata.keyspaces[self.keyspace]
        copies = getattr(found.replication_strategy, "replication_factor", None)
        if copies is None:  # by data centre
            copies = sum(int(str(n).split("/")[0]) for n in found.replication_strategy.dc_replication_factors.values())
        return [_table(found.tables[name], self.keyspace, int(copies)) for name in sorted(found.tables)]

    def nodes(self, table: ForeignTable) -> list[NodeFigures]:
        """What each node that can be reached says of a table, in its virtual tables; those are of Cassandra 4 and later."""
        return [self._node(host, table) for host in self._connection.metadata.all_hosts() if host.is_up is not False]

    def ring(self) -> dict[str, float]:
        """The part of the ring of tokens of which each node has the first copy."""
        tokens = self._connection.metadata.token_map
        return ring_shares([(token.value, str(tokens.token_to_host_owner[token].endpoint)) for token in tokens.ring])

    def sample(self, table: ForeignTable, bounds: Bounds, step: Callable[[float], None] = lambda _: None) -> Sample:
        """Some of the table's partitions. `step` is called with how many were read."""
        return Sampling(self._connection, table, bounds, step).run()

    def _node(self, host: Any, table: ForeignTable) -> NodeFigures:
        def ask(view: str, column: str) -> Any:
            where = f"keyspace_name = {literal(table.keyspace)} AND table_name = {literal(table.name)}"
            statement = SimpleStatement(f"SELECT {column} FROM system_views.{view} WHERE {where}", is_idempotent=True)  # noqa: S608
            try:
                with reported():
                    row = self._connection.send(statement, host).result().one()
            except (ValueError, ConfigError, Unavailable):  # an older release, a right that is missing, a node that is away
                return None
            return row[0] if row else None

        disk, largest = ask("disk_usage", "mebibytes"), ask("max_partition_size", "mebibytes")
        return NodeFigures(
            node=str(host.endpoint),
            disk_bytes=None if disk is None else disk * _MIB,
            largest_partition_bytes=None if largest is None else largest * _MIB,
            writes=ask("local_write_latency", "count"),
            writes_per_s=ask("local_write_latency", "per_second"),
        )


def ring_shares(ring: Sequence[tuple[int, str]]) -> dict[str, float]:
    """Of tokens in order, each with its node: a node has the tokens behind the one before, up to its own."""
    shares: dict[str, float] = defaultdict(float)
    for (token, node), (before, _) in zip(ring, [ring[-1], *ring], strict=False):
        shares[node] += ((token - before) % RING or RING) / RING
    return dict(shares)


def _table(found: Any, keyspace: str, copies: int) -> ForeignTable:
    keys, orders = list(found.partition_key), list(found.clustering_key)
    named = {column.name for column in (*keys, *orders)}
    rest = [column for name, column in sorted(found.columns.items()) if name not in named]
    columns = [
        *(Column(column.name, column.cql_type, PARTITION) for column in keys),
        *(Column(column.name, _plain(column.cql_type), CLUSTERING, bool(column.is_reversed)) for column in orders),
        *(Column(column.name, column.cql_type, STATIC if column.is_static else REGULAR) for column in rest),
    ]
    return ForeignTable(
        keyspace=keyspace,
        name=found.name,
        columns=tuple(columns),
        ttl_s=int(found.options.get("default_time_to_live") or 0),
        compaction=str((found.options.get("compaction") or {}).get("class", "")).rpartition(".")[2],
        copies=copies,
    )


def _plain(kind: str) -> str:
    return kind.removeprefix("reversed<").removesuffix(">") if kind.startswith("reversed<") else kind
