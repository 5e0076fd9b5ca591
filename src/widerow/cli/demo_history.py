"""The demo's past: a report a minute of each device, sent as the backlog that it is.

Rule 1: the oldest comes first, so that a history that was interrupted is known by its newest reports, and goes on there.
Rule 2: a body holds devices of one type: without columns that are empty it takes a quarter of the time.
Rule 3: `stop` ends it with the bodies under way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from widerow.cli.actors import Actor
from widerow.cli.api import Api
from widerow.cli.failure import Failed
from widerow.model.arrays import Ints
from widerow.model.times import HOUR, MINUTE, SECOND, Clock

if TYPE_CHECKING:
    from widerow.model.batch import Batch
    from widerow.simulate.wire import Target

_FORMAT = "arrow"
_BODY_REPORTS = 12_000
_CONNECTIONS = 2
_TRIES = 20
_PAUSE_US, _PAUSE_AFTER_US = 2 * HOUR, 17 * HOUR
"""How long one device was away, and when, after the history began."""


@dataclass(frozen=True, slots=True)
class Body:
    """What to send at once."""

    actor: Actor
    ticks: range
    places: Ints

    def batch(self) -> Batch:
        """Device by device, since each has its rows for itself."""
        fleet = self.actor.past
        batch = fleet.made(self.ticks, self.places)
        codes = np.flatnonzero(np.isin(self.places, self.actor.paused))
        from_us = fleet.start_us + _PAUSE_AFTER_US
        paused = np.isin(batch.device.codes, codes) & (batch.time_us >= from_us) & (batch.time_us < from_us + _PAUSE_US)
        order = np.argsort(batch.device.codes, kind="stable")
        return batch.take(order[~paused[order]])


def resume(api: Api, actors: Sequence[Actor], now_us: int, span_us: int) -> None:
    """Look how much of the span is stored already."""
    for actor in actors:
        fleet = actor.past
        since = (max(0, now_us - span_us - fleet.start_us)) // MINUTE
        actor.filled = max(since, _stored(api, actor))


def missing(actors: Sequence[Actor], now_us: int) -> list[Body]:
    """What of the past is not stored yet, the oldest first. A minute that is not over is no past."""
    bodies = [body for actor in actors for body in _bodies(actor, (now_us - actor.past.start_us) // MINUTE)]
    return sorted(bodies, key=lambda body: body.ticks.start)


def fill(
    target: str, actors: Sequence[Actor], clock: Clock, stop: threading.Event, advance: Callable[[float], None]
) -> None:
    """Send all that is missing, and then what has become past meanwhile. `advance` is told of reports."""
    while not stop.is_set() and (bodies := missing(actors, clock.now_us())):
        _send_all(target, bodies, stop, advance)
        for body in bodies:
            body.actor.filled = max(body.actor.filled, body.ticks.stop)


def _bodies(actor: Actor, end: int) -> Iterator[Body]:
    kinds = len(actor.past.kinds)
    for k in range(min(kinds, actor.past.devices)):
        places = np.arange(k, actor.past.devices, kinds)
        ticks = max(1, _BODY_REPORTS // len(places))
        for first in range(actor.filled, end, ticks):
            for some in np.array_split(places, -(-len(places) // _BODY_REPORTS)):
                yield Body(actor, range(first, min(first + ticks, end)), some)


def _stored(api: Api, actor: Actor) -> int:
    """Up to which tick every type of device has reported. One of each is asked."""
    types = actor.past.types()
    of_type = {types[place]: actor.past.names[place] for place in reversed(actor.crowd)}
    newest: dict[str, int] = {}
    for series in api.post("/v1/latest", {"devices": list(of_type.values())}, tenant=actor.tenant, epoch="us")["series"]:
        for time_us, *_ in series["points"]:
            newest[series["device"]] = max(newest.get(series["device"], 0), time_us)
    if len(newest) < len(of_type):
        return 0
    return max(0, -(-(min(newest.values()) + SECOND - actor.past.start_us) // MINUTE))


def _send_all(target: str, bodies: Sequence[Body], stop: threading.Event, advance: Callable[[float], None]) -> None:
    from widerow.simulate.wire import Target  # noqa: PLC0415

    left, lock, broken = iter(bodies), threading.Lock(), list[Exception]()
    where = Target.of(target)

    def work() -> None:
        try:
            while not stop.is_set() and not broken:
                with lock:
                    body = next(left, None)
                if body is None:
                    return
                advance(_send(where, body, stop))
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            broken.append(error)

    threads = [threading.Thread(target=work, name="demo-history") for _ in range(_CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if broken:
        raise broken[0]


def _send(target: Target, body: Body, stop: threading.Event) -> int:
    """Until it is taken, or `stop`. Gives how many reports were."""
    from widerow.simulate.answer import RETRY_STATUSES, kept_reports, retry_after_s  # noqa: PLC0415
    from widerow.simulate.encode import FORMATS  # noqa: PLC0415
    from widerow.simulate.wire import Connection, TransportError  # noqa: PLC0415

    form, batch = FORMATS[_FORMAT], body.batch()
    data = form.encode(batch, [])
    headers = {"Content-Type": form.content_type, "Authorization": f"Bearer {body.actor.token}"}
    with Connection(target, headers) as connection:
        for _ in range(_TRIES):
            wait_s = 1.0
            try:
                answer = connection.request("POST", form.path, data)
            except TransportError as error:  # a machine that is busy otherwise; to send it again changes nothing
                said = str(error)
            else:
                if answer.status not in RETRY_STATUSES:
                    break
                said, wait_s = f"{answer.status}", retry_after_s(answer, 5.0)
            if stop.wait(wait_s):
                return 0
        else:
            raise Failed(f"the history of {body.actor.tenant} was not taken: {said}")
    kept = kept_reports(answer, len(batch))
    if not kept:
        raise Failed(f"none of the reports of {body.actor.tenant} was taken: {answer.body[:200]!r}")
    body.actor.count(kept, len(batch) - kept)
    return kept
