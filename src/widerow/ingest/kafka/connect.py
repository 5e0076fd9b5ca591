"""How Kafka is spoken to: settings for librdkafka, topics, and its errors as ours."""

from __future__ import annotations

import logging
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from widerow.config import Kafka
from widerow.model.errors import ConfigError, StoreUnavailable, WiderowError
from widerow.pipeline.job import Lane

log = logging.getLogger(__name__)


class _OnceInAWhile(logging.Filter):
    """librdkafka says the same of each connection, many times a second: once in ten seconds is enough."""

    def __init__(self) -> None:
        super().__init__()
        self._said_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = f"{record.levelno}{record.getMessage().partition(' ')[0]}"  # FAIL, ALL_BROKERS_DOWN, GETPID, ...
        if time.monotonic() < self._said_s.get(kind, 0.0):
            return False
        self._said_s[kind] = time.monotonic() + 10.0
        return True


_from_librdkafka = logging.getLogger(f"{__name__}.librdkafka")
_from_librdkafka.addFilter(_OnceInAWhile())

ASK_S = 10.0
"""How long a question to the brokers may take."""

_HOPELESS = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - so are librdkafka's own codes named
    KafkaError._INVALID_ARG,  # noqa: SLF001
    KafkaError._SSL,  # noqa: SLF001
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
}
"""What waiting does not mend."""


def topics(kafka: Kafka) -> dict[Lane, str]:
    """The topic of each lane."""
    return {Lane.LIVE: kafka.topic, Lane.BACKFILL: kafka.backfill_topic}


def client_settings(kafka: Kafka) -> dict[str, Any]:
    """What every client of ours has in common. Raises ConfigError."""
    if not kafka.brokers:
        raise ConfigError("kafka.brokers is empty: give HOST:PORT of one broker or several")
    protocol = f"{'sasl_' if kafka.sasl_mechanism else ''}{'ssl' if kafka.tls else 'plaintext'}"
    settings: dict[str, Any] = {
        "bootstrap.servers": kafka.brokers,
        "client.id": "widerow",
        "security.protocol": protocol,
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 2000,
        "logger": _from_librdkafka,
    }
    if kafka.tls:
        files = {
            "ssl.ca.location": kafka.tls_ca,
            "ssl.certificate.location": kafka.tls_cert,
            "ssl.key.location": kafka.tls_key or kafka.tls_cert,
        }
        settings |= {name: path for name, path in files.items() if path}
    if kafka.sasl_mechanism:
        settings |= {
            "sasl.mechanism": kafka.sasl_mechanism,
            "sasl.username": kafka.username,
            "sasl.password": kafka.password,
        }
    return settings


def producer_settings(kafka: Kafka) -> dict[str, Any]:
    """What is confirmed by this producer is on every replica that the topic asks for, once."""
    return client_settings(kafka) | {
        "acks": "all",
        "enable.idempotence": True,
        "compression.type": kafka.compression,
        "linger.ms": kafka.linger_ms,
        "message.max.bytes": max(1_000_000, (kafka.max_message_kib + 64) << 10),
        "message.timeout.ms": kafka.send_timeout_s * 1000,
        "queue.buffering.max.kbytes": kafka.send_queue_mib << 10,
        "queue.buffering.max.messages": 0,
        "partitioner": "murmur2_random",
    }


def failure(what: str, error: KafkaError | KafkaException | Exception) -> WiderowError:
    """What a caller is told of a failure of Kafka's."""
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if isinstance(cause, KafkaError):
        text = f"{what}: {cause.str()}"
        return ConfigError(f"{text} (see [kafka])") if cause.code() in _HOPELESS else StoreUnavailable(text)
    return StoreUnavailable(f"{what}: {cause}")


def partition_counts(asker: Any, kafka: Kafka, timeout_s: float = ASK_S) -> dict[Lane, int]:
    """How many partitions each lane's topic has, as the brokers say; 0 where it is missing. Raises Unavailable, ConfigError.

    `asker` is any client of librdkafka's.
    """
    try:
        known = asker.list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise failure("Kafka does not say which topics it has", error) from error
    return {lane: len(known[name].partitions) if name in known else 0 for lane, name in topics(kafka).items()}


def ensure_topics(kafka: Kafka, *, create: bool) -> dict[Lane, int]:
    """How many partitions each topic has; makes those that are missing, if wanted. Raises ConfigError, Unavailable."""
    admin = AdminClient(client_settings(kafka))
    counts = partition_counts(admin, kafka)
    missing = [name for lane, name in topics(kafka).items() if not counts[lane]]
    if kafka.rollups_topic and kafka.rollups_topic not in admin.list_topics(timeout=ASK_S).topics:
        missing.append(kafka.rollups_topic)
    if not missing:
        return counts
    if not create:
        raise ConfigError(
            f"Kafka has no topic {' and no topic '.join(missing)}: make it with {kafka.partitions} partitions or so, "
            "or start `widerow worker`, `gateway` or `api` with --create-topics"
        )
    wanted = {"min.insync.replicas": str(kafka.replication - 1)} if kafka.replication > 1 else {}
    made = admin.create_topics(
        [NewTopic(name, kafka.partitions, kafka.replication or -1, config=wanted) for name in missing]
    )
    for name, future in made.items():
        try:
            future.result(ASK_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise failure(f"topic {name} could not be made", error) from error
    return dict.fromkeys(topics(kafka), kafka.partitions) | {lane: n for lane, n in counts.items() if n}
