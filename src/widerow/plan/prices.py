"""What nodes do and cost: a table in TOML that its user edits.

Rule: a setting that a file leaves out has the value of the table that comes with Widerow. A fault is named with its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from widerow.plan.sections import Section, document

HOURS_A_MONTH = 730


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraNode:
    node_month: float
    disk_tb: float
    free_share: float
    cores: int
    rows_per_s_core: float
    mb_per_s_core: float
    busy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BigtableNode:
    node_hour: float
    ssd_gib_month: float
    hdd_gib_month: float
    ssd_tb: float
    hdd_tb: float
    ssd_writes_per_s: float
    hdd_writes_per_s: float
    full: float
    busy: float
    busy_failover: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    machine_month: float
    disk_tb: float
    free_share: float
    metrics_per_s: float
    busy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    currency: str
    cassandra: CassandraNode
    bigtable: BigtableNode
    rocksdb: Machine


def price_table() -> str:
    """The table that comes with Widerow, with a remark on each line."""
    return files("widerow.plan").joinpath("prices.toml").read_text(encoding="utf-8")


def default_prices() -> Prices:
    return read_prices("", "the price table")


def read_prices(text: str, source: str) -> Prices:
    """The prices that TOML describes. `source` names the file in errors."""
    top, shipped = document(text, source), document(price_table(), "the price table")
    prices = Prices(
        currency=top.text("currency", shipped.text("currency", "")),
        cassandra=_cassandra(top.section("cassandra"), shipped.section("cassandra")),
        bigtable=_bigtable(top.section("bigtable"), shipped.section("bigtable")),
        rocksdb=_rocksdb(top.section("rocksdb"), shipped.section("rocksdb")),
    )
    top.end()
    return prices


class _Table:
    """A section of the file before that of the shipped table."""

    def __init__(self, given: Section, shipped: Section) -> None:
        self._given, self._shipped = given, shipped

    def price(self, name: str) -> float:
        return self._number(name, 0.0, 1e9)

    def rate(self, name: str) -> float:
        return self._number(name, 1e-6, 1e12)

    def share(self, name: str) -> float:
        """Of something that is used: never none of it."""
        return self._number(name, 0.01, 1.0)

    def free(self, name: str) -> float:
        return self._number(name, 0.0, 0.95)

    def _number(self, name: str, low: float, high: float) -> float:
        return self._given.number(name, self._shipped.number(name, low, low=low, high=high), low=low, high=high)


def _cassandra(given: Section, shipped: Section) -> CassandraNode:
    table = _Table(given, shipped)
    node = CassandraNode(
        node_month=table.price("node_month"),
        disk_tb=table.rate("disk_tb"),
        free_share=table.free("free_share"),
        cores=given.whole("cores", shipped.whole("cores", 1, low=1, high=10_000), low=1, high=10_000),
        rows_per_s_core=table.rate("rows_per_s_core"),
        mb_per_s_core=table.rate("mb_per_s_core"),
        busy=table.share("busy"),
    )
    given.end()
    return node


def _bigtable(given: Section, shipped: Section) -> BigtableNode:
    table = _Table(given, shipped)
    node = BigtableNode(
        node_hour=table.price("node_hour"),
        ssd_gib_month=table.price("ssd_gib_month"),
        hdd_gib_month=table.price("hdd_gib_month"),
        ssd_tb=table.rate("ssd_tb"),
        hdd_tb=table.rate("hdd_tb"),
        ssd_writes_per_s=table.rate("ssd_writes_per_s"),
        hdd_writes_per_s=table.rate("hdd_writes_per_s"),
        full=table.share("full"),
        busy=table.share("busy"),
        busy_failover=table.share("busy_failover"),
    )
    given.end()
    return node


def _rocksdb(given: Section, shipped: Section) -> Machine:
    table = _Table(given, shipped)
    machine = Machine(
        machine_month=table.price("machine_month"),
        disk_tb=table.rate("disk_tb"),
        free_share=table.free("free_share"),
        metrics_per_s=table.rate("metrics_per_s"),
        busy=table.share("busy"),
    )
    given.end()
    return machine
