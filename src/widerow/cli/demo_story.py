"""The demo's present: devices that report, and what happens to some of them.

Rule 1: everything comes through the API, as from real devices: nothing of the server knows that this is a demo.
Rule 2: what the story is about happens within half a minute, and stays so.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from widerow.cli.actors import GATEWAY_S, Actor
from widerow.cli.api import Api
from widerow.model.times import DAY, SECOND, Clock, format_time

if TYPE_CHECKING:
    from widerow.simulate.drive import DriveReport
    from widerow.simulate.fleet import Fleet

FORMAT = "json"
"""With plain names of metrics; line protocol would put the type of the device in front."""
MAD_AFTER_S = 10
MAD_PER_S = 250
SILENT_AFTER_S = 10
_EVER_S = 1e9


@dataclass(frozen=True, slots=True)
class Voice:
    """Some devices that collect for `every_s` and send it all at once, from a moment on until another."""

    actor: Actor
    fleet: Fleet
    places: list[int]
    every_s: float
    from_s: float = 0.0
    until_s: float = _EVER_S


def voices(actor: Actor) -> Iterator[Voice]:
    """Those of a tenant that are not like the others."""
    if actor.mad:
        yield Voice(actor, _hurried(actor.present), actor.mad, 0.2, from_s=MAD_AFTER_S)
    if actor.silent:
        yield Voice(actor, actor.present, actor.silent, 1.0, until_s=SILENT_AFTER_S)
    if actor.gateway:
        yield Voice(actor, actor.present, actor.gateway, GATEWAY_S)


def _hurried(fleet: Fleet) -> Fleet:
    from widerow.simulate.fleet import Fleet  # noqa: PLC0415

    kinds = tuple(kind.name for kind in fleet.kinds)
    interval_us = SECOND // MAD_PER_S
    return Fleet(
        fleet.seed, fleet.devices, start_us=fleet.start_us, kinds=kinds, interval_us=interval_us, pace_us=fleet.pace_us
    )


def play(target: str, actors: Sequence[Actor], clock: Clock, stop: threading.Event) -> Callable[[], None]:
    """Let them all report, in threads, until `stop`. Gives what waits for their end."""
    parts = [(actor, _crowd(target, actor, clock, stop)) for actor in actors]
    parts += [(actor, _speech(target, voice, clock, stop)) for actor in actors for voice in voices(actor)]
    threads = [
        threading.Thread(target=_guarded, args=(actor, part, stop), name=f"demo-{actor.tenant}") for actor, part in parts
    ]
    for thread in threads:
        thread.start()

    def wait() -> None:
        for thread in threads:
            thread.join()

    return wait


def _guarded(actor: Actor, part: Callable[[], None], stop: threading.Event) -> None:
    try:
        part()
    except Exception as error:  # noqa: BLE001 - the main thread says it
        actor.broken.append(error)
        stop.set()


def _tick(fleet: Fleet, clock: Clock) -> int:
    return (clock.now_us() - fleet.start_us) // fleet.interval_us


def _crowd(target: str, actor: Actor, clock: Clock, stop: threading.Event) -> Callable[[], None]:
    from widerow.simulate.drive import drive  # noqa: PLC0415
    from widerow.simulate.part import Part  # noqa: PLC0415

    def progress(report: DriveReport) -> None:
        actor.sent = report

    def send() -> None:
        crowd = Part(actor.present, actor.crowd)
        rate = crowd.devices * SECOND / actor.present.interval_us
        actor.sent = drive(
            target,
            crowd,
            token=actor.token,
            rate=rate,
            format=FORMAT,
            # A tenth of a second's reports in a request, so that what is shown moves.
            lines=max(1, min(1000, round(rate / 10))),
            connections=1,
            first_tick=_tick(actor.present, clock),
            progress=progress,
            stop=stop,
        )

    return send


def _speech(target: str, voice: Voice, clock: Clock, stop: threading.Event) -> Callable[[], None]:
    from widerow.simulate.answer import kept_reports  # noqa: PLC0415
    from widerow.simulate.encode import FORMATS  # noqa: PLC0415
    from widerow.simulate.wire import Connection, Target, TransportError  # noqa: PLC0415

    form, places = FORMATS[FORMAT], np.array(voice.places)
    headers = {"Content-Type": form.content_type, "Authorization": f"Bearer {voice.actor.token}"}

    def send() -> None:
        if stop.wait(voice.from_s):
            return
        ends_s = time.monotonic() + voice.until_s
        sent = _tick(voice.fleet, clock)
        with Connection(Target.of(target), headers) as connection:
            while not stop.wait(voice.every_s) and time.monotonic() < ends_s:
                now = _tick(voice.fleet, clock)
                batch = voice.fleet.made(range(sent, now), places)
                sent = now
                if not len(batch):
                    continue
                try:
                    kept = kept_reports(connection.request("POST", form.path, form.encode(batch, [])), len(batch))
                except TransportError:
                    kept = 0
                voice.actor.count(kept, len(batch) - kept)

    return send


def send_bad_reports(target: str, api: Api, actor: Actor, clock: Clock) -> None:
    """What becomes dead letters, of several kinds, if there are none yet."""
    from widerow.simulate.wire import Connection, Target  # noqa: PLC0415

    if api.get("/v1/deadletters", tenant=actor.tenant, limit=1)["letters"]:
        return
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {actor.token}"}
    with Connection(Target.of(target), headers) as connection:
        for body in bad_reports(actor, clock.now_us()):
            connection.request("POST", "/v1/write", body)


def bad_reports(actor: Actor, now_us: int) -> list[bytes]:
    """Bodies as faulty devices send them."""
    some = actor.present.names.to_list()
    name, other = some[0], some[-1]
    soon, old = format_time(now_us + 2 * DAY), format_time(now_us - 400 * DAY)
    forms = [
        {"device": name, "time": soon, "values": {"temperature": 21.5}},
        {"device": other, "time": old, "values": {"temperature": 21.5}},
        {"device": name, "time": "yesterday at noon", "values": {"temperature": 21.5}},
        {"device": other, "values": {"temperature": [21.5, 21.6]}},
        {"device": "", "values": {"temperature": 21.5}},
    ]
    cut = json.dumps({"device": name, "values": {"temperature": 21.5, "humidity": 45.1}})[:-12]
    return [*(json.dumps(form).encode() for form in forms), cut.encode()]
