"""`widerow alerts`: each example in its help runs as it stands, against a server, and does what it says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from system.conftest import Site, config_at, now_ms
from widerow.alerts.alert import Alert
from widerow.alerts.state import State
from widerow.cli.commands import app
from widerow.config import Store
from widerow.model.device import Device
from widerow.model.tenant import Tenant
from widerow.model.token import Role
from widerow.server.run import running
from widerow.service import Service

RULES = """
[[webhooks]]
name = "ops"
url = "https://hooks.example.com/widerow"
secret = "s"

[[rules]]
name = "too-hot"
kind = "threshold"
metric = "temperature"
above = 80
match = { type = "press" }
webhooks = ["ops"]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("widerow")
    with Service.open(replace(config_at(folder), store=Store(url="memory:"))) as service, running(service) as url:
        service.catalog.tenants.create(Tenant(name="acme"))
        for name in ("press-1", "press-000017"):
            service.catalog.devices.create(Tenant(name="acme"), Device(name=name, type="press"))
        tokens = {("acme", Role.WRITE): service.catalog.tokens.create(Role.WRITE, tenant="acme")[0]}
        tokens["", Role.OPERATOR] = service.catalog.tokens.create(Role.OPERATOR)[0]
        site = Site(service, url, tokens, folder)
        yield site
        site.close()


@pytest.fixture(autouse=True)
def _here(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WIDEROW_URL", site.url)
    monkeypatch.setenv("WIDEROW_TOKEN", site.token(Role.OPERATOR))
    (tmp_path / "rules.toml").write_text(RULES)
    now_us = site.service.clock.now_us()
    alert = Alert(
        tenant="acme",
        rule="too-hot",
        state="pending",
        since_us=now_us,
        device="press-000017",
        metric="temperature",
        summary="the mean of temperature is above 80",
        source="http",
    )
    site.service.alerts.board.saw(alert, State.FIRING, now_us)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def commands() -> dict[str, str]:
    """The help of each command of the group."""
    top: Any = typer.main.get_command(app)
    return {name: command.help or "" for name, command in top.commands["alerts"].commands.items()}


def examples() -> list[str]:
    found = [one for text in commands().values() for one in re.findall(r"^\s*Example: (widerow .+)$", text, re.MULTILINE)]
    return sorted(found, key=lambda one: ("delete" in one, "apply" not in one))


def test_each_command_has_an_example() -> None:
    assert {name for name, text in commands().items() if "Example: widerow alerts" in text} == set(commands())


def test_each_example_runs_as_it_stands() -> None:
    for example in examples():
        result = run(*shlex.split(example)[1:])
        # No webhook is at hooks.example.com: the test of it fails, and says why.
        assert result.exit_code == (1 if " test " in example else 0), (example, result.output)
        assert ("error:" in result.stderr) == (" test " in example)


def test_alerts_alone_lists_them_as_text_and_as_json(site: Site) -> None:
    text = run("alerts", "--tenant", "acme")
    assert "press-000017" in text.stdout
    assert "firing" in text.stdout
    (alert,) = json.loads(run("alerts", "--tenant", "acme", "--json").stdout)
    assert (alert["name"], alert["device"]) == ("too-hot", "press-000017")
    assert run("alerts", "ack", alert["id"], "--note", "seen", "--tenant", "acme").exit_code == 0
    assert site.service.alerts.current("acme")[0].acknowledged is not None
    assert "fired" not in run("alerts", "history", "--tenant", "acme").stderr


def test_a_file_is_applied_and_its_rule_previewed(site: Site) -> None:
    base_ms = (now_ms() // 60_000 - 30) * 60_000
    for minute, value in enumerate((70.0, 90.0, 60.0)):
        site.write("press-1", {"temperature": value}, time_ms=base_ms + minute * 60_000)
    assert run("alerts", "apply", "rules.toml", "--tenant", "acme").exit_code == 0
    rules = json.loads(run("alerts", "rules", "--tenant", "acme", "--json").stdout)
    assert [(rule["name"], rule["match"]) for rule in rules] == [("too-hot", {"type": "press"})]
    assert "mean over 1m above 80" in run("alerts", "rules", "--tenant", "acme").stdout
    shown = run("alerts", "preview", "too-hot", "--tenant", "acme")
    assert "2 notices" in shown.stderr
    assert re.findall(r"press-1 +(\w+)", shown.stdout) == ["firing", "resolved"]


def test_a_silence_is_made_and_ended() -> None:
    made = json.loads(run("alerts", "silence", "--rule", "too-hot", "--for", "2h", "--tenant", "acme", "--json").stdout)
    assert made["id"] in run("alerts", "silences", "--tenant", "acme").stdout
    assert run("alerts", "silence", "--end", made["id"], "--tenant", "acme").exit_code == 0
    assert made["id"] not in run("alerts", "silences", "--tenant", "acme").stdout


def test_a_file_that_is_wrong_is_misuse(tmp_path: Path) -> None:
    def check(text: str, said: str) -> None:
        (tmp_path / "wrong.toml").write_text(text)
        result = run("alerts", "apply", "wrong.toml", "--tenant", "acme")
        assert (result.exit_code, said in result.stderr) == (2, True), result.output

    check("nonsense", "is not TOML")
    check("[[rule]]", "[rule] is not known")
    check('[[rules]]\nkind = "offline"', "needs a name")
    check('[[rules]]\nname = "a"\nkind = "offline"\nfleet = true', "after: give a time")
