"""`widerow plan --from` on a keyspace that plain CQL made: its figures beside the truth, and nothing written there.

The truth: what was inserted, Cassandra's own `sstablepartitions` after a flush, and all of it packed.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable, Session
from cassandra.query import BatchStatement, BatchType
from typer.testing import CliRunner

from patient import cql
from servers.cassandra import DATACENTER, FLEETING, Cassandra
from servers.cluster import Cluster as Nodes
from servers.fixtures import had
from servers.sstables import Partition, flush, partitions
from widerow.cli.commands import app
from widerow.model.batch import Report
from widerow.model.times import HOUR, MINUTE, SECOND
from widerow.plan.repack import packed_reports

NOW_US = 1_793_491_200 * SECOND
KEYS = ("humidity", "pressure", "temperature", "voltage")
DEVICES, SENSORS = 60, 40
LARGE, HOT = "key=vibration", "key=current"
HOT_ROWS = 3_600
MONTH_US = 30 * 24 * HOUR

THINGSBOARD = """
    CREATE TABLE {}.ts_kv_cf (entity_type text, entity_id timeuuid, key text, partition bigint, ts bigint,
        bool_v boolean, str_v text, long_v bigint, dbl_v double, json_v text,
        PRIMARY KEY ((entity_type, entity_id, key, partition), ts))"""
BADLY_BUCKETED = """
    CREATE TABLE {}.readings (day date, ts timestamp, sensor text, value double, PRIMARY KEY ((day), ts, sensor))"""
Row = tuple[str, str, int, float]
"""Device, metric, time, value."""


@dataclass(frozen=True)
class Truth:
    """What is in a table."""

    rows: list[Row]
    on_disk: list[Partition]

    @property
    def bytes(self) -> int:
        return sum(part.size_bytes for part in self.on_disk)

    @property
    def packed_bytes(self) -> int:
        reports: dict[tuple[str, int], dict[str, float | str]] = {}
        for device, metric, time_us, value in self.rows:
            reports.setdefault((device, time_us), {})[metric] = value
        return packed_reports([Report(d, t, values, {}, t) for (d, t), values in reports.items()]).bytes


@dataclass(frozen=True)
class Plant:
    server: Cassandra
    session: Session
    keyspace: str
    truth: dict[str, Truth]

    def look(self, *options: str) -> dict[str, Any]:
        """What `widerow plan --from` says of each table."""
        done = CliRunner().invoke(app, ["plan", "--from", self.url, *options, "--json"])
        assert done.exit_code == 0, done.stderr
        return {one["table"]: one for one in json.loads(done.stdout)["tables"]}

    @property
    def url(self) -> str:
        return f"cassandra://{self.server.address}/{self.keyspace}?dc={DATACENTER}"

    def writes(self) -> dict[str, int]:
        """Writes of each table since the node started, and statements that it has recorded, as it says itself."""
        found = self.session.execute("SELECT keyspace_name, table_name, count FROM system_views.local_write_latency")
        ours = {f"{row.keyspace_name}.{row.table_name}": row.count for row in found if row.keyspace_name in self._counted}
        return ours | {"prepared": self.session.execute("SELECT count(*) FROM system.prepared_statements").one()[0]}

    @property
    def _counted(self) -> tuple[str, ...]:
        return self.keyspace, "system_schema", "system_auth", "system_distributed", "system_traces"

    def at_rest(self) -> dict[str, int]:
        """Writes and files, once the server has done all that the tests asked of it."""
        before: dict[str, int] = {}
        while before != (now := {**self.writes(), **self.files()}):
            before = now
            time.sleep(1)
        return before

    def files(self) -> dict[str, int]:
        """The files of the keyspace, and when each was changed."""
        folder = self.server.folder / "data" / self.keyspace
        return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def plant(cassandra_server: Cassandra) -> Iterator[Plant]:
    keyspace = f"plant_{uuid4().hex[:12]}"
    with cql(cassandra_server) as session:
        session.execute(
            f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        written = {"ts_kv_cf": thingsboard(session, keyspace), "readings": badly_bucketed(session, keyspace)}
        truth = {}
        for table, rows in written.items():
            flush(cassandra_server, session, keyspace, table)
            truth[table] = Truth(rows, partitions(cassandra_server, keyspace, table))
        yield Plant(cassandra_server, session, keyspace, truth)
        session.execute(f"DROP KEYSPACE {keyspace}")


def thingsboard(session: Session, keyspace: str) -> list[Row]:
    """Devices that report each minute: an hour of last month and one of this. One series is long, one is fast."""
    session.execute(THINGSBOARD.format(keyspace))
    insert = session.prepare(
        f"INSERT INTO {keyspace}.ts_kv_cf (entity_type, entity_id, key, partition, ts, dbl_v) "
        "VALUES ('DEVICE', ?, ?, ?, ?, ?) USING TIMESTAMP ?"
    )
    chance, rows = random.Random(1), []
    for device in range(DEVICES):
        for key in KEYS:
            for end_us in (NOW_US - MONTH_US, NOW_US):
                rows += series(chance, device, key, end_us, MINUTE, 60)
    rows += series(chance, 7, "vibration", NOW_US, MINUTE, 12_000)
    rows += series(chance, 3, "current", NOW_US, SECOND, HOT_ROWS)
    write(
        session,
        insert,
        [(device_id(device), key, month_ms(t), t // 1000, v, t) for device, key, t, v in rows],
        places=(0, 1, 2),
    )
    return [(f"DEVICE/{device_id(device)}", key, t, v) for device, key, t, v in rows]


def series(chance: random.Random, device: int, key: str, end_us: int, every_us: int, count: int) -> list[Any]:
    value, rows = 20.0, []
    for n in range(count):
        value += chance.gauss(0, 0.1)
        rows.append((device, key, end_us - n * every_us, round(value, 2)))
    return rows


def month_ms(time_us: int) -> int:
    return (time_us - NOW_US + 20 * 24 * HOUR) // MONTH_US * MONTH_US // 1000


def device_id(number: int) -> UUID:
    return UUID(int=0x1EF0_0000_0000_11F0_8000_0000_0000_0000 | number)


def badly_bucketed(session: Session, keyspace: str) -> list[Row]:
    """All sensors of a day in one partition."""
    session.execute(BADLY_BUCKETED.format(keyspace))
    insert = session.prepare(
        f"INSERT INTO {keyspace}.readings (day, ts, sensor, value) VALUES (?, ?, ?, ?) USING TIMESTAMP ?"
    )
    chance, found = random.Random(2), []
    for n in range(300):
        time_us = NOW_US - n * 7 * MINUTE
        found += [(f"sensor-{s:03}", time_us, round(chance.gauss(20, 1), 2)) for s in range(SENSORS)]
    moments = [datetime.fromtimestamp(t / SECOND, UTC) for _, t, _ in found]
    values = [(at.date(), at, name, v, t) for at, (name, t, v) in zip(moments, found, strict=True)]
    write(session, insert, values, places=(0,))
    return [(name, "value", t, v) for name, t, v in found]


def write(session: Session, insert: Any, rows: Sequence[tuple[Any, ...]], *, places: tuple[int, ...]) -> None:
    """In batches of one partition each."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        groups.setdefault(tuple(row[i] for i in places), []).append(row)
    waiting = []
    for group in groups.values():
        for at in range(0, len(group), 60):
            batch = BatchStatement(BatchType.UNLOGGED)
            for row in group[at : at + 60]:
                batch.add(insert, row)
            waiting.append(session.execute_async(batch))
            if len(waiting) == 64:
                for one in waiting:
                    one.result()
                waiting = []
    for one in waiting:
        one.result()


@pytest.fixture(scope="module")
def seen(plant: Plant) -> tuple[dict[str, Any], list[Any]]:
    """What the command says, with thresholds as small as the tables; and what changed at the server meanwhile."""
    before = plant.at_rest()
    found = plant.look("--large-rows", "10000", "--rows", "20000")
    after = {**plant.writes(), **plant.files()}
    return found, [
        (name, before.get(name), after.get(name)) for name in before | after if before.get(name) != after.get(name)
    ]


def test_bytes_rows_and_partitions_are_those_on_disk(plant: Plant, seen: tuple[dict[str, Any], list[Any]]) -> None:
    for table, truth in plant.truth.items():
        found = seen[0][table]
        print(f"figure {table}_bytes {found['bytes']['value'] / truth.bytes:.4f} of the truth, {truth.bytes:,}")
        assert found["partitions"] == {"value": len(truth.on_disk), "error": 0}
        assert found["rows"]["value"] == sum(part.rows for part in truth.on_disk) == len(truth.rows)
        assert found["bytes"]["value"] == pytest.approx(truth.bytes, rel=0.1)


def test_the_large_and_the_hot_partition_are_named(seen: tuple[dict[str, Any], list[Any]]) -> None:
    found = seen[0]["ts_kv_cf"]
    assert found["known_as"] == "ThingsBoard"
    (large,) = found["large"]
    assert LARGE in large["partition"]
    assert f"entity_id={device_id(7)}" in large["partition"]
    assert large["rows"] == 12_000
    (hot,) = found["hot"]
    assert HOT in hot["partition"]
    recent = HOT_ROWS + 60 * (DEVICES * len(KEYS) + 1)
    assert hot["share"]["value"] == pytest.approx(HOT_ROWS / recent, abs=0.01 + hot["share"]["error"])


def test_a_bucket_without_a_device_is_named(seen: tuple[dict[str, Any], list[Any]]) -> None:
    found = seen[0]["readings"]
    assert any("names no device" in note for note in found["notes"])
    assert len(found["hot"]) == 1, "all recent writes go to one partition"


def test_a_sample_tells_what_packing_all_of_it_takes(plant: Plant, seen: tuple[dict[str, Any], list[Any]]) -> None:
    for table, truth in plant.truth.items():
        price = seen[0][table]["widerow"]
        about, real = price["packed_bytes"]["value"], truth.packed_bytes
        error, some = price["packed_bytes"]["error"] / about, price["packed_values"]
        print(f"figure {table}_packed {about / real:.3f} of {real:,}; {some:,} of {len(truth.rows):,} packed, ±{error:.1%}")
        assert price["values"]["value"] == len(truth.rows)
        assert price["packed_values"] < len(truth.rows), "a sample"
        assert about == pytest.approx(real, rel=0.15)


def test_looking_writes_nothing(seen: tuple[dict[str, Any], list[Any]]) -> None:
    assert seen[1] == []


def test_some_of_the_partitions_tell_of_all_within_the_error(plant: Plant) -> None:
    found = plant.look("--table", "ts_kv_cf", "--partitions", "40")["ts_kv_cf"]
    truth = plant.truth["ts_kv_cf"]
    assert found["partitions_read"] == 40
    assert abs(found["partitions"]["value"] - len(truth.on_disk)) <= max(1, found["partitions"]["error"])
    assert any("raise --partitions" in note or "--partitions reads more" in note for note in found["notes"])


def test_the_tables_for_people_say_the_same(plant: Plant) -> None:
    done = CliRunner().invoke(app, ["plan", "--from", plant.url, "--large-rows", "10000", "--table", "ts_kv_cf"])
    assert done.exit_code == 0, done.stderr
    assert LARGE in done.stdout
    assert "packed columns" in done.stdout


def test_a_keyspace_or_a_table_that_is_not_there_is_one_line(plant: Plant) -> None:
    def failed(url: str, *options: str) -> str:
        done = CliRunner().invoke(app, ["plan", "--from", url, *options])
        assert done.exit_code == 2
        (line,) = done.stderr.splitlines()
        return line

    assert "there is no keyspace 'absent'; there are" in failed(plant.url.replace(plant.keyspace, "absent"))
    assert "has no such table; it has readings, ts_kv_cf" in failed(plant.url, "--table", "absent")


MADE = 150
KINDS = {
    "kinds": """(site text, unit int, day date, at timeuuid, n tinyint, d decimal, v varint, t text, j map<text, double>,
        l frozen<list<int>>, raw blob, ip inet, fixed text static, PRIMARY KEY ((site, unit, day), at))
        WITH CLUSTERING ORDER BY (at DESC) AND default_time_to_live = 86400""",
    "counts": "(device text, hour timestamp, n counter, PRIMARY KEY ((device), hour))",
    "plain": "(id uuid PRIMARY KEY, body text)",
    "bare": "(device text, ts bigint, PRIMARY KEY (device, ts))",
    '"Quoted"': '("Device" text, "Ts" timestamp, "Value" float, PRIMARY KEY ("Device", "Ts"))',
}


def test_tables_of_all_kinds_are_looked_at(cassandra_server: Cassandra) -> None:
    keyspace = f"kinds_{uuid4().hex[:12]}"
    with cql(cassandra_server) as session:
        session.execute(
            f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        for name, columns in KINDS.items():
            session.execute(f"CREATE TABLE {keyspace}.{name} {columns}")
        for n in range(MADE):
            key = f"'it''s', {n % 3}, '2026-11-0{n % 3 + 1}', now()"
            session.execute(
                f"INSERT INTO {keyspace}.kinds (site, unit, day, at, n, d, v, t, j, l, raw, ip) VALUES ({key}, {n % 100}, "
                f"{n}.25, {n}000000, 'größer', {{'a': {n}, 'b': 2}}, [1, 2], 0x0102, '10.0.0.1')"
            )
            session.execute(f"UPDATE {keyspace}.counts SET n = n + 1 WHERE device = 'a' AND hour = {n}")
            session.execute(f"INSERT INTO {keyspace}.plain (id, body) VALUES (uuid(), 'text')")
            session.execute(f"INSERT INTO {keyspace}.bare (device, ts) VALUES ('a', {NOW_US // 1000 + n})")
            session.execute(f'INSERT INTO {keyspace}."Quoted" ("Device", "Ts", "Value") VALUES (\'a\', {n}, 1)')
        session.execute(f"INSERT INTO {keyspace}.kinds (site, unit, day, fixed) VALUES ('alone', 1, '2026-11-01', 'x')")
        found = Plant(cassandra_server, session, keyspace, {}).look()
        for name in ("kinds", "counts", "plain", "bare"):
            flush(cassandra_server, session, keyspace, name)
            one = found[name]
            real = sum(part.size_bytes for part in partitions(cassandra_server, keyspace, name))
            print(f"figure {name}_bytes {one['bytes']['value'] / real:.3f} of {real:,}")
            assert one["rows"]["value"] == MADE
            assert one["bytes"]["value"] == pytest.approx(real, rel=0.25 if name == "kinds" else 0.1)
        session.execute(f"DROP KEYSPACE {keyspace}")
    assert found["kinds"]["widerow"]["values"]["value"] == MADE * 4
    assert found["plain"]["shape"] is None
    assert found["Quoted"]["widerow"]["packed_values"] == MADE


def test_a_role_that_may_only_select_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer", "permissions_validity": "0ms"}
    options = (*FLEETING, "-Dcassandra.superuser_setup_delay_ms=0")
    with had(lambda: Cassandra(java_options=options, settings=settings)) as server, admin(server) as session:
        session.execute("CREATE KEYSPACE plant WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE plant.r (device text, ts timestamp, v double, PRIMARY KEY (device, ts))")
        session.execute("INSERT INTO plant.r (device, ts, v) VALUES ('a', 1, 1)")
        session.execute("CREATE ROLE looker WITH LOGIN = true AND PASSWORD = 'looks'")
        session.execute("GRANT SELECT ON KEYSPACE plant TO looker")
        monkeypatch.setenv("WIDEROW_CASSANDRA_USERNAME", "looker")
        monkeypatch.setenv("WIDEROW_CASSANDRA_PASSWORD", "looks")
        looked = Plant(server, session, "plant", {})
        found = looked.look()["r"]
        assert (found["rows"]["value"], found["disk_bytes"]) == (1, None)
        session.execute("GRANT SELECT ON KEYSPACE system_views TO looker")
        assert looked.look()["r"]["disk_bytes"] is not None
        session.execute("REVOKE SELECT ON KEYSPACE plant FROM looker")
        done = CliRunner().invoke(app, ["plan", "--from", looked.url])
        assert done.exit_code == 1
        assert done.stderr.startswith("error: config: cassandra: ")


@contextmanager
def admin(server: Cassandra) -> Iterator[Session]:
    """As the role that a new cluster has, which it makes a moment after it is up."""
    deadline_s = time.monotonic() + 60
    while True:
        cluster = Cluster(
            [server.host],
            port=server.port,
            protocol_version=4,
            auth_provider=PlainTextAuthProvider("cassandra", "cassandra"),
        )
        try:
            session = cluster.connect()
        except NoHostAvailable:
            cluster.shutdown()
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.5)
            continue
        try:
            yield session
        finally:
            cluster.shutdown()
        return


@pytest.mark.cluster
def test_every_node_is_asked_and_one_that_is_down_is_left_out(cassandra_cluster: Nodes) -> None:
    server, keyspace = cassandra_cluster.nodes[0], f"nodes_{uuid4().hex[:12]}"
    with cql(server) as session:
        session.execute(
            f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', '{DATACENTER}': 3}}"
        )
        session.execute(
            f"CREATE TABLE {keyspace}.r (device text, day date, ts timestamp, v double, PRIMARY KEY ((device, day), ts))"
        )
        for n in range(200):
            session.execute(f"INSERT INTO {keyspace}.r (device, day, ts, v) VALUES ('{n % 20}', '2026-11-01', {n}, 1)")
        looked = Plant(server, session, keyspace, {})
        found = looked.look()["r"]
        assert (found["copies"], found["rows"], found["partitions"]["value"]) == (3, {"value": 200, "error": 0}, 20)
        assert [node["disk_bytes"] is not None for node in found["nodes"]] == [True] * 3
        cassandra_cluster.nodes[2].kill()
        cassandra_cluster.settle()
        found = looked.look()["r"]
        assert (found["rows"]["value"], sum(node["disk_bytes"] is not None for node in found["nodes"])) == (200, 2)
        cassandra_cluster.nodes[2].start()
        cassandra_cluster.settle()
        session.execute(f"DROP KEYSPACE {keyspace}")
