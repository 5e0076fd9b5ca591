"""`widerow backup` and `widerow restore`: beside a server, on a stopped store, and where they refuse."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from system.conftest import config_at
from widerow.backup.folder import BackupFolder
from widerow.cli.commands import app
from widerow.model.tenant import Tenant
from widerow.server.run import running
from widerow.server.sockets import SOCKET, reachable
from widerow.service import Service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Served on the socket of its store."""
    with Service.open(config_at(tmp_path)) as service:
        service.create_tenant(Tenant(name="acme"))
        with running(service, host=None, socket_path=tmp_path / "store" / SOCKET):
            yield service


@pytest.fixture
def local(service: Service, tmp_path: Path) -> Iterator[httpx.Client]:  # noqa: ARG001 - which it asks
    with (
        reachable(tmp_path / "store" / SOCKET) as path,
        httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://localhost") as client,
    ):
        yield client


def invoked(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def said(*arguments: str | Path) -> dict[str, Any]:
    result = invoked(*arguments, "--json")
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


@pytest.mark.usefixtures("service")
def test_a_backup_beside_a_server_is_made_by_the_server(tmp_path: Path, local: httpx.Client) -> None:
    dest, store = tmp_path / "backups", f"rocksdb:{tmp_path / 'store'}"
    first = said("backup", dest, "--store", store)["backups"]
    state = local.get("/v1/admin/backup").json()
    assert state["last_success"]["number"] == first[0]["number"] == 1
    assert state["last_success"]["to"] == str(dest)
    said("backup", dest, "--store", store, "--keep", "1", "--verify")
    listed = said("backup", "--list", dest)["backups"]
    assert [backup["number"] for backup in listed] == [2]
    assert said("backup", "--list", "--verify", dest)["backups"][0]["verified"]
    table = invoked("backup", "--list", dest).stdout
    assert listed[0]["mark"] in table
    actions = local.get("/v1/admin/audit").json()["actions"]
    assert [action["command"] for action in actions if "backup" in action["what"]] == ["widerow backup"] * 2


def test_a_stopped_store_is_backed_up_and_restored(tmp_path: Path) -> None:
    store, copy = f"rocksdb:{tmp_path / 'store'}", f"rocksdb:{tmp_path / 'copy'}"
    assert invoked("tenant", "create", "acme", "--store", store).exit_code == 0
    dest = tmp_path / "backups"
    said("backup", dest, "--store", store)
    assert invoked("tenant", "delete", "acme", "--yes", "--store", store).exit_code == 0
    done = said("restore", dest, "--store", copy)
    assert (done["backup"], done["erased_again"]) == (1, 1)
    assert done["mark"] < done["erasures_known_until"]
    assert invoked("tenant", "show", "acme", "--store", copy).exit_code == 1
    again = invoked("restore", dest, "--store", copy)
    assert again.exit_code == 1
    assert "is not empty" in again.stderr


def test_the_state_shows_progress_and_one_backup_runs_at_a_time(
    service: Service, local: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    real = BackupFolder.add

    def waits(self: BackupFolder, source: Path, stamp: str, advance: Callable[[int], None]) -> object:
        begun.set()
        go_on.wait(60)
        return real(self, source, stamp, advance)

    monkeypatch.setattr(BackupFolder, "add", waits)
    assert local.get("/v1/admin/backup").json()["state"] == "idle"
    assert local.post("/v1/admin/backup", json={"to": str(tmp_path / "backups")}).status_code == 202
    assert begun.wait(60)
    run = local.get("/v1/admin/backup").json()["run"]
    assert (run["phase"], run["done_bytes"]) == ("copying", 0)
    assert run["of_bytes"] > 0
    second = local.post("/v1/admin/backup", json={"to": str(tmp_path / "others")})
    assert second.status_code == 409
    stopping = threading.Thread(target=service.backups.stop)
    stopping.start()
    while not service.backups._stopping:
        pass
    go_on.set()
    stopping.join()
    state = local.get("/v1/admin/backup").json()
    assert (state["state"], state["last_error"]["code"]) == ("idle", "stopped")


def test_a_damaged_backup_is_named_and_the_others_are_listed(tmp_path: Path) -> None:
    store, dest = f"rocksdb:{tmp_path / 'store'}", tmp_path / "backups"
    assert invoked("tenant", "create", "acme", "--store", store).exit_code == 0
    said("backup", dest, "--store", store)
    said("backup", dest, "--store", store)
    (dest / "backups" / "000001.json").write_text("{}")
    listed = invoked("backup", "--list", dest, "--json")
    assert listed.exit_code == 1
    assert "000001.json" in listed.stderr
    assert [backup["number"] for backup in json.loads(listed.stdout)["backups"]] == [2]


def test_a_relative_folder_is_refused_by_the_route(local: httpx.Client) -> None:
    assert local.post("/v1/admin/backup", json={"to": "backups"}).status_code == 400


def test_other_stores_are_refused_with_a_pointer_to_the_guide(tmp_path: Path) -> None:
    for url in ("cassandra://10.0.0.1/widerow", "bigtable://p/i/x", "memory:"):
        for arguments in (("backup", tmp_path / "backups"), ("restore", tmp_path / "backups")):
            refused = invoked(*arguments, "--store", url)
            assert refused.exit_code == 2
            assert "guides/backup.md" in refused.stderr


def test_a_folder_without_backups_says_so(tmp_path: Path) -> None:
    for arguments in (("backup", "--list", tmp_path), ("restore", tmp_path, "--store", f"rocksdb:{tmp_path / 'copy'}")):
        refused = invoked(*arguments)
        assert refused.exit_code == 1
        assert "no-backup" in refused.stderr
    assert not (tmp_path / "copy").exists()
