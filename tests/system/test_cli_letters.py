"""`widerow deadletters`: from finding what was refused to having it stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from system.conftest import config_at, now_ms
from widerow.cli.commands import app
from widerow.model.device import Device
from widerow.model.tenant import Tenant
from widerow.model.token import Role
from widerow.server.run import running
from widerow.service import Service


class Place:
    """A served store with a tenant that knows its devices, and the command line."""

    def __init__(self, service: Service, url: str) -> None:
        self.service, self.url = service, url
        self.tenant = service.catalog.tenants.create(Tenant(name="acme", registers_devices=False))
        self.admin, _ = service.catalog.tokens.create(Role.ADMIN, tenant="acme")

    def run(self, *arguments: str) -> Result:
        command = ["deadletters", *arguments, "--server", self.url, "--token", self.admin]
        result = CliRunner().invoke(app, command)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def write(self, content: bytes) -> None:
        headers = {"Authorization": f"Bearer {self.admin}", "Content-Type": "application/json"}
        assert httpx.post(f"{self.url}/v1/write", content=content, headers=headers, timeout=60).status_code in (400, 422)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Service.open(config_at(tmp_path)) as service, running(service, socket_path=tmp_path / "s.sock") as url:
        yield Place(service, url)


def test_what_was_refused_is_found_shown_mended_and_stored(place: Place) -> None:
    report = {"device": "press-9", "time": now_ms(), "values": {"a": 1}}
    place.write(json.dumps(report).encode())
    place.write(b"\xffrubbish")
    rubbish, unknown = json.loads(place.run("list", "--json").stdout)
    assert (rubbish["code"], unknown["code"]) == ("syntax", "unknown-device")
    assert "press-9" in place.run("list", "--code", "unknown-device").stdout
    assert place.run("show", rubbish["id"], "--body").stdout_bytes == b"\xffrubbish"
    assert json.loads(place.run("show", unknown["id"], "--body").stdout) == [report]
    assert "unknown-device" in place.run("show", unknown["id"]).stdout
    refused = place.run("replay", "--all")
    assert refused.exit_code == 1
    assert "error: refused: 2 of 2" in refused.stderr
    place.service.catalog.devices.create(place.tenant, Device(name="press-9"))
    stored = place.run("replay", unknown["id"], "--json")
    assert (stored.exit_code, json.loads(stored.stdout)["stored"]) == (0, 1)
    assert place.service.queries.latest(place.tenant, ["press-9"]).number.tolist() == [1.0]
    assert [letter["id"] for letter in json.loads(place.run("list", "--json").stdout)] == [rubbish["id"]]
    assert json.loads(place.run("purge", "--code", "syntax", "--yes", "--json").stdout) == {"deleted": 1}
    assert "no such dead letter" in place.run("list").stderr


def test_all_letters_are_never_meant_by_oversight(place: Place) -> None:
    place.write(b"rubbish")
    for command in (["purge", "--yes"], ["replay"], ["purge", "some-id", "--all", "--yes"]):
        said = place.run(*command)
        assert (said.exit_code, "usage" in said.stderr) == (2, True)
    assert place.run("purge", "--all").exit_code == 2, "nobody can be asked"
    assert len(json.loads(place.run("list", "--json").stdout)) == 1
    missing = place.run("show", "20261115T080000123456Z-3f9a0c1d")
    assert (missing.exit_code, "not-found" in missing.stderr) == (1, True)


def test_more_letters_than_one_call_takes_are_all_sent_again(place: Place) -> None:
    letters = place.service.dead_letters
    letters.settings = replace(letters.settings, max_per_s=1000)
    for n in range(120):
        place.write(json.dumps({"device": f"d{n}", "time": now_ms(), "values": {"a": n}}).encode())
    place.service.catalog.tenants.update("acme", lambda t: replace(t, registers_devices=True))
    ids = [letter["id"] for letter in json.loads(place.run("list", "--limit", "1000", "--json").stdout)]
    assert len(ids) == 120
    done = json.loads(place.run("replay", *ids, "--json").stdout)
    assert (done["stored"], done["reports"]) == (120, 120)
    assert json.loads(place.run("list", "--json").stdout) == []
