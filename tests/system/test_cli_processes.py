"""The command line as a user starts it: processes, signals, pipes, and the demo."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from awake import Running
from servers.fixtures import had
from servers.mosquitto import program

WIDEROW = [sys.executable, "-m", "widerow.cli.main"]
STOP_S = 5.0


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("WIDEROW_")}


def run(*arguments: str, folder: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*WIDEROW, *arguments], cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


@contextmanager
def started(arguments: Sequence[str], folder: Path, until: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command that keeps running, and what it printed up to a line that begins with `until`."""
    command = [*WIDEROW, *arguments]
    with (
        (folder / "stderr").open("w") as errors,
        subprocess.Popen(
            command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            printed = ""
            while not (line := process.stdout.readline()).startswith(until):
                assert line, (folder / "stderr").read_text()
                printed += line
            yield process, printed + line
        finally:
            if process.poll() is None:
                process.kill()


def interrupted(process: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> tuple[int, float]:
    """The exit code after a signal, and how long it took."""
    running = Running()
    process.send_signal(number)
    return process.wait(60), running.seconds()


def test_a_new_store_gets_a_tenant_a_token_and_a_server(tmp_path: Path) -> None:
    store = ("--store", "rocksdb:store")
    with started(["serve", *store, "--port", "0"], tmp_path, "widerow serves") as (process, line):
        made = run("tenant", "create", "acme", *store, folder=tmp_path)
        assert made.stdout == ""
        token = run("token", "create", "acme", "--role", "write", *store, folder=tmp_path)
        assert re.fullmatch(r"wr_[A-Za-z0-9_-]{43}\n", token.stdout)
        assert token.stdout.strip() not in token.stderr
        url = line.split()[-1]
        body = json.dumps({"device": "d1", "values": {"x": 1}}).encode()
        headers = {"Authorization": f"Bearer {token.stdout.strip()}", "Content-Type": "application/json"}
        with urlopen(Request(f"{url}/v1/write", body, headers)) as answer:
            assert answer.status == 204
        code, _ = interrupted(process, signal.SIGTERM)
    assert code == 0
    assert "widerow token create" in (tmp_path / "stderr").read_text()
    assert not (tmp_path / "store" / "serve.sock").exists()
    latest = json.loads(run("latest", "d1", "--tenant", "acme", "--json", *store, folder=tmp_path).stdout)
    assert [one["value"] for one in latest] == [1]


def test_demo_prints_what_works_and_stops_without_losing_anything(tmp_path: Path) -> None:
    demo = ["demo", "--port", "0", "--data", "data", "--devices", "40", "--rate", "40", "--history", "15m"]
    with started(demo, tmp_path, "Ctrl-C") as (process, printed):
        lines = dict(line.split(maxsplit=1) for line in printed.splitlines() if line[:1].islower())
        page, _, secret = lines["dashboard"].strip().partition("#token=")
        with urlopen(page) as answer:
            assert answer.status == 200
        assert secret.startswith("wr_")
        with urlopen(Request(f"{page}v1/status", headers={"Authorization": f"Bearer {secret}"})) as answer:
            assert {t["name"] for t in json.load(answer)["tenants"]} == {"acme", "globex", "initech"}
        assert re.match(r"wr_[A-Za-z0-9_-]{43}\b", lines["token"])
        _, _, _, header, asked = shlex.split(lines["try"])
        with urlopen(Request(asked, headers=dict([header.split(": ")]))) as answer:
            assert sum(len(one["points"]) for one in json.load(answer)["series"]) > 10
        or_so = lines["or"].strip().removeprefix("widerow ")
        beside = subprocess.run(
            f"{' '.join(WIDEROW)} {or_so} --json",
            shell=True,
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            check=True,
        )
        assert json.loads(beside.stdout)
        time.sleep(2)
        code, took_s = interrupted(process)
    stderr = (tmp_path / "stderr").read_text()
    assert code == 0, stderr
    assert took_s < STOP_S
    kept = re.search(r"stopped; ([\d,]+) reports are kept", stderr)
    assert kept, stderr
    assert _stored_reports(tmp_path) == int(kept[1].replace(",", ""))


def test_the_curl_line_of_the_demo_works(tmp_path: Path) -> None:
    had(lambda: program("curl", "curl"))
    demo = ["demo", "--port", "0", "--data", "data", "--devices", "40", "--rate", "40", "--history", "15m"]
    with started(demo, tmp_path, "Ctrl-C") as (process, printed):
        (line,) = re.findall(r"^try +(curl .+)$", printed, re.MULTILINE)
        done = subprocess.run(rf"{line} -w '\n%{{http_code}}'", shell=True, capture_output=True, text=True, check=True)
        body, _, status = done.stdout.rpartition("\n")
        assert status == "200", done.stdout
        assert sum(len(one["points"]) for one in json.loads(body)["series"]) > 10
        interrupted(process)
    with started(demo, tmp_path, "Ctrl-C") as (process, printed):
        address = re.compile(r"http://[^/]+/")
        (again,) = address.findall(printed)[:1]
        done = subprocess.run(f"{address.sub(again, line)} -f", shell=True, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["series"]
        interrupted(process)


@pytest.mark.rest
def test_figures_of_the_demo_begin_after_a_long_history_and_the_address_stays(tmp_path: Path) -> None:
    demo = ["demo", "--port", "0", "--data", "data", "--devices", "40", "--rate", "40"]
    with started(demo, tmp_path, "Ctrl-C") as (process, printed):
        (address,) = re.findall(r"^dashboard +(\S+)$", printed, re.MULTILINE)
        early = re.findall(r"answers already: (\S+)$", (tmp_path / "stderr").read_text(), re.MULTILINE)
        page, _, secret = address.partition("#token=")
        with urlopen(Request(f"{page}metrics", headers={"Authorization": f"Bearer {secret}"})) as answer:
            metrics = answer.read().decode()
        code, _ = interrupted(process)
    written = re.search(r"wrote ([\d,]+) reports", (tmp_path / "stderr").read_text())
    assert code == 0
    assert early == [address]
    assert written
    assert int(written[1].replace(",", "")) > 50_000
    counted = re.findall(r"^widerow_reports_total\{.*\} (\S+)$", metrics, re.MULTILINE)
    assert sum(map(float, counted)) < 5_000


def _stored_reports(folder: Path) -> int:
    """Different (device, time) pairs, counted by reading every device."""
    from widerow.config import Config, Store  # noqa: PLC0415
    from widerow.model.times import DAY, TimeSpan  # noqa: PLC0415
    from widerow.service import Service  # noqa: PLC0415

    count = 0
    with Service.open(Config(store=Store(url=f"rocksdb:{folder / 'data'}"))) as service:
        now_us = service.clock.now_us()
        for tenant in service.catalog.tenants.list():
            for device in service.catalog.devices.list(tenant.name).devices:
                found = service.queries.series(
                    tenant, device.name, span=TimeSpan(now_us - DAY, now_us + DAY), limit=1_000_000
                )
                count += len(set(found.points.time_us.tolist()))
    return count


def test_an_interrupt_ends_a_command_with_130_and_no_traceback(tmp_path: Path) -> None:
    store = ("--store", "rocksdb:store")
    run("tenant", "create", "acme", *store, folder=tmp_path)
    command = [*WIDEROW, "simulate", "--tenant", "acme", "--seconds", "60", "--rate", "100", "--json", *store]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        _wait_for_log(tmp_path / "store")
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert json.loads(out)["acknowledged"] > 0
    tokens = json.loads(run("token", "list", "--json", *store, folder=tmp_path).stdout)
    assert tokens == []


def _wait_for_log(store: Path) -> None:
    """Until reports are being written: a tenant alone takes less than this."""
    deadline_s = time.monotonic() + 60
    while sum(file.stat().st_size for file in store.glob("*.log")) < 20_000:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def test_a_pipe_that_closes_early_is_no_traceback(tmp_path: Path) -> None:
    run("tenant", "create", "acme", "--store", "rocksdb:store", folder=tmp_path)
    command = f"{' '.join(WIDEROW)} tenant list --store rocksdb:store | true"
    done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_while_it_starts_ends_with_0(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [*WIDEROW, "demo", "--port", "0", "--data", "data"],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("starting")
        code, took_s = interrupted(process, number)
        errors = process.stderr.read()
    assert code == 0, errors
    assert took_s < STOP_S
    assert "Traceback" not in errors


def test_fresh_throws_away_stores_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.txt").write_text("years of work")
    done = run("demo", "--data", "data", "--fresh", folder=tmp_path, code=1)
    assert "something other than a store" in done.stderr
    assert (tmp_path / "data" / "thesis.txt").exists()
