"""`widerow schema show` needs neither a store nor a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from widerow.cli.commands import app


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("URL", "TOKEN", "STORE", "TENANT", "CONFIG", "STORE_URL"):
        monkeypatch.delenv(f"WIDEROW_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


def show(*options: str) -> Result:
    return CliRunner().invoke(app, ["schema", "show", *options])


def tables(*options: str) -> dict[str, str]:
    shown = show(*options, "--json")
    assert shown.exit_code == 0, shown.output
    return {one["table"]: one["text"] for one in json.loads(shown.stdout)}


def test_each_engine_says_in_its_own_words_what_makes_the_tables_of_a_new_store(tmp_path: Path) -> None:
    in_memory = tables("--engine", "memory")
    assert in_memory["devices"] == "table devices ((tenant_id, shard), device_id): body, revision"
    assert in_memory["telemetry_30d"].startswith(
        "table telemetry_30d ((tenant_id, device_id, bucket, sub_bucket), event_us DESC)"
    )

    rocksdb = tables("--engine", "rocksdb")
    assert rocksdb["telemetry_30d"].splitlines() == [
        "column family telemetry_30d@N",
        "  key    {tenant_id} {device_id} {bucket:int} {sub_bucket:int} | {event_us:int:descending}",
        "  value  named cells: numbers, texts, tags, records",
        "  N      bucket / 86400000000 us (1d), rounded down; dropped whole 37d after its end",
    ]
    assert "{tenant_id} {shard:int} | {device_id}" in rocksdb["devices"]
    assert "compare-and-set" in rocksdb["devices"]

    cassandra = tables("--engine", "cassandra")
    assert cassandra["widerow"].startswith("CREATE KEYSPACE IF NOT EXISTS widerow WITH replication")
    assert cassandra["cell"] == "CREATE TYPE IF NOT EXISTS widerow.cell (number double, text text);"
    assert cassandra["telemetry_30d"].startswith("CREATE TABLE IF NOT EXISTS widerow.telemetry_30d (tenant_id text, ")
    assert "TimeWindowCompactionStrategy" in cassandra["telemetry_30d"]

    bigtable = tables("--engine", "bigtable")
    cbt = "cbt -project PROJECT -instance INSTANCE"
    assert bigtable["telemetry_30d"].startswith(f"{cbt} createtable widerow_telemetry_30d")
    assert f'{cbt} setgcpolicy widerow_telemetry_30d readings "maxversions=1 or maxage=' in bigtable["telemetry_30d"]

    assert in_memory.keys() == rocksdb.keys() == cassandra.keys() - {"widerow", "cell"} == bigtable.keys()
    assert list(tmp_path.iterdir()) == []


def test_the_url_of_a_store_names_its_tables_without_being_opened() -> None:
    cassandra = tables("--engine", "cassandra", "--store", "cassandra://10.255.0.1/fleet?replication=3&dc=north")
    assert cassandra["fleet"].endswith("{'class': 'NetworkTopologyStrategy', 'north': 3};")
    assert "fleet.devices" in cassandra["devices"]
    bigtable = tables("--engine", "bigtable", "--store", "bigtable://my-project/main/fleet")
    assert bigtable["devices"].startswith("cbt -project my-project -instance main createtable fleet_devices")


def test_where_no_store_is_yet_its_tables_are_shown_all_the_same(tmp_path: Path) -> None:
    store = ("--store", f"rocksdb:{tmp_path / 'store'}")
    before = show(*store)
    assert (before.exit_code, before.stdout) == (0, show("--engine", "rocksdb").stdout)
    assert show().stdout == before.stdout
    assert list(tmp_path.iterdir()) == []
    assert CliRunner().invoke(app, ["schema", "apply", *store]).exit_code == 0
    assert show(*store).stdout == before.stdout


def test_an_engine_and_a_store_of_another_contradict_each_other() -> None:
    refused = show("--engine", "bigtable", "--store", "rocksdb:x")
    assert refused.exit_code == 2
    assert "contradict" in refused.stderr
