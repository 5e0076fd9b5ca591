"""ReadRows and CheckAndMutateRow requests: ranges, filters, comparisons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from google.cloud.bigtable_v2 import types as bigtable

from widerow.engine.bigtable.families import EXPIRES, KINDS, META
from widerow.engine.bigtable.fixed import DIGEST
from widerow.engine.bigtable.wire import field, number
from widerow.model.labels import Selectors

FILTER_BYTES = 16_000
"""Bigtable takes filters of up to 20 KB. What would be longer is filtered here instead."""

Range = tuple[bytes, bytes]
"""[start, stop) of row keys; an empty stop is the end of the table."""

_F = bigtable.RowFilter
_NEWEST = _F(cells_per_column_limit_filter=1)


def read_request(ranges: Iterable[Range], row_filter: bytes, rows_limit: int) -> bytes:
    rows = b"".join(field(2, field(1, start) + (field(3, stop) if stop else b"")) for start, stop in ranges)
    return field(2, rows) + field(3, row_filter) + number(4, rows_limit)


def lookup_request(row_keys: Iterable[bytes], row_filter: bytes) -> bytes:
    return field(2, b"".join(field(1, key) for key in row_keys)) + field(3, row_filter)


@lru_cache(maxsize=256)
def newest(columns: tuple[str, ...] | Selectors | None = None, *, values: bool = True) -> bytes:
    """The newest version of each column, or of those named, with or without its value."""
    chain = [_NEWEST]
    if columns is not None and (pattern := _pattern(columns)):
        chain.insert(0, _F(column_qualifier_regex_filter=pattern))
    if not values:
        chain.append(_F(strip_value_transformer=True))
    return _serialized(chain)


def _serialized(chain: list[bigtable.RowFilter]) -> bytes:
    only = chain[0] if len(chain) == 1 else _F(chain=_F.Chain(filters=chain))
    return bytes(_F.serialize(only))


def _pattern(columns: Iterable[str] | Selectors) -> bytes:
    """Matches the names, and what is of them in `expires` and `kept`. Empty: it would be too long.

    Of what selectors mean, it matches all variants: which of them have the labels is seen when the answer is read.
    """
    if isinstance(columns, Selectors):
        variants = [_quoted(one.stem) + b"(?s:.*)" for one in columns.selectors]
        names = b"|".join([*map(_quoted, columns.names), *variants])
    else:
        names = b"|".join(map(_quoted, columns))
    pattern = b"(?:%s:)?(?:(?:%s):)?(?:%s)" % (EXPIRES.encode(), "|".join(KINDS.values()).encode(), names)
    return pattern if len(pattern) <= FILTER_BYTES else b""


def _quoted(name: str) -> bytes:
    return re.sub(rb"[^a-zA-Z0-9_]", lambda m: b"\\x%02x" % m[0][0], name.encode())


_EXISTS = bytes(_F.serialize(_F(family_name_regex_filter=META)))


def insert_request(row_key: bytes, mutations: Sequence[bytes]) -> bytes:
    """Apply the mutations unless the row exists; the predicate holds if it does."""
    return field(2, row_key) + field(6, _EXISTS) + b"".join(field(5, mutation) for mutation in mutations)


def replace_request(row_key: bytes, digest: bytes, mutations: Sequence[bytes]) -> bytes:
    """Apply the mutations if the row has that digest; the predicate holds if it does."""
    chain = [
        _F(family_name_regex_filter=META),
        _F(column_qualifier_regex_filter=DIGEST),
        _F(value_regex_filter=digest),
    ]
    return field(2, row_key) + field(6, _serialized(chain)) + b"".join(field(4, mutation) for mutation in mutations)
