"""Line protocol decoded the obvious way: byte by byte, with Python objects. The oracle of the fast decoder.

Nothing is shared with the decoder but the naming rules and what labels there are in a name. A line is checked from left to
right; its first fault counts.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from widerow.codec.line import LineNaming
from widerow.model.batch import Batch, CellKind
from widerow.model.labels import parted
from widerow.model.times import MAX_TIME_US

Cell: TypeAlias = tuple[str, int, str]
"""Name, kind, and the value: a text itself, a number as its exact repr (so that -0.0 is not 0.0)."""
NANOSECONDS = {
    "ns": 1,
    "n": 1,
    "us": 1_000,
    "u": 1_000,
    "µ": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
BLANKS = b" \t"


@dataclass(frozen=True)
class Row:
    position: int
    device: str
    time_us: int
    cells: tuple[Cell, ...]


class Refused(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def decode(
    body: bytes, naming: LineNaming, *, precision: str = "ns", now_us: int = 0
) -> tuple[list[Row], list[tuple[int, str]]]:
    """The rows, and the position and code of each refused line."""
    rows, refused = [], []
    for position, line in logical_lines(body):
        try:
            rows.append(read(position, line, naming, precision, now_us))
        except Refused as e:
            refused.append((position, e.code))
    return rows, refused


def rows_of(batch: Batch) -> list[Row]:
    """What a batch says, in the same words."""
    cells = batch.cells
    names, texts, devices = cells.names.to_list(), cells.texts.to_list(), batch.device.to_list()
    flat: list[Cell] = [
        (names[name], kind, repr(number) if kind == CellKind.NUMBER else texts[text])
        for name, kind, number, text in zip(
            cells.name.tolist(), cells.kind.tolist(), cells.number.tolist(), cells.text.tolist(), strict=True
        )
    ]
    cuts = cells.offsets.tolist()
    return [
        Row(position, device, time_us, tuple(flat[cuts[i] : cuts[i + 1]]))
        for i, (position, device, time_us) in enumerate(
            zip(batch.position.tolist(), devices, batch.time_us.tolist(), strict=True)
        )
    ]


def logical_lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that must be read or refused, each with the number of the physical line it starts on."""
    i, number = 0, 0
    while i < len(body):
        first = body.find(b"\n", i)
        physical = body[i:] if first < 0 else body[i:first]
        shown = physical.lstrip(BLANKS)
        if shown in (b"", b"\r") or shown.startswith(b"#"):
            line = physical
        else:
            line = body[i : _end_of_line(body, i + len(physical) - len(shown))]
            yield number, line.lstrip(BLANKS).removesuffix(b"\r")
        number += 1 + line.count(b"\n")
        i += len(line) + 1


def _end_of_line(body: bytes, start: int) -> int:
    in_fields = False
    i = start
    while i < len(body) and body[i] != ord("\n"):
        if body[i] == ord(" ") and not _escaped(body, start, i):
            in_fields = True
        opens = in_fields and body[i] == ord('"') and body[i - 1] == ord("=") and not _escaped(body, start, i - 1)
        if opens:
            close = _closing_quote(body, i)
            if close is None:
                newline = body.find(b"\n", i)
                return len(body) if newline < 0 else newline
            i = close
        i += 1
    return i


def _escaped(text: bytes, start: int, i: int) -> bool:
    return i > start and text[i - 1] == ord("\\")


def _closing_quote(body: bytes, opening: int) -> int | None:
    """The quote that closes the text, provided that something which may follow a value follows it."""
    i = opening + 1
    while i < len(body):
        if body[i] == ord("\\"):
            i += 2
            continue
        if body[i] == ord('"'):
            after = body[i + 1 : i + 3]
            ends = after[:1] in (b"", b",", b" ", b"\n") or after in (b"\r", b"\r\n")
            return i if ends else None
        i += 1
    return None


def read(position: int, line: bytes, naming: LineNaming, precision: str, now_us: int) -> Row:
    series, rest = _split_first(line, b" ")
    measurement, tags = _series(series)
    device_tag = next((t for t in naming.device_tags if t in tags), None)
    if device_tag is None:
        raise Refused("device-missing")
    device = _checked(tags.pop(device_tag))
    labels = {t: tags.pop(t) for t in list(tags) if t not in naming.attribute_tags}
    rest = (rest or b"").lstrip(BLANKS)
    if not rest:
        raise Refused("no-values")
    cells: list[Cell] = []
    while True:
        key, rest = _field_key(rest)
        metric = _metric(naming.metric.format(measurement=measurement, field=_name(key)), labels)
        kind, value, rest = _value(rest)
        cells.append((metric, kind, value))
        if not rest.startswith(b","):
            break
        rest = rest[1:]
    cells += [(tag, CellKind.TAG, value) for tag, value in tags.items()]
    words = [w for w in rest.replace(b"\t", b" ").split(b" ") if w]
    if not words:
        return Row(position, device, now_us, (*cells, ("widerow_time", CellKind.TAG, "received")))
    time_us = _time(words[0], precision, alone=len(words) == 1)
    return Row(position, device, time_us, tuple(cells))


def _metric(plain: str, labels: dict[str, str]) -> str:
    if not labels:
        return _checked_metric(plain)
    pairs = [f"{_backslashed(k)}={_backslashed(v)}" for k, v in sorted(labels.items(), key=lambda p: p[0].encode())]
    return _checked_metric(f"{_backslashed(plain)}{{{','.join(pairs)}}}")


def _backslashed(text: str) -> str:
    return "".join("\\" + c if c in "\\,={}" else c for c in text)


def _checked_metric(name: str) -> str:
    plain, labels = parted(name)
    _checked(plain)
    return _checked(name, 1024) if labels else name


def _split_first(text: bytes, delimiter: bytes) -> tuple[bytes, bytes | None]:
    for i in range(len(text)):
        if text[i : i + 1] == delimiter and not _escaped(text, 0, i):
            return text[:i], text[i + 1 :]
    return text, None


def _series(text: bytes) -> tuple[str, dict[str, str]]:
    first, rest = _split_first(text, b",")
    measurement = _name(first)
    tags: dict[str, str] = {}
    while rest is not None:
        pair, rest = _split_first(rest, b",")
        key, value = _split_first(pair, b"=")
        if value is None:
            raise Refused("syntax")
        tag = _name(key)
        if _split_first(value, b"=")[1] is not None or tag in tags or not value:
            raise Refused("syntax")
        tags[tag] = _text(_unescaped(value, b",= "))
    return measurement, tags


def _field_key(text: bytes) -> tuple[bytes, bytes]:
    for i in range(len(text)):
        if text[i : i + 1] in (b"=", b",", b" ") and not _escaped(text, 0, i):
            if text[i : i + 1] == b"=":
                return text[:i], text[i + 1 :]
            break
    raise Refused("syntax")


def _unescaped(raw: bytes, escapable: bytes) -> bytes:
    out = bytearray()
    i = 0
    while i < len(raw):
        if raw[i] == ord("\\") and i + 1 < len(raw) and raw[i + 1] in escapable:
            i += 1
        out.append(raw[i])
        i += 1
    return bytes(out)


def _name(raw: bytes) -> str:
    try:
        return _checked(_unescaped(raw, b",= ").decode())
    except UnicodeDecodeError:
        raise Refused("name") from None


def _checked(name: str, most: int = 256) -> str:
    if not 1 <= len(name.encode()) <= most or any(unicodedata.category(c) == "Cc" for c in name):
        raise Refused("name")
    return name


def _text(raw: bytes) -> str:
    if len(raw) > 32 * 1024:
        raise Refused("text-too-long")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Refused("syntax") from None


def _value(text: bytes) -> tuple[int, str, bytes]:
    if text.startswith(b'"'):
        close = _closing_quote(text, 0)
        if close is None:
            raise Refused("syntax")
        return CellKind.TEXT, _text(_unescaped(text[1:close], b'"\\')), text[close + 1 :]
    end = min((i for i in (text.find(b","), text.find(b" ")) if i >= 0), default=len(text))
    return CellKind.NUMBER, repr(_number(text[:end])), text[end:]


def _number(token: bytes) -> float:
    if token in (b"t", b"T", b"true", b"True", b"TRUE"):
        return 1.0
    if token in (b"f", b"F", b"false", b"False", b"FALSE"):
        return 0.0
    if token.lower().lstrip(b"+-") in (b"nan", b"inf", b"infinity") and len(token.lower().lstrip(b"+-")) + 1 >= len(token):
        raise Refused("not-finite")
    body = token.removeprefix(b"-")
    if body[-1:] in (b"i", b"u"):
        if not body[:-1].isdigit() or (body.endswith(b"u") and body != token):
            raise Refused("syntax")
        if len(body.lstrip(b"0")) > 20 or int(body[:-1].lstrip(b"0") or b"0") > 2**53:
            raise Refused("integer-range")
        return float(int(token[:-1]))
    mantissa, mark, exponent = body.replace(b"E", b"e").partition(b"e")
    if mark and not (exponent.isdigit() or (exponent[:1] in (b"+", b"-") and exponent[1:].isdigit())):
        raise Refused("syntax")
    whole, _, fraction = mantissa.partition(b".")
    if not (whole + fraction).isdigit():
        raise Refused("syntax")
    value = float(token)
    if math.isinf(value):
        raise Refused("not-finite")
    return value


def _time(token: bytes, precision: str, *, alone: bool) -> int:
    digits = token.removeprefix(b"-")
    if not digits.isdigit():
        raise Refused("time")
    if not alone:
        raise Refused("syntax")
    digits = digits.lstrip(b"0") or b"0"
    if len(digits) > 30:
        raise Refused("time")
    time_us = int(digits) * (-1 if token.startswith(b"-") else 1) * NANOSECONDS[precision] // 1_000
    if not 0 <= time_us <= MAX_TIME_US:
        raise Refused("time")
    return time_us
