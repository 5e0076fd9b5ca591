"""The demo's cast: three tenants with their devices, and which of these the story is about.

Rule 1: everything is done through the API, as a user would.
Rule 2: starting again with the same data goes on where it was: what exists stays, and values go on from where they were.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from widerow.cli.api import Api, in_path
from widerow.cli.failure import Failed
from widerow.model.times import DAY, MINUTE, MS, SECOND, bucket_start, parse_rfc3339

if TYPE_CHECKING:
    from widerow.simulate.drive import DriveReport
    from widerow.simulate.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Role:
    tenant: str
    display_name: str
    share: float
    """Of all devices."""
    kinds: tuple[str, ...]
    """Of its devices. No two of them give one metric different units."""


CAST = {
    "factory": (
        Role("acme", "Acme Pressworks", 0.5, ("press", "conveyor", "climate", "power_meter")),
        Role("globex", "Globex Foods", 0.35, ("oven", "pump", "climate")),
        Role("initech", "Initech Energy", 0.15, ("power_meter", "climate")),
    ),
    "trucks": (
        Role("acme", "Acme Haulage", 0.5, ("truck",)),
        Role("globex", "Globex Freight", 0.35, ("truck",)),
        Role("initech", "Initech Couriers", 0.15, ("truck",)),
    ),
}
"""By the kind of fleet. In the first tenant a device goes mad, in the second one falls silent, the third is near a limit."""
PACE_US = 10 * SECOND
"""Values wander as fast in the history as in the present."""
NEAR = 0.9
"""The share of its limit that the third tenant sends."""
GATEWAY_S = 20
"""A gateway of the third tenant collects for so long, and then sends everything at once."""
REPORTS = 1000
"""Devices, and reports, in a request at most."""


@dataclass
class Actor:
    """One tenant: its fleet, and what was sent so far."""

    tenant: str
    display_name: str
    past: Fleet
    """With a report a minute."""
    present: Fleet
    mad: list[int] = field(default_factory=list)
    """Numbers of devices, like the next three: it sends far too much after a while."""
    silent: list[int] = field(default_factory=list)
    """It stops after a while."""
    gateway: list[int] = field(default_factory=list)
    """Those behind the gateway that sends now and then."""
    paused: list[int] = field(default_factory=list)
    """It has a gap of hours in its history."""
    token: str = ""
    filled: int = 0
    """Ticks of the past that are stored."""
    sent: DriveReport | None = None
    """By most devices, in the present."""
    broken: list[BaseException] = field(default_factory=list)
    _acknowledged: int = 0
    _refused: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def rate(self) -> float:
        return self.present.devices * SECOND / self.present.interval_us

    @property
    def crowd(self) -> list[int]:
        """Devices that nothing happens to."""
        others = {*self.silent, *self.gateway}
        return [place for place in range(self.present.devices) if place not in others]

    @property
    def limits(self) -> dict[str, int]:
        """Which it is near: so that all it sends fits, but not all that the gateway sends at once."""
        if not self.gateway:
            return {}
        at_once = len(self.gateway) * GATEWAY_S * SECOND / self.present.interval_us
        return {"writes_per_s": max(1, round(self.rate / NEAR)), "writes_burst": max(1, round(0.92 * at_once))}

    def count(self, acknowledged: int, refused: int) -> None:
        with self._lock:
            self._acknowledged += acknowledged
            self._refused += refused

    def acknowledged(self) -> int:
        return self._acknowledged + (self.sent.acknowledged if self.sent else 0)

    def refused(self) -> int:
        return self._refused + (self.sent.refused + self.sent.failed if self.sent else 0)


def cast(devices: int, rate: float, began_us: int, kind: str = "factory") -> list[Actor]:
    """The tenants with their fleets, whose history begins a day before the first demo. Each device reports every devices /
    rate seconds.
    """
    from widerow.simulate.fleet import Fleet  # noqa: PLC0415

    start_us, interval_us = bucket_start(began_us, MINUTE) - DAY, max(MS, round(SECOND * devices / rate))
    actors = []
    left = devices
    for place, role in enumerate(CAST[kind]):
        is_last = place == len(CAST[kind]) - 1
        n = max(1, left if is_last else round(devices * role.share))
        left -= n
        # Nothing comes twice, so that the number of reports that were acknowledged is the number of those that are kept.
        past, present = (
            Fleet(
                1 + place, n, start_us=start_us, kinds=role.kinds, interval_us=us, gaps=gaps, duplicates=0.0, pace_us=PACE_US
            )
            for us, gaps in ((MINUTE, 0.0), (interval_us, 0.01))
        )
        actors.append(Actor(role.tenant, role.display_name, past, present))
    _choose(*actors)
    return actors


def _choose(first: Actor, second: Actor, third: Actor) -> None:
    """The devices of the story. A fleet too small for one does without."""
    presses = _places(first.present)
    first.mad = presses[len(presses) // 3 :][:1]
    first.paused = presses[2 * len(presses) // 3 :][:1]
    ovens = _places(second.present)
    second.silent = ovens[len(ovens) // 2 :][:1] if second.present.devices > 1 else []
    n = third.present.devices
    third.gateway = list(range(n))[-max(1, n // 4) :] if n > 1 else []


def _places(fleet: Fleet) -> list[int]:
    """The devices of the first kind, those with the tamest names if there are any."""
    kind = fleet.kinds[0].name
    mine = [place for place, name in enumerate(fleet.types()) if name == kind]
    return [place for place in mine if fleet.names[place].startswith(f"{kind}-")] or mine


def began_us(api: Api, now_us: int) -> int:
    """When the first demo with this data began: it made the first tenant."""
    known = {t["name"]: t["created"] for t in api.get("/v1/admin/tenants")["tenants"]}
    created = known.get(CAST["factory"][0].tenant)
    return parse_rfc3339(created) if created else now_us


def prepare(api: Api, actors: Sequence[Actor]) -> None:
    """Tenants and devices. History is no test of limits: they come later."""
    known = {t["name"] for t in api.get("/v1/admin/tenants")["tenants"]}
    for actor in actors:
        if actor.tenant not in known:
            api.post("/v1/admin/tenants", {"name": actor.tenant, "display_name": actor.display_name})
        elif actor.limits:
            _limit(api, actor, dict.fromkeys(actor.limits, 0))
        _describe_devices(api, actor)


def set_limits(api: Api, actors: Sequence[Actor]) -> None:
    for actor in actors:
        if actor.limits:
            _limit(api, actor, actor.limits)


def _limit(api: Api, actor: Actor, limits: dict[str, int]) -> None:
    api.patch(f"/v1/admin/tenants/{in_path(actor.tenant)}", {"limits": limits})


def _describe_devices(api: Api, actor: Actor) -> None:
    from widerow.catalog.forms import to_json  # noqa: PLC0415

    records = actor.present.device_records()
    for start in range(0, len(records), REPORTS):
        forms = [to_json(device) for device in records[start : start + REPORTS]]
        answer = api.post("/v1/devices/batch", {"devices": forms}, tenant=actor.tenant)
        if answer["refused"]:
            refused = next(r for r in answer["results"] if r["outcome"] == "refused")
            raise Failed(f"the demo's devices were refused: {refused['reason']}", code=refused["code"])


def describe_metrics(api: Api, actor: Actor) -> None:
    """Units and kinds. A metric is known from its first report on, so this comes after the history."""
    known: dict[str, Any] = {m["name"]: m for m in api.get("/v1/metrics", tenant=actor.tenant)["metrics"]}
    for metric in actor.present.metric_records():
        found, form = known.get(metric.name), {"kind": metric.kind.value, "unit": metric.unit}
        if found and any(found[key] != value for key, value in form.items()):
            api.patch(f"/v1/metrics/{in_path(metric.name)}", form, tenant=actor.tenant)
