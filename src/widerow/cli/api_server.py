"""`widerow api`: answers questions about a store that others write to."""

from __future__ import annotations

import contextlib

import typer

from widerow.cli.connect import configuration
from widerow.cli.gateway import opened_front, refuse_embedded, serve_front
from widerow.cli.serve import ConfigFile, Host, Port, obey_signals, start_logging
from widerow.cli.worker import Brokers, CreateTopics, Store


def add_to(app: typer.Typer) -> None:
    app.command("api")(api)


def api(
    config: ConfigFile = None,
    store: Store = None,
    brokers: Brokers = None,
    create_topics: CreateTopics = False,
    host: Host = None,
    port: Port = None,
) -> None:
    """Answer questions over HTTP, until stopped by Ctrl-C or SIGTERM.

    For stores on Cassandra and Bigtable; start as many as are needed. Reports that are sent here go to Kafka, if it is
    configured; otherwise they are refused (no-lease).

    Example: widerow api --store cassandra://node/widerow --port 8080
    """
    settings = configuration(config, store=store, host=host, port=port, brokers=brokers)
    start_logging(settings.log.level)
    refuse_embedded(settings, "api")
    with contextlib.suppress(KeyboardInterrupt):  # before it listens; afterwards the signals are the server's
        obey_signals()
        with opened_front(settings, create_topics=create_topics) as service:
            serve_front(service, settings, f"answers questions about {settings.store.url}")
