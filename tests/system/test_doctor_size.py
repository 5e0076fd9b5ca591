"""`widerow doctor` gives the size of a store, or names the tool that knows it."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from servers.cassandra import Cassandra
from widerow.cli.commands import app


def size_of(store: str) -> dict[str, str]:
    for command in (["token", "create", "--operator"], ["doctor", "--json"]):  # the first makes the store
        ended = CliRunner().invoke(app, [*command, "--store", store])
        assert ended.exit_code == 0, ended.output
    found: list[dict[str, str]] = json.loads(ended.stdout)["checks"]
    (size,) = (check for check in found if check["name"] == "size of the store")
    return size


def test_an_embedded_store_has_a_size(tmp_path: Path) -> None:
    size = size_of(f"rocksdb:{tmp_path}/store")
    assert size["verdict"] == "ok"
    assert "iB on disk, " in size["found"]
    assert not size["found"].startswith("0 B")


@pytest.mark.rest
def test_on_cassandra_its_own_tool_is_named_and_no_size_is_made_up(cassandra_server: Cassandra) -> None:
    size = size_of(cassandra_server.store_url(f"size_{uuid4().hex[:12]}"))
    assert (size["verdict"], size["found"]) == ("skipped", "this store does not tell its clients")
    assert "nodetool tablestats" in size["todo"]
