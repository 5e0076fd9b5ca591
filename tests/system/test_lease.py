"""A store that processes share has one writer: a second is refused, a killed one is followed, one that slept steps back."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from servers.bigtable import Bigtable
from servers.cassandra import Cassandra
from servers.fixtures import had
from system.victim import Victim
from widerow.cli.commands import app
from widerow.config import Config, Store
from widerow.model.errors import NotTheWriter
from widerow.model.tenant import Tenant
from widerow.model.token import Role
from widerow.pipeline.job import Job
from widerow.service import Service

LEASE_S = 6
LONGER_S = 30
"""More than a process takes to start, also on a busy machine."""
IMPATIENT = {"WIDEROW_BIGTABLE_TIMEOUT_S": "2"}
JSON = "Content-Type: application/json\r\n"
WAITS = re.compile(
    r"the store has a writer: process (\d+) on (\S+), since \S+, with a lease until \S+; waiting up to (\d+)s"
)


class Server(Victim):
    """`widerow serve` on a shared store."""

    def __init__(self, folder: Path, name: str, url: str, token: str, settings: Mapping[str, str]) -> None:
        super().__init__(folder / name, settings=settings)
        self.store_url = url
        self.tokens = {"acme": token}

    def command(self, *arguments: str) -> list[str]:
        return [*self.program, *arguments, "--store", self.store_url]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def write(self) -> tuple[int, str]:
        """The status of a write, and the code of its error."""
        body = json.dumps({"device": "d", "values": {"x": 1}}).encode()
        with self.connection("acme") as connection:
            answer = connection.request("POST", "/v1/write", body, JSON)
        return answer.status, json.loads(answer.body)["error"]["code"] if answer.body else ""

    def reads(self) -> int:
        with self.connection("acme") as connection:
            return connection.request("GET", "/v1/devices/d/latest").status


class World:
    """A store with a tenant, and the servers that are started on it."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self.url, self._folder, self._stack = url, folder, stack
        folder.mkdir(exist_ok=True)
        self.config = replace(Config(), store=Store(url=url, lease_s=LEASE_S))
        with Service.open(self.config, writes=False) as service:
            service.catalog.tenants.create(Tenant(name="acme"))
            self.token, _ = service.catalog.tokens.create(Role.ADMIN, tenant="acme")

    def server(self, name: str, lease_s: int = LEASE_S, more: Mapping[str, str] = MappingProxyType({})) -> Server:
        settings = {"WIDEROW_STORE_LEASE_S": str(lease_s), **more}
        return self._stack.enter_context(Server(self._folder, name, self.url, self.token, settings))

    def run(self, *commands: Sequence[str]) -> list[tuple[int, str]]:
        """The exit code of each command and what it said, side by side: each waits for a lease that is not its."""
        other = self.server("other")
        with ExitStack() as stack:
            started = [
                stack.enter_context(
                    subprocess.Popen(
                        other.command(*command),
                        env=other.environment(),
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.PIPE,
                        text=True,
                    )
                )
                for command in commands
            ]
            try:
                said = [process.communicate(timeout=90)[1] for process in started]
            finally:
                for process in started:
                    process.kill()
        return [(process.returncode, text) for process, text in zip(started, said, strict=True)]


ENGINES = ("cassandra", "bigtable")


@pytest.fixture(params=ENGINES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = store_on(request, request.param)
    with ExitStack() as stack:
        yield World(url, tmp_path, stack)


@pytest.fixture
def worlds(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[World]]:
    """On each engine, for what takes its time and little else."""
    with ExitStack() as stack:
        yield [World(store_on(request, engine), tmp_path / engine, stack) for engine in ENGINES]


def store_on(request: pytest.FixtureRequest, engine: str) -> str:
    """The URL of a new store."""
    if engine == "cassandra":
        cassandra: Cassandra = request.getfixturevalue("cassandra_server")
        return cassandra.store_url(f"lease_{uuid4().hex[:12]}")
    bigtable: Bigtable = request.getfixturevalue("bigtable_server")
    request.getfixturevalue("monkeypatch").setenv("BIGTABLE_EMULATOR_HOST", bigtable.address)
    return bigtable.store_url(f"l{uuid4().hex[:8]}")


def eventually(true: Callable[[], bool], within_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline_s, "it never came"
        time.sleep(0.1)


def test_a_second_server_is_refused_and_told_who_writes(world: World) -> None:
    first = world.server("first", LONGER_S)
    first.start()
    who = f"process {first.pid} on {socket.gethostname()}, since 20"
    refused, simulated = world.run(("serve", "--port", "0"), ("simulate", "--tenant", "acme", "--seconds", "1"))
    code, said = refused
    assert code == 1
    assert f"error: config: another process writes to this store: {who}" in said
    assert "until 20" in said
    assert "stop it" in said
    assert "Traceback" not in said
    assert WAITS.search(said), said
    assert simulated[0] == 1
    assert who in simulated[1]
    assert first.write() == (204, "")
    assert first.health() == (200, [])
    # Whoever only reads or administers needs no lease.
    listed = CliRunner().invoke(app, ["tenant", "list", "--json", "--store", world.url])
    assert [tenant["name"] for tenant in json.loads(listed.stdout)] == ["acme"]
    tokens = CliRunner().invoke(app, ["token", "list", "--json", "--store", world.url])
    assert [token["role"] for token in json.loads(tokens.stdout)] == ["admin"], "a server makes none of its own"
    # A clean end leaves nothing to wait for.
    assert first.stop(signal.SIGTERM, within_s=20).code == 0
    second = world.server("second")
    second.start()
    assert not WAITS.search(second.log())
    assert second.write() == (204, "")


@pytest.mark.rest
def test_after_a_kill_the_next_one_waits_for_the_lease_and_starts(worlds: list[World]) -> None:
    following = []
    for world in worlds:  # one after the other until they wait, and that they do side by side
        first, second = world.server("first", LONGER_S), world.server("second", LONGER_S)
        first.start()
        killed = first.pid
        first.kill()
        following.append((second, killed))
        second.spawn()
        eventually(lambda second=second: bool(WAITS.search(second.log()) or not second.runs()))  # type: ignore[misc]
    for second, killed in following:
        second.until_ready(time.monotonic())
        said = WAITS.search(second.log())
        assert said is not None, second.log()
        assert int(said[1]) == killed
        assert 1 <= int(said[3]) <= LONGER_S
        assert second.write() == (204, "")


def test_a_writer_that_slept_past_its_lease_steps_back_until_the_other_is_gone(world: World) -> None:
    first, second = world.server("first"), world.server("second", LONGER_S)
    first.start()
    assert first.write() == (204, "")
    first.pause()
    second.start()
    assert second.write() == (204, "")
    first.resume()
    assert first.write() == (503, "no-lease")
    reason = "another process writes to this store and has its lease; the log says which"
    eventually(lambda: first.health() == (503, [reason]))
    eventually(lambda: f"another process writes to this store now: process {second.pid} on" in first.log())
    assert first.write() == (503, "no-lease")
    assert first.reads() == 200
    assert second.write() == (204, "")
    assert second.health() == (200, [])
    assert second.stop(signal.SIGTERM, within_s=20).code == 0
    eventually(lambda: first.health() == (200, []))
    assert first.write() == (204, "")
    assert "Traceback" not in first.log()


@pytest.mark.parametrize("world", ["bigtable"], indirect=True)
def test_a_writer_that_slept_alone_goes_on(world: World) -> None:
    first = world.server("first")
    first.start()
    first.pause()
    time.sleep(LEASE_S + 1)
    first.resume()
    eventually(lambda: first.write() == (204, ""))
    eventually(lambda: "this process has it again" in first.log())
    assert first.health() == (200, [])


def test_a_process_that_did_not_ask_to_write_refuses_reports(world: World) -> None:
    with Service.open(world.config, writes=False) as service:
        job = Job(service.catalog.tenants.get("acme"), 1, lambda: pytest.fail("decoded"), lambda _: None)
        with pytest.raises(NotTheWriter, match="send reports to the one that serves it"):
            service.pipeline.submit(job)


def test_a_store_that_hangs_for_longer_than_the_lease_ends_it_until_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with had(Bigtable) as emulator, ExitStack() as stack:
        monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", emulator.address)
        server = World(emulator.store_url("hangs"), tmp_path, stack).server("first", more=IMPATIENT)
        server.start()
        assert server.write() == (204, "")
        emulator.pause()
        eventually(lambda: any("lease ran out" in reason for reason in server.health()[1]))
        eventually(lambda: "could not be renewed" in server.log())
        emulator.resume()
        eventually(lambda: server.health() == (200, []))
        assert server.write() == (204, "")
