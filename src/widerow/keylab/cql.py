"""`CREATE TABLE` of Cassandra, read as a design: its primary key, types, clustering order, time to live and compaction.

Rule: names and clauses that the lab does not judge are kept as they were written, for the table that it suggests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from widerow.keylab.design import CqlTable, Design
from widerow.keylab.words import WEAK, plain, role_of, span_of
from widerow.keys.template import DATES, Part, digits, literal, text
from widerow.model.errors import ConfigError
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND

LONGEST_TTL_S = 20 * 365 * 86_400
"""Cassandra takes no longer one."""
_UNITS: Mapping[str, int] = {"MINUTES": MINUTE, "HOURS": HOUR, "DAYS": DAY}
_WORDS = re.compile(r"""--[^\n]*|//[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")*"|[A-Za-z0-9_.\-]+|[^\s]""", re.DOTALL)
_ORDER = re.compile(r"""("(?:[^"]|"")*"|\w+) (ASC|DESC)\b""", re.IGNORECASE)
_COMMENTS = ("--", "//", "/*")
_TEXTS = ("text", "varchar", "ascii", "uuid", "timeuuid", "blob", "inet")


def read_tables(statements: str, source: str) -> list[Design]:
    """The designs of all `CREATE TABLE` statements; others are passed over."""
    words = [word for word in _WORDS.findall(statements) if not word.startswith(_COMMENTS)]
    tables = [one for one in _statements(words) if [word.upper() for word in one[:2]] == ["CREATE", "TABLE"]]
    found = [_read_table(one[2:], source) for one in tables]
    if not found:
        raise ConfigError(f"{source}: there is no CREATE TABLE in it")
    return found


def _statements(words: list[str]) -> Iterator[list[str]]:
    statement: list[str] = []
    for word in words:
        if word == ";":
            yield statement
            statement = []
        else:
            statement.append(word)
    yield statement


def _read_table(words: list[str], source: str) -> Design:
    if [word.upper() for word in words[:3]] == ["IF", "NOT", "EXISTS"]:
        words = words[3:]
    if not {"'", '"'}.isdisjoint(words):
        raise ConfigError(f"{source}: CREATE TABLE: a quote is not closed")
    opening = words.index("(") if "(" in words else len(words)
    name = "".join(words[:opening])
    try:
        return design_of_table(_table(name, words[opening:]))
    except ValueError as error:
        raise ConfigError(f"{source}: CREATE TABLE{name and f' {name}'}: {error}") from None


def _table(name: str, words: list[str]) -> CqlTable:
    """What stands in the parentheses and behind them."""
    if not words:
        raise ValueError("it has no columns in parentheses")
    closing = _closing(words, 0)
    if closing < 0:
        raise ValueError("a parenthesis is not closed")
    columns, static, partition, clustering = _columns(_split(words[1:closing]))
    clauses = [" ".join(clause) for clause in _clauses(words[closing + 1 :])]
    ttl = _of(clauses, "default_time_to_live").partition("=")[2].strip() or "0"
    if not ttl.isdigit() or int(ttl) > LONGEST_TTL_S:
        raise ValueError(f"default_time_to_live is {ttl[:30]}: give seconds, up to {LONGEST_TTL_S:,}")
    compaction, order = _of(clauses, "compaction"), _of(clauses, "clustering order")
    orders = {_name(column): way for column, way in _ORDER.findall(order)}
    if unknown := [column for column in orders if column not in clustering]:
        raise ValueError(f"CLUSTERING ORDER BY names {unknown[0]!r}, which is no clustering column")
    judged = (compaction, order, _of(clauses, "default_time_to_live"))
    return CqlTable(
        name=name,
        columns=columns,
        partition=tuple(partition),
        clustering=tuple(clustering),
        static=frozenset(static),
        descending=frozenset(column for column, way in orders.items() if way.upper() == "DESC"),
        ttl_s=int(ttl),
        compaction=_option(compaction, r"'class'\s*:\s*'(?:[\w.]*\.)?(\w+Strategy)'", ""),
        window_us=_window_us(compaction),
        others=tuple(clause for clause in clauses if clause not in judged),
    )


def _columns(items: Iterable[list[str]]) -> tuple[dict[str, str], set[str], list[str], list[str]]:
    """Names with types, those of static columns, and the two parts of the primary key."""
    columns, static = dict[str, str](), set[str]()
    keys: list[tuple[list[str], list[str]]] = []
    for item in items:
        upper = [word.upper() for word in item]
        if upper[:2] == ["PRIMARY", "KEY"]:
            keys.append(_primary_key(item[2:]))
            continue
        if len(item) < 2:
            raise ValueError(f"column {' '.join(item)!r} has no type")
        column = _name(item[0])
        if column in columns:
            raise ValueError(f"column {column!r} stands in it twice")
        if "STATIC" in upper:
            static.add(column)
        if upper[-2:] == ["PRIMARY", "KEY"]:
            keys.append(([column], []))
        columns[column] = "".join(word for word in item[1:] if word.upper() not in ("PRIMARY", "KEY", "STATIC")).lower()
    if len(keys) > 1:
        raise ValueError("it has two PRIMARY KEYs")
    if not keys or not keys[0][0]:
        raise ValueError("it has no PRIMARY KEY")
    if missing := [column for part in keys[0] for column in part if column not in columns]:
        raise ValueError(f"PRIMARY KEY names {missing[0]!r}, which is no column of it")
    return columns, static, *keys[0]


def design_of_table(table: CqlTable) -> Design:
    """The design that a table's key means."""
    fields = list(_fields(table))
    parts = [part for field in fields for part in (literal("#"), field)][1:]
    return Design(text=table.name, parts=tuple(parts), partition=len(table.partition), table=table)


def _fields(table: CqlTable) -> Iterator[Part]:
    taken: set[str] = set()
    names = (*table.partition, *table.clustering)
    strong = {role_of(name) for name in table.columns if plain(name) not in WEAK}
    roles = {name: "" if plain(name) in WEAK and role_of(name) in strong else role_of(name) for name in names}
    has_device = "device" in roles.values() or "device" in strong
    for name in names:
        kind, role = table.columns[name], roles[name]
        if not role and not has_device and kind in _TEXTS:
            role, has_device = "device", True
        part = _field(name, kind, role, name in table.descending, in_partition=name in table.partition)
        if part.value in taken:
            part = text(name) if kind in _TEXTS else digits(name, 19)
        taken.add(part.value)
        yield part


def _field(name: str, kind: str, role: str, descending: bool, *, in_partition: bool) -> Part:
    if role == "bucket" or kind == "date":
        span = span_of(name) or ("day" if kind == "date" else "month" if plain(name) == "partition" else "hour")
        return Part("date", "bucket" if in_partition else "time", *DATES[span], descending)
    if role in ("time", "reversed", "sequence") or (kind in ("timestamp", "timeuuid") and role != "device"):
        if kind == "timeuuid" or plain(name).endswith(("us", "micros")):
            return digits("time", 16, descending=descending)
        is_seconds = kind == "int" or plain(name).endswith(("sec", "seconds"))
        unit_us = SECOND if is_seconds else MS
        return digits("time", 10 if is_seconds else 13, unit_us=unit_us, descending=descending)
    if role in ("shard", "random", "sub", "salt") and kind not in _TEXTS:
        return digits("shard" if role == "salt" else role, 2)
    return text(role if role in ("tenant", "device", "metric", "type", "location") else name)


def _primary_key(words: list[str]) -> tuple[list[str], list[str]]:
    inner = words[1 : _closing(words, 0)] if words and words[0] == "(" else words
    items = list(_split(inner))
    if not items:
        return [], []
    partition = [_name(word) for word in items[0] if word not in ("(", ")", ",")]
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


def _clauses(words: list[str]) -> Iterator[list[str]]:
    """What stands behind WITH, at each AND."""
    clause: list[str] = []
    for word in words[1:] if words and words[0].upper() == "WITH" else []:
        if word.upper() == "AND":
            yield clause
            clause = []
        else:
            clause.append(word)
    if clause:
        yield clause


def _of(clauses: list[str], name: str) -> str:
    return next((clause for clause in clauses if clause.lower().startswith(name)), "")


def _name(word: str) -> str:
    """Names are lower case unless they are quoted, and stay quoted."""
    return word if word.startswith('"') else word.lower()


def _option(options: str, pattern: str, default: str) -> str:
    found = re.search(pattern, options, re.IGNORECASE)
    return found[1] if found else default


def _window_us(compaction: str) -> int:
    size = _option(compaction, r"'compaction_window_size'\s*:\s*'?\s*([^\s',}]+)", "1")
    if not re.fullmatch(r"0*[1-9][0-9]{0,5}", size):
        raise ValueError(f"compaction_window_size: {size[:30]}: give a whole number from 1 to 999,999")
    unit = _option(compaction, r"'compaction_window_unit'\s*:\s*'?([^\s',}]+)", "DAYS").upper()
    if unit not in _UNITS:
        raise ValueError(f"compaction_window_unit: {unit[:30]}: give MINUTES, HOURS or DAYS")
    return int(size) * _UNITS[unit]
