"""Values that an option cannot have: every command ends with 2, says what was wrong, and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from system.conftest import config_at
from widerow.cli.commands import app
from widerow.model.tenant import Tenant
from widerow.model.token import Role
from widerow.server.run import running
from widerow.service import Service


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("WIDEROW_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """The options of an operator at a server with the tenant acme and its device d."""
    with Service.open(config_at(tmp_path_factory.mktemp("values"))) as service:
        service.catalog.tenants.create(Tenant(name="acme"))
        token, _ = service.catalog.tokens.create(Role.OPERATOR)
        with running(service) as url:
            run("device", "set", "d", "--create", "--tenant", "acme", "--server", url, "--token", token)
            yield "--server", url, "--token", token


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


WITH_TENANT = ("device", "metric", "query", "latest", "fleet", "hot", "deadletters", "simulate", "verify", "repair", "audit")


def check(reached: tuple[str, ...], want: str, *arguments: str) -> None:
    """The command ends with 2, and `want` is in its one line."""
    tenant = ("--tenant", "acme") if arguments[0] in WITH_TENANT else ()
    refused(want, *arguments, *tenant, *reached)


def refused(want: str, *arguments: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, (arguments, result.output, result.exception)
    assert want in " ".join(result.stderr.split()), (arguments, result.stderr)
    assert result.stdout == ""


def test_wrong_durations_end_with_2(reached: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text("[limits]\ndevices = 1\n")
    for last in ("soon", "-1d", "7x", ""):
        check(reached, "--last: duration", "tenant", "usage", "acme", "--last", last)
        check(reached, "--last: duration", "audit", "--last", last)
        check(reached, "duration", "tenant", "whatif", "acme", "--limits", "limits.toml", "--last", last)
        check(reached, "--expires: duration", "token", "create", "acme", "--role", "read", "--expires", last)
        check(reached, "--interval: duration", "simulate", "--interval", last)
    check(reached, "has passed", "token", "create", "acme", "--role", "read", "--expires", "0s")
    check(reached, "give 1ms or more", "simulate", "--interval", "0s", "--count", "5")
    check(reached, "duration 'soon'", "tenant", "create", "x", "--retention", "raw=soon")
    check(reached, "use raw, minute", "tenant", "set", "acme", "--retention", "century=5d")


def test_wrong_times_end_with_2(reached: tuple[str, ...]) -> None:
    for time in ("soon", "2026-13-01T00:00:00Z", "2026-11-15 08:00"):
        for command in (("query", "d"), ("query", "--all"), ("fleet", "series"), ("verify",), ("repair",)):
            check(reached, f"time '{time}'", *command, "--start", time)
            check(reached, f"time '{time}'", *command, "--end", time)
        for option in ("--since", "--until"):
            check(reached, f"time '{time}'", "deadletters", "list", option, time)
            check(reached, f"time '{time}'", "deadletters", "replay", option, time)
            check(reached, f"time '{time}'", "deadletters", "purge", option, time, "--yes")
        check(reached, f"time '{time}'", "device", "swap", "d", "--hardware", "h", "--since", time)
        check(reached, f"--start: time '{time}'", "simulate", "--start", time)
    check(reached, "is after end", "query", "d", "--start", "now", "--end", "-1h")
    check(reached, "is after end", "verify", "--start", "now", "--end", "-2d")
    check(reached, "is after end", "deadletters", "list", "--since", "now", "--until", "-1h")
    check(reached, "give milliseconds or RFC 3339", "query", "d", "--start", "1763500000")


def test_wrong_numbers_end_with_2(reached: tuple[str, ...]) -> None:
    for command in (
        ("device", "list"),
        ("deadletters", "list"),
        ("audit",),
        ("query", "d"),
        ("query", "--all", "--top", "0"),
    ):
        check(reached, "Invalid value", *command, "--limit", "0")
    for option in ("--writes-per-s", "--writes-burst", "--storage-bytes", "--devices", "--series", "--query-cost-per-s"):
        check(reached, f"Invalid value for '{option}'", "tenant", "create", "x", option, "-1")
        check(reached, f"Invalid value for '{option}'", "tenant", "set", "acme", option, "many")
    check(reached, "--limit devices", "tenant", "set", "acme", "--limit", "devices=-1")
    check(reached, "--limit nosuch", "tenant", "set", "acme", "--limit", "nosuch=1")
    check(reached, "Invalid value for '--rate'", "device", "set", "d", "--rate", "-1")
    check(reached, "numbers are finite", "device", "set", "d", "--max-rate", "inf")
    check(reached, "--max-rate is 1,000,000,000,000: give", "device", "set", "d", "--max-rate", "1e12")
    check(reached, "Invalid value", "device", "set", "d", "--metrics-per-report", "-1")
    check(reached, "give a number", "device", "control", "d", "--pin", "limit=x")
    check(reached, "limit is -1", "device", "control", "d", "--pin", "limit=-1")
    check(reached, "sample is 7", "device", "control", "d", "--pin", "sample=7")
    check(reached, "Invalid value for '--rate'", "simulate", "--rate", "-1")
    check(reached, "--rate inf", "simulate", "--rate", "inf")
    check(reached, "Invalid value for '--gaps'", "simulate", "--gaps", "2")
    check(reached, "Invalid value for '--port'", "mqtt", "config", "--out", "o", "--port", "0")


def test_wrong_choices_end_with_2(reached: tuple[str, ...]) -> None:
    check(reached, "--mode devices: give one of", "tenant", "set", "acme", "--mode", "devices=maybe")
    check(reached, "--hot spread: give one of", "tenant", "set", "acme", "--hot", "spread=often")
    check(reached, "--row-attributes: give a list", "tenant", "set", "acme", "--row-attributes", "colour")
    check(reached, "Invalid value for '--role'", "token", "create", "acme", "--role", "king")
    check(reached, "Invalid value for '--step'", "tenant", "usage", "acme", "--step", "week")
    check(reached, "unknown key 'nosuch'", "device", "control", "d", "--forbid", "nosuch")
    check(reached, "Invalid value for '--kind'", "metric", "set", "m", "--kind", "nosuch")
    for command in (("query", "d", "--step", "1h"), ("query", "--all", "--step", "1h"), ("fleet", "series")):
        check(reached, "agg 'mode'", *command, "--agg", "mode")
        check(reached, "tz 'Mars'", *command, "--tz", "Mars")
        check(reached, "'x'", *command, "--fill", "x")
        check(reached, "Invalid value for '--format'", *command, "--format", "xml")
        check(reached, "step 'soon'", *command, "--step", "soon")
    check(reached, "Invalid value for '--order'", "query", "--all", "--order", "up")
    check(reached, "agg 'mode'", "query", "--all", "-m", "x", "--top", "1", "--by", "mode")
    check(reached, "Invalid value for '--kind'", "simulate", "--kind", "bike")


def test_wrong_names_end_with_2(reached: tuple[str, ...]) -> None:
    check(reached, "use 1 to 64 of a-z", "tenant", "create", "No Slug")
    check(reached, "control character", "device", "set", "a\x07", "--create")
    check(reached, "--display-name holds a control character", "tenant", "set", "acme", "--display-name", "a\x07")
    for command in (("latest",), ("fleet", "series"), ("fleet", "latest"), ("device", "list"), ("query",)):
        check(reached, "give name=value", *command, "--tag", "line")


def test_the_command_line_names_the_option_that_says_whose_data(reached: tuple[str, ...]) -> None:
    for command in (("latest",), ("query", "d"), ("device", "list"), ("fleet", "series"), ("metric", "list"), ("simulate",)):
        result = run(*command, *reached)
        assert result.exit_code == 2, result.output
        assert "--tenant NAME" in result.stderr
        assert "?tenant" not in result.stderr


def test_wrong_stores_brokers_and_files_end_with_2(tmp_path: Path) -> None:
    stores = ["nosuch:x", "rocksdb:", "plain", "cassandra://h", "bigtable://p", "cassandra://h/k?consistency=most"]
    for store in [*stores, "rocksdb:x?layout=odd", "cassandra://h:x/k"]:
        for command in (("serve",), ("gateway", "--brokers", "h:1"), ("worker",), ("api",), ("tenant", "list"), ("doctor",)):
            refused("", *command, "--store", store)
        for command in (("schema", "show"), ("schema", "diff"), ("schema", "apply"), ("simulate", "--tenant", "acme")):
            refused("", *command, "--store", store)
        refused("", "backup", "copies", "--store", store)
        refused("", "restore", "copies", "--store", store)
        refused("", "migrate", store, "rocksdb:to")
        refused("", "migrate", "rocksdb:from", store)
    for server in ("gateway", "worker", "api"):
        refused("give HOST:PORT", server, "--store", "cassandra://127.0.0.1:1/k", "--brokers", "h:x")
    refused("give mqtt://", "serve", "--mqtt", "http://x")
    refused("Invalid value for '--port'", "serve", "--port", "99999")
    for command in (("serve",), ("tenant", "list"), ("doctor",), ("schema", "show"), ("migrate", "rocksdb:a", "rocksdb:b")):
        refused("there is no such file", *command, "--config", "nosuch.toml")
    assert list(tmp_path.iterdir()) == []


def test_what_if_refuses_sections_and_keys_that_it_does_not_know(reached: tuple[str, ...], tmp_path: Path) -> None:
    def proposed(text: str, want: str, name: str = "proposed.toml") -> None:
        (tmp_path / name).write_text(text)
        check(reached, want, "tenant", "whatif", "acme", "--limits", name)

    proposed("[limit]\nwrites_per_s = 1\n", "unknown section 'limit'; known are limits and retention")
    proposed("writes_per_s = 1\n", "unknown section 'writes_per_s'; known are limits and retention")
    proposed('{"name": "acme", "limits": {}}', "unknown section 'name'; known are limits and retention", "proposed.json")
    proposed("[limits]\nwrites = 1\n", "unknown key 'limits.writes': use writes_per_s")
    proposed('[retention]\nweek = "7d"\n', "unknown key 'retention.week': use raw, minute, hour, day")
    proposed("limits = 3\n", "limits")
    proposed("", "proposes nothing")
    proposed("[]", "proposes nothing", "proposed.json")
