"""The whole pipeline, from devices at a broker to rollups in a store, while its processes die and its brokers restart."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from servers.bigtable import Bigtable
from servers.cassandra import Cassandra
from servers.fixtures import had
from servers.kafka import Kafka
from servers.mosquitto import Mosquitto
from system.pipeline_kills import Run
from system.works import Sent, Works

pytestmark = pytest.mark.timeout(600)

REPORTS = 100_000


@pytest.fixture(scope="module")
def log() -> Iterator[Kafka]:
    """One of its own: it is restarted."""
    with had(Kafka) as server:
        yield server


@pytest.fixture(scope="module")
def broker() -> Iterator[Mosquitto]:
    with had(Mosquitto) as server:
        yield server


@pytest.mark.slow
def test_nothing_is_lost_on_the_way_to_cassandra_while_processes_die(
    tmp_path: Path, cassandra_server: Cassandra, broker: Mosquitto, log: Kafka
) -> None:
    name = f"works_{uuid4().hex[:8]}"
    with Works(name, tmp_path, cassandra_server.store_url(name), broker, log) as works:
        Run(works, Sent(), tmp_path, REPORTS, random.Random(6), print).go(kills=10)


@pytest.mark.slow
def test_nothing_is_lost_on_the_way_to_bigtable_while_processes_die(
    tmp_path: Path, bigtable_server: Bigtable, broker: Mosquitto, log: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", bigtable_server.address)
    name = f"works_{uuid4().hex[:8]}"
    with Works(name, tmp_path, bigtable_server.store_url(name), broker, log) as works:
        Run(works, Sent(), tmp_path, REPORTS, random.Random(7), print).go(kills=10)


@pytest.mark.slow
def test_workers_that_join_and_leave_lose_nothing(
    tmp_path: Path, cassandra_server: Cassandra, broker: Mosquitto, log: Kafka
) -> None:
    name = f"works_{uuid4().hex[:8]}"
    with Works(name, tmp_path, cassandra_server.store_url(name), broker, log) as works:
        Run(works, Sent(), tmp_path, REPORTS // 2, random.Random(8), print).go(kills=0, restarts=False, rebalance=True)
