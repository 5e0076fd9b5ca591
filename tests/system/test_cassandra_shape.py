"""What another client of the cluster finds: tables of the documented shape, readable without any of our code."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC
from typing import Any
from uuid import uuid4

import pytest
from cassandra.cluster import Session

import patient
from servers.cassandra import DATACENTER, Cassandra
from widerow.engine.cassandra import CassandraEngine
from widerow.engine.cassandra.physical import CELL, Physical, create_keyspace
from widerow.model.batch import Report, batch_of
from widerow.model.tenant import GUARD_US, Retention, Tenant
from widerow.model.times import DAY, HOUR, MS, SECOND, SystemClock
from widerow.schema.tables import LAST_SEEN, META, TABLES, TENANTS
from widerow.telemetry.store import Telemetry, TelemetrySettings

ACME = Tenant(name="acme", retention=Retention(raw_us=30 * DAY))


@pytest.fixture(scope="module")
def keyspace(cassandra_server: Cassandra) -> str:
    """A keyspace with a few reports in it, written an instant ago."""
    clock, name = SystemClock(), f"shape_{uuid4().hex[:12]}"
    engine = CassandraEngine(patient.settings(cassandra_server, name), clock=clock)
    try:
        engine.apply(TABLES)
        telemetry = Telemetry(engine, clock, TelemetrySettings(max_future_us=300 * SECOND, refresh_us=10 * SECOND))
        at = clock.now_us() // HOUR * HOUR
        version = at // MS * MS
        reports = [
            Report("press 1/#ü", at, {"temp": 20.5, "state": "on"}, {"site": "a"}, version),
            Report("press 1/#ü", at + 1, {"temp": 21.5, "#odd": 1.0}, {}, version + MS),
        ]
        telemetry.write(ACME, batch_of(reports))
    finally:
        engine.close()
    return name


@pytest.fixture(scope="module")
def session(cassandra_server: Cassandra) -> Iterator[Session]:
    with patient.cql(cassandra_server) as session:
        yield session


def columns(session: Session, keyspace: str, table: str) -> dict[str, tuple[str, str, str]]:
    found = session.execute(
        "SELECT column_name, type, kind, clustering_order FROM system_schema.columns "
        "WHERE keyspace_name = %s AND table_name = %s",
        (keyspace, table),
    )
    return {row.column_name: (row.type, row.kind, row.clustering_order) for row in found}


def test_a_raw_table_has_the_shape_people_know(session: Session, keyspace: str) -> None:
    assert columns(session, keyspace, "telemetry_30d") == {
        "tenant_id": ("text", "partition_key", "none"),
        "device_id": ("text", "partition_key", "none"),
        "bucket": ("bigint", "partition_key", "none"),
        "sub_bucket": ("bigint", "partition_key", "none"),
        "event_time": ("timestamp", "clustering", "desc"),
        "event_us": ("bigint", "clustering", "desc"),
        "metric_name": ("text", "clustering", "asc"),
        "metric_value": ("double", "regular", "none"),
        "metric_text": ("text", "regular", "none"),
        "metric_record": ("blob", "regular", "none"),
        "tags": ("frozen<map<text, text>>", "regular", "none"),
        "expires": ("timestamp", "regular", "none"),
        "cell_names": ("set<text>", "static", "none"),
    }


def test_raw_tables_are_compacted_by_windows_of_their_retention(session: Session, keyspace: str) -> None:
    row = session.execute(
        "SELECT compaction, gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s",
        (keyspace, "telemetry_30d"),
    ).one()
    assert row.compaction["class"].endswith("TimeWindowCompactionStrategy")
    assert (row.compaction["compaction_window_size"], row.compaction["compaction_window_unit"]) == ("1", "DAYS")
    assert row.gc_grace_seconds == DAY // SECOND


def test_a_report_is_a_row_for_each_value(session: Session, keyspace: str) -> None:
    found = list(session.execute(f"SELECT * FROM {keyspace}.telemetry_30d"))
    assert {(row.tenant_id, row.device_id, row.sub_bucket) for row in found} == {("acme", "press 1/#ü", 0)}
    base = found[0].bucket
    assert all(row.bucket == base and base % HOUR == 0 for row in found)
    shown = [(row.event_us - base, row.metric_name, row.metric_value, row.metric_text, row.tags) for row in found]
    assert shown == [
        (1, "#odd:#odd", 1.0, None, None),
        (1, "temp", 21.5, None, None),
        (0, "#tag:site", None, "a", None),
        (0, "state", None, "on", {"site": "a"}),
        (0, "temp", 20.5, None, {"site": "a"}),
    ]
    assert {row.event_time.replace(tzinfo=UTC).timestamp() for row in found} == {base / SECOND}, "without the microseconds"
    assert found[0].cell_names == {"temp", "state", "#odd:#odd", "#tag:site"}


def test_versions_are_timestamps_and_retention_is_a_ttl(session: Session, keyspace: str) -> None:
    rows: list[Any] = list(
        session.execute(
            "SELECT event_us, expires, metric_name, WRITETIME(metric_value) AS version, TTL(metric_value) AS ttl "
            f"FROM {keyspace}.telemetry_30d"
        )
    )
    for row in rows:
        if row.metric_name != "temp":
            continue
        assert row.version % MS == 0
        expire_s = -(-(row.event_us + 30 * DAY + GUARD_US) // SECOND)
        left_s = expire_s - time.time()
        assert abs(row.ttl - left_s) < 60
        assert row.expires is not None


def test_catalog_rows_are_one_cell(session: Session, keyspace: str) -> None:
    assert columns(session, keyspace, "devices") == {
        "tenant_id": ("text", "partition_key", "none"),
        "shard": ("bigint", "partition_key", "none"),
        "device_id": ("text", "clustering", "asc"),
        "body": ("frozen<map<text, frozen<cell>>>", "regular", "none"),
        "expires": ("timestamp", "regular", "none"),
    }
    (row,) = session.execute(f"SELECT * FROM {keyspace}.last_seen")
    assert (row.tenant_id, row.device_id) == ("acme", "press 1/#ü")
    assert row.body["width_us"] == (float(HOUR), None)
    assert row.body["keep_us"] == (30.0 * DAY, None)
    assert row.expires is None


def test_each_value_of_a_catalog_row_has_names_by_which_cqlsh_shows_nulls(session: Session, keyspace: str) -> None:
    """`cqlsh` formats a value of a type of the keyspace field by field, null or not; of a tuple it cannot show a null."""
    rows = session.execute(f"SELECT body FROM {keyspace}.last_seen")
    assert [row.body["width_us"]._asdict() for row in rows] == [{"number": float(HOUR), "text": None}]


def test_an_older_store_goes_on_with_its_tuples(session: Session, cassandra_server: Cassandra) -> None:
    keyspace = f"older_{uuid4().hex[:12]}"
    session.execute(create_keyspace(keyspace, DATACENTER, 1))
    for table in (META, LAST_SEEN):
        made = Physical(keyspace, table).create()
        session.execute(made.replace(f"frozen<{CELL}>", "frozen<tuple<double, text>>"))
    engine = CassandraEngine(patient.settings(cassandra_server, keyspace), clock=SystemClock())
    try:
        assert all(one.exists for one in engine.outline([META, LAST_SEEN])), "there is nothing to do"
        engine.apply([META, LAST_SEEN])
        assert not list(session.execute("SELECT * FROM system_schema.types WHERE keyspace_name = %s", (keyspace,)))
        assert engine.put_if(META, ("schema",), {"body": "1"}, None)
        assert not engine.put_if(META, ("schema",), {"body": "3"}, {"body": "2"})
        assert engine.put_if(META, ("schema",), {"body": "2"}, {"body": "1"})
        assert engine.get(META, ("schema",)) == {"body": "2"}
        engine.apply([TENANTS])  # a table that it does not have yet
        assert engine.put_if(TENANTS, (0, "acme"), {"body": "{}", "revision": 1.0}, None)
        assert engine.put_if(TENANTS, (0, "acme"), {"body": "{}", "revision": 2.0}, {"body": "{}", "revision": 1.0})
        assert engine.get(TENANTS, (0, "acme")) == {"body": "{}", "revision": 2.0}
    finally:
        engine.close()
    assert columns(session, keyspace, "meta")["body"][0] == "frozen<map<text, frozen<tuple<double, text>>>>"
    assert columns(session, keyspace, "tenants")["body"][0] == "frozen<map<text, frozen<cell>>>"
