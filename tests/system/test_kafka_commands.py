"""Where there is Kafka, workers alone write: what commands and the Python client send to a store goes to Kafka, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner, Result

from servers.bigtable import Bigtable
from servers.kafka import Kafka
from system.conftest import now_ms
from system.kafka_path import until
from widerow import Client, Written
from widerow.cli.commands import app
from widerow.cli.worker import _worker
from widerow.config import Config, load
from widerow.model.device import Device
from widerow.model.errors import NotFound
from widerow.model.tenant import Tenant
from widerow.pipeline.origin import Origin
from widerow.service import Service


@dataclass
class Behind:
    """What a worker has open: the store, with its lease."""

    file: Path
    config: Config
    service: Service
    tenant: Tenant

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--tenant", "acme", "--config", str(self.file), "--json"])

    def latest(self, device: str) -> list[float]:
        try:
            return [float(x) for x in self.service.queries.latest(self.tenant, [device]).number]
        except NotFound:
            return []

    def messages(self) -> int:
        """How many Kafka was given."""
        asker = Consumer({"bootstrap.servers": self.config.kafka.brokers, "group.id": "asks"})
        try:
            return int(asker.get_watermark_offsets(TopicPartition(self.config.kafka.topic, 0), timeout=10)[1])
        finally:
            asker.close()

    def work(self, device: str) -> list[float]:
        """What is stored of a device after a worker was at it."""
        worker = _worker(self.service, self.config)
        worker.start()
        try:
            until(lambda: bool(self.latest(device)))
        finally:
            worker.close()
        return self.latest(device)


@pytest.fixture
def behind(kafka: Kafka, bigtable_server: Bigtable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Behind]:
    monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", bigtable_server.address)
    name = f"commands-{uuid4().hex[:8]}"
    told = {"brokers": kafka.address, "topic": name, "backfill_topic": f"{name}.late", "group": name}
    lines = [f'{key} = "{value}"' for key, value in told.items()]
    file = tmp_path / "widerow.toml"
    store = bigtable_server.store_url(f"k{uuid4().hex[:8]}")
    file.write_text("\n".join(["[store]", f'url = "{store}"', "[kafka]", *lines, "partitions = 1", ""]))
    for topic in (name, f"{name}.late"):
        kafka.create_topic(topic, 1)
    config = load(file, {})
    with Service.open(config, crew=name) as service:
        tenant = service.catalog.tenants.create(Tenant(name="acme", registers_devices=False))
        service.catalog.devices.create(tenant, Device(name="press-9"))
        yield Behind(file, config, service, tenant)


def test_dead_letters_are_sent_again_through_kafka_beside_workers(behind: Behind) -> None:
    letters = behind.service.dead_letters
    for device, code in (("press-9", "unknown-device"), ("stranger", "unknown-device")):
        body = json.dumps({"device": device, "time": now_ms(), "values": {"a": 7}}).encode()
        letters.file("acme", Origin("http", "application/json", "ms", "", body), code, "it was")
    assert letters.settle()
    replayed = behind.run("deadletters", "replay", "--all")
    assert json.loads(replayed.stdout)["stored"] == 1, replayed.stderr
    assert "stranger" in replayed.stderr, "a front refuses what a worker would"
    assert [filed.letter.replays for filed in letters.store.newest("acme")] == [1]
    assert behind.latest("press-9") == [], "who is no worker writes no reports"
    assert behind.messages() == 1
    assert behind.work("press-9") == [7.0]


def test_a_client_that_writes_to_a_shared_store_hands_reports_to_kafka(behind: Behind) -> None:
    with Client.open(behind.config.store.url, tenant="acme", writes=True, config=behind.file) as client:
        assert client.write({"device": "press-9", "values": {"a": 3}}) == Written(1, 0)
    assert behind.latest("press-9") == []
    assert behind.work("press-9") == [3.0]


def test_a_simulated_fleet_goes_through_kafka_and_a_missing_topic_is_told(behind: Behind) -> None:
    behind.service.catalog.tenants.update("acme", lambda _: Tenant(name="acme"))
    sizes = ("--devices", "1", "--rate", "0", "--count", "5", "--gaps", "0", "--duplicates", "0", "--interval", "1s")
    sent = behind.run("simulate", *sizes)
    assert json.loads(sent.stdout)["acknowledged"] == 5, sent.stderr
    assert behind.latest("press-000000") == []
    assert behind.messages() > 0
    behind.file.write_text(behind.file.read_text().replace('topic = "commands', 'topic = "elsewhere'))
    refused = behind.run("deadletters", "replay", "--all")
    assert refused.exit_code == 1
    assert "Kafka has no topic elsewhere" in str(refused.exception) + refused.stderr
