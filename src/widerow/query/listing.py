"""Pages of a tenant's devices by what they do: sorted by name, last report or rate; those online, stale or hot; and counts.

Rule 1: a page costs a few passes over arrays (`catalog.directory`, `telemetry.presence`), whatever it is sorted by. In the
order of names without a filter it costs what it shows.
Rule 2: a cursor is the value and the name of the last device of a page. While devices report, their values change: a device
may then be on two pages, or on none.
Rule 3: devices that never reported are the last in every order by last report or rate, and they are stale.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from widerow.catalog.directory import Directory
from widerow.catalog.match import Match, Page
from widerow.model.arrays import Codes, Flags, Floats, Ints
from widerow.model.device import Device
from widerow.model.errors import Rejected
from widerow.telemetry.presence import Heard

SORTS = ("name", "-name", "last_seen", "-last_seen", "rate", "-rate")
ONLINE, STALE, HOT = "online", "stale", "hot"
STATES = (ONLINE, STALE, HOT)
MOST_LISTED = 100
"""Types and locations that are counted by name."""
_TRIES = 8
"""How often more devices are fetched where those that were found have changed meanwhile."""
_LAST = np.inf


@dataclass(frozen=True, slots=True)
class Counts:
    total: int
    online: int
    hot: int
    types: Sequence[tuple[str, int]]
    locations: Sequence[tuple[str, int]]


class _Cursor(msgspec.Struct, array_like=True):
    sort: str
    value: float
    name: str


_CURSOR_DECODER = msgspec.msgpack.Decoder(_Cursor)


class Listing:
    """The devices of one tenant, as they are now. For one request."""

    def __init__(self, directory: Directory, heard: Heard, hot: Sequence[str], now_us: int, online_us: int) -> None:
        """`hot`: the names of devices that are hot."""
        self._directory, self._heard, self._hot_names = directory, heard, hot
        self._now_us, self._online_us = now_us, online_us
        self._aligned: tuple[Ints, Ints] | None = None

    def counts(self, match: Match) -> Counts:
        d, chosen = self._directory, self._directory.matching(match)
        online, hot = self._online(), self._hot()
        if chosen is not None:
            online, hot = online & chosen, hot & chosen
        return Counts(
            len(d) if chosen is None else int(chosen.sum()),
            int(online.sum()),
            int(hot.sum()),
            d.types.counts(chosen, MOST_LISTED),
            d.locations.counts(chosen, MOST_LISTED),
        )

    def page(
        self,
        match: Match,
        fetch: Callable[[Sequence[str]], Sequence[Device]],
        *,
        sort: str,
        state: str | None,
        limit: int,
        after: str | None,
    ) -> Page:
        """`fetch` gives the devices of some names as they are stored."""
        chosen = self._directory.matching(match)
        if state is not None:
            having = self._hot() if state == HOT else self._online() if state == ONLINE else ~self._online()
            chosen = having if chosen is None else chosen & having
        keys = self._keys(sort)
        cursor = _read(after, sort) if after else None
        found: list[Device] = []
        for _ in range(_TRIES):
            some = self._next(keys, chosen, sort, cursor, limit + 1 - len(found))
            if not len(some):
                return Page(tuple(found), None)
            names = self._directory.names.take(some).to_list()
            stored = {device.name: device for device in fetch(names)}
            for i, name in zip(some.tolist(), names, strict=True):
                if len(found) == limit:
                    assert cursor is not None
                    return Page(tuple(found), _written(cursor))
                cursor = _Cursor(sort, _LAST if keys is None else float(keys[i]), name)
                if name in stored and match.holds(stored[name]):
                    found.append(stored[name])
        return Page(tuple(found), _written(cursor) if cursor else None)

    # -- orders

    def _keys(self, sort: str) -> Floats | None:
        """What devices are sorted by, the smallest first; None: by name alone."""
        if sort.endswith("name"):
            return None
        at, ids = self._alignment()
        keys = np.full(len(self._directory), _LAST)
        values = (
            self._heard.rates(ids, self._now_us) if sort.endswith("rate") else self._heard.last_us[ids].astype(np.float64)
        )
        keys[at] = -values if sort.startswith("-") else values
        return keys

    def _next(self, keys: Floats | None, chosen: Flags | None, sort: str, cursor: _Cursor | None, count: int) -> Ints:
        """The devices behind the cursor, `count` at most, in their order."""
        if keys is None:
            return self._next_names(chosen, sort == "-name", cursor, count)
        within = np.arange(len(keys)) if chosen is None else np.flatnonzero(chosen)
        if cursor:
            behind = self._behind(cursor.name)
            mine = keys[within]
            within = within[(mine > cursor.value) | ((mine == cursor.value) & (within >= behind))]
        if len(within) > count:
            mine = keys[within]
            most = np.partition(mine, count - 1)[count - 1]
            less = within[mine < most]
            within = np.concatenate([less, within[mine == most][: count - len(less)]])
        return within[np.lexsort((within, keys[within]))]

    def _next_names(self, chosen: Flags | None, descending: bool, cursor: _Cursor | None, count: int) -> Ints:
        first, stop = 0, len(self._directory)
        if cursor and descending:
            stop = self._directory.find(cursor.name)
        elif cursor:
            first = self._behind(cursor.name)
        if chosen is None:
            return (
                np.arange(max(first, stop - count), stop)[::-1] if descending else np.arange(first, min(stop, first + count))
            )
        within = np.flatnonzero(chosen[first:stop]) + first
        return within[::-1][:count] if descending else within[:count]

    def _behind(self, name: str) -> int:
        """The index of the first device after this name."""
        i = self._directory.find(name)
        return i + (i < len(self._directory) and self._directory.names[i] == name)

    # -- states

    def _alignment(self) -> tuple[Ints, Ints]:
        """The devices that reported: where they are in the directory, and what was heard of them."""
        if self._aligned is None:
            ids: Codes = self._directory.ids_in(self._heard.table)
            last_us = self._heard.last_us
            at = np.flatnonzero((ids >= 0) & (ids < len(last_us)))
            at = at[last_us[ids[at]] >= 0]
            self._aligned = at, ids[at].astype(np.int64)
        return self._aligned

    def _online(self) -> Flags:
        at, ids = self._alignment()
        online = np.zeros(len(self._directory), np.bool_)
        online[at] = self._heard.last_us[ids] > self._now_us - self._online_us
        return online

    def _hot(self) -> Flags:
        hot = np.zeros(len(self._directory), np.bool_)
        hot[list(self._indices(self._hot_names))] = True
        return hot

    def _indices(self, names: Sequence[str]) -> Iterator[int]:
        for name in names:
            i = self._directory.find(name)
            if i < len(self._directory) and self._directory.names[i] == name:
                yield i


def _written(cursor: _Cursor) -> str:
    return urlsafe_b64encode(msgspec.msgpack.encode(cursor)).decode().rstrip("=")


def _read(text: str, sort: str) -> _Cursor:
    try:
        cursor = _CURSOR_DECODER.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (Base64Error, ValueError, msgspec.MsgspecError):
        cursor = None
    if cursor is None or cursor.sort != sort:
        raise Rejected("the cursor is not one that a page in this order gave: start without one", code="cursor")
    return cursor
