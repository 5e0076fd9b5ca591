"""Commands that are put wrongly, and what every command must have."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from widerow import __version__
from widerow.cli.commands import app


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine's environment decides a test, and no store lies where we stand."""
    for name in ("URL", "TOKEN", "STORE", "TENANT", "CONFIG", "STORE_URL"):
        monkeypatch.delenv(f"WIDEROW_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def commands(command: Any = None, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    command = command or get_command(app)
    inner = getattr(command, "commands", None)
    if inner is None:
        return [(path, command)]
    return [found for name, one in inner.items() for found in commands(one, (*path, name))]


SERVERS = {("serve",), ("gateway",), ("worker",), ("api",), ("demo",)}
STORE_ONLY = {
    *(("backup",), ("restore",), ("migrate",), ("plan",), ("keys", "sizes")),
    *(("schema", "show"), ("schema", "diff"), ("schema", "apply")),
}
"""Commands that open a store themselves: they have no server to ask."""
OF_FILES = {
    *(("blocks", "show"), ("blocks", "pack"), ("blocks", "unpack")),
    *(("keys", "lint"), ("keys", "explain"), ("keys", "simulate"), ("keys", "fleet-example")),
}
"""Commands that need neither a server nor a store."""


def test_usage_errors_end_with_2_and_one_line_that_says_what_to_do() -> None:
    def check(want: str, *arguments: str) -> None:
        result = run(*arguments)
        assert result.exit_code == 2, result.output
        assert want in " ".join(result.stderr.split()), result.stderr
        assert result.stdout == ""

    check("give --server URL", "tenant", "list")
    check("--server and --store", "tenant", "list", "--server", "http://a", "--store", "rocksdb:a")
    check("No such option", "tenant", "list", "--nosuch")
    check("give HOST:PORT", "tenant", "list", "--server", "ftp://a")


def test_a_failure_ends_with_1_and_one_line_on_standard_error() -> None:
    result = run("tenant", "list", "--server", "http://127.0.0.1:9")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: unreachable: cannot reach http://127.0.0.1:9")
    assert result.stderr.count("\n") == 1


def test_options_that_do_not_go_together_are_refused_before_anything_is_changed() -> None:
    def check(want: str, *arguments: str) -> None:
        result = run(*arguments, "--server", "http://127.0.0.1:9")
        assert result.exit_code == 2, result.output
        assert want in result.stderr

    check("--operator", "token", "create", "acme", "--operator")
    check("a token needs a tenant", "token", "create", "acme")
    check("a token needs a tenant", "token", "create", "--role", "read")
    check("go together", "token", "create", "acme", "--role", "device")
    check("go together", "token", "create", "acme", "--role", "read", "--device", "d")
    check("nothing to change", "tenant", "set", "acme")
    check("nothing to change", "device", "set", "d")
    check("nothing to change", "metric", "set", "m")
    check("give name=value", "device", "set", "d", "--tag", "line")
    check("whole number", "tenant", "set", "acme", "--limit", "devices=many")
    check("named and described", "latest", "d", "--type", "press")
    check("contradict", "query", "d", "--json", "--format", "csv")
    check("which devices", "query")
    check("which devices", "query", "d", "--type", "press")
    check("which devices", "query", "--all", "--prefix", "p")
    check("raw points", "query", "d", "--step", "1h", "--tags")
    check("whose reports", "simulate")


def test_the_version_is_told() -> None:
    assert run("--version").stdout == f"widerow {__version__}\n"


def test_every_command_explains_itself_with_an_example() -> None:
    found = commands()
    assert len(found) > 20
    for path, command in found:
        assert f"Example: widerow {' '.join(path)}" in (command.help or ""), path
        assert run(*path, "--help").exit_code == 0


def test_every_client_command_has_the_same_options() -> None:
    for path, command in commands():
        options = {option for parameter in command.params for option in parameter.opts}
        if path in STORE_ONLY:
            assert {"--config", "--json"} <= options, path
        elif path not in SERVERS | OF_FILES:
            assert {"--server", "--token", "--store", "--config", "--json"} <= options, path
        if path[0] in ("device", "metric", "query", "latest", "simulate"):
            assert "--tenant" in options, path
        if path[-1] == "delete":
            assert "--yes" in options, path
        described = [p for p in command.params if p.name != "help" and not p.help]
        assert not described, (path, described)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from widerow.cli.commands import app; app(['query', '--help'], standalone_mode=False);"
        "heavy = {'numpy', 'numba', 'pyarrow', 'httpx', 'rocksdict', 'uvicorn'} & set(sys.modules);"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_questions_may_read_is_set_by_options_of_its_own(tmp_path: Path) -> None:
    store = ("--store", f"rocksdb:{tmp_path / 'store'}", "--json")
    made = run("tenant", "create", "acme", "--query-cost-per-s", "50000", "--query-cost-burst", "9", *store)
    assert made.exit_code == 0, made.output
    changed = run("tenant", "set", "acme", "--query-cost-per-s", "700", "--query-cost-burst", "0", *store)
    assert changed.exit_code == 0, changed.output
    limits = [json.loads(each.stdout)["limits"] for each in (made, changed)]
    assert [(each["query_cost_per_s"], each["query_cost_burst"]) for each in limits] == [(50_000, 9), (700, 0)]
