"""`widerow keys sizes`: what a store's own service says of its tablets, against what was written."""

from __future__ import annotations

import json
from itertools import pairwise
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from servers.bigtable import Bigtable
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


def test_a_store_without_tablets_or_partitions_is_refused() -> None:
    assert "has no tablets" in run("--store", "memory:", code=2)
