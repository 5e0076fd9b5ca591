"""When cells expire, to the second, and what of that is stored.

A windowed table whose rows begin with a time says it for them: that time plus what the window is kept. Elsewhere a cell
never expires. Only what differs from that is stored, beside the cell, in the family `expires`. So values are plain: a
number is its 8 bytes and nothing else, and the cells of a report cost no second cell each.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from widerow.engine.bigtable.answers import Page
from widerow.engine.bigtable.families import EXPIRES_CODE, NAMES, max_age_us
from widerow.engine.bigtable.mutations import DEFAULT_S, NEVER_S, elsewhere
from widerow.engine.rows import NEVER, Column
from widerow.model.arrays import Flags, Ints
from widerow.model.errors import Corrupt
from widerow.model.names import Coded
from widerow.model.times import MAX_TIME_US, SECOND
from widerow.schema.table import Table


def default_s(table: Table, keys: Mapping[str, Column], n: int) -> Ints:
    """The second in which each row expires unless it says otherwise; NEVER_S: it does not."""
    never = np.full(n, NEVER_S, np.int64)
    if not table.window or not table.clustering:
        return never
    time_us = keys[table.clustering[0].name]
    if isinstance(time_us, Coded):
        return never
    sane = (time_us >= 0) & (time_us <= MAX_TIME_US)
    return np.where(sane, _seconds(np.where(sane, time_us, 0) + table.window.keep_us), NEVER_S)


def stored_s(table: Table, keys: Mapping[str, Column], expire_us: Ints) -> Ints:
    """What to store for each row: the second it expires in, NEVER_S, or DEFAULT_S for what need not be stored."""
    wanted = np.where(expire_us > MAX_TIME_US, NEVER_S, _seconds(np.clip(expire_us, 0, MAX_TIME_US)))
    return np.where(wanted == default_s(table, keys, len(expire_us)), DEFAULT_S, wanted)


def _seconds(time_us: Ints) -> Ints:
    return (time_us + SECOND - 1) // SECOND


def outlives_its_age(
    table: Table, keys: Mapping[str, Column], version_us: Ints, expire_us: Ints, *, margin_us: int
) -> Flags:
    """Which rows Bigtable would collect, by the age of their version, before they expire."""
    if not table.window:
        return np.zeros(len(version_us), np.bool_)
    collected_us = version_us + max_age_us(table.window, margin_us)
    return np.asarray((expire_us > collected_us) & window_open(table, keys, collected_us))


def expire_us(table: Table, keys: Mapping[str, Column], page: Page) -> Ints:
    """When each cell of a page expires."""
    per_row = default_s(table, keys, len(page))
    out = np.repeat(np.where(per_row == NEVER_S, NEVER, per_row * SECOND), page.offsets[1:] - page.offsets[:-1])
    said = np.flatnonzero(page.family == EXPIRES_CODE)
    if len(said):
        _apply(page, said, out)
    return out


def _apply(page: Page, said: Ints, out: Ints) -> None:
    """What is said beside cells. Rare, so cell by cell."""
    row = np.repeat(np.arange(len(page)), page.offsets[1:] - page.offsets[:-1])
    names = page.qualifiers.to_bytes_list()
    at, qualifier, timestamp = row.tolist(), page.qualifier.tolist(), page.timestamp_us.tolist()
    known: dict[tuple[int, bytes, int], int] = {}
    for c, text in zip(said.tolist(), page.values(said), strict=True):
        if text != b"never" and not text.isdigit():
            raise Corrupt(f"row {page.keys.bytes_at(at[c])!r} has an expiry that cannot be read: {text!r}")
        known[at[c], names[qualifier[c]], timestamp[c]] = NEVER if text == b"never" else int(text) * SECOND
    for c in np.flatnonzero(np.isin(row, row[said]) & (page.family < EXPIRES_CODE)).tolist():
        cell = at[c], elsewhere(NAMES[page.family[c]], names[qualifier[c]]), timestamp[c]
        out[c] = known.get(cell, out[c])


def window_open(table: Table, keys: Mapping[str, Column], now_us: Ints) -> Flags:
    """Which rows lie in windows that are still kept, each at its own time."""
    if not table.window:
        return np.ones(len(now_us), np.bool_)
    start_us = keys[table.window.column]
    assert not isinstance(start_us, Coded)
    width_us, keep_us = table.window.width_us, table.window.keep_us
    return np.asarray(start_us // width_us > (now_us - keep_us) // width_us - 1)
