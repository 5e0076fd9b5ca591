"""How many nodes carry a design, what decides that, and what they cost a month.

Rule 1: each limit asks for a number of nodes; the largest decides and is the bottleneck.
Rule 2: writes and storage are counted, questions are not: nobody publishes what they cost a node.
Rule 3: `needs` are of one cluster. Cassandra's replicas share a cluster; each cluster of Bigtable holds everything once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from widerow.model.figures import byte_figure, figure
from widerow.plan.levels import Design, Level
from widerow.plan.prices import HOURS_A_MONTH, BigtableNode, CassandraNode, Machine, Prices

TB = 1e12
GIB = 1 << 30
_BIGTABLE_ROW_BYTES = 1000
"""Of the rows that Google's rates are of. A larger row counts as several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    limit: str
    nodes: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The nodes of a design."""

    kind: str
    needs: tuple[Need, ...]
    clusters: int
    month: float
    remarks: tuple[str, ...] = ()

    @property
    def bottleneck(self) -> Need:
        return max(self.needs, key=lambda need: need.nodes)

    @property
    def nodes_per_cluster(self) -> int:
        return self.bottleneck.nodes

    @property
    def nodes(self) -> int:
        return self.nodes_per_cluster * self.clusters


def sizings(design: Design, found: Sequence[Level], prices: Prices) -> tuple[Sizing, ...]:
    """The ways to build it, the one to take first."""
    if design.engine == "bigtable":
        ways = [_bigtable(design, found, prices.bigtable, kind) for kind in ("SSD", "HDD")]
        return tuple(ways)
    if design.engine == "rocksdb":
        return (_rocksdb(found, prices.rocksdb),)
    return (_cassandra(design, found, prices.cassandra),)


def _cassandra(design: Design, found: Sequence[Level], node: CassandraNode) -> Sizing:
    sizing = cassandra_sizing(
        node,
        rows_per_s=sum(level.rows_per_s for level in found) * design.copies,
        bytes_per_s=sum(level.rows_per_s * level.row_bytes for level in found) * design.copies,
        stored_bytes=sum(level.total_bytes for level in found) * design.copies,
        copies=design.copies,
        free_share=node.free_share,
    )
    return replace(sizing, remarks=(_headroom(design, found, sizing.nodes, node),))


def cassandra_sizing(
    node: CassandraNode, *, rows_per_s: float, bytes_per_s: float, stored_bytes: float, copies: int, free_share: float
) -> Sizing:
    """For rates and bytes of all copies."""
    per_node = node.rows_per_s_core * node.cores * node.busy
    bytes_per_node = 1e6 * node.mb_per_s_core * node.cores * node.busy
    usable = node.disk_tb * TB * (1 - free_share)
    needs = (
        Need(
            limit="disk",
            nodes=ceil(stored_bytes / usable),
            why=f"{byte_figure(stored_bytes)} on disks of {figure(node.disk_tb)} TB, {free_share:.0%} of them free",
        ),
        Need(
            limit="writes",
            nodes=ceil(max(rows_per_s / per_node, bytes_per_s / bytes_per_node)),
            why=f"{_rate(rows_per_s)} rows/s of all copies at {_rate(per_node)} a node, {node.busy:.0%} busy",
        ),
        Need(limit="copies", nodes=copies, why="each copy is on a node of its own"),
    )
    kind = f"node of {node.cores} cores and {figure(node.disk_tb)} TB"
    return Sizing(kind=kind, needs=needs, clusters=1, month=max(need.nodes for need in needs) * node.node_month)


def _rate(value: float) -> str:
    return figure(float(f"{value:.3g}"))


def _headroom(design: Design, found: Sequence[Level], nodes: int, node: CassandraNode) -> str:
    """Compaction of windows rewrites one window at most; leveled compaction about a tenth of a table."""
    raw, others = found[0], found[1:]
    window = raw.day_bytes * design.copies / nodes
    leveled = sum(level.total_bytes for level in others) * design.copies / nodes / 10
    free = node.disk_tb * TB * node.free_share
    return (
        f"compaction, a node: {byte_figure(window)} for the largest window of a day, {byte_figure(leveled)} for leveled "
        f"rollups; {byte_figure(free)} stay free"
    )


def _bigtable(design: Design, found: Sequence[Level], node: BigtableNode, kind: str) -> Sizing:
    ssd = kind == "SSD"
    full_tb = (node.ssd_tb if ssd else node.hdd_tb) * node.full
    busy = node.busy_failover if design.copies > 1 else node.busy
    per_node = (node.ssd_writes_per_s if ssd else node.hdd_writes_per_s) * busy
    stored = sum(level.total_bytes for level in found)
    rows = sum(level.rows_per_s * max(1.0, level.row_bytes / _BIGTABLE_ROW_BYTES) for level in found)
    needs = (
        Need(
            limit="storage",
            nodes=max(1, ceil(stored / TB / full_tb)),
            why=f"{byte_figure(stored)} at {figure(full_tb)} TB a node",
        ),
        Need(limit="writes", nodes=max(1, ceil(rows / per_node)), why=f"{_rate(rows)} rows/s at {_rate(per_node)} a node"),
    )
    count = max(need.nodes for need in needs) * design.copies
    storage = stored * design.copies / GIB * (node.ssd_gib_month if ssd else node.hdd_gib_month)
    return Sizing(
        kind=f"{kind} node",
        needs=needs,
        clusters=design.copies,
        month=count * node.node_hour * HOURS_A_MONTH + storage,
        remarks=_routing(design)
        if ssd
        else ("HDD: a node reads 500 rows/s, and Widerow reads latest values at random: take it for old data alone",),
    )


def _routing(design: Design) -> tuple[str, ...]:
    late = "expired cells may stay, and be billed, for a week more"
    if design.copies == 1:
        return "one cluster, with single-cluster routing: a zone that fails takes the service with it", late
    return (
        f"{design.copies} clusters: single-cluster routing for conditional writes, multi-cluster routing for reads",
        "each cluster applies every write, and is planned to carry the load of one that fails",
        late,
    )


def _rocksdb(found: Sequence[Level], machine: Machine) -> Sizing:
    stored = sum(level.total_bytes for level in found)
    metrics, per_machine = found[0].metrics_per_s, machine.metrics_per_s * machine.busy
    usable = machine.disk_tb * TB * (1 - machine.free_share)
    needs = (
        Need(
            limit="disk",
            nodes=max(1, ceil(stored / usable)),
            why=f"{byte_figure(stored)} on disks of {figure(machine.disk_tb)} TB",
        ),
        Need(
            limit="writes",
            nodes=max(1, ceil(metrics / per_machine)),
            why=f"{_rate(metrics)} metrics/s at {_rate(per_machine)} a machine",
        ),
    )
    count = max(need.nodes for need in needs)
    alone = "one process on one disk: keep backups elsewhere"
    several = f"an embedded store is one process on one disk: divide the tenants among {count:,} stores, or take Cassandra"
    return Sizing(
        kind="machine",
        needs=needs,
        clusters=1,
        month=count * machine.machine_month,
        remarks=(several if count > 1 else alone,),
    )
