"""`KeySpec`: a row key as a readable template, compiled to a vectorised encoder and a decoder.

    {salt:2}#{tenant}#{device}#{reversed:16}      a3#acme#pump-1#8239999999499999

| field | shows |
| --- | --- |
| `{tenant}`, `{device}`, `{metric}` | a name, escaped |
| `{time:s}`, `{time:ms}`, `{time:us}` | event time as 10, 13 or 16 digits; `{bucket:...}` the same of the bucket's start |
| `{time:iso}` | event time as `2026-11-15T08:00:00.250000Z` |
| `{reversed:10}`, `13`, `16` | 10**n - 1 - time in s, ms or us: the newest comes first |
| `{salt:2}` | the first hex digits of the md5 of the entity: spreads what would be one hot range |
| `{shard:NN}` | `shard-07` |
| `{sub:NN}` | the sub-bucket, as digits |

Rule 1: decoding gives what was encoded (times: rounded down to the unit).
Rule 2: the byte order of keys is the order of their values, field by field.
Rule 3: a name is followed by `#` or by nothing, so that no name can run into its neighbour.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import md5
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np

from widerow.keys.parts import (
    DELIMITER,
    digit_lengths,
    escape,
    escape_text,
    escape_text_down,
    format_digits,
    put_digits,
    put_texts,
    take_digits,
    take_literal,
    take_texts,
    text_lengths,
)
from widerow.model.arrays import PAD, Codes, Ints, lengths
from widerow.model.errors import ConfigError, Corrupt
from widerow.model.intern import coded_slices
from widerow.model.names import Coded, Names
from widerow.model.times import MS, SECOND

Column: TypeAlias = Ints | Coded

_ISO_BYTES = 27
_YEAR_0, _YEAR_10000 = -62_167_219_200 * SECOND, 253_402_300_800 * SECOND


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a key: a literal, or how it shows the value called `value`."""

    kind: Literal["literal", "text", "digits", "iso", "salt"]
    value: str
    """Of a literal: its text."""
    width: int = 0
    """How many digits."""
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


@dataclass(frozen=True)
class KeySpec:
    """Parts in order. `entity` names the texts that the salt is of."""

    parts: tuple[Part, ...]
    entity: tuple[str, ...] = ()

    @classmethod
    def parse(cls, template: str, columns: Mapping[str, str] | None = None) -> KeySpec:
        """The spec of a template. `columns` says what the caller calls a value: {"tenant": "tenant_id"}."""
        return _parse(template, columns or {})

    @property
    def values(self) -> tuple[str, ...]:
        """What must be given, in the order it stands in the key."""
        return tuple(part.value for part in self.parts if part.kind not in ("literal", "salt"))

    def encode(self, columns: Mapping[str, Column], n: int) -> Names:
        """The key of each of n rows."""
        texts: dict[str, tuple[Names, Codes]] = {}
        ready: list[tuple[Part, Names, Codes] | tuple[Part, Ints]] = []
        sizes = np.zeros(n, np.int64)
        for part in self.parts:
            if part.kind == "text":
                texts[part.value] = _escaped(part, columns[part.value])
        for part in self.parts:
            if part.kind == "digits":
                numbers = _numbers(part, columns[part.value])
                ready.append((part, numbers))
                sizes += digit_lengths(numbers, part.width)
                continue
            if part.kind == "literal":
                shown = Names.of((part.value,)), np.zeros(n, np.int32)
            elif part.kind == "salt":
                shown = _salts(part, [texts[name] for name in self.entity], n)
            elif part.kind == "iso":
                shown = _iso(columns[part.value])
            else:
                shown = texts[part.value]
            ready.append((part, *shown))
            sizes += text_lengths(*shown)
        offsets = np.zeros(n + 1, np.int64)
        sizes.cumsum(out=offsets[1:])
        data = np.zeros(int(offsets[-1]) + PAD, np.uint8)
        position = offsets[:-1].copy()
        for piece in ready:
            if len(piece) == 2:
                put_digits(piece[1], piece[0].width, piece[0].descending, data, position)
            else:
                put_texts(piece[1].data, piece[1].offsets, piece[2], data, position)
        return Names(data, offsets)

    def key(self, values: Mapping[str, str | int]) -> bytes:
        """One key, or the start of one: it ends before the first part whose value is not given."""
        return self._start(values)[0]

    def prefix(self, **values: str | int) -> bytes:
        """What all keys with these values begin with. ValueError: something that is not given stands before them."""
        start, used = self._start(values)
        if set(values) - used:
            raise ValueError(f"keys of the form {self} do not begin with {', '.join(values)}")
        return start

    def _start(self, values: Mapping[str, str | int]) -> tuple[bytes, set[str]]:
        out, used = b"", set[str]()
        for part in self.parts:
            if part.kind == "literal":
                out += part.value.encode()
            elif part.kind == "salt":
                if any(name not in values for name in self.entity):
                    break
                out += _md5(DELIMITER.join(escape_text(str(values[name])) for name in self.entity))[: part.width]
            elif part.value not in values:
                break
            else:
                out += encode_part(part, values[part.value])
                used.add(part.value)
        return out, used

    def decode(self, keys: Names) -> dict[str, Column]:
        """The values of each key, distinct texts once. `Corrupt`: a key is not of this spec."""
        n = len(keys)
        out: dict[str, Column] = {}
        position, stops = keys.offsets[:-1].copy(), keys.offsets[1:].copy()
        for part in self.parts:
            bad = -1
            if part.kind == "literal":
                bad = take_literal(keys.data, position, stops, np.frombuffer(part.value.encode(), np.uint8))
            elif part.kind == "salt":
                position += part.width
            elif part.kind == "digits":
                numbers = np.empty(n, np.int64)
                bad = take_digits(keys.data, position, stops, part.width, part.descending, numbers)
                out[part.value] = numbers * part.unit_us if part.unit_us > 1 else numbers
            elif part.kind == "iso":
                out[part.value] = _iso_times(keys, position, stops)
                position += _ISO_BYTES
            else:
                names, bad = take_texts(keys.data, position, stops, descending=part.descending)
                if names is not None:
                    out[part.value] = coded_slices(names.data, names.offsets[:-1], lengths(names.offsets))
            if bad >= 0:
                raise self._strange(keys, bad)
        if n and (position != stops).any():
            raise self._strange(keys, int(np.flatnonzero(position != stops)[0]))
        return out

    def _strange(self, keys: Names, i: int) -> Corrupt:
        return Corrupt(f"row key {keys.bytes_at(i)!r} is not of the form {self}")

    def __str__(self) -> str:
        """The template, with the caller's names for the values."""
        return "".join(map(_shown, self.parts))


def encode_part(part: Part, value: str | int) -> bytes:
    """One value as it stands in a key."""
    if part.kind == "text":
        return (escape_text_down if part.descending else escape_text)(str(value))
    if part.kind == "iso":
        names, codes = _iso(np.array([value], np.int64))
        return names.bytes_at(int(codes[0]))
    return format_digits(int(value) // part.unit_us, part.width, descending=part.descending)


def _escaped(part: Part, column: Column) -> tuple[Names, Codes]:
    if not isinstance(column, Coded):
        raise TypeError(f"{part.value} is a text")
    return escape(column.names, descending=part.descending), column.codes


def _numbers(part: Part, column: Column) -> Ints:
    if isinstance(column, Coded):
        raise TypeError(f"{part.value} is a number")
    return column // part.unit_us if part.unit_us > 1 else column


def _md5(entity: bytes) -> bytes:
    return md5(entity, usedforsecurity=False).hexdigest().encode()


def _salts(part: Part, entity: Sequence[tuple[Names, Codes]], n: int) -> tuple[Names, Codes]:
    """A salt for each distinct entity, and which of them each row has."""
    which = np.zeros(n, np.int64)
    for names, codes in entity:
        which = which * len(names) + codes
    _, first, back = np.unique(which, return_index=True, return_inverse=True)
    columns = [names.take(codes[first]).to_bytes_list() for names, codes in entity]
    salts = [_md5(DELIMITER.join(parts))[: part.width] for parts in zip(*columns, strict=True)]
    return Names.of_bytes(salts), back.astype(np.int32)


def _iso(column: Column) -> tuple[Names, Codes]:
    assert not isinstance(column, Coded)
    if len(column) and (column.min() < _YEAR_0 or column.max() >= _YEAR_10000):
        raise ValueError("an ISO time in a key lies in the years 0 to 9999")
    moments = np.datetime_as_string(column.astype("datetime64[us]"))
    return Names.of(f"{moment}Z" for moment in moments.tolist()), np.arange(len(column), dtype=np.int32)


def _iso_times(keys: Names, position: Ints, stops: Ints) -> Ints:
    try:
        if (position + _ISO_BYTES > stops).any():
            raise ValueError("too short")  # noqa: TRY301
        moments = [keys.data[p : p + _ISO_BYTES - 1].tobytes().decode() for p in position.tolist()]
        return np.array(moments, "datetime64[us]").astype(np.int64)
    except ValueError as error:
        raise Corrupt(f"a row key has no ISO time where one should be: {error}") from None


_FIELD = re.compile(r"\{([^{}]*)\}")
_UNITS = {"s": (10, SECOND), "ms": (13, MS), "us": (16, 1)}
_REVERSED = {"10": SECOND, "13": MS, "16": 1}
_NAMES = ("tenant", "device", "metric")


def _parse(template: str, columns: Mapping[str, str]) -> KeySpec:
    def wrong(reason: str) -> ConfigError:
        return ConfigError(f"key template {template!r}: {reason}")

    parts: list[Part] = []
    for i, piece in enumerate(_FIELD.split(template)):
        if i % 2 == 0:
            if "{" in piece or "}" in piece:
                raise wrong("a brace is not closed")
            if "%" in piece or not piece.isprintable():
                raise wrong("a literal holds neither % nor control characters")
            parts += [literal(piece)] * bool(piece)
            continue
        try:
            parts += _field(*piece.partition(":")[::2])
        except ValueError as error:
            raise wrong(str(error)) from None
    values = [part.value for part in parts if part.kind not in ("literal", "salt")]
    if not values:
        raise wrong("it has no field, so all rows would have one key")
    if again := [value for value in values if values.count(value) > 1]:
        raise wrong(f"{again[0]} stands in it twice")
    for part, behind in pairwise(parts):
        if part.kind == "text" and not (behind.kind == "literal" and behind.value.startswith("#")):
            raise wrong(f"behind {{{part.value}}} must stand # or nothing, or a name could run into what follows")
    entity = [name for name in values if name in ("tenant", "device")] or [name for name in values if name == "metric"]
    if any(part.kind == "salt" for part in parts) and not entity:
        raise wrong("a salt needs an entity: {tenant}, {device} or {metric}")
    renamed = tuple(p if p.kind in ("literal", "salt") else replace(p, value=columns.get(p.value, p.value)) for p in parts)
    return KeySpec(renamed, tuple(columns.get(name, name) for name in entity))


def _field(name: str, option: str) -> list[Part]:
    """The parts of `{name:option}`. ValueError says what is wrong with it."""
    if name in _NAMES:
        if option:
            raise ValueError(f"{{{name}}} takes no option")
        return [text(name)]
    if name in ("time", "bucket"):
        if option == "iso":
            return [Part("iso", name)]
        if name == "bucket":
            option = option or "us"
        if option not in _UNITS:
            raise ValueError(f"{{{name}:{option}}}: say {name}:s, {name}:ms, {name}:us or {name}:iso")
        width, unit_us = _UNITS[option]
        return [digits(name, width, unit_us=unit_us)]
    if name == "reversed":
        if option not in _REVERSED:
            raise ValueError(f"{{reversed:{option}}}: say reversed:10 (seconds), reversed:13 (ms) or reversed:16 (us)")
        return [digits("time", int(option), unit_us=_REVERSED[option], descending=True)]
    if name == "salt":
        if option not in list("12345678"):
            raise ValueError(f"{{salt:{option}}}: a salt has 1 to 8 hex digits")
        return [salt(int(option))]
    if name in ("shard", "sub"):
        width = len(option) if set(option) == {"N"} else int(option) if re.fullmatch("[0-9]{1,2}", option) else 0
        if not 1 <= width <= 9:
            raise ValueError(f"{{{name}:{option}}}: say {name}:NN for two digits, up to nine")
        return [literal("shard-")] * (name == "shard") + [digits(name, width)]
    known = ", ".join((*_NAMES, "bucket", "time", "reversed", "salt", "shard", "sub"))
    raise ValueError(f"there is no field {name!r}; there are {known}")


def _shown(part: Part) -> str:
    if part.kind == "literal":
        return part.value
    if part.kind == "salt":
        return f"{{salt:{part.width}}}"
    option = "iso" if part.kind == "iso" else str(part.width) if part.kind == "digits" else ""
    down = "reversed" * part.descending
    return "{" + ":".join(filter(None, (part.value, down, option))) + "}"
