"""`widerow worker`, `gateway` and `api` as they are started: what they serve and refuse; and brokers with a password."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from servers.cassandra import Cassandra
from servers.fixtures import had
from servers.kafka import Kafka
from servers.mosquitto import program
from system.kafka_path import kafka_path, lag_of, until
from system.test_cli_processes import interrupted, run, started
from widerow.config import Kafka as KafkaConfig
from widerow.config import build
from widerow.ingest.kafka.connect import client_settings, ensure_topics, partition_counts
from widerow.model.errors import ConfigError, WiderowError
from widerow.model.times import HOUR
from widerow.pipeline.job import Lane


def test_a_worker_on_an_embedded_store_serves_it_and_ends_cleanly(kafka: Kafka, tmp_path: Path) -> None:
    name = f"embedded-{uuid4().hex[:8]}"
    settings = {"brokers": kafka.address, "topic": name, "backfill_topic": f"{name}.late", "group": name}
    lines = [f'{key} = "{value}"' for key, value in settings.items()]
    (tmp_path / "widerow.toml").write_text("\n".join(["[kafka]", *lines, "partitions = 2", ""]))
    options = ["--config", "widerow.toml", "--store", "rocksdb:store"]
    missing = run("worker", *options, folder=tmp_path, code=1)
    assert f"no topic {name}" in missing.stderr
    run("tenant", "create", "acme", *options, folder=tmp_path)
    with started(["worker", *options, "--create-topics", "--port", "0"], tmp_path, "widerow works") as (process, line):
        url = line.split()[-1]
        assert httpx.get(f"{url}/health/ready", timeout=30).json() == {"status": "ready"}
        tool = str(had(lambda: program("kcat", "kcat")))
        sent = "".join(f'acme/d{i}|{{"values": {{"x": {i}}}}}\n' for i in range(50))
        subprocess.run(
            [tool, "-b", kafka.address, "-P", "-t", name, "-K", "|"], input=sent, text=True, check=True, timeout=60
        )

        with httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "store/serve.sock")), timeout=30) as owner:
            latest = "http://local/v1/fleet/latest?tenant=acme"
            until(lambda: len(owner.get(latest, headers={"Accept": "text/csv"}).text.splitlines()) == 51)
        code, seconds = interrupted(process, signal.SIGTERM)
    assert (code, seconds < 15) == (0, True)
    assert lag_of(KafkaConfig(brokers=kafka.address, topic=name, group=name, partitions=2)) == 0


def test_the_first_process_makes_the_topics_whichever_it_is(
    cassandra_server: Cassandra, kafka: Kafka, tmp_path: Path
) -> None:
    store = cassandra_server.store_url(f"first_{uuid4().hex[:8]}")
    for command in ("api", "gateway"):
        name = f"first-{uuid4().hex[:8]}"
        lines = [f'brokers = "{kafka.address}"', f'topic = "{name}"', f'backfill_topic = "{name}.late"', "partitions = 1"]
        (tmp_path / "widerow.toml").write_text("\n".join(["[kafka]", *lines, ""]))
        options = [command, "--config", "widerow.toml", "--store", store, "--port", "0"]
        missing = run(*options, folder=tmp_path, code=1).stderr
        assert f"no topic {name}" in missing
        assert "--create-topics" in missing
        with started([*options, "--create-topics"], tmp_path, "widerow ") as (process, line):
            assert httpx.get(f"{line.split()[-1]}/health/ready", timeout=30).json() == {"status": "ready"}
            assert interrupted(process, signal.SIGTERM)[0] == 0
        asker = AdminClient({"bootstrap.servers": kafka.address})
        assert partition_counts(asker, KafkaConfig(topic=name, backfill_topic=f"{name}.late")) == dict.fromkeys(Lane, 1)


def test_fronts_want_a_store_that_is_shared(tmp_path: Path) -> None:
    for command in ("gateway", "api"):
        refused = run(command, "--store", "rocksdb:store", "--brokers", "127.0.0.1:1", folder=tmp_path, code=2)
        assert "needs a store that processes share" in refused.stderr
    refused = run("gateway", "--store", "cassandra://127.0.0.1/k", folder=tmp_path, code=2)
    assert "--brokers" in refused.stderr


def test_an_api_without_kafka_answers_and_refuses_reports(cassandra_server: Cassandra, tmp_path: Path) -> None:
    store = ["--store", cassandra_server.store_url(f"api_{uuid4().hex[:8]}")]
    run("tenant", "create", "acme", *store, folder=tmp_path)
    token = run("token", "create", "acme", "--role", "admin", *store, folder=tmp_path).stdout.strip()
    with started(["api", *store, "--port", "0"], tmp_path, "widerow answers") as (process, line):
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=line.split()[-1], headers=headers, timeout=30) as client:
            assert client.get("/v1/devices").status_code == 200
            answer = client.post("/v1/write", json={"device": "d", "values": {"x": 1}})
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no-lease")
        assert interrupted(process)[0] == 0


# -- brokers that ask who is there


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kafka, Path]]:
    """A broker that speaks TLS and wants a password, and the certificate that it has."""
    folder = tmp_path_factory.mktemp("guarded")
    tool = str(had(lambda: program("openssl", "openssl")))
    cert, key, both = folder / "cert.pem", folder / "key.pem", folder / "both.pem"
    made = [tool, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*made, *names], check=True, capture_output=True, timeout=60)
    both.write_text(key.read_text() + cert.read_text())
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": (
            f'{login} username="broker" password="b" user_broker="b" user_widerow="secret";'
        ),
        **{f"listener.name.plaintext.scram-sha-{bits}.sasl.jaas.config": scram for bits in (256, 512)},
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(cert),
    }
    with had(lambda: Guarded(settings=settings)) as broker:
        yield broker, cert


class Guarded(Kafka):
    """Its only listener has the name of an open one, and is not."""

    def answers(self) -> bool:
        """To strangers not at all; but it accepts connections once it is up."""
        socket.create_connection((self.host, self.port), timeout=2).close()
        return True


def credentials(cert: Path, mechanism: str = "PLAIN") -> dict[str, int | str]:
    """Settings of `[kafka]`."""
    return {"tls": 1, "tls_ca": str(cert), "sasl_mechanism": mechanism, "username": "widerow", "password": "secret"}


def test_brokers_that_want_tls_and_a_password_get_both(guarded: tuple[Kafka, Path]) -> None:
    broker, cert = guarded
    good = replace(KafkaConfig(brokers=broker.address, partitions=2), **credentials(cert))  # type: ignore[arg-type]
    assert ensure_topics(good, create=True) == {Lane.LIVE: 2, Lane.BACKFILL: 2}

    def check(bad: KafkaConfig) -> None:
        """It is told why, and does not hang."""
        with pytest.raises(WiderowError, match="Kafka"):
            partition_counts(AdminClient(client_settings(bad)), bad, timeout_s=2)

    check(replace(good, password="wrong"))
    check(replace(good, sasl_mechanism=""))
    check(replace(good, tls_ca=""))
    with pytest.raises(ConfigError, match=r"kafka\.sasl_mechanism"):
        build({"kafka": {"sasl_mechanism": "MAGIC"}}, {})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_reports_go_through_brokers_that_want_tls_and_a_password(guarded: tuple[Kafka, Path], mechanism: str) -> None:
    broker, cert = guarded
    if mechanism != "PLAIN":
        known = replace(KafkaConfig(brokers=broker.address), **credentials(cert))  # type: ignore[arg-type]
        proof = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], 4096)
        made = UserScramCredentialUpsertion("widerow", proof, b"secret")
        admin = AdminClient(client_settings(known))
        admin.alter_user_scram_credentials([made])["widerow"].result(30)
    with kafka_path(broker, create=False, partitions=2, **credentials(cert, mechanism)) as path:
        kafka = path.config.kafka
        asker = AdminClient(client_settings(kafka))
        assert ensure_topics(kafka, create=True) == {Lane.LIVE: 2, Lane.BACKFILL: 2}
        until(lambda: partition_counts(asker, kafka) == {Lane.LIVE: 2, Lane.BACKFILL: 2})
        with path.worker():
            outcomes = path.send([[path.report(f"d{i}", i), path.report(f"d{i}", -i, ago_us=2 * HOUR)] for i in range(10)])
            assert [(outcome.accepted, outcome.error) for outcome in outcomes] == [(2, None)] * 10
            until(lambda: path.lag() == 0 and path.lag(kafka.backfill_topic) == 0)
        assert [path.stored(f"d{i}") for i in range(10)] == [[-i, i] for i in range(10)]
