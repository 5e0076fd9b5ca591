"""Reads TOML strictly: each setting has a type and a range, and a fault is one line that names its place in the file.

Rule: a `Section` is a table of the file. Each setting is taken once; `end` refuses the settings that nothing took.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from widerow.model.errors import ConfigError, Rejected
from widerow.model.tenant import FOREVER
from widerow.model.times import parse_duration


def document(text: str, source: str) -> Section:
    """The whole file. `source` names it in errors."""
    try:
        return Section(tomllib.loads(text), source, "")
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{source}: it is nested too deeply") from None


class Section:
    """A table of the file, or the file itself."""

    def __init__(self, given: Mapping[str, Any], source: str, place: str) -> None:
        self.given, self._source, self.place = dict(given), source, place
        self._known: list[str] = []

    def wrong(self, name: str, reason: str) -> ConfigError:
        return ConfigError(f"{self._source}: {self.place}{name}: {reason}")

    def sections(self, name: str) -> list[Section]:
        found = self._take(name, [])
        if isinstance(found, Mapping):
            found = [found]
        if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
            raise self.wrong(name, f"write it as [[{name}]], once for each")
        return [Section(one, self._source, f"{name}[{number}].") for number, one in enumerate(found, 1)]

    def section(self, name: str) -> Section:
        found = self._take(name, {})
        if not isinstance(found, Mapping):
            raise self.wrong(name, f"write it as [{name}]")
        return Section(found, self._source, f"{self.place}{name}.")

    def text(self, name: str, default: str) -> str:
        found = self._take(name, default)
        if not isinstance(found, str) or not found.strip():
            raise self.wrong(name, f"{found!r} is no text")
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        found = self._take(name, [])
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise self.wrong(name, f'give a list of texts, such as {name} = ["temperature"]')
        return tuple(found)

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
