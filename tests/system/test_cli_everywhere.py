"""Every client command gives the same against a server, on a stopped store, and beside a running `serve`.

The commands run in this process, which is quick; that they also run as a user starts them is in test_cli_processes.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner

from widerow.cli.commands import app
from widerow.model.times import SECOND, format_time

ODD = "Halle 3/Presse #6"


def ten_minutes_ago_us() -> int:
    return (time.time_ns() // 1000 // SECOND - 600) * SECOND


@dataclass
class Place:
    """A way to reach a store, and what the commands said there."""

    options: list[str]
    start_us: int = field(default_factory=ten_minutes_ago_us)
    """When its first report was sent."""
    said: list[tuple[str, int, str]] = field(default_factory=list)

    def run(self, *arguments: str, code: int = 0, keep: bool = True) -> str:
        """A command's standard output; it must end with `code`. What is kept is compared with the other places."""
        result = CliRunner().invoke(app, [*arguments, *self.options])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, (arguments, result.output)
        if keep:
            errors = "".join(line for line in result.stderr.splitlines(keepends=True) if line.startswith("error:"))
            self.said.append((" ".join(arguments), code, result.stdout + errors))
        return result.stdout


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("WIDEROW_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@contextmanager
def served(store: str) -> Iterator[str]:
    """`widerow serve` in a process of its own; gives its address. It does not roll: how far it were by now would show."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "widerow.cli.main", "serve", "--store", store, "--port", str(port)]
    env = {**os.environ, "WIDEROW_ROLLUP_ENABLED": "0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert f"at http://127.0.0.1:{port}" in line, line
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(30)
    assert code == 0


def scenario(place: Place, folder: Path) -> None:
    """A tenant from its first day to its last, with every client command."""
    _tenants(place)
    _devices(place, folder)
    _telemetry(place, folder)
    _tokens(place)
    _audit(place)
    _end(place)


def _tenants(place: Place) -> None:
    place.run("tenant", "create", "acme", "--display-name", "Ümlaut & Co", "--retention", "raw=60d", "--json", keep=False)
    place.run("tenant", "create", "acme", code=1)
    place.run("tenant", "create", "No Slug", code=2)
    place.run("tenant", "set", "acme", "--limit", "devices=100", "--limit", "writes_per_s=0")
    place.run("tenant", "set", "acme", "--limit", "nosuch=1", code=2)
    tenant = json.loads(place.run("tenant", "show", "acme", "--json", keep=False))
    assert (tenant["limits"]["devices"], tenant["retention"]["raw"]) == (100, "60d")
    assert [t["name"] for t in json.loads(place.run("tenant", "list", "--json", keep=False))] == ["acme"]
    place.run("tenant", "list", keep=False)
    place.run("tenant", "show", "globex", code=1)


def _devices(place: Place, folder: Path) -> None:
    inventory = folder / "fleet.csv"
    inventory.write_text(f"name,type,location,tag:line\n{ODD},press,Hall 3,L1\nplain,oven,Hall 1,\n")
    done = json.loads(place.run("device", "import", str(inventory), "--tenant", "acme", "--json"))
    assert (done["created"], done["refused"]) == (2, 0)
    bad = folder / "bad.json"
    bad.write_text(json.dumps([{"name": "good"}, {"name": "bad\u0007"}]))
    place.run("device", "import", str(bad), "--tenant", "acme", "--json", code=1)
    bad.write_text(json.dumps([{"name": "bad\u0007"}]))
    place.run("device", "import", str(bad), "--tenant", "acme", "--json", code=1)
    place.run(
        "device", "set", ODD, "--tenant", "acme", "--location", "Hall 4", "--tag", "a=b", "--untag", "line", keep=False
    )
    device = json.loads(place.run("device", "show", ODD, "--tenant", "acme", "--json", keep=False))
    assert (device["location"], device["tags"]) == ("Hall 4", {"a": "b"})
    states = json.loads(place.run("device", "history", ODD, "--tenant", "acme", "--json", keep=False))
    assert [(state["location"], state["tags"]) for state in states] == [("Hall 4", {"a": "b"}), ("Hall 3", {"line": "L1"})]
    table = place.run("device", "history", ODD, "--tenant", "acme", keep=False)
    assert table.count("Hall") == 2
    assert states[1]["until"] in table
    place.run("device", "history", "nosuch", "--tenant", "acme", code=1)
    place.run("device", "set", "made", "--tenant", "acme", "--type", "pump", code=1)
    place.run("device", "set", "made", "--tenant", "acme", "--type", "pump", "--create")
    place.run("device", "set", "made", "--tenant", "acme", "--rate", "100", "--metrics-per-report", "50")
    place.run("device", "swap", "made", "--tenant", "acme", "--hardware", "SN-1", "--note", "new", "--since", "-1h")
    place.run("device", "swap", "made", "--tenant", "acme", "--hardware", "SN-2")
    place.run("device", "swap", "nosuch", "--tenant", "acme", "--hardware", "SN-2", code=1)
    assert place.run("device", "history", "made", "--tenant", "acme", keep=False).count("SN-") == 2
    drawn = place.run("device", "show", "made", "--tenant", "acme", keep=False)
    assert "declared rate: 100 reports/s of 50 values" in drawn
    assert "0 reports/s" in drawn
    assert "SN-1" in drawn
    made = json.loads(place.run("device", "show", "made", "--tenant", "acme", "--json", keep=False))
    assert [(e["bucket"], e["sub_buckets"]) for e in made["placement"]] == [("15m", 128)]
    place.run("device", "list", "--tenant", "acme")
    found = json.loads(place.run("device", "list", "--tenant", "acme", "--tag", "a=b", "--json", keep=False))
    assert [d["name"] for d in found] == [ODD]
    place.run("device", "list", "--tenant", "acme", "--limit", "1")
    place.run("device", "list", code=2)
    place.run("device", "delete", "good", "--tenant", "acme", code=2)
    place.run("device", "delete", "good", "--tenant", "acme", "--yes")
    place.run("device", "show", "good", "--tenant", "acme", code=1)
    out = folder / f"broker-{len(list(folder.iterdir()))}"
    place.run("mqtt", "config", "--out", str(out), "--devices", "all", keep=False)
    assert len((out / "passwd").read_text().splitlines()) == 2 + len(
        json.loads(place.run("device", "list", "--tenant", "acme", "--json", keep=False))
    )


def _steps(place: Place, folder: Path, device: str, span: tuple[str, ...]) -> None:
    force = ("--tenant", "acme", "-m", "force", *span)
    table = place.run("query", device, *force, "--step", "1m", "--agg", "avg,count")
    assert table.splitlines()[0].split() == ["time", "force", "avg", "force", "count"]
    whole = json.loads(place.run("query", device, *force, "--step", "1m", "--agg", "count", "--fill", "null", "--json"))
    assert sum(value or 0 for _, value in whole["series"][0]["points"]) > 15
    assert whole["step"] == "1m"
    file = folder / "steps.arrow"
    assert place.run("query", device, *force, "--step", "30s", "--format", "arrow", "-o", str(file)) == ""
    assert file.stat().st_size
    csv = place.run("query", "--prefix", "press", *force, "--step", "1d", "--tz", "Europe/Berlin", "--format", "csv")
    assert csv.splitlines()[0] == "device,time,metric,agg,kind,value,text"
    both = json.loads(place.run("query", "--all", *force, "--agg", "count", "--group-by", "all", "--json"))
    assert [one["group"] for one in both["series"]] == [{}]
    assert place.run("query", "--all", *force, "--agg", "max", "--group-by", "type").split()[0] == "type"
    best = json.loads(place.run("query", "--all", *force, "--top", "2", "--by", "max", "--json"))
    assert best["top"][0]["value"] >= best["top"][1]["value"]
    assert place.run("query", "--all", *force, "--top", "2").split()[0] == "device"
    place.run("query", device, *force, "--step", "1x", code=2)


def _telemetry(place: Place, folder: Path) -> None:
    start = format_time(place.start_us)
    sent = json.loads(
        place.run(
            *("simulate", "--tenant", "acme", "--devices", "8", "--rate", "0", "--count", "160", "--format", "json"),
            *("--interval", "5s", "--start", start, "--out-of-order", "0", "--lines", "8", "--connections", "1", "--json"),
            keep=False,
        )
    )
    assert sent["acknowledged"] >= 150
    assert (sent["refused"], sent["failed"]) == (0, 0)
    span = ("--start", start, "--end", format_time(place.start_us + 200 * SECOND))
    device = "press-000000"
    table = place.run("query", device, "--tenant", "acme", *span)
    assert len(table.splitlines()) > 15
    whole = json.loads(place.run("query", device, "--tenant", "acme", *span, "--json"))
    points = sum(len(one["points"]) for one in whole["series"])
    csv = place.run("query", device, "--tenant", "acme", *span, "--format", "csv")
    assert len(csv.splitlines()) == 1 + points
    for shape in ("arrow", "csv", "json", "table"):
        file = folder / f"out.{shape}"
        assert place.run("query", device, "--tenant", "acme", *span, "--format", shape, "-o", str(file)) == ""
        assert file.stat().st_size
    few = json.loads(place.run("query", device, "--tenant", "acme", *span, "-m", "force,power", "--limit", "10", "--json"))
    assert {one["metric"] for one in few["series"]} == {"force", "power"}
    assert sum(len(one["points"]) for one in few["series"]) == 10
    place.run("query", "nosuch", "--tenant", "acme", code=1)
    for command in ("verify", "repair"):  # what is rolled by now depends on who rolls
        checked = json.loads(place.run(command, "--tenant", "acme", "--start", "-1d", "--json", keep=False))
        assert (checked["wrong"], checked["findings"]) == (0, [])
    place.run("query", device, "--tenant", "acme", "--start", "yesterday", code=2)
    _steps(place, folder, device, span)
    latest = json.loads(place.run("latest", device, "--tenant", "acme", "--json"))
    assert {one["device"] for one in latest} == {device}
    assert len(json.loads(place.run("latest", "--tenant", "acme", "--json"))) > 8 * len(latest) // 2
    assert place.run("latest", "--tenant", "acme", "--prefix", "press", "-m", "force", "--json") != "[]\n"
    place.run("latest", device, "made", "--tenant", "acme", "--json")
    place.run("latest", "nosuch", "--tenant", "acme", code=1)
    place.run("metric", "list", "--tenant", "acme")
    place.run("metric", "set", "force", "--tenant", "acme", "--unit", "kN", "--kind", "gauge", keep=False)
    assert json.loads(place.run("metric", "show", "force", "--tenant", "acme", "--json", keep=False))["unit"] == "kN"
    place.run("metric", "delete", "force", "--tenant", "acme", "--erase", "--yes", "--json")
    assert "force" not in place.run("query", device, "--tenant", "acme", *span, "--json")
    place.run("metric", "show", "force", "--tenant", "acme", code=1)


def _tokens(place: Place) -> None:
    token = place.run("token", "create", "acme", "--role", "device", "--device", ODD, "--expires", "30d", keep=False)
    assert re.fullmatch(r"wr_[A-Za-z0-9_-]{43}\n", token)
    made = json.loads(place.run("token", "create", "acme", "--role", "read", "--json", keep=False))
    listed = json.loads(place.run("token", "list", "--tenant", "acme", "--json", keep=False))
    assert [t["role"] for t in listed] == ["device", "read"]
    assert "token" not in listed[0]
    place.run("token", "revoke", made["id"], keep=False)
    place.run("token", "revoke", made["id"], code=1, keep=False)
    place.run("token", "create", "nosuch", "--role", "read", code=1)
    place.run("token", "list", keep=False)


def _audit(place: Place) -> None:
    actions = json.loads(place.run("audit", "--tenant", "acme", "--json", keep=False))
    assert {a["outcome"] for a in actions if a["command"] == "widerow tenant set"} == {"done", "field"}
    swaps = [a for a in actions if a["command"] == "widerow device swap" and a["outcome"] == "done"]
    assert [a["about"] for a in swaps] == ["made", "made"]
    place.run("audit", "--tenant", "acme", "--last", "7x", code=2)
    place.run("audit", "--tenant", "acme", "--last", "-7d", code=2)
    assert "widerow device swap" in place.run("audit", "--tenant", "acme", "--limit", "900", keep=False)


def _end(place: Place) -> None:
    place.run("keys", "heat", keep=False)  # each process counts what it did itself
    place.run("keys", "heat", "--tenant", "acme", "--minutes", "0", code=2)
    checked = json.loads(place.run("doctor", "--json", keep=False))
    assert checked["fail"] == 0, checked
    place.run("doctor", keep=False)
    place.run("tenant", "delete", "acme", code=2)
    place.run("tenant", "delete", "acme", "--yes", "--json")
    place.run("query", "plain", "--tenant", "acme", code=1, keep=False)


def test_every_command_gives_the_same_everywhere(tmp_path: Path) -> None:
    start_us = ten_minutes_ago_us()
    stopped = Place(["--store", f"rocksdb:{tmp_path}/stopped"], start_us)
    scenario(stopped, tmp_path)

    with served(f"rocksdb:{tmp_path}/beside"):
        beside = Place(["--store", f"rocksdb:{tmp_path}/beside"], start_us)
        scenario(beside, tmp_path)

    store = f"rocksdb:{tmp_path}/remote"
    operator = Place(["--store", store]).run("token", "create", "--operator").strip()
    with served(store) as url:
        remote = Place(["--server", url, "--token", operator], start_us)
        scenario(remote, tmp_path)

    assert len(stopped.said) > 30
    assert beside.said == stopped.said
    assert remote.said == stopped.said


def test_a_tenants_token_needs_no_tenant_and_reaches_no_other(tmp_path: Path) -> None:
    store = f"rocksdb:{tmp_path}/store"
    local = Place(["--store", store])
    for name in ("acme", "globex"):
        local.run("tenant", "create", name)
    local.run("device", "set", "d1", "--create", "--tenant", "acme")
    admin = local.run("token", "create", "acme", "--role", "admin").strip()
    writer = local.run("token", "create", "acme", "--role", "write").strip()
    with served(store) as url:
        remote = Place(["--server", url, "--token", admin])
        assert [d["name"] for d in json.loads(remote.run("device", "list", "--json"))] == ["d1"]
        remote.run("device", "list", "--tenant", "globex", code=1)
        remote.run("tenant", "list", code=1)
        write = Place(["--server", url, "--token", writer])
        for of_tenant in ((), ("--tenant", "acme")):
            count = ("--devices", "2", "--rate", "0", "--count", "4", "--gaps", "0")
            assert json.loads(write.run("simulate", *count, *of_tenant, "--json"))["acknowledged"] >= 3
        Place(["--server", url, "--token", "wr_wrong"]).run("device", "list", code=1)
        Place(["--server", url, "--token", "wr_wrong"]).run("simulate", code=1, keep=False)


def test_a_store_is_served_by_one_process_only(tmp_path: Path) -> None:
    store = f"rocksdb:{tmp_path}/store"
    with served(store):
        result = CliRunner().invoke(app, ["serve", "--store", store])
        assert result.exit_code == 1
        assert "is being served by another process" in result.stderr
    # A socket that was left behind by a process that was killed does not matter.
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(f"{tmp_path}/store/serve.sock")
    Place(["--store", store]).run("tenant", "list")


def test_a_store_that_another_process_has_open_without_a_socket_is_explained(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    Place(["--store", f"rocksdb:{folder}"]).run("tenant", "create", "acme")
    code = (
        "import sys; from rocksdict import Rdict; from pathlib import Path;"
        "from widerow.engine.rocksdb.database import Database, RocksSettings;"
        "db = Database(Path(sys.argv[1]), RocksSettings()); print('open', flush=True); sys.stdin.read(); db.close()"
    )
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        result = CliRunner().invoke(app, ["tenant", "list", "--store", f"rocksdb:{folder}"])
        holder.communicate()
    assert result.exit_code == 1
    assert "is open in another process" in result.stderr
