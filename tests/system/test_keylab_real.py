"""The key lab against real stores: a small fleet's keys in a bare table of RocksDB, Bigtable's emulator and Cassandra.

What the lab computes from a description is compared with what lies in the store and with what its scans return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from rocksdict import Options, Rdict

from patient import cql
from servers.bigtable import Bigtable
from servers.cassandra import Cassandra
from servers.sstables import flush, partitions
from widerow.keylab.atoms import atoms_of
from widerow.keylab.design import Design
from widerow.keylab.facts import Facts, columns_for
from widerow.keylab.read import read_design
from widerow.keylab.reads import Reads
from widerow.keylab.sample import sample_of
from widerow.keylab.simulate import simulate
from widerow.keys.scan import Question
from widerow.model.times import HOUR, MINUTE, SECOND
from widerow.plan.fleet import Fleet, read_fleet

START_US = 1_795_046_400 * SECOND  # a midnight
STOP_US = START_US + 2 * HOUR
FLEET = read_fleet(
    """
    tenants = 3
    retention = "2h"
    [[class]]
    devices = 40
    interval = "1m"
    metrics = 10
    types = 2
    id = "press-{n:04}"
    [questions]
    latest = 1
    """,
    "the test",
)
HOT = read_fleet(
    """
    tenants = 3
    retention = "2h"
    [[class]]
    devices = 40
    interval = "1m"
    metrics = 10
    types = 2
    id = "press-{n:04}"
    [[hot]]
    factor = 30
    for = "2h"
    """,
    "the test",
)
SPECS = [
    "{tenant}#{device}#{reversed:13}",
    "{time:ms}#{device}",
    "{salt:1}#{device}#{time:us}",
    "{type}#{time:ms}#{device}",
    "{device}#{bucket:hour}#{time:s}",
    "{shard:N}#{time:iso}#{device}",
]
QUESTIONS = ("device_hour", "tenant_latest", "metric_fleet")


@dataclass(frozen=True)
class Reports:
    """What the fleet writes in two hours, a row each."""

    design: Design
    fleet: Fleet

    @property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The device and the time of each. A hot device reports between its minutes, too."""
        sample = sample_of(self.fleet, 1000)
        rows, times = [], []
        for row in range(len(sample)):
            factor = int(self.fleet.hot[sample.hot[row]].factor) if sample.hot[row] >= 0 else 1
            moments = np.arange(START_US, STOP_US, MINUTE // factor, dtype=np.int64)
            rows.append(np.full(len(moments), row))
            times.append(moments)
        return np.concatenate(rows), np.concatenate(times)

    def encoded(self) -> list[bytes]:
        rows, times = self.rows
        sample = sample_of(self.fleet, 1000)
        columns = columns_for(self.design.spec, sample.rows(rows), times, self.design.bucket_us)
        return self.design.spec.encode(columns, len(rows)).to_bytes_list()


VALUE = bytes(80)
"""Ten numbers of eight bytes."""


def check(design: Design, scanned: Callable[[bytes, bytes], list[tuple[bytes, int]]]) -> None:
    """`scanned` gives the keys of a range with the bytes of their values, from the real store."""
    everything = scanned(b"", b"\xff")
    simulated = simulate(design, FLEET, nodes=3, hours=2, start_us=START_US)
    assert len(everything) == round(simulated.rows_per_s * 2 * 3600) == 40 * 120
    stored = sum(len(key) + size for key, size in everything) / len(everything)
    assert simulated.bytes_per_row == pytest.approx(stored, rel=0.1)
    facts = Facts(design, FLEET, STOP_US)
    reads = Reads(facts, atoms_of(design, FLEET, START_US, STOP_US))
    for name in QUESTIONS:
        for question, row in list(reads.questions(name, STOP_US))[:5]:
            scan = reads.scan(question)
            found = [key for start, stop in scan.ranges for key, _ in scanned(start, stop)]
            assert len(found) == round(reads.rows_in(scan, question, row)), (name, str(design.spec))
            assert wanted(design, question) <= set(found)


def wanted(design: Design, question: Question) -> set[bytes]:
    """The keys of the rows that a question is about, looked at one by one."""
    sample = sample_of(FLEET, 1000)
    reports = Reports(design, FLEET)
    rows, times = reports.rows
    known = {name: value for name, value in question.known.items() if name != "metric"}
    alike = np.array([all(sample.values(row)[name] == value for name, value in known.items()) for row in range(len(sample))])
    in_span = (times >= question.span[0]) & (times < question.span[1])
    chosen = alike[rows] & (in_span if not question.latest else times == STOP_US - MINUTE)
    return {key for key, is_wanted in zip(reports.encoded(), chosen.tolist(), strict=True) if is_wanted}


def hottest(keys: Sequence[bytes], first_keys: Sequence[bytes]) -> int:
    """The range that holds most of the keys."""
    places = np.searchsorted(np.array(first_keys), np.array(keys), "right") - 1
    return int(np.bincount(places, minlength=len(first_keys)).argmax())


@pytest.mark.parametrize("spec", SPECS)
def test_rocksdb_holds_and_returns_what_was_simulated(spec: str, tmp_path: Path) -> None:
    design = read_design(spec, "the test")
    store = Rdict(str(tmp_path), Options(raw_mode=True))
    for key in Reports(design, FLEET).encoded():
        store[key] = VALUE

    def scanned(start: bytes, stop: bytes) -> list[tuple[bytes, int]]:
        found: list[tuple[bytes, int]] = []
        for key, value in store.items(from_key=start):
            assert isinstance(key, bytes)
            if key >= stop:
                break
            found.append((key, len(value)))
        return found

    check(design, scanned)
    store.close()


@pytest.mark.parametrize("spec", SPECS)
def test_the_hottest_range_is_the_one_that_counting_finds(spec: str, tmp_path: Path) -> None:
    design = read_design(spec, "the test")
    heat = simulate(design, HOT, nodes=3, hours=2, start_us=START_US).heat
    store = Rdict(str(tmp_path), Options(raw_mode=True))
    for key in Reports(design, HOT).encoded():
        store[key] = b""
    stored = [key for key, _ in store.items() if isinstance(key, bytes)]
    store.close()
    # The lab cuts long keys when it shows them; these are short.
    assert int(heat.writes.sum(axis=1).argmax()) == hottest(stored, [key.encode() for key in heat.first_keys])


@pytest.mark.parametrize("spec", SPECS[:2])
def test_bigtable_holds_and_returns_what_was_simulated(
    spec: str, bigtable_server: Bigtable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from google.cloud import bigtable  # noqa: PLC0415
    from google.cloud.bigtable.row_set import RowSet  # noqa: PLC0415

    monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", bigtable_server.address)
    design = read_design(spec, "the test")
    table = bigtable.Client(project="lab", admin=True).instance("lab").table(f"lab-{uuid4().hex[:8]}")
    table.create(column_families={"m": None})
    keys = Reports(design, FLEET).encoded()
    for at in range(0, len(keys), 1000):
        rows = []
        for key in keys[at : at + 1000]:
            row = table.direct_row(key)
            row.set_cell("m", b"", VALUE)
            rows.append(row)
        assert not any(status.code for status in table.mutate_rows(rows))

    def scanned(start: bytes, stop: bytes) -> list[tuple[bytes, int]]:
        rows = RowSet()
        rows.add_row_range_from_keys(start_key=start or b"\x00", end_key=stop)
        return [(row.row_key, len(row.cells["m"][b""][0].value)) for row in table.read_rows(row_set=rows)]

    check(design, scanned)
    table.delete()


TABLES = {
    "wide": """CREATE TABLE {name} (tenant text, device text, day date, ts timestamp, {columns},
        PRIMARY KEY ((tenant, device, day), ts))""",
    "tall": """CREATE TABLE {name} (tenant text, device text, day date, ts timestamp, metric text, value double,
        PRIMARY KEY ((tenant, device, day), ts, metric))""",
    "by-type": """CREATE TABLE {name} (type text, day date, ts timestamp, device text, {columns},
        PRIMARY KEY ((type, day), ts, device))""",
}


@pytest.fixture
def keyspace(cassandra_server: Cassandra) -> Iterator[str]:
    name = f"lab_{uuid4().hex[:12]}"
    with cql(cassandra_server) as session:
        session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
        yield name
        session.execute(f"DROP KEYSPACE {name}")


@pytest.mark.parametrize("shape", TABLES)
def test_partitions_of_cassandra_are_as_large_as_simulated(shape: str, cassandra_server: Cassandra, keyspace: str) -> None:
    statement = TABLES[shape].format(name="readings", columns=", ".join(f"m{i} double" for i in range(10)))
    design = read_design(statement, "the test")
    sample = sample_of(FLEET, 1000)
    rows, times = Reports(design, FLEET).rows
    few = rows < 6  # three of each type: more would take longer and show nothing else
    names = [column for column in ("tenant", "device", "type") if column in statement.split("PRIMARY")[0]]
    with cql(cassandra_server) as session:
        session.set_keyspace(keyspace)
        session.execute(statement)
        tail = ["metric", "value"] if shape == "tall" else [f"m{i}" for i in range(10)]
        listed = [*names, "day", "ts", *tail]
        insert = session.prepare(f"INSERT INTO readings ({', '.join(listed)}) VALUES ({', '.join('?' * len(listed))})")
        sent = []
        for row, time_us in zip(rows[few].tolist(), times[few].tolist(), strict=True):
            values = sample.values(row)
            day = np.datetime64(time_us, "us").astype("datetime64[D]").astype(object)
            start = [*(values[name] for name in names), day, time_us // 1000]
            many = (
                [[f"metric-{i + 1:02d}", float(i)] for i in range(10)]
                if shape == "tall"
                else [[float(i) for i in range(10)]]
            )
            sent += [session.execute_async(insert, [*start, *rest]) for rest in many]
        for future in sent:
            future.result()
        flush(cassandra_server, session, keyspace, "readings")
    found = partitions(cassandra_server, keyspace, "readings")
    facts = Facts(design, FLEET, STOP_US)
    largest = max(found, key=lambda partition: partition.size_bytes)
    devices = 3 if shape == "by-type" else 1
    per_report = facts.row_bytes(FLEET.classes[0]) * (10 if shape == "tall" else 1)
    assert largest.rows == devices * 120 * (10 if shape == "tall" else 1)
    assert devices * 120 * per_report == pytest.approx(largest.size_bytes, rel=0.1)
