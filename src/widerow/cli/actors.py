"""The demo's cast: two tenants with their devices, and the threads that send their reports.

Rule 1: everything is done through the API, as a user would.
Rule 2: starting again with the same data goes on where it was: what exists stays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from widerow.cli.api import Api, in_path
from widerow.cli.failure import Failed
from widerow.model.times import MINUTE, MS, SECOND, SystemClock, bucket_start

if TYPE_CHECKING:
    from widerow.simulate.drive import DriveReport
    from widerow.simulate.fleet import Fleet

CAST = {
    "factory": (("acme", "Acme Pressworks", 0.6), ("globex", "Globex Foods", 0.4)),
    "trucks": (("acme", "Acme Haulage", 0.6), ("globex", "Globex Freight", 0.4)),
}
"""By the kind of fleet, the tenants: name, name for people, share of the devices."""
HISTORY_US = 10 * MINUTE
HISTORY_REPORTS = 30_000
"""What is sent first, so that there is something to see: at most so long, and so many."""
FORMAT = "json"
"""With plain names of metrics; line protocol would put the type of the device in front."""


@dataclass
class Actor:
    """One tenant: its fleet, and what was sent so far."""

    tenant: str
    display_name: str
    fleet: Fleet
    rate: float
    history: int
    """Ticks that lie in the past: when the demo starts, and then those that are sent."""
    token: str = ""
    sent: DriveReport | None = None
    earlier: int = 0
    """Reports of the history."""
    broken: list[BaseException] = field(default_factory=list)

    def acknowledged(self) -> int:
        return self.earlier + (self.sent.acknowledged if self.sent else 0)

    def refused(self) -> int:
        return self.sent.refused + self.sent.failed if self.sent else 0


def cast(devices: int, rate: float, now_us: int, kind: str = "factory") -> list[Actor]:
    """The tenants with their fleets. Each device reports every devices / rate seconds."""
    from widerow.simulate.fleet import Fleet  # noqa: PLC0415
    from widerow.simulate.kinds import FLEETS  # noqa: PLC0415

    interval_us = max(MS, round(SECOND * devices / rate))
    history = max(1, min(HISTORY_US // interval_us, HISTORY_REPORTS // devices))
    actors = []
    left = devices
    for place, (tenant, display_name, share) in enumerate(CAST[kind]):
        n = max(1, round(devices * share)) if place < len(CAST[kind]) - 1 else max(1, left)
        left -= n
        # From a whole second on, so that times have as many decimals as a sensor gives. Nothing comes twice, so that the
        # number of reports that were acknowledged is the number of those that are kept.
        start_us = bucket_start(now_us, SECOND) - history * interval_us
        fleet = Fleet(1 + place, n, start_us=start_us, kinds=FLEETS[kind], interval_us=interval_us, duplicates=0.0)
        actors.append(Actor(tenant, display_name, fleet, n * SECOND / interval_us, history))
    return actors


def prepare(api: Api, actors: list[Actor]) -> None:
    """Tenants and devices."""
    known = {t["name"] for t in api.get("/v1/admin/tenants")["tenants"]}
    for actor in actors:
        if actor.tenant not in known:
            api.post("/v1/admin/tenants", {"name": actor.tenant, "display_name": actor.display_name})
        _describe_devices(api, actor)


def _describe_devices(api: Api, actor: Actor) -> None:
    from widerow.catalog.forms import to_json  # noqa: PLC0415

    records = actor.fleet.device_records()
    for start in range(0, len(records), 1000):
        forms = [to_json(device) for device in records[start : start + 1000]]
        answer = api.post("/v1/devices/batch", {"devices": forms}, tenant=actor.tenant)
        if answer["refused"]:
            refused = next(r for r in answer["results"] if r["outcome"] == "refused")
            raise Failed(f"the demo's devices were refused: {refused['reason']}", code=refused["code"])


def describe_metrics(api: Api, actor: Actor) -> None:
    """Units and kinds. A metric is known from its first report on, so this comes after the history."""
    known: dict[str, Any] = {m["name"]: m for m in api.get("/v1/metrics", tenant=actor.tenant)["metrics"]}
    for metric in actor.fleet.metric_records():
        found, form = known.get(metric.name), {"kind": metric.kind.value, "unit": metric.unit}
        if found and any(found[key] != value for key, value in form.items()):
            api.patch(f"/v1/metrics/{in_path(metric.name)}", form, tenant=actor.tenant)


def send_history(target: str, actor: Actor, stop: threading.Event) -> None:
    """The past, as fast as it can be sent."""
    _send_ticks(target, actor, 0, actor.history, stop)
    if not actor.earlier and not stop.is_set():
        raise Failed(f"none of the reports of {actor.tenant} was taken")


def catch_up(target: str, actor: Actor, stop: threading.Event) -> None:
    """What became past while something else was sent."""
    now = (SystemClock().now_us() - actor.fleet.start_us) // actor.fleet.interval_us
    _send_ticks(target, actor, actor.history, now, stop)
    actor.history = max(actor.history, now)


def _send_ticks(target: str, actor: Actor, first: int, end: int, stop: threading.Event) -> None:
    from widerow.simulate.drive import drive  # noqa: PLC0415

    if end <= first:
        return
    done = drive(
        target,
        actor.fleet,
        token=actor.token,
        format=FORMAT,
        lines=1000,
        connections=1,
        first_tick=first,
        reports=(end - first) * actor.fleet.devices,
        stop=stop,
    )
    actor.earlier += done.acknowledged


def keep_sending(target: str, actors: list[Actor], stop: threading.Event) -> Callable[[], None]:
    """The present, at the rate that was asked for, in a thread for each tenant. Gives what waits for their end."""
    threads = [threading.Thread(target=_send, args=(target, actor, stop), name=f"demo-{actor.tenant}") for actor in actors]
    for thread in threads:
        thread.start()

    def wait() -> None:
        for thread in threads:
            thread.join()

    return wait


def _send(target: str, actor: Actor, stop: threading.Event) -> None:
    from widerow.simulate.drive import drive  # noqa: PLC0415

    def progress(report: DriveReport) -> None:
        actor.sent = report

    try:
        catch_up(target, actor, stop)
        actor.sent = drive(
            target,
            actor.fleet,
            token=actor.token,
            rate=actor.rate,
            format=FORMAT,
            # A tenth of a second's reports in a request, so that what is shown moves.
            lines=max(1, min(1000, round(actor.rate / 10))),
            connections=1,
            first_tick=actor.history,
            progress=progress,
            stop=stop,
        )
    except Exception as error:  # noqa: BLE001 - the main thread says it
        actor.broken.append(error)
        stop.set()
