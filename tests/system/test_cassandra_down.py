"""Nodes that stop answering, die and come back, under writes: bounded waits, flat memory, nothing acknowledged lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import awake
from servers.cassandra import Cassandra
from servers.cluster import Cluster
from servers.fixtures import had
from system.outage import Writer, resident_kib
from widerow.engine.cassandra import CassandraEngine, CassandraSettings
from widerow.engine.cassandra.cluster import AskAgain
from widerow.engine.contract.tables import SPARSE
from widerow.model.times import SystemClock

TIMEOUT_S = 2.0
SLACK_S = 3.0


@pytest.fixture
def server() -> Iterator[Cassandra]:
    """A node of its own: it is mistreated."""
    with had(lambda: Cassandra(commitlog_sync="batch")) as server:
        yield server


@pytest.mark.rest
def test_a_node_that_hangs_and_dies_costs_time_and_nothing_else(server: Cassandra) -> None:
    settings = CassandraSettings(hosts=(server.host,), port=server.port, keyspace="down", timeout_s=TIMEOUT_S)
    engine = CassandraEngine(settings, clock=SystemClock())
    writer = Writer(engine)
    try:
        engine.apply([SPARSE])
        writer.start()
        writer.goes_on(60)
        before_kib = resident_kib()

        server.pause()
        awake.sleep(20)
        assert len(writer.failures_s) >= 3, "a node that hangs is noticed"
        server.resume()
        writer.goes_on(30)

        server.kill()
        failed = len(writer.failures_s)
        awake.sleep(5)
        assert len(writer.failures_s) > failed, "a node that died is noticed"
        server.restart()
        writer.goes_on(60)
        writer.survived(TIMEOUT_S + SLACK_S, before_kib)
    finally:
        if writer.is_alive():
            writer.end()
        engine.close()


@pytest.mark.rest
def test_a_write_that_a_node_gave_up_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[bool] = []
    decide = AskAgain.on_write_timeout

    def watched(policy: AskAgain, *given: Any, **more: Any) -> Any:
        decision = decide(policy, *given, **more)
        answers.append(decision[0] == policy.RETRY)
        return decision

    monkeypatch.setattr(AskAgain, "on_write_timeout", watched)
    with had(lambda: Cassandra(commitlog_sync="batch", settings={"write_request_timeout": "50ms"})) as server:
        settings = CassandraSettings(hosts=(server.host,), port=server.port, keyspace="late")
        engine = CassandraEngine(settings, clock=SystemClock())
        writers = [Writer(engine) for _ in range(8)]
        try:
            engine.apply([SPARSE])
            for writer in writers:
                writer.start()
            writers[0].goes_on(30)
            deadline_s = time.monotonic() + 60
            while answers.count(True) < 3:
                assert time.monotonic() < deadline_s, "the node never gave up"
                server.pause()
                time.sleep(0.3)
                server.resume()
                time.sleep(0.3)
            for writer in writers:
                writer.end()
            failures = sum(len(writer.failures_s) for writer in writers)
            assert failures <= answers.count(False), "who fails was asked as often as may be"
            assert not any(writer.lost() for writer in writers)
        finally:
            for writer in writers:
                if writer.is_alive():
                    writer.end()
            engine.close()


@pytest.mark.cluster
def test_of_three_nodes_one_may_die(cassandra_cluster: Cluster) -> None:
    settings = CassandraSettings(
        hosts=tuple(cassandra_cluster.hosts), port=cassandra_cluster.port, keyspace="three", replication=3, timeout_s=5.0
    )
    engine = CassandraEngine(settings, clock=SystemClock())
    writer = Writer(engine)
    victim = cassandra_cluster.nodes[-1]
    try:
        engine.apply([SPARSE])
        writer.start()
        writer.goes_on(20)
        time.sleep(5)
        killed_at_s = time.monotonic()
        victim.kill()
        time.sleep(25)
        writer.goes_on(10)
        writer.end()
        late = [at_s - killed_at_s for at_s in writer.failed_at_s if at_s > killed_at_s + 10]
        assert not late, "no write fails but in the first seconds"
        assert not writer.lost()
    finally:
        if writer.is_alive():
            writer.end()
        engine.close()
        victim.start()
        cassandra_cluster.settle()
