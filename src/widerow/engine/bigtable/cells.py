"""Cells of sparse tables: from an answer to fragments of live rows.

Rule 1: values of one name share a name space, whatever their kind and family: the greatest version of all wins. Tags have
their own.
Rule 2: what has expired is dropped after that, so it never uncovers an older version.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from widerow.engine.bigtable.answers import Page
from widerow.engine.bigtable.expiry import expire_us, window_open
from widerow.engine.bigtable.families import KEPT_CODE, NAMES
from widerow.engine.bigtable.keys import TableKeys
from widerow.engine.port import Columns
from widerow.engine.rows import Column, Rows
from widerow.model.arrays import Bytes, Codes, Flags, Floats, Ints
from widerow.model.batch import CellKind, Cells
from widerow.model.errors import Corrupt
from widerow.model.kernel import inlined, kernel
from widerow.model.labels import Selectors
from widerow.model.names import Names

_KINDS = len(CellKind)
_NUMBER, _TAG = int(CellKind.NUMBER), int(CellKind.TAG)


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Live fragments, and for each the row of the page it is of."""

    rows: Rows
    row: Ints


def decode(keys: TableKeys, page: Page, *, now_us: int, columns: Columns | None) -> Found:
    page = _with_kept(_by_family(page))
    columns_of_key = keys.spec.decode(page.keys)
    until_us = expire_us(keys.table, columns_of_key, page)
    wanted = np.ones(len(page.qualifiers), np.bool_)
    if columns is not None:
        asked = columns if isinstance(columns, Selectors) else frozenset(columns)
        names = [name.decode(errors="replace") for name in page.qualifiers.to_bytes_list()]
        wanted = np.array([name in asked for name in names], np.bool_)
    opened = window_open(keys.table, columns_of_key, np.full(len(page), now_us))
    n = len(page.family)
    order, row, start = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n + 1, np.int64)
    count = _gather(
        page.offsets, page.family, page.qualifier, page.timestamp_us, until_us, wanted, opened, now_us, order, row, start
    )
    row, start = row[:count].copy(), start[: count + 1].copy()
    order = order[: start[-1]].copy()
    lead = order[start[:-1]]
    taken: dict[str, Column] = {name: column.take(row) for name, column in columns_of_key.items()}
    return Found(Rows(taken, page.timestamp_us[lead], until_us[lead], _cells(page, order, start)), row)


def _by_family(page: Page) -> Page:
    """The page with the families of each row in the order of their codes: servers send them in any."""
    rank = np.repeat(np.arange(len(page)), np.diff(page.offsets)) * (len(NAMES) + 1) + page.family
    if (rank[1:] >= rank[:-1]).all():
        return page
    order = np.argsort(rank, kind="stable")
    return replace(
        page,
        family=page.family[order],
        qualifier=page.qualifier[order],
        timestamp_us=page.timestamp_us[order],
        value=page.value[order],
        value_bytes=page.value_bytes[order],
    )


def _with_kept(page: Page) -> Page:
    """The page with the cells of `kept` as cells of the families they stand for."""
    is_kept = page.family == KEPT_CODE
    if not is_kept.any():
        return page
    known = page.qualifiers.to_bytes_list()
    codes = {name: code for code, name in enumerate(known)}
    families, names = page.family.copy(), page.qualifier.copy()
    for code in np.unique(page.qualifier[is_kept]).tolist():
        family, _, name = known[code].partition(b":")
        cells = is_kept & (page.qualifier == code)
        families[cells] = NAMES.index(family.decode()) if family.decode(errors="replace") in NAMES else len(NAMES)
        names[cells] = codes.setdefault(name, len(codes))
    return replace(page, family=families, qualifier=names, qualifiers=Names.of_bytes(list(codes)))


def _cells(page: Page, order: Ints, offsets: Ints) -> Cells:
    """The cells at `order`, as columns."""
    kind = page.family[order].astype(np.uint8)
    is_number = kind == _NUMBER
    numbers = np.full(len(order), np.nan)
    at = order[is_number]
    if (page.value_bytes[at] != 8).any():
        raise Corrupt("a number in the family readings is not 8 bytes long")
    numbers[is_number] = _doubles(page.data, page.value[at])
    text = np.full(len(order), -1, np.int32)
    texts = page.texts(order[~is_number])
    text[~is_number] = texts.codes
    return Cells(offsets, page.qualifiers, page.qualifier[order], kind, numbers, texts.names, text)


def _doubles(data: Bytes, starts: Ints) -> Floats:
    out = np.empty(len(starts), np.uint64)
    _big_endian(data, starts, out)
    return out.view(np.float64)


@kernel
def _big_endian(data: Bytes, starts: Ints, out: Any) -> None:
    for i in range(len(starts)):
        word = np.uint64(0)
        for k in range(8):
            word = (word << np.uint64(8)) | np.uint64(data[starts[i] + k])
        out[i] = word


@inlined
def _beats(ts: Any, kind: Any, other_ts: Any, other_kind: Any) -> Any:
    return ts > other_ts or (ts == other_ts and kind > other_kind)


@kernel
def _gather(
    cuts: Ints,
    kind: Ints,
    name: Codes,
    ts: Ints,
    until_us: Ints,
    wanted: Flags,
    opened: Flags,
    now_us: int,
    order: Ints,
    row: Ints,
    start: Ints,
) -> int:
    """Live cells, grouped into fragments: which cells, in which rows, and where each fragment starts."""
    best = np.full(2 * len(wanted), -1, np.int64)
    fragments = 0
    placed = 0
    start[0] = 0
    for r in range(len(cuts) - 1):
        if not opened[r]:
            continue
        for c in range(cuts[r], cuts[r + 1]):
            if kind[c] < _KINDS:
                slot = 2 * name[c] + (kind[c] == _TAG)
                b = best[slot]
                if b < cuts[r] or _beats(ts[c], kind[c], ts[b], kind[b]):
                    best[slot] = c
        begin = placed
        for c in range(cuts[r], cuts[r + 1]):
            if kind[c] < _KINDS and best[2 * name[c] + (kind[c] == _TAG)] == c and wanted[name[c]] and until_us[c] > now_us:
                order[placed] = c
                placed += 1
        # Cells of one version and expiry are a fragment. Nearly always that is all of them.
        while begin < placed:
            lead = order[begin]
            end = begin + 1
            for k in range(begin + 1, placed):
                c = order[k]
                if ts[c] == ts[lead] and until_us[c] == until_us[lead]:
                    order[k] = order[end]
                    order[end] = c
                    end += 1
            row[fragments] = r
            fragments += 1
            start[fragments] = end
            begin = end
    return fragments
