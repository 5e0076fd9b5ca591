"""A described fleet: which devices report how often, and what is asked of them. Read from TOML.

Rule 1: a description is data. `Fleet` and its parts are immutable and hold microseconds and counts, never text to be parsed.
Rule 2: a fault in a file is a `ConfigError` of one line that names the place in the file and says what may stand there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import count

from widerow.model.times import DAY, HOUR, SECOND
from widerow.plan.sections import Section, document

QUESTIONS: Mapping[str, str] = {
    "latest": "the newest values of one device",
    "device_hour": "one device, the last hour",
    "device_day": "one device, the last 24 hours",
    "tenant_latest": "all devices of a tenant, their newest values",
    "metric_fleet": "one metric over the fleet, the last hour",
}
MOST_DEVICES = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """Devices that are alike."""

    name: str
    devices: int
    interval_us: int = 10 * SECOND
    metrics: int = 10
    text_bytes: int = 0
    """Text in a report, besides numbers."""
    id: str = "device-{n:06}"
    """Digits of `{hex:8}` are random, and others in each class."""
    types: int = 1
    locations: int = 1
    growth_per_year: float = 0.0
    at_night: float = 1.0
    """Reports at 3:00 UTC as a share of those at 15:00."""

    @property
    def reports_per_s(self) -> float:
        """Of all of them, by day."""
        return self.devices * SECOND / self.interval_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    """Devices of a class that send `factor` times their usual rate for a while."""

    kind: str
    devices: int = 1
    factor: float = 100.0
    from_us: int = 0
    for_us: int = HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The whole description."""

    classes: tuple[DeviceClass, ...]
    tenants: int = 1
    largest_tenant: float = 0.0
    """The share of devices of the largest tenant; 0: all have as many."""
    retention_us: int = 30 * DAY
    hot: tuple[Hot, ...] = ()
    questions: Mapping[str, float] = field(default_factory=dict)
    """How often each is asked a second; see `QUESTIONS`."""

    @property
    def devices(self) -> int:
        return sum(kind.devices for kind in self.classes)

    @property
    def reports_per_s(self) -> float:
        return sum(kind.reports_per_s for kind in self.classes)

    @property
    def metrics_per_s(self) -> float:
        return sum(kind.reports_per_s * kind.metrics for kind in self.classes)


def example() -> str:
    """A fleet's description with a remark on each line."""
    return files("widerow.plan").joinpath("example.toml").read_text(encoding="utf-8")


def example_fleet() -> Fleet:
    return read_fleet(example(), "the example")


def simple_fleet(devices: int, interval_us: int, metrics: int, retention_us: int) -> Fleet:
    """A fleet of one class and one tenant."""
    return Fleet(
        classes=(DeviceClass(name="device", devices=devices, interval_us=interval_us, metrics=metrics),),
        retention_us=retention_us,
    )


def read_fleet(text: str, source: str) -> Fleet:
    """The fleet that TOML describes. `source` names the file in errors."""
    top = document(text, source)
    classes: list[DeviceClass] = []
    for section in top.sections("class"):
        classes.append(_device_class(section, classes))
    if not classes:
        raise top.wrong("class", "describe at least one class of devices, as [[class]] with devices = 1000")
    hot = tuple(_hot(section, classes) for section in top.sections("hot"))
    asked = top.section("questions")
    given = set(asked.given)
    rates = {name: asked.number(name, 0.0, low=0.0, high=1e9) for name in QUESTIONS}
    fleet = Fleet(
        classes=tuple(classes),
        tenants=top.whole("tenants", 1, low=1, high=1_000_000),
        largest_tenant=top.number("largest_tenant", 0.0, low=0.0, high=1.0),
        retention_us=top.retention("retention", 30 * DAY),
        hot=hot,
        questions={name: rate for name, rate in rates.items() if name in given},
    )
    for section in (top, asked):
        section.end()
    if fleet.tenants > fleet.devices:
        raise top.wrong("tenants", f"{fleet.tenants:,} are more than the devices: give {fleet.devices:,} at most")
    if 0 < fleet.largest_tenant < 1 / fleet.tenants:
        even = f"an even share, which is 1/{fleet.tenants}"
        raise top.wrong("largest_tenant", f"{fleet.largest_tenant:g} is less than {even}: give more, or leave it out")
    return fleet


def _device_class(section: Section, before: Sequence[DeviceClass]) -> DeviceClass:
    name = section.text("name", f"class-{len(before) + 1}" if before else "device")
    kind = DeviceClass(
        name=name,
        devices=section.whole("devices", None, low=1, high=MOST_DEVICES),
        interval_us=section.duration("interval", 10 * SECOND),
        metrics=section.whole("metrics", 10, low=1, high=10_000),
        text_bytes=section.whole("text_bytes", 0, low=0, high=1 << 20),
        id=section.text("id", f"{name}-{{n:06}}"),
        types=section.whole("types", 1, low=1, high=10_000),
        locations=section.whole("locations", 1, low=1, high=1_000_000),
        growth_per_year=section.number("growth_per_year", 0.0, low=-1.0, high=1000.0),
        at_night=section.number("at_night", 1.0, low=0.0, high=1.0),
    )
    if kind.name in [other.name for other in before]:
        raise section.wrong("name", f"another class is called {kind.name!r}, too: give each a name of its own")
    _check_id(section, kind, before)
    section.end()
    return kind


def _check_id(section: Section, kind: DeviceClass, before: Sequence[DeviceClass]) -> None:
    """Each device has a name of its own. `n` random digits tell apart 4^n devices: of more, two are likely to be alike."""
    parts = list(_ID.finditer(kind.id))
    if not parts:
        raise section.wrong("id", f"{kind.id!r} gives all devices one name: put {{n}}, {{n:06}} or {{hex:8}} into it")
    if not any(part["n"] for part in parts):
        devices = kind.devices + sum(other.devices for other in before if other.id == kind.id)
        if devices > 4 ** max(int(part["digits"]) for part in parts):
            enough = next(digits for digits in count(1) if 4**digits >= devices)
            raise section.wrong(
                "id", f"{kind.id!r} gives some of {devices:,} devices one name: put {{hex:{enough}}} or {{n}} into it"
            )
    for other in before:
        last = min(kind.devices, other.devices) - 1
        if "{hex:" not in kind.id and _numbered(kind.id, last) == _numbered(other.id, last):
            name = f"{kind.id!r} calls a device {_numbered(kind.id, last)!r}, as class {other.name!r} does"
            raise section.wrong("id", f"{name}: give it another id, such as {kind.name + '-{n:06}'!r}")


def _numbered(pattern: str, number: int) -> str:
    return _ID.sub(lambda part: f"{number:0{part['width'] or 1}d}" if part["n"] else part[0], pattern)


_ID = re.compile(r"\{(?P<n>n)(?::0?(?P<width>[1-9]))?\}|\{hex:(?P<digits>[1-9][0-9]?)\}")


def _hot(section: Section, classes: Sequence[DeviceClass]) -> Hot:
    hot = Hot(
        kind=section.text("class", classes[0].name),
        devices=section.whole("devices", 1, low=1, high=MOST_DEVICES),
        factor=section.number("factor", 100.0, low=1.0, high=1e9),
        from_us=section.duration("from", 0),
        for_us=section.duration("for", HOUR),
    )
    most = {kind.name: kind.devices for kind in classes}
    if hot.kind not in most:
        raise section.wrong("class", f"there is no class {hot.kind!r}; there are {', '.join(most)}")
    if hot.devices > most[hot.kind]:
        raise section.wrong(
            "devices", f"{hot.devices:,} are more than class {hot.kind!r} has: give {most[hot.kind]:,} at most"
        )
    section.end()
    return hot
