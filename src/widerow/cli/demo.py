"""`widerow demo`: the platform with a simulated fleet, in one process.

Rule: the server answers before the history is written, and what is printed at the end can be copied as it is.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode, urlsplit

import typer

from widerow.cli import output
from widerow.cli.actors import Actor, began_us, cast, describe_metrics, prepare, set_limits
from widerow.cli.api import Api, in_path
from widerow.cli.connect import configuration
from widerow.cli.demo_tokens import demo_tokens
from widerow.cli.failure import Failed, Misused
from widerow.cli.serve import Host, Port, obey_signals, refuse_if_served, start_logging, warm_up
from widerow.cli.session import duration
from widerow.cli.simulate import FleetKind, Kind
from widerow.config import Config
from widerow.model.times import DAY, MINUTE, SystemClock, about_duration
from widerow.server.sockets import SOCKET, reachable

MUCH_HISTORY = 30_000
"""Reports after which the server starts again: a minute of the present."""
ONLINE_S = 30
"""Longer than a gateway waits before it sends."""
LOG_EVERY_S = 10.0
HISTORY_REPORTS = 1_000_000
"""Of all devices, at most: a history of more devices is shorter."""


def add_to(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    host: Host = None,
    port: Port = None,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The folder of the data.", file_okay=False)] = Path(
        "widerow-demo"
    ),
    devices: Annotated[int, typer.Option("--devices", min=3, max=1_000_000, help="How many devices.")] = 415,
    rate: Annotated[float, typer.Option("--rate", min=0.01, help="Reports per second, all together.")] = 500,
    kind: Kind = FleetKind.FACTORY,
    history: Annotated[
        str, typer.Option("--history", metavar="SPAN", help="How much past to begin with, a day at most: 10m, 6h.")
    ] = "1d",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Throw away what an earlier demo left.", show_default=False)
    ] = False,
) -> None:
    """See it work: a server with three tenants and a day of history, whose simulated devices report. Ctrl-C stops it.

    It prints the address of the dashboard, a token and a request to try. Data and tokens stay for the next demo.

    Example: widerow demo --devices 2000 --rate 1000
    """
    span_us = duration("--history", history)
    if span_us > DAY:
        raise Misused(f"--history {history}: give a day at most")
    span_us = min(span_us, max(1, HISTORY_REPORTS // devices) * MINUTE)
    settings = _soon_stale(configuration(None, store=f"rocksdb:{data}", host=host, port=port), devices / rate)
    start_logging("warning")
    refuse_if_served(data)
    if fresh:
        _throw_away(data)
    with contextlib.suppress(KeyboardInterrupt):  # while it starts; afterwards the signals are ours
        obey_signals()
        _play(settings, data, span_us, lambda began_us: cast(devices, rate, began_us, kind.value))
    for number in (signal.SIGINT, signal.SIGTERM):  # it is over: an interrupt that comes late must not end it with a failure
        signal.signal(number, signal.SIG_IGN)


def _soon_stale(settings: Config, every_s: float) -> Config:
    """Within the minute that somebody looks, a device that falls silent is stale, unless that was set otherwise."""
    if settings.devices != Config().devices:
        return settings
    return replace(settings, devices=replace(settings.devices, online_s=max(ONLINE_S, round(3 * every_s))))


def _play(settings: Config, data: Path, span_us: int, cast_of: Callable[[int], list[Actor]]) -> None:
    from widerow.cli.demo_story import send_bad_reports  # noqa: PLC0415

    stop = threading.Event()
    output.note("starting; the first time, this takes a minute")
    warm_up()
    with _served(settings, data, stop) as (url, api):
        actors = cast_of(began_us(api, SystemClock().now_us()))
        prepare(api, actors)
        first, *_ = tenants = [actor.tenant for actor in actors]
        tokens = demo_tokens(api, data, [("operator", ""), ("admin", first), *(("write", name) for name in tenants)])
        for actor in actors:
            actor.token = tokens["write", actor.tenant]
        output.note(f"The dashboard answers already: {url}/#token={tokens['operator', '']}")
        for actor in actors[:2]:
            send_bad_reports(url, api, actor, SystemClock())
        wrote = _write_history(url, api, actors, span_us, stop)
        for actor in actors:
            describe_metrics(api, actor)
        if wrote < MUCH_HISTORY and not stop.is_set():
            _play_present(url, api, data, actors, tokens, stop)
    if wrote >= MUCH_HISTORY and not stop.is_set():
        # A server's figures are those of its process, and backlog is unlike what devices send: so nothing seems to fall
        # when it ends, and no alert is about it.
        settings = replace(settings, http=replace(settings.http, port=urlsplit(url).port or settings.http.port))
        with _served(settings, data, stop) as (url, api):
            _play_present(url, api, data, actors, tokens, stop)
    for actor in actors:
        if actor.broken:
            raise Failed(f"sending for {actor.tenant} broke: {actor.broken[0]}") from actor.broken[0]
    output.note(f"stopped; {sum(actor.acknowledged() for actor in actors):,} reports are kept in {data}")


@contextlib.contextmanager
def _served(settings: Config, data: Path, stop: threading.Event) -> Iterator[tuple[str, Api]]:
    """A server, and its API. From when it answers, signals set `stop`."""
    from widerow.server.run import running  # noqa: PLC0415
    from widerow.service import Service  # noqa: PLC0415

    owner = data / SOCKET
    with (
        Service.open(settings, rolls=True) as service,
        running(service, host=settings.http.host, port=settings.http.port, socket_path=owner) as url,
        reachable(owner) as path,
        Api.of_socket(path, None, f"{data}") as api,
    ):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        yield url, api


def _play_present(
    url: str, api: Api, data: Path, actors: list[Actor], tokens: dict[tuple[str, str], str], stop: threading.Event
) -> None:
    from widerow.cli.demo_history import fill  # noqa: PLC0415
    from widerow.cli.demo_rules import set_rules  # noqa: PLC0415
    from widerow.cli.demo_story import play  # noqa: PLC0415

    clock = SystemClock()
    fill(url, actors, clock, stop, lambda _reports: None)
    set_limits(api, actors)
    set_rules(api, actors)
    wait = play(url, actors, clock, stop)
    output.emit(welcome(url, data, actors, tokens["operator", ""], tokens["admin", actors[0].tenant]))
    _watch(actors, stop)
    wait()


def _write_history(url: str, api: Api, actors: list[Actor], span_us: int, stop: threading.Event) -> int:
    """Gives how many reports it has."""
    from widerow.cli.demo_history import fill, missing, resume  # noqa: PLC0415

    clock = SystemClock()
    resume(api, actors, clock.now_us(), span_us)
    bodies = missing(actors, clock.now_us())
    if not bodies:
        return 0
    minutes = max(body.ticks.stop for body in bodies) - min(body.ticks.start for body in bodies)
    what = f"{about_duration(minutes * MINUTE)} of history"
    output.note(f"writing {what}, a report a minute of each device")
    began_s = time.monotonic()
    with output.progress(what, sum(len(body.ticks) * len(body.places) for body in bodies)) as advance:
        fill(url, actors, clock, stop, advance)
    wrote = sum(actor.acknowledged() for actor in actors)
    output.note(f"wrote {wrote:,} reports in {time.monotonic() - began_s:.1f} s")
    return wrote


def welcome(url: str, data: Path, actors: list[Actor], operator: str, token: str) -> str:
    """What to do now. Every line can be copied as it is. The dashboard gets an operator's token, to show both tenants."""
    first = actors[0]
    device = first.present.names[0]
    asked = f"{url}/v1/devices/{in_path(device)}/series?{urlencode({'start': '-10m'})}"
    store = shlex.quote(f"rocksdb:{data}")
    tenants = ", ".join(f"{a.present.devices:,} of {a.tenant}" for a in actors)
    return "\n".join(
        (
            f"Devices: {tenants}; together they send {sum(a.rate for a in actors):,.0f} reports/s.",
            *story(*actors),
            "",
            f"dashboard  {url}/#token={operator}",
            f"token      {token}  (reads and writes as {first.tenant})",
            f"try        curl -s -H {shlex.quote(f'Authorization: Bearer {token}')} {shlex.quote(asked)}",
            f"or         widerow latest {shlex.quote(device)} --tenant {first.tenant} --store {store}",
            "",
            "Ctrl-C stops it.",
        )
    )


def story(first: Actor, second: Actor, third: Actor) -> list[str]:
    """What there is to see."""
    from widerow.cli.demo_story import MAD_PER_S  # noqa: PLC0415

    told = [f"{_named(first, place)} sends {MAD_PER_S} reports/s and is limited" for place in first.mad]
    told += [f"{_named(second, place)} falls silent" for place in second.silent]
    if third.gateway:
        told.append(f"{third.tenant} is near its {third.limits['writes_per_s']:,} reports/s")
    return [f"You will see: {', '.join([*told, 'bad reports are among the dead letters'])}."]


def _named(actor: Actor, place: int) -> str:
    return f"{actor.present.names[place]} of {actor.tenant}"


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
