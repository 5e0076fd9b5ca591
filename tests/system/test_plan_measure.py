"""`widerow plan --measure` on real stores: a short run says what a longer run of the same fleet says, and leaves nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from patient import cql
from servers.cassandra import Cassandra
from widerow.cli.commands import app

MILLION = ("--devices", "1000000", "--interval", "10s", "--metrics", "10", "--tenants", "20")
WITHIN = 0.1


def measured(*options: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["plan", *MILLION, "--measure", "--json", *options])
    assert done.exit_code == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_short_run_on_rocksdb_has_the_bytes_of_a_longer_one(tmp_path: Path) -> None:
    store = tmp_path / "store"
    short, long = (measured("--store", f"rocksdb:{store}", "--seconds", seconds) for seconds in ("1", "2.5"))
    few, many = short["measured"], long["measured"]
    assert many["metrics"] > 1.5 * few["metrics"]
    assert few["metric_bytes"]["measured"] == pytest.approx(many["metric_bytes"]["measured"], rel=WITHIN)
    assert few["metric_bytes"]["measured"] == pytest.approx(few["metric_bytes"]["predicted"], rel=WITHIN)
    raw = long["raw"]["day_bytes"] / (86_400 * 1_000_000)
    assert raw == pytest.approx(many["metric_bytes"]["measured"], rel=1e-3)
    assert not store.exists()


def test_a_fleet_of_several_classes_with_texts_is_measured(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(
        "[[class]]\ndevices = 300\nmetrics = 4\ntext_bytes = 30\n"
        "[[class]]\ndevices = 100\ninterval = '15m'\nmetrics = 2\nid = '{hex:12}'\n"
    )
    done = CliRunner().invoke(
        app, ["plan", "--fleet", str(fleet), "--engine", "rocksdb", "--measure", "--seconds", "1", "--json"]
    )
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["measured"]["metrics"] > 10_000


@pytest.mark.timeout(400)
def test_a_short_run_on_cassandra_has_the_bytes_of_a_longer_one(cassandra_server: Cassandra) -> None:
    keyspace = f"plan_{uuid4().hex[:12]}"
    url = cassandra_server.store_url(keyspace)
    few = measured("--store", url, "--seconds", "2")["measured"]
    for seconds in ("6", "15"):  # longer on a machine that is busy meanwhile
        many = measured("--store", url, "--seconds", seconds)["measured"]
        if many["metrics"] > 1.5 * few["metrics"]:
            break
    assert many["metrics"] > 1.5 * few["metrics"]
    assert few["metric_bytes"]["measured"] == pytest.approx(many["metric_bytes"]["measured"], rel=WITHIN)
    assert few["metric_bytes"]["measured"] == pytest.approx(few["metric_bytes"]["predicted"], rel=WITHIN)
    with cql(cassandra_server) as session:
        found = {row.keyspace_name for row in session.execute("SELECT keyspace_name FROM system_schema.keyspaces")}
    assert keyspace not in found


def test_a_keyspace_that_exists_is_neither_written_nor_dropped(cassandra_server: Cassandra) -> None:
    done = CliRunner().invoke(
        app, ["plan", *MILLION, "--measure", "--store", cassandra_server.store_url("system_auth"), "--seconds", "1"]
    )
    assert done.exit_code == 2
    assert "the keyspace system_auth exists" in done.stderr
