"""How many bytes rows of Cassandra take in its files, before compression.

It follows the file format of Cassandra 3 to 5 (`nb`). A partition has its key, a time of deletion and an end. A row has
flags, the values of its clustering columns, two sizes, its write time as a difference to the oldest of the file, and cells.

Rule: what the format leaves open, such as the oldest write time of a file, is taken from the sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from widerow.plan.shape import CLUSTERING, PARTITION, REGULAR, Column

_FIXED = {
    "bigint": 8,
    "boolean": 1,
    "double": 8,
    "float": 4,
    "int": 4,
    "timestamp": 8,
    "timeuuid": 16,
    "uuid": 16,
    "counter": 35,  # a context with one shard
}
"""Types whose values have no length before them."""
_SHORT = {"smallint": 2, "tinyint": 1, "date": 4, "time": 8}
"""Types of one size that have one all the same."""
_DELETION, _END = 12, 1
_UNKNOWN_TIME = 4
"""Of the write time of a row that does not tell it: one without values, or of counters. Seconds take 3 bytes, days 6."""
_REPLACED = 8
"""Of a collection: how many cells it has, and the deletion of those that it had before."""
_PLACE = 17
"""Of a cell of a list: its place, a UUID with its length."""


def partition_bytes(columns: Sequence[Column], key: Sequence[Any]) -> int:
    """What a partition takes besides its rows."""
    sizes = [value_bytes(column.type, value) for column, value in zip(_of(columns, PARTITION), key, strict=True)]
    return 2 + (sizes[0] if len(sizes) == 1 else sum(3 + size for size in sizes)) + _DELETION + _END


class RowSizer:
    """The bytes of rows of one table.

    `occurring`: how many of its value columns occur at all; a file knows no others. `oldest_us`: its oldest write time.
    """

    def __init__(self, columns: Sequence[Column], occurring: int, oldest_us: int) -> None:
        self._clustering, self._values = _of(columns, CLUSTERING), _of(columns, REGULAR)
        self._occurring, self._oldest_us = occurring, oldest_us

    def row(self, clustering: Sequence[Any], values: Sequence[Any], written_us: int, *, expires: bool) -> int:
        """One row, with all values written at one time, as an INSERT does."""
        size = sum(_in_row(column.type, value) for column, value in zip(self._clustering, clustering, strict=True))
        if self._clustering:
            size += 1  # which of them are empty
        body = vint(max(0, written_us - self._oldest_us)) if written_us else _UNKNOWN_TIME
        body += 5 if expires else 0
        given = 0
        for column, value in zip(self._values, values, strict=True):
            if value is not None:
                given += 1
                body += 1 + _in_row(column.type, value)
        if given < self._occurring:
            body += vint((1 << min(63, self._occurring)) - 1)  # which of them there are
        before = vint(size + body + 3)  # the size of the row before it, taken to be like this one
        return 1 + size + vint(body + before) + before + body


def value_bytes(kind: str, value: Any) -> int:
    """The bytes of a value alone. A collection is taken for a frozen one."""
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in _SHORT:
        return _SHORT[kind]
    if kind == "inet":
        return 16 if ":" in str(value) else 4
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode(errors="replace"))
    if isinstance(value, bytes | bytearray):
        return len(value)
    if isinstance(value, int):
        return value.bit_length() // 8 + 1
    if isinstance(value, Decimal):
        return 4 + value_bytes("varint", int("".join(map(str, value.as_tuple().digits))))
    if hasattr(value, "__iter__"):
        count, parts = _members(kind, value)
        return (0 if kind.startswith("vector<") else 4 + 4 * count) + sum(value_bytes(*part) for part in parts)
    return 8


def _members(kind: str, value: Any) -> tuple[int, list[tuple[str, Any]]]:
    """How many values a collection has, keys included, and each with its type."""
    inner = _inner(kind)
    if hasattr(value, "items"):
        key, item = inner if len(inner) == 2 else ("", "")
        parts = [part for k, v in value.items() for part in ((key, k), (item, v))]
    else:
        parts = [(inner[0] if inner else "", one) for one in value if one is not None]
    return len(parts), parts


def _inner(kind: str) -> list[str]:
    """`map<text, double>`: `text` and `double`. Nothing of types that nest, whose values tell enough."""
    kind = kind.removeprefix("frozen<").rstrip(">")
    _, _, inside = kind.partition("<")
    return [] if "<" in inside else [part.strip() for part in inside.split(",") if part]


def vint(number: int) -> int:
    """The bytes of an unsigned number of variable length."""
    return min(9, max(1, (number.bit_length() + 6) // 7))


def _of(columns: Sequence[Column], role: str) -> list[Column]:
    return [column for column in columns if column.role == role]


def _in_row(kind: str, value: Any) -> int:
    """A value in a row; of a collection that is not frozen, all its cells."""
    if not kind.startswith(("map<", "list<", "set<")):
        size = value_bytes(kind, value)
        return size if kind in _FIXED else size + vint(size)
    count, parts = _members(kind, value)
    cells = count // 2 if kind.startswith("map<") else count
    return _REPLACED + cells * (1 + (_PLACE if kind.startswith("list<") else 0)) + sum(_in_row(*part) for part in parts)
