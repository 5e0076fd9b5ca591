"""`widerow gateway`: takes reports over HTTP and MQTT and hands them to Kafka; it writes none to the store itself."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import typer

from widerow.cli import output
from widerow.cli.connect import configuration, store_folder
from widerow.cli.failure import Misused
from widerow.cli.serve import Broker, ConfigFile, Host, Port, mqtt_front, obey_signals, start_logging, warm_up
from widerow.cli.worker import Brokers, CreateTopics, Store
from widerow.config import Config

if TYPE_CHECKING:
    from widerow.service import Service


def add_to(app: typer.Typer) -> None:
    app.command("gateway")(gateway)


def gateway(
    config: ConfigFile = None,
    store: Store = None,
    brokers: Brokers = None,
    create_topics: CreateTopics = False,
    mqtt: Broker = None,
    host: Host = None,
    port: Port = None,
) -> None:
    """Take reports over HTTP and MQTT and hand them to Kafka, until stopped by Ctrl-C or SIGTERM.

    Acknowledged reports are on every replica in Kafka; workers write them to the store. Tenants, tokens and
    devices are read from the store, on Cassandra or Bigtable. Questions are answered, too. Start as many as are needed.

    Example: widerow gateway --brokers kafka:9092 --store cassandra://node/widerow --port 8080
    """
    settings = configuration(config, store=store, host=host, port=port, brokers=brokers, mqtt=mqtt)
    start_logging(settings.log.level)
    refuse_embedded(settings, "gateway")
    with contextlib.suppress(KeyboardInterrupt):  # before it listens; afterwards the signals are the server's
        obey_signals()
        if not settings.kafka.brokers:
            raise Misused("widerow gateway hands reports to Kafka, and there is none", todo="give --brokers HOST:PORT")
        with (
            opened_front(settings, create_topics=create_topics) as service,
            mqtt_front(service, settings, needs_store=False) as troubles,
        ):
            serve_front(service, settings, "hands reports to Kafka", troubles)


def refuse_embedded(settings: Config, command: str) -> None:
    if store_folder(settings.store.url) is not None:
        raise Misused(
            f"widerow {command} needs a store that processes share, and {settings.store.url} is embedded",
            todo="give --store cassandra://... or bigtable://..., or use `widerow serve`",
        )


@contextlib.contextmanager
def opened_front(settings: Config, *, create_topics: bool = False) -> Iterator[Service]:
    """A store that others write to, and a pipeline that ends in Kafka; in a refusal, if there is no Kafka."""
    from widerow.service import Service  # noqa: PLC0415

    if not settings.kafka.brokers:
        with Service.open(settings, writes=False, say=output.note) as service:
            warm_up()
            yield service
        return
    from widerow.ingest.kafka.front import to_kafka  # noqa: PLC0415
    from widerow.model.times import SystemClock  # noqa: PLC0415

    clock = SystemClock()
    sink = to_kafka(settings, clock, create_topics=create_topics)
    with Service.open(settings, clock, writes=False, sink=sink, say=output.note) as service:
        warm_up()
        yield service


def serve_front(service: Service, settings: Config, what: str, troubles: Sequence[Callable[[], str]] = ()) -> None:
    """Serve HTTP until told to stop; `/health/ready` tells whether the store and Kafka answer."""
    from widerow.catalog.store import stored_version  # noqa: PLC0415
    from widerow.ingest.kafka.front import asks_kafka  # noqa: PLC0415
    from widerow.ops.answers import Answers  # noqa: PLC0415
    from widerow.server.run import serve as serve_http  # noqa: PLC0415

    asked = [Answers("the store", partial(stored_version, service.engine))]
    if settings.kafka.brokers:
        asked.append(Answers("Kafka", asks_kafka(settings)))
    with contextlib.ExitStack() as asking:
        for one in asked:
            asking.enter_context(one)
        serve_http(
            service,
            host=settings.http.host,
            port=settings.http.port,
            on_ready=lambda address: output.emit(f"widerow {what}, at {address}"),
            troubles=troubles,
            strains=[one.strain for one in asked],
        )
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the rest takes a moment and is better not interrupted
    output.note("stopping")
