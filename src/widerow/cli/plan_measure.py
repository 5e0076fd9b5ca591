"""`widerow plan --measure`: a short run of the fleet on a real store, and what it says of the plan's bytes and rates.

Rule 1: the run has a store to itself, makes it and removes it: a folder, or a keyspace that did not exist.
Rule 2: bytes are those of raw values on the disk, after a compaction, without what other tables hold.
Rule 3: each write holds one report of each device, as live reports come; two threads take turns.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from widerow.cli import output
from widerow.cli.connect import load_config
from widerow.cli.failure import Misused
from widerow.engine.open import open_engine
from widerow.engine.port import Engine
from widerow.model.batch import CellKind
from widerow.model.errors import StoreUnavailable
from widerow.model.store import Embedded, OnCassandra, StorePlace, parse_store
from widerow.model.tenant import Retention, Tenant
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, SystemClock
from widerow.plan.levels import Design, levels
from widerow.plan.load import Sample, samples
from widerow.plan.prices import Prices
from widerow.schema.tables import TABLES, telemetry
from widerow.telemetry.store import Telemetry, TelemetrySettings

if TYPE_CHECKING:
    from cassandra.cluster import Host

    from widerow.engine.cassandra.cluster import Connection

KEPT_US = 30 * DAY
TENANT = Tenant(name="plan", retention=Retention(raw_us=KEPT_US))
THREADS = 2
_DEVICES = {"rocksdb": 1_000, "cassandra": 100}
"""Devices of one write. Cassandra is slower, and its partitions are to have more than a few rows."""
_MOST_VALUES = 20_000
"""Of a write."""
_BATCHES = 10
"""That are made up beforehand and written one after the other: making them is not measured."""
_AT_LAST = 5
_LONGEST_US = 20 * DAY
"""The event time that a device covers; then others go on."""
_RAW_ONLY_PER_S = 2_400_000.0
"""Values that RocksDB took on two cores without rollups and decoding (docs/figures.md). Rates are compared with that."""
_COMPACTED_WITHIN_S = 120.0
_SETTLED_S = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a run found."""

    engine: str
    seconds: float
    metrics: int
    metrics_per_s: float
    stored_bytes: int
    """Of one copy."""
    copies: int
    nodes: int

    @property
    def metric_bytes(self) -> float:
        return self.stored_bytes / self.metrics


def calibrated(design: Design, prices: Prices, found: Measured) -> tuple[Design, Prices]:
    """The design with the measured bytes, texts included, and the prices with nodes as fast as the measured ones."""
    classes = tuple(replace(kind, text_bytes=0) for kind in design.fleet.classes)
    changed = replace(design, metric_bytes=found.metric_bytes, fleet=replace(design.fleet, classes=classes))
    if found.engine == "rocksdb":
        per_s = prices.rocksdb.metrics_per_s * found.metrics_per_s / _RAW_ONLY_PER_S
        return changed, replace(prices, rocksdb=replace(prices.rocksdb, metrics_per_s=per_s))
    node = prices.cassandra
    per_node = found.metrics_per_s * found.copies / found.nodes
    return changed, replace(prices, cassandra=replace(node, rows_per_s_core=per_node / node.cores))


def compared(design: Design, prices: Prices, found: Measured) -> dict[str, object]:
    """What the plan predicted beside what was measured."""
    by_day = tuple(replace(kind, at_night=1.0) for kind in design.fleet.classes)
    raw = levels(replace(design, fleet=replace(design.fleet, classes=by_day)))[0]
    predicted = raw.day_bytes / (raw.metrics_per_s * DAY / SECOND)
    node = prices.cassandra
    if found.engine == "rocksdb":
        rate, machine = _RAW_ONLY_PER_S, "two cores"
    else:
        rate, machine = node.rows_per_s_core * node.cores * found.nodes / found.copies, f"nodes of {node.cores} cores"
    return {
        "seconds": round(found.seconds, 1),
        "metrics": found.metrics,
        "stored_bytes": found.stored_bytes,
        "nodes": found.nodes,
        "metric_bytes": {"predicted": round(predicted, 3), "measured": round(found.metric_bytes, 3)},
        "metrics_per_s": {"predicted": round(rate), "predicted_for": machine, "measured": round(found.metrics_per_s)},
    }


def measure(design: Design, url: str | None, config_file: Path | None, seconds: float) -> Measured:
    """Write reports of the fleet for so long, have them compacted, and look."""
    config, clock = load_config(config_file), SystemClock()
    with _place(url, design.engine) as (place, store_url), ExitStack() as stack:
        engine = open_engine(replace(config, store=replace(config.store, url=store_url)), clock)
        stack.callback(engine.close)
        table = telemetry(KEPT_US)
        if isinstance(place, OnCassandra):
            if engine.outline([table])[0].exists:
                raise Misused(
                    f"the keyspace {place.keyspace} exists", todo="name one that does not: it is dropped at the end"
                )
            stack.callback(_drop, engine, place.keyspace)
        engine.apply([*TABLES, table])
        if isinstance(place, OnCassandra):
            _merge_all(engine, f"{place.keyspace}.{table.name}")
        settings = TelemetrySettings(max_future_us=MINUTE, refresh_us=10 * SECOND)
        load = _Load(Telemetry(engine, clock, settings), design, clock)
        metrics, took_s = load.run(seconds)
        metrics_per_s = metrics / took_s
        if isinstance(place, OnCassandra):
            files = _Files(engine, place.keyspace, table.name)
            files.flush()
            metrics += load.write(_AT_LAST)[0]  # a file alone is never compacted
            stored = files.compacted_bytes()
        else:
            stored = _rocksdb_bytes(engine, table.name)
        copies, nodes = _shape(engine, place)
    return Measured(
        engine=design.engine,
        seconds=took_s,
        metrics=metrics,
        metrics_per_s=metrics_per_s,
        stored_bytes=round(stored / copies),
        copies=copies,
        nodes=nodes,
    )


@contextmanager
def _place(url: str | None, engine: str) -> Iterator[tuple[StorePlace, str]]:
    """Where to write: the given store, or a folder of its own for an embedded one. A folder is removed afterwards."""
    if url is None and engine != "rocksdb":
        raise Misused("where shall it be measured?", todo="give --store cassandra://HOST/KEYSPACE, or --engine rocksdb")
    given = parse_store(url) if url else None
    if given is not None and not isinstance(given, Embedded):
        yield given, url or ""
        return
    if isinstance(given, Embedded) and given.path.exists():
        raise Misused(f"{given.path} exists", todo="name a folder that does not: it is removed at the end")
    if isinstance(given, Embedded) and not given.path.parent.is_dir():
        raise Misused(f"{given.path.parent} is no folder", todo="name a new folder in one that exists")
    folder = given.path if isinstance(given, Embedded) else Path(tempfile.mkdtemp(prefix="widerow-plan-")) / "store"
    try:
        yield Embedded(folder), f"rocksdb:{folder}"
    finally:
        shutil.rmtree(folder if given else folder.parent, ignore_errors=True)


# -- writing


class _Load:
    """Writes reports of the fleet. Counts are of numbers."""

    def __init__(self, store: Telemetry, design: Design, clock: SystemClock) -> None:
        self._store, self._clock = store, clock
        widest = max(kind.metrics for kind in design.fleet.classes)
        devices = min(_DEVICES[design.engine], max(1, _MOST_VALUES // widest))
        self._work = _work(samples(design.fleet, devices), clock.now_us())

    def run(self, seconds: float) -> tuple[int, float]:
        """Write for so long: how many, and the time that it took."""
        metrics, took_s = 0, 0.0
        with output.progress("seconds of writing", seconds) as told:
            while took_s < seconds:
                more, round_s = self.write(_BATCHES)
                metrics, took_s = metrics + more, took_s + round_s
                told(round_s)
        return metrics, took_s

    def write(self, batches: int) -> tuple[int, float]:
        """Making them up is not part of the time."""
        some = islice(self._work, batches)
        made = [sample.batch((tick,), start_us, self._clock.version_us()) for sample, tick, start_us in some]
        began_s = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as threads:
            for _ in threads.map(lambda batch: self._store.write(TENANT, batch), made):
                pass
        took_s = time.perf_counter() - began_s
        return sum(int((batch.cells.kind == CellKind.NUMBER).sum()) for batch in made), took_s


def _work(chosen: Sequence[Sample], now_us: int) -> Iterator[tuple[Sample, int, int]]:
    """The next sample and tick to write, for ever: classes side by side in event time, other devices when it is used up."""
    slowest_us = max(sample.kind.interval_us for sample in chosen)
    span_us = min(max(DAY, 24 * slowest_us), _LONGEST_US)
    start_us = now_us - span_us - HOUR
    start_us -= start_us % DAY
    for generation in count():
        for step_us in range(0, span_us, slowest_us):
            for sample in chosen:
                others = sample.others(generation)
                first, last = (at_us // sample.kind.interval_us for at_us in (step_us, step_us + slowest_us))
                for tick in range(first, max(last, first + 1)):
                    yield others, tick, start_us


# -- sizes


def _rocksdb_bytes(engine: Engine, table: str) -> int:
    from rocksdict import BottommostLevelCompaction, CompactOptions  # noqa: PLC0415 - it is loaded with the store

    from widerow.engine.rocksdb import RocksEngine  # noqa: PLC0415

    assert isinstance(engine, RocksEngine)
    whole = CompactOptions()
    whole.set_bottommost_level_compaction(BottommostLevelCompaction.force())
    with engine.db.reading():
        for name in engine.db.names():
            family = engine.db.family(name)
            if family is not None and name.partition("@")[0] == table:
                family.flush()
                family.compact_range(None, None, whole)
    return engine.sizes()[table].file_bytes


def _merge_all(engine: Engine, table: str) -> None:
    """Have Cassandra merge any two files, whatever their sizes, and flush at once."""
    options = "'class': 'SizeTieredCompactionStrategy', 'min_threshold': 2, 'min_sstable_size': 1099511627776"
    _connection(engine).define(f"ALTER TABLE {table} WITH compaction = {{{options}}}")


class _Files:
    """The files of a table on all nodes of Cassandra, as its virtual and system tables tell of them."""

    def __init__(self, engine: Engine, keyspace: str, table: str) -> None:
        self._connection, self._keyspace, self._table = _connection(engine), keyspace, table

    def flush(self) -> None:
        """Have what is in memory in files, now and from now on."""
        self._connection.define(f"ALTER TABLE {self._keyspace}.{self._table} WITH memtable_flush_period_in_ms = 500")
        self._settled(lambda node: node.mib > 0)

    def compacted_bytes(self) -> int:
        """Of all nodes together: what the last compaction of each wrote, once that is all there is."""
        return sum(node.compacted_bytes for node in self._settled(_Node.is_one))

    def _settled(self, done: Callable[[_Node], bool]) -> list[_Node]:
        """The nodes once they are all done and nothing has changed for a while, in which memory is flushed many times."""
        deadline_s = time.monotonic() + _COMPACTED_WITHIN_S
        before, since_s = list[_Node](), time.monotonic()
        while time.monotonic() < deadline_s:
            now = [self._node(host) for host in self._connection.metadata.all_hosts()]
            if now != before or not all(map(done, now)):
                before, since_s = now, time.monotonic()
            elif time.monotonic() - since_s >= _SETTLED_S:
                return now
            time.sleep(1.0)
        name = f"{self._keyspace}.{self._table}"
        raise StoreUnavailable(f"cassandra: {name} is not compacted after {_COMPACTED_WITHIN_S:g} s; try fewer --seconds")

    def _node(self, host: Host) -> _Node:
        from widerow.engine.cassandra.cluster import reported  # noqa: PLC0415 - the driver is optional

        def rows(cql: str, *given: str) -> list[Any]:
            with reported():
                return list(self._connection.session.execute(cql, given, host=host))

        ours = (self._keyspace, self._table)
        done = rows("SELECT keyspace_name, columnfamily_name, compacted_at, bytes_out FROM system.compaction_history")
        sizes = [(at, size) for of, name, at, size in done if (of, name) == ours]
        tasks = rows("SELECT keyspace_name, table_name FROM system_views.sstable_tasks")
        used = rows("SELECT mebibytes FROM system_views.disk_usage WHERE keyspace_name = %s AND table_name = %s", *ours)
        return _Node(max(sizes)[1] if sizes else 0, used[0][0] if used else 0, ours in [tuple(task) for task in tasks])


@dataclass(frozen=True, slots=True)
class _Node:
    compacted_bytes: int
    """What its last compaction of the table wrote."""
    mib: int
    """Of all files of the table, rounded up, with their indexes and filters."""
    busy: bool

    def is_one(self) -> bool:
        """Whether the last compaction wrote all there is."""
        return not self.busy and self.compacted_bytes > 0 and self.mib << 20 <= 1.05 * self.compacted_bytes + (1 << 20)


def _drop(engine: Engine, keyspace: str) -> None:
    _connection(engine).define(f"DROP KEYSPACE IF EXISTS {keyspace}")


def _connection(engine: Engine) -> Connection:
    from widerow.engine.cassandra import CassandraEngine  # noqa: PLC0415 - the driver is optional

    assert isinstance(engine, CassandraEngine)
    return engine.connection


def _shape(engine: Engine, place: StorePlace) -> tuple[int, int]:
    """Copies and nodes."""
    if not isinstance(place, OnCassandra):
        return 1, 1
    return place.replication, len(list(_connection(engine).metadata.all_hosts()))
