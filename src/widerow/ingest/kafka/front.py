"""What every process that takes reports, and is no worker, has at the end of its pipeline where there is Kafka.

Rule 1: where brokers are configured and the store is shared, workers alone write reports: whoever else has some, hands them
to Kafka, as gateways do. That holds for commands and for the Python client as well.
Rule 2: this module does not need Kafka's client to be imported.
"""

from __future__ import annotations

from collections.abc import Callable

from widerow.catalog.catalog import Catalog
from widerow.config import Config
from widerow.model.errors import ConfigError
from widerow.model.store import is_shared
from widerow.model.times import Clock
from widerow.ops.answers import PATIENCE_S
from widerow.ops.counters import Counters
from widerow.pipeline.job import Sink


def workers_write(settings: Config) -> bool:
    """Rule 1. An embedded store has one process: what that one writes needs nobody's leave."""
    return bool(settings.kafka.brokers) and is_shared(settings.store.url)


def to_kafka(settings: Config, clock: Clock, *, create_topics: bool = False) -> Callable[[Catalog, Counters], Sink]:
    """Makes a sink, for `Service.open`; the topics are there. Raises ConfigError, Unavailable."""
    require_kafka()
    from widerow.ingest.kafka.connect import ensure_topics  # noqa: PLC0415
    from widerow.ingest.kafka.produce import KafkaSink  # noqa: PLC0415

    def sink(catalog: Catalog, counters: Counters) -> Sink:
        return KafkaSink(
            settings, clock, counters, lambda tenant, names, used: catalog.devices.register(tenant, names, used).codes
        )

    ensure_topics(settings.kafka, create=create_topics or bool(settings.kafka.create_topics))
    return sink


def asks_kafka(settings: Config) -> Callable[[], object]:
    """A small question to the brokers, over a connection of its own. It raises if they do not answer."""
    require_kafka()
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    from widerow.ingest.kafka.connect import client_settings  # noqa: PLC0415

    asker = AdminClient(client_settings(settings.kafka))
    return lambda: asker.list_topics(settings.kafka.topic, timeout=PATIENCE_S)


def require_kafka() -> None:
    try:
        import confluent_kafka  # noqa: F401, PLC0415
    except ImportError as error:
        raise ConfigError("the client for Kafka is not installed: pip install 'widerow[kafka]'") from error
