"""Templates: the text form of a row key. `parts_of` reads one, `faults` names what stored keys may not have.

    {salt:2}#{tenant}#{device}#{reversed:16}

Two steps, because a design that is being judged may have faults that a stored key may not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a key: a literal, or how it shows the value called `value`."""

    kind: Literal["literal", "text", "domain", "digits", "iso", "date", "salt", "hash"]
    value: str
    """Of a literal: its text."""
    width: int = 0
    """How many digits; 0: as many as the number has."""
    unit_us: int = 1
    """A time is divided by this."""
    descending: bool = False


def literal(text: str) -> Part:
    return Part("literal", text)


def text(value: str, *, descending: bool = False) -> Part:
    return Part("text", value, descending=descending)


def digits(value: str, width: int, *, unit_us: int = 1, descending: bool = False) -> Part:
    return Part("digits", value, width, unit_us, descending)


def salt(width: int) -> Part:
    return Part("salt", "", width)


NAMES = ("tenant", "device", "metric", "type", "location")
TIMES = ("time", "bucket")
UNVALUED = ("literal", "salt", "hash")
"""Kinds that show no value of their own."""

DATES = {"year": (4, 365 * DAY), "month": (6, 28 * DAY), "day": (8, DAY), "hour": (10, HOUR), "minute": (12, MINUTE)}
"""Widths and least spans of dates without marks between their parts: 20261115 is a day."""

_FIELD = re.compile(r"\{([^{}]*)\}")
_UNITS = {"s": (10, SECOND), "ms": (13, MS), "us": (16, 1)}
_REVERSED = {"10": SECOND, "13": MS, "16": 1}
_HASH_DIGITS = 32
WHOLE_SALT = 16
"""A salt of as many digits tells devices apart without their name."""
_UNPADDED = "unpadded"


def parts_of(template: str) -> tuple[Part, ...]:
    """The parts of a template. ValueError: a place of it cannot be read."""
    parts: list[Part] = []
    for i, piece in enumerate(_FIELD.split(template)):
        if i % 2:
            parts += _field(*piece.partition(":")[::2])
        elif "{" in piece or "}" in piece:
            raise ValueError("a brace is not closed")
        elif "%" in piece or not piece.isprintable():
            raise ValueError("a literal holds neither % nor control characters")
        elif piece:
            parts.append(literal(piece))
    values = [part.value for part in parts if part.kind not in UNVALUED]
    if not values and not any(part.kind == "hash" for part in parts):
        raise ValueError("it has no field, so all rows would have one key: name some, as {device}, {time:ms}, {bucket:day}")
    if again := [value for value in values if values.count(value) > 1]:
        raise ValueError(f"{again[0]} stands in it twice")
    if any(part.kind == "salt" and part.width < WHOLE_SALT for part in parts) and not entity_of(values):
        raise ValueError("a salt needs an entity: {tenant}, {device} or {metric}")
    return tuple(parts)


def entity_of(values: Sequence[str]) -> tuple[str, ...]:
    """What a salt is of: tenant and device, as far as the key has them, or else the metric."""
    named = [name for name in values if name in ("tenant", "device")] or [name for name in values if name == "metric"]
    return tuple(named)


def faults(parts: Sequence[Part]) -> Iterator[str]:
    """Why keys of these parts cannot be told apart or read back."""
    for part, behind in pairwise(parts):
        if part.kind in ("text", "domain") and not (behind.kind == "literal" and behind.value.startswith("#")):
            yield f"behind {{{part.value}}} must stand # or nothing, or a name could run into what follows"
    for part in parts:
        if part.kind == "hash":
            yield "a key that is hashed as a whole cannot be read back: hash the entity alone, with {salt:2}"
        if part.kind == "digits" and not part.width:
            yield f"{{{part.value}}} has no fixed width, so keys do not sort by it: give its digits"


def field_of(part: Part) -> str:
    """The part as it stands in a template."""
    if part.kind == "literal":
        return part.value
    if part.kind == "salt":
        return f"{{salt:{part.width}}}"
    if part.kind == "hash":
        return "{hash}"
    if part.kind in ("text", "domain", "iso"):
        return f"{{{part.value}}}" if part.kind == "text" and not part.descending else f"{{{part.value}:{_option(part)}}}"
    if part.kind == "date":
        return f"{{{part.value}:{next(name for name, (width, _) in DATES.items() if width == part.width)}}}"
    width = str(part.width) if part.width else _UNPADDED
    unit, usual = next(((unit, usual) for unit, (usual, size) in _UNITS.items() if size == part.unit_us), ("", 0))
    if part.value == "time" and part.descending:
        return f"{{reversed:{width}}}" if _REVERSED.get(width) == part.unit_us else f"{{reversed:{unit}:{width}}}"
    if part.value in TIMES and unit:
        return f"{{{part.value}:{unit}}}" if part.width == usual else f"{{{part.value}:{unit}:{width}}}"
    return "{" + ":".join((part.value, *["reversed"] * part.descending, width)) + "}"


def template_of(parts: Sequence[Part]) -> str:
    """The template that `parts_of` reads as these parts."""
    fields = "".join(map(field_of, parts))
    return fields.replace("shard-{shard:", "{shard:")


def _option(part: Part) -> str:
    return "reversed" if part.kind == "text" else part.kind


def _field(name: str, option: str) -> list[Part]:
    """The parts of `{name:option}`. ValueError says what is wrong with it."""
    if name in NAMES:
        if option == "domain" and name in ("tenant", "device"):
            return [Part("domain", name)]
        if option:
            raise ValueError(f"{{{name}:{option}}}: a name takes no option, but for {{device:domain}} and {{tenant:domain}}")
        return [text(name)]
    if name in TIMES:
        return [_time(name, option)]
    if name == "reversed":
        return [_reversed(option)]
    if name == "salt":
        if not re.fullmatch("[1-9]|[12][0-9]|3[0-2]", option):
            raise ValueError(f"{{salt:{option}}}: a salt has 1 to 32 hex digits")
        return [salt(int(option))]
    if name == "hash" and not option:
        return [Part("hash", "", _HASH_DIGITS)]
    if name == "sequence" and option in ("", _UNPADDED):
        return [digits(name, 0)]
    if name in ("shard", "sub", "random", "sequence"):
        width = len(option) if set(option) == {"N"} else int(option) if re.fullmatch("[0-9]{1,2}", option) else 0
        if option != _UNPADDED and not 1 <= width <= 18:
            raise ValueError(f"{{{name}:{option}}}: say {name}:NN for two digits, up to 18")
        return [literal("shard-")] * (name == "shard") + [digits(name, width)]
    known = ", ".join((*NAMES, "bucket", "time", "reversed", "salt", "shard", "sub", "random", "sequence", "hash"))
    raise ValueError(f"there is no field {name!r}; there are {known}")


def _time(name: str, option: str) -> Part:
    unit, _, width = option.partition(":")
    if unit == "iso" and not width:
        return Part("iso", name)
    if unit in DATES and not width:
        return Part("date", name, *DATES[unit])
    if name == "bucket":
        unit = unit or "us"
    if unit not in _UNITS or not re.fullmatch(f"|{_UNPADDED}|[1-9]|1[0-9]", width):
        others = ", ".join(f"{name}:{date}" for date in DATES)
        raise ValueError(f"{{{name}:{option}}}: say {name}:s, {name}:ms, {name}:us, {name}:iso, {others}")
    usual, unit_us = _UNITS[unit]
    return digits(name, 0 if width == _UNPADDED else int(width or usual), unit_us=unit_us)


def _reversed(option: str) -> Part:
    unit, _, width = option.partition(":")
    if unit in _UNITS and re.fullmatch("[1-9]|1[0-8]", width):
        return digits("time", int(width), unit_us=_UNITS[unit][1], descending=True)
    if option not in _REVERSED:
        raise ValueError(f"{{reversed:{option}}}: say reversed:10 (seconds), reversed:13 (ms) or reversed:16 (us)")
    return digits("time", int(option), unit_us=_REVERSED[option], descending=True)
