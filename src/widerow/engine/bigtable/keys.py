"""Row keys of tables: every table has a `KeySpec`, made from its columns.

Columns are joined by `#`, text escaped, ints as digits whose order is that of the numbers. A table that has the tenant and
the device in its partition key begins with a salt, so that devices that are named alike or report together do not share a
tablet: `{salt:2}#{tenant}#{device}#{bucket}#{sub:3}#{reversed:16}` is the key of telemetry. Tables that have a prefix, as
rollups do, begin with that: `agg#hour#{salt:2}#...`.
"""

from __future__ import annotations

from functools import cached_property

from widerow.engine.port import ALL, Span
from widerow.engine.rows import Key
from widerow.keys.parts import AFTER_DELIMITER, DELIMITER
from widerow.keys.spec import KeySpec, encode_part
from widerow.keys.template import Part, digits, literal, salt, text
from widerow.schema.table import KeyColumn, Table

ENTITY = ("tenant_id", "device_id")
SALT_DIGITS = 2

_WIDTHS = {"shard": 2, "sub_bucket": 3}
_WIDTH = 16
"""Digits of other ints: microseconds fit until the year 2286. What does not fit a width still sorts rightly."""


def key_spec(table: Table) -> KeySpec:
    parts: list[Part] = []
    entity: tuple[str, ...] = ()
    if {c.name for c in table.partition} >= set(ENTITY):
        parts, entity = [salt(SALT_DIGITS)], ENTITY
    for column in table.key:
        parts += [literal(DELIMITER.decode())] * bool(parts)
        parts += _parts(column)
    if table.prefix:
        parts.insert(0, literal(table.prefix + DELIMITER.decode()))
    return KeySpec(tuple(parts), entity)


def _parts(column: KeyColumn) -> list[Part]:
    if column.type == "text":
        return [text(column.name, descending=column.descending)]
    shown = digits(column.name, _WIDTHS.get(column.name, _WIDTH), descending=column.descending)
    return [literal("shard-"), shown] if column.name == "shard" else [shown]


class TableKeys:
    """How a table's keys, starts of keys and spans become row keys and ranges of them."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.spec = key_spec(table)

    def row_key(self, key: Key) -> bytes:
        """Of a whole key; of less, what the row keys it is the start of begin with."""
        return self.spec.key(dict(zip((c.name for c in self.table.key), key, strict=False)))

    def range(self, key: Key, span: Span = ALL) -> tuple[bytes, bytes]:
        """[start, stop) of the row keys that a key is the start of; with a partition, those in the span."""
        start = self.row_key(key)
        if len(key) == len(self.table.key):
            self._check_span(span)
            return start, start + b"\0"
        if len(key) > len(self.table.partition) or span == ALL:
            return start, after_prefix(start)
        low, high = (None if end is None else start + encode_part(self._first, end) for end in (span.start, span.stop))
        if self._first.descending:
            # Newest first: the span's stop comes first and is itself left out, its start comes last and is kept.
            low, high = (None if end is None else end + AFTER_DELIMITER for end in (high, low))
        return low or start, high or after_prefix(start)

    def _check_span(self, span: Span) -> None:
        if span != ALL and not self.table.clustering:
            raise ValueError(f"{self.table.name} has no clustering column for a span")

    @cached_property
    def _first(self) -> Part:
        """The part of the first clustering column."""
        name = self.table.clustering[0].name
        return next(part for part in self.spec.parts if part.value == name and part.kind != "literal")

    @property
    def _prefix(self) -> bytes:
        return self.table.prefix.encode() + DELIMITER if self.table.prefix else b""

    @cached_property
    def _partition_fields(self) -> int:
        return len(self.table.partition) + bool(self.spec.entity) + len(self._prefix.split(DELIMITER)) - 1

    def partition_prefix(self, row_key: bytes) -> bytes:
        """What the row keys of the same partition begin with; only where there are clustering columns."""
        return DELIMITER.join(row_key.split(DELIMITER, self._partition_fields)[:-1]) + DELIMITER

    def splits(self) -> list[bytes]:
        """Where a new table is cut at first: salted keys are spread evenly from the start."""
        return [self._prefix + b"%x0" % n for n in range(1, 16)] if self.spec.entity else []


def after_prefix(prefix: bytes) -> bytes:
    """The first row key behind all that begin with the prefix; none ends in 0xFF, which no UTF-8 text holds."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
