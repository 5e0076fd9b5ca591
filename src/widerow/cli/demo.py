"""`widerow demo`: the platform with a simulated fleet, in one process."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer

from widerow.cli import output
from widerow.cli.actors import Actor, cast, catch_up, describe_metrics, keep_sending, prepare, send_history
from widerow.cli.api import Api, in_path
from widerow.cli.connect import configuration
from widerow.cli.demo_tokens import demo_tokens
from widerow.cli.failure import Failed
from widerow.cli.serve import Host, Port, obey_signals, refuse_if_served, start_logging, warm_up
from widerow.cli.simulate import FleetKind, Kind
from widerow.config import Config
from widerow.model.times import MINUTE, SECOND, SystemClock
from widerow.server.sockets import SOCKET, reachable

LOG_EVERY_S = 10.0


def add_to(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    host: Host = None,
    port: Port = None,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The folder of the data.", file_okay=False)] = Path(
        "widerow-demo"
    ),
    devices: Annotated[int, typer.Option("--devices", min=2, max=1_000_000, help="How many devices.")] = 500,
    rate: Annotated[float, typer.Option("--rate", min=0.01, help="Reports per second, all together.")] = 500,
    kind: Kind = FleetKind.FACTORY,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Throw away what an earlier demo left.", show_default=False)
    ] = False,
) -> None:
    """See it work: a server with two tenants, whose simulated devices report. Ctrl-C stops it.

    It prints the address of the dashboard, a token and a request to try. Data and tokens stay for the next demo.

    Example: widerow demo --devices 2000 --rate 1000
    """
    settings = configuration(None, store=f"rocksdb:{data}", host=host, port=port)
    start_logging("warning")
    refuse_if_served(data)
    if fresh:
        _throw_away(data)
    with contextlib.suppress(KeyboardInterrupt):  # while it starts; afterwards the signals are ours
        obey_signals()
        _play(settings, data, kind, devices, rate)


def _play(settings: Config, data: Path, kind: FleetKind, devices: int, rate: float) -> None:
    from widerow.server.run import running  # noqa: PLC0415
    from widerow.service import Service  # noqa: PLC0415

    output.note("starting; the first time, this takes a minute")
    with Service.open(settings, rolls=True) as service:
        warm_up()
        owner = data / SOCKET
        with (
            running(service, host=settings.http.host, port=settings.http.port, socket_path=owner) as url,
            reachable(owner) as path,
            Api.of_socket(path, None, f"{data}") as api,
        ):
            stop = threading.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stop.set())
            actors = cast(devices, rate, SystemClock().now_us(), kind.value)
            prepare(api, actors)
            first, *_ = tenants = [actor.tenant for actor in actors]
            tokens = demo_tokens(api, data, [("operator", ""), ("admin", first), *(("write", name) for name in tenants)])
            for actor in actors:
                actor.token = tokens["write", actor.tenant]
            for actor in actors:
                send_history(url, actor, stop)
                if not stop.is_set():
                    describe_metrics(api, actor)
            for actor in actors:  # so that what is printed shows the present, however long that took
                catch_up(url, actor, stop)
            wait = keep_sending(url, actors, stop)
            output.emit(welcome(url, data, actors, tokens["operator", ""], tokens["admin", first]))
            _watch(actors, stop)
            wait()
    for actor in actors:
        if actor.broken:
            raise Failed(f"sending for {actor.tenant} broke: {actor.broken[0]}") from actor.broken[0]
    output.note(f"stopped; {sum(actor.acknowledged() for actor in actors):,} reports are kept in {data}")


def welcome(url: str, data: Path, actors: list[Actor], operator: str, token: str) -> str:
    """What to do now. Every line can be copied as it is. The dashboard gets an operator's token, to show both tenants."""
    first = actors[0]
    device, interval_us = first.fleet.names[0], first.fleet.interval_us
    seconds = max(MINUTE, 4 * interval_us) // SECOND
    asked = f"{url}/v1/devices/{in_path(device)}/series?{urlencode({'start': f'-{seconds}s'})}"
    store = shlex.quote(f"rocksdb:{data}")
    tenants = ", ".join(f"{a.fleet.devices:,} of {a.tenant}" for a in actors)
    return "\n".join(
        (
            f"Devices: {tenants}; together they send {sum(a.rate for a in actors):,.0f} reports/s.",
            "",
            f"dashboard  {url}/#token={operator}",
            f"token      {token}  (reads and writes as {first.tenant})",
            f"try        curl -s -H {shlex.quote(f'Authorization: Bearer {token}')} {shlex.quote(asked)}",
            f"or         widerow latest {shlex.quote(device)} --tenant {first.tenant} --store {store}",
            "",
            "Ctrl-C stops it.",
        )
    )


def _watch(actors: list[Actor], stop: threading.Event) -> None:
    """A line every ten seconds, until it is over."""
    before, before_s = sum(a.acknowledged() for a in actors), time.monotonic()
    while not stop.wait(LOG_EVERY_S):
        now, now_s = sum(a.acknowledged() for a in actors), time.monotonic()
        refused = sum(a.refused() for a in actors)
        output.note(
            f"{time.strftime('%H:%M:%S')}  {(now - before) / (now_s - before_s):,.0f} reports/s, {now:,} kept, "
            f"{refused:,} refused"
        )
        before, before_s = now, now_s


def _throw_away(data: Path) -> None:
    """Remove an earlier demo's store. Only what looks like one: a wrong path must not cost anybody their files."""
    if not data.exists():
        return
    if any(data.iterdir()) and not (data / "CURRENT").exists():
        raise Failed(f"{data} holds something other than a store", code="not-a-store", todo="give another --data")
    shutil.rmtree(data)
