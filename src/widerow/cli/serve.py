"""`widerow serve`: the whole platform in one process, on an embedded store or as the writer of a shared one."""

from __future__ import annotations

import contextlib
import gc
import logging
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widerow.cli import output
from widerow.cli.connect import configuration, store_folder
from widerow.cli.failure import Failed
from widerow.config import Config
from widerow.model.store import InMemory, parse_store
from widerow.model.times import DAY
from widerow.server.sockets import SOCKET, is_served

if TYPE_CHECKING:
    from widerow.service import Service

ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings, in TOML; or WIDEROW_CONFIG.", show_default=False)
]
Host = Annotated[str | None, typer.Option("--host", help="Address to listen on (http.host).", show_default=False)]
Port = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65535, help="The port, 0 for a free one (http.port).", show_default=False),
]

Broker = Annotated[
    str | None,
    typer.Option(
        "--mqtt",
        metavar="URL",
        help="Take reports from an MQTT broker: mqtt://[USER@]HOST[:PORT], mqtts://... (mqtt.url).",
        show_default=False,
    ),
]


def add_to(app: typer.Typer) -> None:
    app.command("serve")(serve)


def serve(
    config: ConfigFile = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help="rocksdb:PATH, cassandra://HOST/KEYSPACE, ... (store.url); or WIDEROW_STORE.",
            show_default=False,
        ),
    ] = None,
    host: Host = None,
    port: Port = None,
    mqtt: Broker = None,
) -> None:
    """Take reports and answer questions, until stopped by Ctrl-C or SIGTERM.

    Acknowledged reports are on disk. Settings come from --config, WIDEROW_* variables and options, later ones winning.
    One process serves a store: on Cassandra and Bigtable the one with the writer's lease.

    Example: widerow serve --store rocksdb:/var/lib/widerow --port 8080
    """
    settings = configuration(config, store=store, host=host, port=port, mqtt=mqtt)
    start_logging(settings.log.level)
    folder = store_folder(settings.store.url)
    refuse_if_served(folder)
    with contextlib.suppress(KeyboardInterrupt):  # before it listens; afterwards the signals are the server's
        obey_signals()
        _serve(settings, folder)


def _serve(settings: Config, folder: Path | None) -> None:
    from widerow.server.run import serve as serve_http  # noqa: PLC0415
    from widerow.service import Service  # noqa: PLC0415

    with Service.open(settings, rolls=True, say=output.note) as service:
        warm_up()

        def on_ready(address: str) -> None:
            output.emit(f"widerow serves {settings.store.url} at {address}")
            explain_tokens(service, settings)

        with mqtt_front(service, settings) as troubles:
            serve_http(
                service,
                host=settings.http.host,
                port=settings.http.port,
                socket_path=folder / SOCKET if folder else None,
                on_ready=on_ready,
                troubles=troubles,
            )
        # The rest takes a moment and is better not interrupted.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        output.note("stopping")


@contextlib.contextmanager
def mqtt_front(service: Service, settings: Config, *, needs_store: bool = True) -> Iterator[Sequence[Callable[[], str]]]:
    """Messages of the broker that the settings name go into the service, for as long as the context lasts.

    Gives who is to be asked for its troubles. What does not need the store, since it hands reports to a log, goes on without
    it for a day.
    """
    if not settings.mqtt.url:
        yield ()
        return
    from widerow.catalog.recent import GRACE_US  # noqa: PLC0415
    from widerow.ingest.mqtt.gateway import Gateway  # noqa: PLC0415

    gateway = Gateway(
        settings.mqtt,
        pipeline=service.pipeline,
        tenants=service.catalog.tenants,
        clock=service.clock,
        counters=service.counters,
        dead_letter=service.dead_letters.file,
        online=service.catalog.online.tell,
        trust_us=GRACE_US if needs_store else DAY,
    )
    gateway.start()
    try:
        yield (gateway.trouble,)
    finally:
        gateway.stop()


def warm_up() -> None:
    """Compile what runs for every report, so that the first does not wait; then settle the garbage collector."""
    from widerow.warm import warm_up as compile_all  # noqa: PLC0415

    compile_all()
    # An answer of 10,000 points is 10,000 tuples: with Python's own thresholds collecting garbage took two thirds of the
    # time of encoding it, and most of that looking at what was imported at the start.
    gc.collect()
    gc.freeze()
    # Nothing else runs while it collects, for up to a microsecond for each new object: often, and little each time. So,
    # too, what outlived one collection: after 20 of them, with many requests under way, that took up to 25 ms.
    gc.set_threshold(2_000, 4, 500)
    # A thread that wants the GIL waits for so long before it is given way. Acknowledging takes dozens of turns, so with
    # Python's 5 ms a roll in the background costs a report tens of milliseconds.
    sys.setswitchinterval(0.0001)


def obey_signals() -> None:
    """Both ways to stop us are interrupts, also where a shell that starts us in the background has SIGINT ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def refuse_if_served(folder: Path | None) -> None:
    if folder is not None and is_served(folder / SOCKET):
        raise Failed(
            f"{folder} is being served by another process", code="config", todo="stop that one, or use another store"
        )


def explain_tokens(service: Service, settings: Config) -> None:
    """Without a token nobody can send anything: say how one is made, as long as there is none."""
    from widerow.model.token import Role  # noqa: PLC0415

    if isinstance(parse_store(settings.store.url), InMemory):
        secret, _ = service.catalog.tokens.create(Role.OPERATOR, description="widerow serve, memory:")
        output.note(f"No other process can open a store in memory. The token of its operator: {secret}")
    elif not service.catalog.tokens.list():
        store = shlex.quote(settings.store.url)
        output.note(
            "This store has no tokens yet, so nobody can send or read. To make a tenant and a token for it:\n"
            f"  widerow tenant create acme --store {store}\n"
            f"  widerow token create acme --role admin --store {store}"
        )


def start_logging(level: str) -> None:
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Each request of a client would be a line.
    logging.getLogger("httpx").setLevel(logging.WARNING)
