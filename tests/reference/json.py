"""The JSON decoder as one would write it for a hundred reports: the standard library, plain Python, no speed.

It is the oracle of the real one, and shares nothing with it but the rules of names and times.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from widerow.model.batch import RECEIVED_TAG, Report
from widerow.model.check import MAX_TEXT_BYTES, metric_fault, name_fault
from widerow.model.errors import Rejected
from widerow.model.times import MAX_TIME_US, MIN_TIME_US, parse_rfc3339

MAX_DEPTH = 64
PER_UNIT = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}


@dataclass
class Reference:
    """What a body holds: reports and how many cells each has, and the code of each refusal, by position."""

    reports: list[tuple[int, int, Report]] = field(default_factory=list)
    refusals: list[tuple[int, str]] = field(default_factory=list)


class Bad(Exception):
    """A report that must be refused, with the code."""


class Object(list[tuple[str, Any]]):
    """Pairs of an object, duplicates and all."""


class Whole(str):
    """An integer as it was written."""

    __slots__ = ()


def decode(
    body: bytes, *, precision: str, ndjson: bool, now_us: int, version_us: int, device: str | None = None
) -> Reference:
    """Raises Rejected when the body as a whole is not JSON. With a device, reports are of that one and need not say so."""
    out = Reference()
    if ndjson:
        for position, line in enumerate(body.split(b"\n")):
            if not line.strip(b" \t\r"):
                continue
            try:
                value = load(line, MAX_DEPTH)
            except ValueError:
                out.refusals.append((position, "syntax"))
                continue
            add(out, position, value, precision, now_us, version_us, device)
        return out
    is_array = body.lstrip(b" \t\r\n").startswith(b"[")
    try:
        value = load(body, MAX_DEPTH + is_array)
    except ValueError as error:
        raise Rejected(str(error), code="syntax") from None
    if not is_array and not isinstance(value, Object):
        raise Rejected("neither an object nor an array", code="syntax")
    for position, report in enumerate(value if is_array else [value]):
        add(out, position, report, precision, now_us, version_us, device)
    return out


def load(text: bytes, max_depth: int) -> Any:
    decoded = text.decode()
    depth = 0
    quoted = False
    skip = False
    for c in decoded if decoded.count("[") + decoded.count("{") > max_depth else "":
        if skip:
            skip = False
        elif quoted:
            skip = c == "\\"
            quoted = c != '"'
        else:
            quoted = c == '"'
            depth += (c in "[{") - (c in "]}")
            if depth > max_depth:
                raise ValueError("too deep")
    return json.loads(decoded, object_pairs_hook=Object, parse_int=Whole)


def add(out: Reference, position: int, value: Any, precision: str, now_us: int, version_us: int, own: str | None) -> None:
    try:
        count, report = read(value, precision, now_us, version_us, own)
    except Bad as bad:
        out.refusals.append((position, str(bad)))
    else:
        out.reports.append((position, count, report))


def read(value: Any, precision: str, now_us: int, version_us: int, own: str | None) -> tuple[int, Report]:
    if not isinstance(value, Object):
        raise Bad("syntax")
    keys = [key for key, _ in value]
    if len(set(keys)) < len(keys) or set(keys) - {"device", "time", "values", "tags"}:
        raise Bad("syntax")
    fields = dict(value)
    device, time = fields.get("device"), fields.get("time")
    if own is not None and name_fault(own):
        raise Bad("name")
    if device is None:
        device = own
    if device is None:
        raise Bad("device-missing")
    if isinstance(device, Whole) or not isinstance(device, str):
        raise Bad("syntax")
    if name_fault(device):
        raise Bad("name")
    if own is not None and device != own:
        raise Bad("wrong-device")
    time_us = now_us if time is None else read_time(time, precision)
    values = [(check_name(k, metric_fault), read_value(v)) for k, v in pairs(fields.get("values")) if v is not None]
    if not values:
        raise Bad("no-values")
    tags = [(check_name(k), read_tag(v)) for k, v in pairs(fields.get("tags")) if v is not None]
    if time is None:
        tags.append(RECEIVED_TAG)
    return len(values) + len(tags), Report(device, time_us, dict(values), dict(tags), version_us)


def pairs(value: Any) -> Object:
    if value is None:
        return Object()
    if not isinstance(value, Object):
        raise Bad("syntax")
    return value


def check_name(name: str, fault: Callable[[str], str | None] = name_fault) -> str:
    if fault(name):
        raise Bad("name")
    return name


def read_time(time: Any, precision: str) -> int:
    times, parts = PER_UNIT[precision]
    try:
        if isinstance(time, Whole):
            if len(time) > 30:
                raise Bad("time")
            time_us = int(time) * times // parts
        elif isinstance(time, str):
            time_us = parse_rfc3339(time)
        elif isinstance(time, float):
            time_us = round(time * times / parts)
        else:
            raise Bad("time")
    except (Rejected, OverflowError, ValueError):
        raise Bad("time") from None
    if not MIN_TIME_US <= time_us <= MAX_TIME_US:
        raise Bad("time")
    return time_us


def read_value(value: Any) -> float | str:
    if isinstance(value, Whole):
        if len(value) > 30 or abs(int(value)) > 2**53:
            raise Bad("integer-range")
        return float(value) + 0.0
    if isinstance(value, str):
        return read_text(value)
    if isinstance(value, (bool, float)):
        if not math.isfinite(value):
            raise Bad("not-finite")
        return float(value)
    raise Bad("value-type")


def read_tag(value: Any) -> str:
    if isinstance(value, Whole) or not isinstance(value, str):
        raise Bad("value-type")
    return read_text(value)


def read_text(text: str) -> str:
    if any(0xD800 <= ord(c) < 0xE000 for c in text):
        raise Bad("syntax")
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise Bad("text-too-long")
    return text
