"""One line, read by plain Python: for the lines the kernels leave aside, and the only place where a line is refused.

A line is checked from left to right and refused for the first fault: the measurement, each tag (its form, then its name,
then its value), the device, each field (its form, the metric's name, the value), the time, and what follows it.
The rules of the format are in `widerow.codec.line`.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

from widerow.codec.line.floats import MAX_INTEGER
from widerow.codec.line.naming import LineNaming
from widerow.codec.looking import TOO_MANY_VALUES, too_many_values
from widerow.model.batch import RECEIVED_TAG, CellKind
from widerow.model.check import MAX_TEXT_BYTES, metric_fault, name_fault
from widerow.model.errors import Refusal
from widerow.model.labels import Labels
from widerow.model.tenant import ANY_NUMBER
from widerow.model.times import HOUR, MAX_TIME_US, MIN_TIME_US, MINUTE, NOT_AN_EVENT, PRECISION_US

UNIT_US = {**PRECISION_US, "u": 1, "µ": 1, "μ": 1, "m": MINUTE, "h": HOUR, "ns": 0, "n": 0}
"""Microseconds of one unit of time, by each spelling of a precision; 0 stands for nanoseconds."""

_SPACE = re.compile(rb"(?<!\\) ")
_COMMA = re.compile(rb"(?<!\\),")
_EQUALS = re.compile(rb"(?<!\\)=")
_KEY_END = re.compile(rb"(?<!\\)[=, ]")
_ESCAPE = re.compile(rb"\\([,= ])")
_TEXT = re.compile(rb'"((?:[^"\\]+|\\.)*+)"', re.DOTALL)
_TEXT_ESCAPE = re.compile(rb'\\(["\\])')
_VALUE_END = re.compile(rb"[, ]")
_BLANKS = re.compile(rb"[ \t]+")
_FLOAT = re.compile(rb"-?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_INTEGER = re.compile(rb"(-?)([0-9]++)i|()([0-9]++)u")
_NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_TIME = re.compile(rb"(-?)([0-9]++)")
_MOST_LABELS = 256
"""A name has no room for more."""
_BOOLEANS = {
    **dict.fromkeys((b"t", b"T", b"true", b"True", b"TRUE"), 1.0),
    **dict.fromkeys((b"f", b"F", b"false", b"False", b"FALSE"), 0.0),
}


class Fault(Exception):
    """Why a line is refused."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(what)
        self.code = code

    def refusal(self, position: int) -> Refusal:
        """Positions count from 0 as everywhere; the words count lines from 1 as editors do."""
        return Refusal(self.code, f"line {position + 1}: {self}", positions=(position,))


@dataclass(frozen=True, slots=True)
class Series:
    """What the part of a line before its first space says."""

    measurement: str
    device: str
    attributes: dict[str, str]
    labels: dict[str, str]
    family: bytes
    """The measurement and the labels as the line writes them. Series that share it have the same metrics."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line that was read."""

    device: str
    time_us: int
    cells: list[tuple[str, CellKind, float | str]]


class LineReader:
    """Reads the odd lines of one body. What it learns of series and metrics it keeps for the next line."""

    def __init__(self, naming: LineNaming, unit_us: int, now_us: int, max_values: int = ANY_NUMBER) -> None:
        self._naming, self._unit_us, self._now_us, self._max_values = naming, unit_us, now_us, max_values
        self._known_series: dict[bytes, Series | Fault] = {}
        self._known_metrics: dict[tuple[bytes, bytes], str] = {}

    def read(self, line: bytes) -> Line:
        """A line without its line end and without blanks before it; raises `Fault`."""
        line = line.removesuffix(b"\r")
        gap = _SPACE.search(line)
        series = self._series(line[: gap.start()] if gap else line)
        cells: list[tuple[str, CellKind, float | str]] = []
        i = _skip_blanks(line, gap.end()) if gap else len(line)
        if i == len(line):
            raise Fault("no-values", "no field follows the tags")
        while True:
            end = _KEY_END.search(line, i)
            if end is None or end[0] != b"=":
                found = _shown(line[i : end.start() if end else None])
                raise Fault("syntax", f"{found}: a field must be written name=value")
            field = line[i : end.start()]
            metric = self._metric(series, field)
            i, kind, value = _value(line, end.end(), field)
            cells.append((metric, kind, value))
            if len(cells) + len(series.attributes) > self._max_values:
                raise Fault(TOO_MANY_VALUES, too_many_values(self._max_values))
            if i == len(line) or line[i : i + 1] == b" ":
                break
            i += 1
        cells += [(tag, CellKind.TAG, value) for tag, value in series.attributes.items()]
        time_us = _time(line[i:].strip(b" \t"), self._unit_us)
        if time_us is None:
            time_us = self._now_us
            cells.append((RECEIVED_TAG[0], CellKind.TAG, RECEIVED_TAG[1]))
        return Line(series.device, time_us, cells)

    def _series(self, text: bytes) -> Series:
        known = self._known_series.get(text)
        if known is None:
            try:
                known = read_series(text, self._naming, self._max_values)
            except Fault as fault:
                known = Fault(fault.code, str(fault))
            self._known_series[text] = known
        if isinstance(known, Fault):
            raise Fault(known.code, str(known))  # anew: an exception raised again and again drags its tracebacks along
        return known

    def _metric(self, series: Series, field: bytes) -> str:
        key = series.family, field
        known = self._known_metrics.get(key)
        if known is None:
            known = self._known_metrics[key] = read_metric(field, series.measurement, series.labels, self._naming)
        return known


def read_series(text: bytes, naming: LineNaming, max_values: int = ANY_NUMBER) -> Series:
    """The part of a line before its first space; raises `Fault`."""
    most = max_values + len(naming.device_tags) + _MOST_LABELS
    first, *pairs = _COMMA.split(text, most + 1)
    if len(pairs) > most:
        raise Fault(TOO_MANY_VALUES, too_many_values(max_values))
    measurement = _name("measurement", first)
    tags: dict[str, str] = {}
    raw: dict[str, bytes] = {}
    for pair in pairs:
        tag, value = _tag(pair, tags)
        tags[tag], raw[tag] = value, pair
    device_tag = naming.device_of(tags)
    if device_tag is None:
        raise Fault("device-missing", f"none of the tags {', '.join(naming.device_tags)} names a device")
    device = tags.pop(device_tag)
    fault = name_fault(device)
    if fault:
        raise Fault("name", f"device {_shown(device.encode())} {fault}")
    attributes = {tag: tags.pop(tag) for tag in list(tags) if tag in naming.attribute_tags}
    return Series(measurement, device, attributes, tags, b",".join((first, *(raw[tag] for tag in tags))))


def read_family(family: bytes) -> tuple[str, dict[str, str]]:
    """The measurement and the labels of the family of a series that was read."""
    first, *pairs = _COMMA.split(family)
    return _name("measurement", first), dict(map(_tag, pairs))


def read_metric(field: bytes, measurement: str, labels: Labels, naming: LineNaming) -> str:
    """The metric of a field; raises `Fault`."""
    metric = naming.metric_of(measurement, _name("field", field), labels)
    fault = metric_fault(metric)
    if fault:
        raise Fault("name", f"metric {_shown(metric.encode())} {fault}")
    return metric


def _tag(pair: bytes, before: Container[str] = ()) -> tuple[str, str]:
    parts = _EQUALS.split(pair)
    if len(parts) < 2:
        raise Fault("syntax", f"tag {_shown(pair)} has no value: write name=value")
    tag = _name("tag", parts[0])
    if len(parts) > 2:
        raise Fault("syntax", f"tag {_shown(parts[0])}: write \\= for an equals sign in the value")
    if tag in before:
        raise Fault("syntax", f"tag {_shown(parts[0])} is given twice")
    if not parts[1]:
        raise Fault("syntax", f"tag {_shown(parts[0])} has no value: leave the tag out instead")
    return tag, _text(_ESCAPE.sub(rb"\1", parts[1]), "tag", parts[0])


def _name(what: str, raw: bytes) -> str:
    try:
        name = _ESCAPE.sub(rb"\1", raw).decode()
    except UnicodeDecodeError:
        raise Fault("name", f"{what} {_shown(raw)} is not UTF-8") from None
    fault = name_fault(name)
    if fault:
        raise Fault("name", f"{what} {_shown(raw)} {fault}")
    return name


def _text(raw: bytes, what: str, name: bytes) -> str:
    if len(raw) > MAX_TEXT_BYTES:
        raise Fault("text-too-long", f"{what} {_shown(name)}: a text of {len(raw)} bytes; {MAX_TEXT_BYTES} are allowed")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Fault("syntax", f"{what} {_shown(name)}: the text {_shown(raw)} is not UTF-8") from None


def _value(line: bytes, i: int, field: bytes) -> tuple[int, CellKind, float | str]:
    """Where the value at i ends, its kind and what it is."""
    if line[i : i + 1] == b'"':
        match = _TEXT.match(line, i)
        if match is None:
            raise Fault("syntax", f"field {_shown(field)}: the text has no closing quote")
        if line[match.end() : match.end() + 1] not in (b"", b",", b" "):
            raise Fault("syntax", f"field {_shown(field)}: text follows the closing quote")
        return match.end(), CellKind.TEXT, _text(_TEXT_ESCAPE.sub(rb"\1", match[1]), "field", field)
    end = _VALUE_END.search(line, i)
    stop = end.start() if end else len(line)
    return stop, CellKind.NUMBER, _number(line[i:stop], field)


def _number(token: bytes, field: bytes) -> float:
    if token in _BOOLEANS:
        return _BOOLEANS[token]
    if _FLOAT.fullmatch(token):
        value = float(token)
        if value in (float("inf"), float("-inf")):
            raise Fault("not-finite", f"field {_shown(field)}: {_shown(token)} is too large for a 64-bit float")
        return value
    match = _INTEGER.fullmatch(token)
    if match:
        sign, digits = (match[1], match[2]) if match[2] else (match[3], match[4])
        digits = digits.lstrip(b"0") or b"0"
        if len(digits) > 16 or int(digits) > MAX_INTEGER:
            raise Fault(
                "integer-range", f"field {_shown(field)}: {_shown(token)} is beyond 2^53; send it as a text or a float"
            )
        return float(-int(digits) if sign else int(digits))
    if _NOT_FINITE.fullmatch(token):
        raise Fault("not-finite", f"field {_shown(field)}: {_shown(token)} is not a finite number")
    if not token:
        raise Fault("syntax", f"field {_shown(field)} has no value")
    raise Fault("syntax", f"field {_shown(field)}: {_shown(token)} is not a number")


def _time(text: bytes, unit_us: int) -> int | None:
    if not text:
        return None
    token, *rest = _BLANKS.split(text, 1)
    match = _TIME.fullmatch(token)
    if match is None:
        raise Fault("time", f"{_shown(token)} is not a time: write a whole number")
    if rest:
        raise Fault("syntax", f"{_shown(rest[0])} follows the time")
    digits = match[2].lstrip(b"0") or b"0"
    if len(digits) <= 20:
        count = -int(digits) if match[1] else int(digits)
        time_us = count * unit_us if unit_us else count // 1000
        if MIN_TIME_US <= time_us <= MAX_TIME_US:
            return time_us
    raise Fault("time", f"the time {_shown(token)} {NOT_AN_EVENT}")


def _skip_blanks(line: bytes, i: int) -> int:
    match = _BLANKS.match(line, i)
    return match.end() if match else i


def _shown(raw: bytes) -> str:
    """A piece of the line for the reason: quoted, cut to 80 bytes, unprintable bytes escaped."""
    text = raw[:80].decode(errors="backslashreplace")
    return '"' + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text) + '"'
