"""An engine and the oracle do the same random things, and must show the same.

What the port leaves open is kept out of the way: a value is a function of its place and version, so equal versions never
differ; a later version never expires earlier; rows of a windowed table expire no later than their window.
What a scan with options should show is worked out here, in plain Python, from everything the oracle has.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from widerow.engine.bigtable import BigtableEngine, BigtableSettings
from widerow.engine.contract import (
    START_US,
    TABLES,
    CellName,
    Fragment,
    Logical,
    LogicalRow,
    Shape,
    Tag,
    check_first,
    fixed_rows,
    gather,
    logical,
    merged,
    rows_from,
)
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import ALL, Engine, Span
from widerow.engine.rocksdb import RocksEngine
from widerow.engine.rows import NEVER, Key, Row, Rows, rows_of
from widerow.model.times import DAY, HOUR, MS, SECOND, ManualClock
from widerow.schema.table import Table

BY_NAME = {table.name: table for table in TABLES}
WRITTEN = st.sampled_from([table.name for table in TABLES if not table.conditional])
CONDITIONAL = st.sampled_from([table.name for table in TABLES if table.conditional])
ANY = st.sampled_from(list(BY_NAME))
NAMES: list[CellName] = ["t", "u", "körper", Tag("t"), Tag("site")]

texts = st.sampled_from(["", "a", "a0", "a\x00b", "b", "ü#/"])
ints = st.sampled_from([-(2**63), -1, 0, 1, 300, 2**63 - 1])
buckets = st.sampled_from([-80, -50, -49, -48, -4, -1, 0, 1, 40]).map(lambda n: START_US + n * HOUR // 2)
versions = st.integers(0, 5).map(lambda n: START_US + n * MS)


def keys_of(table: Table, columns: int | None = None) -> st.SearchStrategy[Key]:
    """Keys, or starts of keys, few enough to meet again."""
    parts = [
        buckets if table.window and column.name == table.window.column else texts if column.type == "text" else ints
        for column in table.key[:columns]
    ]
    return st.tuples(*parts)


def partitions_of(table: Table, engine: Engine, columns: int) -> st.SearchStrategy[list[Key]]:
    """Keys of so many columns, mostly such as have rows."""
    rows = logical(engine, table, None)
    there = sorted({(at + key)[:columns] for at, found in rows.items() for key, _ in found})
    anywhere = keys_of(table, columns)
    return st.lists(st.sampled_from(there) | anywhere if there else anywhere, max_size=5, unique=True)


def asked(table: Table, whole: Logical, keys: Sequence[Key]) -> Logical:
    """What there is for each key, which may go on into the clustering columns."""
    cut = len(table.partition)
    found = {
        key: [
            (row[len(key) - cut :], cells) for row, cells in whole.get(key[:cut], []) if row[: len(key) - cut] == key[cut:]
        ]
        for key in keys
    }
    return {key: rows for key, rows in found.items() if rows}


def spans_of(table: Table) -> st.SearchStrategy[Span]:
    if not table.clustering:
        return st.just(ALL)
    end = st.none() | (texts if table.clustering[0].type == "text" else ints)
    return st.builds(Span, end, end)


def columns_of(table: Table) -> st.SearchStrategy[list[str]]:
    names = table.columns or tuple({name.name if isinstance(name, Tag) else name for name in NAMES})
    return st.lists(st.sampled_from(sorted(names)), min_size=1, max_size=2, unique=True)


@st.composite
def fragments_of(draw: st.DrawFn, table: Table) -> Fragment:
    key, version_us = draw(keys_of(table)), draw(versions)
    if table.sparse:
        names: Sequence[CellName] = draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
    else:  # a row of a version is one row: its columns, too, follow from its place
        names = [c for c in table.columns if seed(key, version_us, c) % 3] or table.columns[:1]
    cells: Shape = {name: _value(table, key, version_us, name) for name in names}
    return Fragment(key, cells, version_us, _expire_us(table, key, version_us))


def seed(*parts: object) -> int:
    return crc32(repr(parts).encode())


def _value(table: Table, key: Key, version_us: int, name: CellName) -> float | str | bytes:
    number = seed(key, version_us, name)
    if isinstance(name, Tag):
        return f"tag {number % 3}"
    kinds = (number / 7, f"text {number}", bytes([number % 256, 255]))
    return kinds[number % (3 if table.sparse else 2)]


def _expire_us(table: Table, key: Key, version_us: int) -> int:
    """Later versions expire later, if at all."""
    if table.window:
        bucket = next(v for v, c in zip(key, table.key, strict=True) if c.name == table.window.column)
        assert isinstance(bucket, int)
        return bucket + table.window.keep_us - 5 * SECOND + (version_us - START_US) // MS * SECOND
    if seed(key) % 2:
        return NEVER
    return START_US + seed(key) % 40 * HOUR + (version_us - START_US) * 1_000_000 + seed(key) % 2_000_000


def wanted(whole: Logical, span: Span, limit: int | None, columns: Sequence[str] | None) -> Logical:
    """What a scan with these options shows of everything."""

    def inside(row: LogicalRow) -> bool:
        if span == ALL:
            return True
        first = row[0][0]
        low, high = span.start, span.stop
        return (low is None or _order(first) >= _order(low)) and (high is None or _order(first) < _order(high))

    def named(name: CellName) -> bool:
        return columns is None or (name.name if isinstance(name, Tag) else name) in columns

    found: Logical = {}
    for at, rows in whole.items():
        shown = [(key, {n: c for n, c in cells.items() if named(n)}) for key, cells in rows if inside((key, cells))]
        shown = [row for row in shown if row[1]][:limit]
        if shown:
            found[at] = shown
    return found


def _order(value: str | int) -> tuple[int, bytes]:
    return (value, b"") if isinstance(value, int) else (0, value.encode())


class EngineMachine(RuleBasedStateMachine):
    """A subclass opens the engine; the oracle shares its clock."""

    def open(self) -> Engine:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START_US)
        self.oracle: Engine = MemoryEngine(self.clock)
        self.engine = self.open()
        self.engine.apply(TABLES)
        self.oracle.apply(TABLES)

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """With some rows in every table: what is empty tells little."""
        for table in TABLES:
            if not table.conditional:
                self._write([(table, rows_from(table, data.draw(st.lists(fragments_of(table), min_size=5, max_size=15))))])

    @rule(data=st.data(), names=st.lists(WRITTEN, min_size=1, max_size=3))
    def write(self, data: st.DataObject, names: list[str]) -> None:
        tables = [BY_NAME[name] for name in names]
        changes = [(t, rows_from(t, data.draw(st.lists(fragments_of(t), max_size=8)))) for t in tables]
        self._write(changes)

    def _write(self, changes: Sequence[tuple[Table, Rows]]) -> None:
        self.engine.write(changes)
        self.oracle.write(changes)

    @rule(data=st.data(), name=CONDITIONAL, right=st.booleans())
    def put_if(self, data: st.DataObject, name: str, right: bool) -> None:
        table = BY_NAME[name]
        key = data.draw(keys_of(table))
        row, guess = (data.draw(st.none() | _rows_of(table)) for _ in range(2))
        current = fixed_rows(self.oracle, table, None).get(key)
        expected = current if right else guess
        done = self.engine.put_if(table, key, row, expected)
        assert done == self.oracle.put_if(table, key, row, expected) == (current == expected)

    @rule(data=st.data(), name=CONDITIONAL)
    def insert(self, data: st.DataObject, name: str) -> None:
        table = BY_NAME[name]
        rows = data.draw(st.lists(st.tuples(keys_of(table), _rows_of(table)), max_size=6))
        columns = rows_of(table, rows, version_us=START_US, expire_us=START_US + SECOND)
        assert self.engine.insert(table, columns).tolist() == self.oracle.insert(table, columns).tolist()

    @rule(data=st.data(), name=ANY, version_us=versions, some=st.booleans())
    def delete(self, data: st.DataObject, name: str, version_us: int, some: bool) -> None:
        table = BY_NAME[name]
        partitions, span = data.draw(partitions_of(table, self.oracle, len(table.partition))), data.draw(spans_of(table))
        columns = data.draw(columns_of(table)) if some and table.sparse else None
        for engine in (self.engine, self.oracle):
            engine.delete(table, partitions, span, version_us=version_us, columns=columns)

    @rule(forward_us=st.sampled_from([1, SECOND, HOUR - 1, 5 * HOUR, DAY]), expire=st.booleans())
    def wait(self, forward_us: int, expire: bool) -> None:
        self.clock.time_us += forward_us
        if expire:
            self.engine.expire(self.clock.now_us())
            self.oracle.expire(self.clock.now_us())

    @rule(data=st.data(), name=ANY, limit=st.none() | st.integers(1, 4), some=st.booleans())
    def scan(self, data: st.DataObject, name: str, limit: int | None, some: bool) -> None:
        table = BY_NAME[name]
        columns = data.draw(columns_of(table)) if some else None
        cut = data.draw(st.sampled_from([None, *range(len(table.partition), len(table.key) + 1)]))
        whole = _unversioned(table, logical(self.oracle, table, None))
        partitions, span = None, ALL
        if cut is None or cut == len(table.partition):
            span = data.draw(spans_of(table))
        if cut is not None:
            partitions = data.draw(partitions_of(table, self.oracle, cut))
            whole = asked(table, whole, partitions)
        want = wanted(whole, span, limit, columns)

        chunks = list(self.engine.scan(table, partitions, span, limit=limit, columns=columns))
        found = _unversioned(table, gather(table, chunks, cut))
        assert found == want
        if partitions is not None:
            assert list(found) == [at for at in partitions if at in want]
        for i, chunk in enumerate(chunks):
            assert chunk.cursor is not None
            rest = self.engine.scan(table, partitions, span, limit=limit, columns=columns, after=chunk.cursor)
            both = merged([gather(table, chunks[: i + 1], cut), gather(table, rest, cut)])
            assert _unversioned(table, both) == want

    @rule(data=st.data(), name=WRITTEN, everything=st.booleans(), some=st.booleans())
    def scan_first(self, data: st.DataObject, name: str, everything: bool, some: bool) -> None:
        table = BY_NAME[name]
        partitions = None if everything else data.draw(partitions_of(table, self.oracle, len(table.partition)))
        span = data.draw(spans_of(table))
        columns = data.draw(columns_of(table)) if some else None
        want = logical(self.engine, table, partitions, span, columns=columns)
        check_first(want, logical(self.engine, table, partitions, span, columns=columns, first=True))

    @rule()
    def compare_everything(self) -> None:
        for table in TABLES:
            want = _unversioned(table, logical(self.oracle, table, None))
            assert _unversioned(table, logical(self.engine, table, None)) == want
            partitions = list(want)
            assert list(logical(self.engine, table, partitions[::-1])) == partitions[::-1]

    def teardown(self) -> None:
        try:
            self.compare_everything()
        finally:
            self.engine.close()


def _rows_of(table: Table) -> st.SearchStrategy[Row]:
    values: st.SearchStrategy[float | str] = st.sampled_from([0.0, 1.5, -1e300, "", "text"])
    return st.dictionaries(st.sampled_from(table.columns), values, min_size=1)


def _unversioned(table: Table, found: Logical) -> Logical:
    """Conditional rows have no version to compare."""
    if not table.conditional:
        return found
    return {
        at: [(key, {name: cell._replace(version_us=0) for name, cell in cells.items()}) for key, cells in rows]
        for at, rows in found.items()
    }


class MemoryMachine(EngineMachine):
    """The oracle against what this module expects of scans, in chunks of three rows."""

    def open(self) -> Engine:
        return MemoryEngine(self.clock, chunk_rows=3)


class RocksMachine(EngineMachine):
    patch = pytest.MonkeyPatch()

    @initialize(rows=st.sampled_from([2, 5, 4096]))
    def choose_piece(self, rows: int) -> None:
        """Pieces so small that they end in the middle of everything."""
        self.patch.setattr("widerow.engine.rocksdb.scan.PIECE", rows)
        self.patch.setattr("widerow.engine.rocksdb.fixed._PIECE", rows)
        self.patch.setattr("widerow.engine.rocksdb.by_column.PIECE", rows)
        self.patch.setattr("widerow.engine.rocksdb.by_column._LEAST", min(rows, 64))
        self.patch.setattr("widerow.engine.rocksdb.pieces._FEW", min(rows // 2, 16))
        self.patch.setattr("widerow.engine.rocksdb.iterators._STEP", rows)
        self.patch.setattr("widerow.engine.rocksdb.scan._AT_ONCE", rows)
        self.patch.setattr("widerow.engine.rocksdb.scan._STEP", rows // 2)

    def open(self) -> Engine:
        self.folder = Path(tempfile.mkdtemp(prefix="widerow-machine-"))
        return RocksEngine(self.folder / "store", clock=self.clock)

    @rule()
    def reopen(self) -> None:
        self.engine.close()
        self.engine = RocksEngine(self.folder / "store", clock=self.clock)
        self.engine.apply(TABLES)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.patch.undo()
            shutil.rmtree(self.folder, ignore_errors=True)  # RocksDB may still be deleting files of its own


class BigtableMachine(EngineMachine):
    """On the emulator, with pages and blocks that end in the middle of everything."""

    patch = pytest.MonkeyPatch()

    @initialize(rows=st.sampled_from([2, 5, 4096]), block=st.sampled_from([1, 3, 32]))
    def choose_page(self, rows: int, block: int) -> None:
        self.patch.setattr("widerow.engine.bigtable.scan.PAGE", rows)
        self.patch.setattr("widerow.engine.bigtable.scan.BLOCK", block)
        self.patch.setattr("widerow.engine.bigtable.scan.LOOKUPS", block)
        self.patch.setattr("widerow.engine.bigtable.mutations.REQUEST_BYTES", 40 * block)

    def open(self) -> Engine:
        settings = BigtableSettings(age_margin_us=50 * 365 * DAY)  # the server's clock is another
        return BigtableEngine("widerow", "machine", f"m{uuid4().hex[:8]}", clock=self.clock, settings=settings)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.patch.undo()


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = settings(max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=SLOW)

TestRocksMachine = RocksMachine.TestCase
TestRocksMachine.settings = settings(max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=SLOW)

TestBigtableMachine = pytest.mark.usefixtures("bigtable_host")(BigtableMachine.TestCase)
TestBigtableMachine.settings = settings(max_examples=10, stateful_step_count=20, deadline=None, suppress_health_check=SLOW)
