"""The servers that other tests run on: they answer, hang and end as told, and nothing of them stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile, Session
from cassandra.cluster import Cluster as Driver
from cassandra.policies import RoundRobinPolicy
from google.cloud import bigtable

from servers.bigtable import INSTANCE, PROJECT, Bigtable
from servers.cache import Missing, cache_folder, kept
from servers.cassandra import VERSION, Cassandra
from servers.cluster import Cluster
from servers.fixtures import had
from servers.process import Failed
from servers.toolchain import go_program

TESTS = Path(__file__).parents[1]


@pytest.fixture
def emulator(bigtable_server: Bigtable) -> Iterator[Bigtable]:
    """One that a test may mistreat. The shared one shows whether there can be one."""
    assert bigtable_server.runs()
    with Bigtable() as server:
        yield server


def gone(pid: int, within_s: float = 5.0) -> bool:
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.02)
    return False


def tables(server: Bigtable, monkeypatch: pytest.MonkeyPatch, create: str = "") -> list[str]:
    monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", server.address)
    client = bigtable.Client(project=PROJECT, admin=True)
    try:
        instance = client.instance(INSTANCE)
        if create:
            instance.table(create).create()
        return [table.table_id for table in instance.list_tables()]
    finally:
        client.close()


# -- Cassandra


@contextmanager
def session(*servers: Cassandra, consistency: int = ConsistencyLevel.ONE) -> Iterator[Session]:
    profile = ExecutionProfile(RoundRobinPolicy(), consistency_level=consistency, request_timeout=30)
    with Driver(
        [server.host for server in servers],
        port=servers[0].port,
        protocol_version=5,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
    ) as driver:
        yield driver.connect()


def test_cassandra_answers_a_query(cassandra_server: Cassandra) -> None:
    with session(cassandra_server) as cql:
        assert cql.execute("SELECT release_version FROM system.local").one().release_version == VERSION


def test_a_paused_cassandra_is_silent_until_it_is_resumed(cassandra_server: Cassandra) -> None:
    cassandra_server.pause()
    try:
        with pytest.raises(TimeoutError):
            cassandra_server.answers()
    finally:
        cassandra_server.resume()
    cassandra_server.wait(within_s=10)


@pytest.mark.cluster
def test_a_cluster_answers_without_one_node_which_finds_its_data_again(cassandra_cluster: Cluster) -> None:
    one, two, three = cassandra_cluster
    with session(one, two, three, consistency=ConsistencyLevel.ALL) as cql:
        cql.execute("CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}")
        cql.execute("CREATE TABLE k.t (id int PRIMARY KEY)")
        for number in range(100):
            cql.execute("INSERT INTO k.t (id) VALUES (%s)", [number])
    pid = three.pid
    three.kill()
    assert gone(pid)
    cassandra_cluster.settle()
    with session(one, two, consistency=ConsistencyLevel.QUORUM) as cql:
        assert len(cql.execute("SELECT id FROM k.t").all()) == 100
    three.start()
    cassandra_cluster.settle()
    # What the node had not yet put into its log when it was killed, the others have.
    with session(three, consistency=ConsistencyLevel.QUORUM) as cql:
        assert len(cql.execute("SELECT id FROM k.t").all()) == 100


# -- Bigtable


def test_bigtable_answers_an_admin_call(emulator: Bigtable, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tables(emulator, monkeypatch, create="plain") == ["plain"]


def test_a_restart_keeps_the_address_and_empties_the_emulator(emulator: Bigtable, monkeypatch: pytest.MonkeyPatch) -> None:
    address, pid = emulator.address, emulator.pid
    tables(emulator, monkeypatch, create="plain")
    emulator.restart()
    assert emulator.address == address
    assert emulator.pid != pid
    assert tables(emulator, monkeypatch) == []


# -- every server


def test_a_paused_server_is_silent_and_can_be_stopped(emulator: Bigtable) -> None:
    pid = emulator.pid
    emulator.pause()
    with pytest.raises(TimeoutError):
        emulator.answers()
    emulator.stop()
    assert gone(pid)


def test_killing_and_stopping_leave_no_process_and_are_harmless_twice(emulator: Bigtable) -> None:
    for end in (emulator.kill, emulator.stop):
        pid = emulator.pid
        end()
        end()
        assert gone(pid)
        assert not emulator.runs()
        with pytest.raises(Failed, match="does not run"):
            emulator.pause()
        emulator.start()


def test_closing_removes_process_and_folder(emulator: Bigtable) -> None:
    pid = emulator.pid
    emulator.close()
    assert gone(pid)
    assert not emulator.folder.exists()
    with pytest.raises(Failed, match="is closed"):
        emulator.start()


def test_a_server_that_ends_while_it_starts_is_reported_with_its_log(emulator: Bigtable) -> None:
    second = Bigtable()
    try:
        second.port = emulator.port
        with pytest.raises(Failed, match="address already in use"):
            second.start()
    finally:
        second.close()


def test_a_server_dies_with_the_process_that_started_it(bigtable_server: Bigtable) -> None:
    assert bigtable_server.runs()
    program = (
        "import time; from servers.bigtable import Bigtable; s = Bigtable(); s.start(); print(s.pid, s.folder, flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"{program}; time.sleep(60)"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
    ) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        owner.send_signal(signal.SIGKILL)
    assert gone(int(pid))
    (Path(folder) / "server.log").unlink()
    Path(folder).rmdir()


def test_a_server_is_not_started_from_a_thread_that_may_end_before_it(emulator: Bigtable) -> None:
    emulator.stop()
    errors: list[Exception] = []

    def start() -> None:
        try:
            emulator.start()
        except Failed as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])


# -- having them


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIDEROW_CACHE", str(tmp_path / "cache"))
    return cache_folder()


def test_a_fetch_that_fails_leaves_nothing_and_the_next_starts_afresh(cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise Missing("no network")

    with pytest.raises(Missing):
        kept("thing-1", fail)
    assert [path.name for path in cache.iterdir()] == ["thing-1.lock"]
    folder = kept("thing-1", lambda folder: (folder / "whole").touch())
    assert [path.name for path in folder.iterdir()] == ["whole"]


def test_those_who_want_the_same_at_once_fetch_it_once(cache: Path) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        time.sleep(0.1)

    threads = [threading.Thread(target=kept, args=("thing-1", make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert (cache / "thing-1").is_dir()


def test_what_cannot_be_had_is_a_skip_here_and_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Bigtable:
        raise Missing("install something")

    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="install something"):
        had(make)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="install something"):
        had(make)


@pytest.mark.usefixtures("cache")
def test_a_go_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "go"
    old.write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("platform.machine", lambda: "vax")  # else it would fetch one
    with pytest.raises(Missing, match=r"Go 1\.25 or newer is needed, go is 1\.19, and none can be fetched for vax"):
        go_program("example.org/x/y", "v1.0.0")
