"""`widerow worker`: takes reports from Kafka, writes them to the store, and rolls them up."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widerow.cli import output
from widerow.cli.connect import configuration, store_folder
from widerow.cli.serve import ConfigFile, Host, Port, obey_signals, refuse_if_served, start_logging, warm_up
from widerow.config import Config
from widerow.server.sockets import SOCKET

if TYPE_CHECKING:
    from widerow.ingest.kafka.worker import Worker
    from widerow.service import Service

Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="cassandra://HOST/KEYSPACE, bigtable://..., rocksdb:PATH (store.url); or WIDEROW_STORE.",
        show_default=False,
    ),
]
Brokers = Annotated[
    str | None,
    typer.Option("--brokers", metavar="HOST:PORT,...", help="Kafka's brokers (kafka.brokers).", show_default=False),
]
CreateTopics = Annotated[
    bool, typer.Option("--create-topics", help="Make Kafka's topics if they are missing (kafka.create_topics).")
]


def add_to(app: typer.Typer) -> None:
    app.command("worker")(worker)


def worker(
    config: ConfigFile = None,
    store: Store = None,
    brokers: Brokers = None,
    create_topics: CreateTopics = False,
    host: Host = None,
    port: Port = None,
) -> None:
    """Take reports from Kafka, write them to the store and roll them up, until stopped by Ctrl-C or SIGTERM.

    Workers of one group (kafka.group) share the work, on one machine or many: start as many as are needed, up to one for
    each partition. On Cassandra and Bigtable they share the store; an embedded store has one worker, which then answers
    questions as well. On others the port has /health and /metrics alone.

    Example: widerow worker --brokers kafka:9092 --store cassandra://node/widerow --port 8081
    """
    settings = configuration(config, store=store, host=host, port=port, brokers=brokers)
    start_logging(settings.log.level)
    folder = store_folder(settings.store.url)
    refuse_if_served(folder)
    with contextlib.suppress(KeyboardInterrupt):  # before it listens; afterwards the signals are the server's
        obey_signals()
        _work(settings, folder, create_topics=create_topics)


def _work(settings: Config, folder: Path | None, *, create_topics: bool) -> None:
    from widerow.ingest.kafka.front import require_kafka  # noqa: PLC0415

    require_kafka()
    from widerow.ingest.kafka.connect import ensure_topics  # noqa: PLC0415
    from widerow.ingest.kafka.rollups import RollupsOut  # noqa: PLC0415
    from widerow.rollup.crew import shards_of_partitions  # noqa: PLC0415
    from widerow.server.routes import HEALTH, ROUTES  # noqa: PLC0415
    from widerow.server.run import serve as serve_http  # noqa: PLC0415
    from widerow.service import Service  # noqa: PLC0415

    ensure_topics(settings.kafka, create=create_topics or bool(settings.kafka.create_topics))
    told = (lambda counters: RollupsOut(settings.kafka, counters)) if settings.kafka.rollups_topic else None
    with Service.open(settings, crew=settings.kafka.group, rolls=True, told=told, say=output.note) as service:
        warm_up()
        stop = threading.Event()
        crew = _worker(service, settings)
        if (members := service.pyramid.crew) is not None:
            crew.tell(lambda ours, count: members.take_over(shards_of_partitions(ours, count)))
        watch = threading.Thread(target=_stop_when_failed, args=(crew, stop), name="kafka-watch")

        try:
            crew.start()  # first: the thread that serves may keep to one core, and those that it starts with it
            watch.start()
            serve_http(
                service,
                host=settings.http.host,
                port=settings.http.port,
                # Nobody else can open an embedded store: there its owner answers questions, too.
                routes=ROUTES if folder else HEALTH,
                socket_path=folder / SOCKET if folder else None,
                on_ready=lambda address: output.emit(f"widerow works for {settings.store.url}, at {address}"),
                stop=stop,
                troubles=[crew.trouble],
                strains=[crew.strain],
            )
        finally:
            stop.set()
            output.note("stopping")
            crew.close()
            watch.join()
        if error := crew.failed():
            raise error


def _worker(service: Service, settings: Config) -> Worker:
    from widerow.catalog.known import KnownTenants  # noqa: PLC0415
    from widerow.codec.json import JsonDecoder  # noqa: PLC0415
    from widerow.ingest.kafka.letters import letters_to  # noqa: PLC0415
    from widerow.ingest.kafka.receive import Receiver  # noqa: PLC0415
    from widerow.ingest.kafka.worker import Worker  # noqa: PLC0415

    return Worker(
        settings,
        service.pipeline,
        KnownTenants(service.catalog.tenants, service.clock),
        Receiver(JsonDecoder(), service.clock),
        letters_to(service.dead_letters),
        service.clock,
        service.counters,
    )


def _stop_when_failed(crew: Worker, stop: threading.Event) -> None:
    """A worker that takes nothing any more is better started afresh than left standing."""
    while not stop.wait(0.5):
        if crew.failed():
            stop.set()
