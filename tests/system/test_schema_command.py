"""`widerow schema` on each engine: shows, tells what is missing, makes it, and then has nothing to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from servers.bigtable import Bigtable
from servers.cassandra import Cassandra


@pytest.fixture(params=["rocksdb", "cassandra", "bigtable"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "cassandra":
        server: Cassandra = request.getfixturevalue("cassandra_server")
        return server.store_url(f"schema_{uuid4().hex[:12]}")
    if request.param == "bigtable":
        emulator: Bigtable = request.getfixturevalue("bigtable_server")
        monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", emulator.address)
        return emulator.store_url(f"s{uuid4().hex[:8]}")
    return f"rocksdb:{tmp_path / 'store'}"


def schema(command: str, store: str, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "widerow.cli.main", "schema", command, "--store", store, *options]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def test_applying_makes_what_was_missing_and_twice_changes_nothing(store: str) -> None:
    embedded = store.startswith("rocksdb:")
    before = schema("diff", store)
    assert before.returncode == 1
    assert ("no-store" in before.stderr) == embedded
    first = schema("apply", store)
    assert first.returncode == 0, first.stderr
    assert "telemetry_30d" in first.stdout
    assert "made" in first.stderr
    second = schema("apply", store)
    assert (second.returncode, second.stdout) == (0, "")
    assert "nothing to do" in second.stderr
    after = schema("diff", store)
    assert (after.returncode, after.stdout) == (0, "")
    shown = json.loads(schema("show", store, "--json").stdout)
    assert (
        schema("show", store, "--engine", store.partition(":")[0], "--json").stdout
        == json.dumps(shown, separators=(",", ":")) + "\n"
    )
    assert {"tenants", "devices", "telemetry_30d"} <= {definition["table"] for definition in shown}
    begins = {"rocksdb": "column family ", "cassandra": "CREATE ", "bigtable": "cbt "}[store.partition(":")[0]]
    assert all(definition["text"].startswith(begins) for definition in shown)
