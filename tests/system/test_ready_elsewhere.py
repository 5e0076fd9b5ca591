"""`/health/ready` of a gateway while its store, or Kafka, stands still."""

from __future__ import annotations

import time
from pathlib import Path
from uuid import uuid4

import httpx

from servers.cassandra import Cassandra
from servers.kafka import Kafka
from system.kafka_path import until
from system.test_cli_processes import interrupted, started


def test_a_gateway_is_degraded_within_five_seconds_and_recovers(
    cassandra_server: Cassandra, kafka: Kafka, tmp_path: Path
) -> None:
    name = f"ready_{uuid4().hex[:8]}"
    settings = f'topic = "{name}"\nbackfill_topic = "{name}.late"\ngroup = "{name}"\npartitions = 1\n'
    (tmp_path / "widerow.toml").write_text(f'[kafka]\nbrokers = "{kafka.address}"\n{settings}')
    options = ["--config", "widerow.toml", "--store", cassandra_server.store_url(name), "--create-topics", "--port", "0"]
    with started(["gateway", *options], tmp_path, "widerow hands") as (process, line):
        url = line.split()[-1]

        def ready() -> tuple[int, object]:
            answer = httpx.get(f"{url}/health/ready", timeout=5)
            return answer.status_code, answer.json()

        until(lambda: ready() == (200, {"status": "ready"}))
        for what, server in (("the store", cassandra_server), ("Kafka", kafka)):
            server.pause()
            try:
                began_s = time.monotonic()
                until(lambda what=what: ready() == (503, {"status": "degraded", "reasons": [f"{what} does not answer"]}))  # type: ignore[misc]
                assert time.monotonic() - began_s < 5
            finally:
                server.resume()
            until(lambda: ready() == (200, {"status": "ready"}))
        assert interrupted(process)[0] == 0
