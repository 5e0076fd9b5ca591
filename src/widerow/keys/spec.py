"""`KeySpec`: a row key as a readable template, compiled to a vectorised encoder and a decoder.

    {salt:2}#{tenant}#{device}#{reversed:16}      a3#acme#pump-1#8239999999499999

| field | shows |
| --- | --- |
| `{tenant}`, `{device}`, `{metric}`, `{type}`, `{location}` | a name, escaped |
| `{device:domain}` | a name with its labels reversed: `com.acme.hall-2` |
| `{time:s}`, `{time:ms}`, `{time:us}` | event time as 10, 13 or 16 digits; `{bucket:...}` the same of the bucket's start |
| `{time:iso}` | event time as `2026-11-15T08:00:00.250000Z` |
| `{bucket:day}`, `hour`, ... | the start of the bucket as `20261115`, `2026111508` |
| `{reversed:10}`, `13`, `16` | 10**n - 1 - time in s, ms or us: the newest comes first |
| `{salt:2}` | the first hex digits of the md5 of the entity: spreads what would be one hot range |
| `{shard:NN}` | `shard-07` |
| `{sub:NN}` | the sub-bucket, as digits |

Rule 1: decoding gives what was encoded (times: rounded down to the unit).
Rule 2: the byte order of keys is the order of their values, field by field.
Rule 3: a name is followed by `#` or by nothing, so that no name can run into its neighbour.
`KeySpec.of(parts)` also takes designs that break these rules, so that the key lab can show what happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import md5
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
from widerow.keys.template import UNVALUED, Part, entity_of, faults, parts_of, template_of
from widerow.model.arrays import PAD, Codes, Ints, lengths
from widerow.model.errors import ConfigError, Corrupt
from widerow.model.intern import coded_slices
from widerow.model.names import Coded, Names
from widerow.model.times import SECOND

Column: TypeAlias = Ints | Coded

_ISO_BYTES = 27
_YEAR_0, _YEAR_10000 = -62_167_219_200 * SECOND, 253_402_300_800 * SECOND


@dataclass(frozen=True)
class KeySpec:
    """Parts in order. `entity` names the texts that the salt is of."""

    parts: tuple[Part, ...]
    entity: tuple[str, ...] = ()

    @classmethod
    def parse(cls, template: str, columns: Mapping[str, str] | None = None) -> KeySpec:
        """The spec of a template. `columns` says what the caller calls a value: {"tenant": "tenant_id"}."""
        try:
            parts = parts_of(template)
        except ValueError as error:
            raise ConfigError(f"key template {template!r}: {error}") from None
        for fault in faults(parts):
            raise ConfigError(f"key template {template!r}: {fault}")
        return cls.of(parts, columns)

    @classmethod
    def of(cls, parts: Sequence[Part], columns: Mapping[str, str] | None = None) -> KeySpec:
        """The spec of these parts. It may break the rules above."""
        names = columns or {}
        renamed = tuple(p if p.kind in UNVALUED else replace(p, value=names.get(p.value, p.value)) for p in parts)
        entity = entity_of([part.value for part in parts if part.kind not in UNVALUED]) or ("device",)
        return cls(renamed, tuple(names.get(name, name) for name in entity))

    @property
    def values(self) -> tuple[str, ...]:
        """What must be given, in the order it stands in the key."""
        return tuple(part.value for part in self.parts if part.kind not in UNVALUED)

    def encode(self, columns: Mapping[str, Column], n: int) -> Names:
        """The key of each of n rows."""
        texts: dict[str, tuple[Names, Codes]] = {}
        ready: list[tuple[Part, Names, Codes] | tuple[Part, Ints]] = []
        sizes = np.zeros(n, np.int64)
        for part in self.parts:
            if part.kind in ("text", "domain"):
                texts[part.value] = _escaped(part, columns[part.value])
        for part in self.parts:
            if part.kind == "digits" and part.width:
                numbers = _numbers(part, columns[part.value])
                ready.append((part, numbers))
                sizes += digit_lengths(numbers, part.width)
                continue
            if part.kind == "literal":
                piece_of = Names.of((part.value,)), np.zeros(n, np.int32)
            elif part.kind == "salt":
                piece_of = _salts(part, [texts.get(name) or _entity(columns[name]) for name in self.entity], n)
            elif part.kind == "hash":
                piece_of = _hashes(part, columns, n)
            elif part.kind == "iso":
                piece_of = _iso(columns[part.value])
            elif part.kind == "date":
                piece_of = _dates(part, columns[part.value])
            elif part.kind == "digits":
                piece_of = _plain(_numbers(part, columns[part.value]))
            else:
                piece_of = texts[part.value]
            ready.append((part, *piece_of))
            sizes += text_lengths(*piece_of)
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
                out += self.salt_of(part, values)
            elif part.kind == "hash" or part.value not in values:
                break
            else:
                out += encode_part(part, values[part.value])
                used.add(part.value)
        return out, used

    def salt_of(self, part: Part, values: Mapping[str, str | int]) -> bytes:
        """The salt of an entity whose values are all given."""
        return _md5(DELIMITER.join(escape_text(str(values[name])) for name in self.entity))[: part.width]

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
                numbers, bad = _take_numbers(part, keys, position, stops)
                out[part.value] = numbers * part.unit_us if part.unit_us > 1 else numbers
            elif part.kind == "iso":
                out[part.value] = _iso_times(keys, position, stops)
                position += _ISO_BYTES
            elif part.kind == "date":
                out[part.value] = _date_times(part, keys, position, stops)
                position += part.width
            elif part.kind == "hash":
                raise ValueError("a key that is a hash of everything in it cannot be read back")
            else:
                names, bad = take_texts(keys.data, position, stops, descending=part.descending)
                if names is not None:
                    column = coded_slices(names.data, names.offsets[:-1], lengths(names.offsets))
                    out[part.value] = Coded(_turned(column.names), column.codes) if part.kind == "domain" else column
            if bad >= 0:
                raise self._strange(keys, bad)
        if n and (position != stops).any():
            raise self._strange(keys, int(np.flatnonzero(position != stops)[0]))
        return out

    def _strange(self, keys: Names, i: int) -> Corrupt:
        return Corrupt(f"row key {keys.bytes_at(i)!r} is not of the form {self}")

    def __str__(self) -> str:
        """The template, with the caller's names for the values."""
        return template_of(self.parts)


def encode_part(part: Part, value: str | int) -> bytes:
    """One value as it stands in a key."""
    if part.kind == "text":
        return (escape_text_down if part.descending else escape_text)(str(value))
    if part.kind == "domain":
        return escape_text(_reversed_labels(str(value)))
    if part.kind in ("iso", "date"):
        moment = np.array([value], np.int64)
        names, codes = _iso(moment) if part.kind == "iso" else _dates(part, moment)
        return names.bytes_at(int(codes[0]))
    if not part.width:
        return str(int(value) // part.unit_us).encode()
    return format_digits(int(value) // part.unit_us, part.width, descending=part.descending)


def _escaped(part: Part, column: Column) -> tuple[Names, Codes]:
    if not isinstance(column, Coded):
        raise TypeError(f"{part.value} is a text")
    names = _turned(column.names) if part.kind == "domain" else column.names
    return escape(names, descending=part.descending), column.codes


def _entity(column: Column) -> tuple[Names, Codes]:
    return (escape(column.names), column.codes) if isinstance(column, Coded) else _plain(column)


def _reversed_labels(name: str) -> str:
    return ".".join(reversed(name.split(".")))


def _turned(names: Names) -> Names:
    return Names.of(map(_reversed_labels, names))


def _plain(numbers: Column) -> tuple[Names, Codes]:
    """Numbers as texts without padding."""
    assert not isinstance(numbers, Coded)
    distinct, codes = np.unique(numbers, return_inverse=True)
    return Names.of(map(str, distinct.tolist())), codes.astype(np.int32)


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


def _hashes(part: Part, columns: Mapping[str, Column], n: int) -> tuple[Names, Codes]:
    """A hash of all the values of each row."""
    whole = zip(
        *(column.to_list() if isinstance(column, Coded) else column.tolist() for column in columns.values()), strict=True
    )
    hashes = [_md5(DELIMITER.join(str(value).encode() for value in row))[: part.width] for row in whole]
    return Names.of_bytes(hashes), np.arange(n, dtype=np.int32)


_MARKS = str.maketrans("", "", "-T:")
_DATE_UNITS: Mapping[int, Literal["Y", "M", "D", "h", "m"]] = {4: "Y", 6: "M", 8: "D", 10: "h", 12: "m"}


def date_start(part: Part, times_us: Ints) -> Ints:
    """When the dates begin that times are shown as."""
    return (
        times_us.astype("datetime64[us]")
        .astype(f"datetime64[{_DATE_UNITS[part.width]}]")
        .astype("datetime64[us]")
        .astype(np.int64)
    )


def _dates(part: Part, column: Column) -> tuple[Names, Codes]:
    assert not isinstance(column, Coded)
    moments, codes = np.unique(
        column.astype("datetime64[us]").astype(f"datetime64[{_DATE_UNITS[part.width]}]"), return_inverse=True
    )
    return Names.of(str(moment).translate(_MARKS) for moment in moments), codes.astype(np.int32)


def _date_times(part: Part, keys: Names, position: Ints, stops: Ints) -> Ints:
    out = []
    for p, stop in zip(position.tolist(), stops.tolist(), strict=True):
        shown = keys.data[p : min(p + part.width, stop)].tobytes()
        if len(shown) < part.width or not shown.isdigit():
            raise Corrupt(f"a row key has {shown!r} where a date of {part.width} digits should be")
        year, rest = shown[:4].decode(), [shown[k : k + 2].decode() for k in range(4, part.width, 2)]
        out.append("-".join([year, *rest[:2]]) + ("T" + ":".join(rest[2:]) if rest[2:] else ""))
    try:
        return np.array([np.datetime64(moment, "us").astype(np.int64) for moment in out], np.int64)
    except ValueError as error:
        raise Corrupt(f"a row key has no date where one should be: {error}") from None


def _take_numbers(part: Part, keys: Names, position: Ints, stops: Ints) -> tuple[Ints, int]:
    numbers = np.zeros(len(keys), np.int64)
    if part.width:
        return numbers, take_digits(keys.data, position, stops, part.width, part.descending, numbers)
    names, bad = take_texts(keys.data, position, stops, descending=False)
    for i, shown in enumerate(names.to_bytes_list() if names is not None else ()):
        if not shown.isdigit():
            return numbers, i
        numbers[i] = int(shown)
    return numbers, bad


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
