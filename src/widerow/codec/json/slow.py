"""The judge of single reports: reads whatever the kernel left, and says what is wrong with it.

Rule 1: a report is kept whole or refused whole. The first fault found is the reason, in this order: keys, device, time,
values, tags.
Rule 2: nothing is coerced. The only kindnesses are booleans as 1 and 0, and null for "not there".
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from widerow.codec.json.scan import depth
from widerow.codec.looking import TOO_MANY_VALUES, too_many_values
from widerow.model.arrays import PAD
from widerow.model.batch import RECEIVED_TAG, CellKind
from widerow.model.check import MAX_TEXT_BYTES, metric_fault, name_fault
from widerow.model.errors import Rejected
from widerow.model.tenant import ANY_NUMBER
from widerow.model.times import MAX_TIME_US, MIN_TIME_US, NOT_AN_EVENT, PRECISION_US, parse_rfc3339

MAX_DEPTH = 64
"""Brackets within brackets; a report has two. More would only feed a recursive parser until it breaks."""

KEYS = ("device", "time", "values", "tags")
_MAX_WHOLE = 1 << 53


class Fault(Exception):
    """Why one report is refused."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class NotJson(Exception):
    """The text is not JSON at all; `at` is the byte where that shows."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at, self.reason = at, reason


class _Pairs(list[tuple[str, Any]]):
    """An object, with its duplicate keys."""


class _Huge:
    """An integer with more digits than anybody means."""


@dataclass(slots=True)
class Cell:
    name: str
    kind: CellKind
    number: float = math.nan
    text: str = ""


@dataclass(slots=True)
class SlowReport:
    device: str
    time_us: int
    cells: list[Cell] = field(default_factory=list)


def _whole(digits: str) -> int | _Huge:
    return int(digits) if len(digits) <= 20 else _Huge()


_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=_whole)


def parse(text: bytes) -> Any:
    """Any JSON value, NaN and Infinity included; objects as lists of pairs. Raises NotJson."""
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and depth(np.frombuffer(text + bytes(PAD), np.uint8)) > MAX_DEPTH:
        raise NotJson(0, f"nested deeper than {MAX_DEPTH} levels")
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        raise NotJson(error.start, "not UTF-8") from None
    try:
        return _DECODER.decode(decoded)
    except json.JSONDecodeError as error:
        raise NotJson(len(decoded[: error.pos].encode()), error.msg) from None


def judge(
    value: Any, precision: str, now_us: int, own_device: str | None = None, *, max_values: int = ANY_NUMBER
) -> SlowReport:
    """The report that a parsed value is. Raises Fault. Where `own_device` is given, it is of that device, said or not."""
    if not isinstance(value, _Pairs):
        raise Fault("syntax", "a report must be an object")
    fields: dict[str, Any] = {}
    for key, content in value:
        if key not in KEYS:
            raise Fault("syntax", f"unknown key {_quoted(key)}: a report has {', '.join(KEYS)}")
        if key in fields:
            raise Fault("syntax", f"key {_quoted(key)} is given twice")
        fields[key] = content
    report = SlowReport(_device(fields.get("device"), own_device), _time(fields.get("time"), precision, now_us))
    named = [pairs for key in ("values", "tags") if isinstance(pairs := fields.get(key), _Pairs)]
    if sum(content is not None for pairs in named for _, content in pairs) > max_values:
        raise Fault(TOO_MANY_VALUES, too_many_values(max_values))
    for name, content in _pairs(fields, "values"):
        if content is not None:
            report.cells.append(_value(_name("metric", name), content))
    if not report.cells:
        raise Fault("no-values", "the report has no value")
    for name, content in _pairs(fields, "tags"):
        if content is not None:
            report.cells.append(_tag(_name("tag", name), content))
    if fields.get("time") is None:
        report.cells.append(Cell(RECEIVED_TAG[0], CellKind.TAG, text=RECEIVED_TAG[1]))
    return report


def _quoted(name: str) -> str:
    return ascii(name[:80])


def _pairs(fields: dict[str, Any], key: str) -> _Pairs:
    content = fields.get(key)
    if content is None:
        return _Pairs()
    if not isinstance(content, _Pairs):
        raise Fault("syntax", f'"{key}" must be an object')
    return content


def _name(what: str, name: str) -> str:
    fault = metric_fault(name) if what == "metric" else name_fault(name)
    if fault:
        raise Fault("name", f"{what} {_quoted(name)} {fault}")
    return name


def _device(content: Any, own: str | None) -> str:
    if own is not None:
        _name("device", own)
    said = own if content is None else content
    if said is None:
        raise Fault("device-missing", "the report names no device")
    if not isinstance(said, str):
        raise Fault("syntax", '"device" must be a text')
    if own not in (None, _name("device", said)):
        raise Fault("wrong-device", f"the report is of device {_quoted(said)}, and was sent as one of {_quoted(str(own))}")
    return said


def _time(content: Any, precision: str, now_us: int) -> int:
    if content is None:
        return now_us
    try:
        time_us = _instant(content, precision)
    except Rejected as error:
        raise Fault("time", str(error)[:200]) from None
    except (OverflowError, ValueError):
        raise Fault("time", f"time {str(content)[:80]!a} cannot be read") from None
    if not MIN_TIME_US <= time_us <= MAX_TIME_US:
        raise Fault("time", f"time {str(content)[:80]!a} {NOT_AN_EVENT}; it was read as {precision}")
    return time_us


def _instant(content: Any, precision: str) -> int:
    if isinstance(content, str):
        return parse_rfc3339(content)
    if isinstance(content, float):
        return round(content / 1_000 if precision == "ns" else content * PRECISION_US[precision])
    if isinstance(content, int) and not isinstance(content, bool):
        return content // 1_000 if precision == "ns" else content * PRECISION_US[precision]
    what = "an integer of more than 20 digits" if isinstance(content, _Huge) else "neither a text nor a number"
    raise Rejected(f"time is {what}", code="time")


def _value(name: str, content: Any) -> Cell:
    if isinstance(content, str):
        return Cell(name, CellKind.TEXT, text=_text(name, content))
    if isinstance(content, bool):
        return Cell(name, CellKind.NUMBER, float(content))
    if isinstance(content, float):
        if not math.isfinite(content):
            raise Fault("not-finite", f"{_quoted(name)} is NaN or infinite")
        return Cell(name, CellKind.NUMBER, content)
    if isinstance(content, _Huge) or (isinstance(content, int) and abs(content) > _MAX_WHOLE):
        raise Fault("integer-range", f"{_quoted(name)} is an integer beyond 2^53; send it as text, or as a float")
    if isinstance(content, int):
        return Cell(name, CellKind.NUMBER, float(content))
    raise Fault("value-type", f"{_quoted(name)} is {_kind(content)}; a value is a number, a text or a boolean")


def _tag(name: str, content: Any) -> Cell:
    if not isinstance(content, str):
        raise Fault("value-type", f"tag {_quoted(name)} is {_kind(content)}; a tag is a text")
    return Cell(name, CellKind.TAG, text=_text(name, content))


def _kind(content: Any) -> str:
    return "an object" if isinstance(content, _Pairs) else "an array" if isinstance(content, list) else "a number or boolean"


def _text(name: str, content: str) -> str:
    try:
        size = len(content.encode())
    except UnicodeEncodeError:
        raise Fault("syntax", f"{_quoted(name)} holds half a surrogate pair") from None
    if size > MAX_TEXT_BYTES:
        raise Fault("text-too-long", f"{_quoted(name)} has {size} bytes; up to {MAX_TEXT_BYTES} are kept")
    return content
