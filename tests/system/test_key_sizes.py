"""`widerow keys sizes`, against what was written and what the stores' own tools say."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from patient import cql
from servers.bigtable import Bigtable
from servers.cassandra import Cassandra
from servers.sstables import flush, partitions
from system.test_help_examples import examples as in_help
from widerow.cli.commands import app
from widerow.config import Config, Store
from widerow.model.batch import Report, batch_of
from widerow.model.tenant import Tenant
from widerow.model.times import MS
from widerow.service import Service

DEVICES, REPORTS = 60, 20


def write(url: str) -> None:
    """A fleet, of which one device has twenty times as many reports as each other."""
    with Service.open(Config(store=Store(url=url))) as service:
        tenant, now_us = service.create_tenant(Tenant(name="acme")), service.clock.now_us() // MS * MS
        for d in range(DEVICES):
            count = REPORTS * 20 if d == 7 else REPORTS
            reports = [Report(f"press-{d:03d}", now_us - i * MS, {"x": 1.5, "y": 2.5}, {}, now_us) for i in range(count)]
            service.telemetry.write(tenant, batch_of(reports))


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["keys", "sizes", *arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout + (result.stderr if code else "")


def test_bigtables_samples_of_row_keys_cover_each_table(bigtable_server: Bigtable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", bigtable_server.address)
    url = bigtable_server.store_url(f"k{uuid4().hex[:8]}")
    write(url)
    found = json.loads(run("--store", url, "--json"))
    assert (found["engine"], found["hot"]) == ("bigtable", None)
    tables = {one["table"]: one for one in found["tables"]}
    tablets = tables["telemetry_30d"]["tablets"]
    assert tablets[0]["start"] == tablets[-1]["stop"] == ""
    assert all(one["stop"] == other["start"] for one, other in pairwise(tablets))
    values = 2 * REPORTS * (DEVICES - 1 + 20)
    assert tables["telemetry_30d"]["bytes"] == sum(one["bytes"] for one in tablets) >= 8 * values
    drawn = run("--store", url)
    assert any(line.split()[0] == "telemetry_30d" for line in drawn.splitlines() if line.strip())


def test_cassandras_partitions_are_as_large_as_its_own_tool_says(cassandra_server: Cassandra) -> None:
    keyspace = f"sizes_{uuid4().hex[:12]}"
    url = cassandra_server.store_url(keyspace)
    write(url)
    with cql(cassandra_server) as session:
        flush(cassandra_server, session, keyspace, "telemetry_30d")
    truth = sorted(partition.size_bytes for partition in partitions(cassandra_server, keyspace, "telemetry_30d"))
    found = json.loads(run("--store", url, "--json"))
    (table,) = [one for one in found["tables"] if one["table"] == "telemetry_30d"]
    assert table["partitions"] == {"value": len(truth), "error": 0.0}
    assert (table["read"], table["unread"], table["in_time"]) == (len(truth), 0, True)
    assert table["bytes"]["value"] == pytest.approx(sum(truth), rel=0.1)
    assert table["largest_bytes"] == pytest.approx(truth[-1], rel=0.1)
    assert "device_id=press-007" in table["largest"]
    assert table["p50_bytes"] == pytest.approx(truth[len(truth) // 2], rel=0.1)
    assert sum(one["share"]["value"] for one in table["histogram"]) == pytest.approx(1)
    assert all(one["share"]["error"] == 0 for one in table["histogram"])
    assert [one["share"] for one in found["ring"]] == [pytest.approx(1)]
    assert found["balance"] == pytest.approx(1)
    (node,) = table["nodes"]
    assert node["node"] == found["ring"][0]["node"]
    assert node["largest_partition_bytes"] is not None

    few = json.loads(run("--store", url, "--table", "telemetry_30d", "--partitions", "10", "--json"))["tables"][0]
    assert few["read"] == 10
    assert few["histogram"][0]["share"]["error"] > 0
    assert abs(few["partitions"]["value"] - len(truth)) <= few["partitions"]["error"]
    drawn = run("--store", url, "--table", "telemetry_30d")
    assert "press-007" in drawn
    assert "ring: " in drawn
    example = next(one for one in in_help() if one.startswith("widerow keys sizes") and "cassandra://" in one)
    assert run(*shlex.split(example.replace("cassandra://10.0.0.1/widerow", url))[3:]).startswith(" table")
    assert "there is no such table" in run("--store", url, "--table", "nosuch", code=2)


def test_a_store_without_tablets_or_partitions_is_refused() -> None:
    assert "neither partitions on nodes nor tablets" in run("--store", "memory:", code=2)
