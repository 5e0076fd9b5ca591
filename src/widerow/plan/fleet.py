"""A described fleet: which devices report how often, and what is asked of them. Read from TOML.

Rule 1: a description is data. `Fleet` and its parts are immutable and hold microseconds and counts, never text to be parsed.
Rule 2: a fault in a file is a `ConfigError` of one line that names the place in the file and says what may stand there.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from widerow.model.errors import ConfigError, Rejected
from widerow.model.times import DAY, HOUR, SECOND, parse_duration

QUESTIONS: Mapping[str, str] = {
    "latest": "the newest values of one device",
    "device_hour": "one device, the last hour",
    "device_day": "one device, the last 24 hours",
    "tenant_latest": "all devices of a tenant, their newest values",
    "metric_fleet": "one metric over the fleet, the last hour",
}
FOREVER = 0
"""A retention without end."""
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
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: {error}") from None
    top = _Section(document, source, "")
    classes = tuple(_device_class(section) for section in top.sections("class"))
    if not classes:
        raise top.wrong("class", "describe at least one class of devices, as [[class]] with devices = 1000")
    names = [kind.name for kind in classes]
    hot = tuple(_hot(section, names) for section in top.sections("hot"))
    asked = _Section(top.table("questions"), source, "questions.")
    given = set(asked.given)
    rates = {name: asked.number(name, 0.0, low=0.0, high=1e9) for name in QUESTIONS}
    fleet = Fleet(
        classes=classes,
        tenants=top.whole("tenants", 1, low=1, high=1_000_000),
        largest_tenant=top.number("largest_tenant", 0.0, low=0.0, high=1.0),
        retention_us=top.retention("retention", 30 * DAY),
        hot=hot,
        questions={name: rate for name, rate in rates.items() if name in given},
    )
    for section in (top, asked):
        section.end()
    return fleet


def _device_class(section: _Section) -> DeviceClass:
    number = section.place
    kind = DeviceClass(
        name=section.text("name", "device" if number == "class[1]." else f"class-{number[6:-2]}"),
        devices=section.whole("devices", None, low=1, high=MOST_DEVICES),
        interval_us=section.duration("interval", 10 * SECOND),
        metrics=section.whole("metrics", 10, low=1, high=10_000),
        text_bytes=section.whole("text_bytes", 0, low=0, high=1 << 20),
        id=section.text("id", "device-{n:06}"),
        types=section.whole("types", 1, low=1, high=10_000),
        locations=section.whole("locations", 1, low=1, high=1_000_000),
        growth_per_year=section.number("growth_per_year", 0.0, low=-1.0, high=1000.0),
        at_night=section.number("at_night", 1.0, low=0.0, high=1.0),
    )
    if not _ID.search(kind.id):
        raise section.wrong("id", f"{kind.id!r} gives all devices one name: put {{n}}, {{n:06}} or {{hex:8}} into it")
    section.end()
    return kind


_ID = re.compile(r"\{(n)(?::0?([1-9]))?\}|\{(hex):([1-9][0-9]?)\}")


def _hot(section: _Section, classes: list[str]) -> Hot:
    hot = Hot(
        kind=section.text("class", classes[0]),
        devices=section.whole("devices", 1, low=1, high=MOST_DEVICES),
        factor=section.number("factor", 100.0, low=1.0, high=1e9),
        from_us=section.duration("from", 0),
        for_us=section.duration("for", HOUR),
    )
    if hot.kind not in classes:
        raise section.wrong("class", f"there is no class {hot.kind!r}; there are {', '.join(classes)}")
    section.end()
    return hot


class _Section:
    """A table of the file. Each setting is taken once; one that nothing takes is an error."""

    def __init__(self, given: Mapping[str, Any], source: str, place: str) -> None:
        self.given, self._source, self.place = dict(given), source, place
        self._known: list[str] = []

    def wrong(self, name: str, reason: str) -> ConfigError:
        return ConfigError(f"{self._source}: {self.place}{name}: {reason}")

    def sections(self, name: str) -> list[_Section]:
        found = self._take(name, [])
        if isinstance(found, Mapping):
            found = [found]
        if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
            raise self.wrong(name, f"write it as [[{name}]], once for each")
        return [_Section(one, self._source, f"{name}[{number}].") for number, one in enumerate(found, 1)]

    def table(self, name: str) -> Mapping[str, Any]:
        found = self._take(name, {})
        if not isinstance(found, Mapping):
            raise self.wrong(name, f"write it as [{name}]")
        return found

    def text(self, name: str, default: str) -> str:
        found = self._take(name, default)
        if not isinstance(found, str) or not found.strip():
            raise self.wrong(name, f"{found!r} is no text")
        return found

    def whole(self, name: str, default: int | None, *, low: int, high: int) -> int:
        found = self._take(name, default)
        if found is None:
            raise self.wrong(name, "it is missing")
        if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= high:
            raise self.wrong(name, f"{found!r} is no whole number from {low:,} to {high:,}")
        return found

    def number(self, name: str, default: float, *, low: float, high: float) -> float:
        found = self._take(name, default)
        if not isinstance(found, int | float) or isinstance(found, bool) or not low <= found <= high:
            raise self.wrong(name, f"{found!r} is no number from {low:g} to {high:g}")
        return float(found)

    def duration(self, name: str, default: int) -> int:
        found = self._take(name, None)
        if found is None:
            return default
        if not isinstance(found, str):
            raise self.wrong(name, f'{found!r} is no duration: give a number and a unit in quotes, such as "10s"')
        try:
            width_us = parse_duration(found)
        except Rejected as error:
            raise self.wrong(name, str(error)) from None
        if width_us <= 0 and default > 0:
            raise self.wrong(name, "it must be longer than nothing")
        return width_us

    def retention(self, name: str, default: int) -> int:
        if self.given.get(name) == "forever":
            self._take(name, None)
            return FOREVER
        return self.duration(name, default)

    def end(self) -> None:
        """Everything that stands in the table has been taken."""
        if unknown := sorted(self.given):
            raise self.wrong(unknown[0], f"there is no such setting here; there are {', '.join(sorted(self._known))}")

    def _take(self, name: str, default: Any) -> Any:
        self._known.append(name)
        return self.given.pop(name, default)
