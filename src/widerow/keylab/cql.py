"""`CREATE TABLE` of Cassandra, read as a design: its primary key, types, clustering order, time to live and compaction."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from widerow.keylab.design import CqlTable, Design
from widerow.keylab.words import plain, role_of, span_of
from widerow.keys.template import DATES, Part, digits, literal, text
from widerow.model.errors import ConfigError
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND

_UNITS = {"MINUTES": MINUTE, "HOURS": HOUR, "DAYS": DAY}
_TOKENS = re.compile(r"""--[^\n]*|//[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")*"|[A-Za-z0-9_.\-]+|[^\s]""", re.DOTALL)
_COMMENTS = ("--", "//", "/*")


def read_table(statement: str, source: str) -> Design:
    """The design of a `CREATE TABLE` statement."""

    def wrong(reason: str) -> ConfigError:
        return ConfigError(f"{source}: CREATE TABLE: {reason}")

    words = [word for word in _TOKENS.findall(statement) if not word.startswith(_COMMENTS)]
    upper = [word.upper() for word in words]
    start = next((i for i in range(len(upper) - 1) if upper[i : i + 2] == ["CREATE", "TABLE"]), -1) + 2
    if start < 2 or "(" not in words[start:]:
        raise wrong("it has no columns in parentheses")
    if upper.count("CREATE") > 1:
        raise wrong("there are several statements: give one table at a time")
    opening = words.index("(", start)
    name = next((word for word in reversed(words[start:opening]) if word not in (".", '"')), "")
    closing = _closing(words, opening)
    if closing < 0:
        raise wrong("a parenthesis is not closed")
    columns: dict[str, str] = {}
    partition: list[str] = []
    clustering: list[str] = []
    for item in _split(words[opening + 1 : closing]):
        if [word.upper() for word in item[:2]] == ["PRIMARY", "KEY"]:
            partition, clustering = _primary_key(item[2:])
            continue
        if len(item) < 2:
            raise wrong(f"column {' '.join(item)!r} has no type")
        columns[_name(item[0])] = "".join(
            word for word in item[1:] if word.upper() not in ("PRIMARY", "KEY", "STATIC")
        ).lower()
        if [word.upper() for word in item[-2:]] == ["PRIMARY", "KEY"]:
            partition = [_name(item[0])]
    if not partition:
        raise wrong("it has no PRIMARY KEY")
    if missing := [column for column in (*partition, *clustering) if column not in columns]:
        raise wrong(f"PRIMARY KEY names {missing[0]!r}, which is no column of it")
    options = " ".join(words[closing + 1 :])
    table = CqlTable(
        name=_name(name.rsplit(".", 1)[-1]),
        columns=columns,
        partition=tuple(partition),
        clustering=tuple(clustering),
        descending=frozenset(_name(column) for column in re.findall(r"([\w\"]+) DESC", options, re.IGNORECASE)),
        ttl_s=int(_option(options, r"default_time_to_live\s*=\s*(\d+)", "0")),
        compaction=_option(options, r"'class'\s*:\s*'(?:[\w.]*\.)?(\w+Strategy)'", ""),
        window_us=_window_us(options),
    )
    return design_of_table(table)


def design_of_table(table: CqlTable) -> Design:
    """The design that a table's key means."""
    fields = list(_fields(table))
    parts = [part for field in fields for part in (literal("#"), field)][1:]
    return Design(text=table.name, parts=tuple(parts), partition=len(table.partition), table=table)


def _fields(table: CqlTable) -> Iterator[Part]:
    taken: set[str] = set()
    names = (*table.partition, *table.clustering)
    has_device = any(role_of(name) == "device" for name in names)
    for name in names:
        kind, role = table.columns[name], role_of(name)
        if not role and not has_device and kind in ("uuid", "text", "varchar", "blob"):
            role, has_device = "device", True
        part = _field(name, kind, role, name in table.descending, in_partition=name in table.partition)
        if part.value in taken:
            part = text(name) if kind in ("text", "varchar", "uuid") else digits(name, 20)
        taken.add(part.value)
        yield part


def _field(name: str, kind: str, role: str, descending: bool, *, in_partition: bool) -> Part:
    if role in ("time", "reversed", "sequence") or (kind in ("timestamp", "timeuuid") and role != "device"):
        if in_partition:
            role = "bucket"
        elif kind == "timeuuid" or plain(name).endswith(("us", "micros")):
            return digits("time", 16, descending=descending)
        else:
            is_seconds = kind == "int" or plain(name).endswith(("sec", "seconds"))
            unit_us = SECOND if is_seconds else MS
            return digits("time", 10 if is_seconds else 13, unit_us=unit_us, descending=descending)
    if role == "bucket" or kind == "date":
        span = span_of(name) or ("day" if kind == "date" else "month" if plain(name) == "partition" else "hour")
        if kind in ("timestamp", "date", "bigint", "int", "text", "varchar", "smallint"):
            value = "bucket" if in_partition else "time"
            return Part("date", value, *DATES[span], descending)
    if role in ("shard", "random", "sub", "salt") and kind not in ("text", "varchar"):
        return digits("shard" if role == "salt" else role, 2)
    return text(role if role in ("tenant", "device", "metric", "type", "location") else name)


def _primary_key(words: list[str]) -> tuple[list[str], list[str]]:
    inner = words[1 : _closing(words, 0)] if words and words[0] == "(" else words
    items = list(_split(inner))
    if not items:
        return [], []
    first = items[0]
    partition = [_name(word) for word in first if word not in "(),"]
    return partition, [_name(item[0]) for item in items[1:] if item]


def _closing(words: list[str], opening: int) -> int:
    depth = 0
    for i in range(opening, len(words)):
        depth += (words[i] == "(") - (words[i] == ")")
        if depth == 0:
            return i
    return -1


def _split(words: list[str]) -> Iterator[list[str]]:
    """At the commas outside of parentheses and angle brackets."""
    depth, item = 0, list[str]()
    for word in words:
        depth += (word in ("(", "<")) - (word in (")", ">"))
        if word == "," and depth == 0:
            yield item
            item = []
        else:
            item.append(word)
    if item:
        yield item


def _name(word: str) -> str:
    return word[1:-1].replace('""', '"') if word.startswith('"') else word.lower()


def _option(options: str, pattern: str, default: str) -> str:
    found = re.search(pattern, options, re.IGNORECASE)
    return found[1] if found else default


def _window_us(options: str) -> int:
    size = int(_option(options, r"'compaction_window_size'\s*:\s*'?\s*(\d+)", "1"))
    units: Mapping[str, int] = _UNITS
    return size * units.get(_option(options, r"'compaction_window_unit'\s*:\s*'(\w+)'", "DAYS").upper(), DAY)
