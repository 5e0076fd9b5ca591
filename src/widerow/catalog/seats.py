"""How many devices a tenant with a limit has, counted in the store: for processes that register devices side by side.

A row for each such tenant, changed by `put_if` alone. Who wants to register devices takes seats first, then inserts, then
says how many of them it used.
Rule 1: what is stored and what is taken are never more than the limit together, so no two processes exceed it.
Rule 2: nobody is refused while seats are taken and not settled: who has waited for them for a moment is told to come again;
nor before it was counted once more, if that is due: seats that a process took and died with, or that a deletion did not give
back, are found again.
Rule 3: a limit that is new or was changed is counted for afresh, and once more when every process knows of it.
Processes that have a store for themselves need none of this: they count what they know.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from widerow.engine.port import Engine
from widerow.engine.rows import Row
from widerow.model.errors import Unavailable
from widerow.model.tenant import Tenant
from widerow.model.times import MINUTE, Clock
from widerow.schema.tables import DEVICE_SEATS

_TRIES, _TRIES_IN_HASTE = 100, 20
"""How often a row that others changed meanwhile is read and written again: with rests of about 20 s in all, and of 2 s where
everybody else waits meanwhile.
"""
_WIDEST_S = 0.5
"""Between tries. A conditional write of a row that many write costs a shared store several turns between its nodes, and all
but one of them are in vain: who has lost often comes seldom, so that somebody gets through.
"""
_WAITS, _WAITS_IN_HASTE = 40, 8
"""How often somebody who wants more seats than are free looks again whether others have settled theirs: for about 0.7 s, and
for 0.04 s in haste.
"""
_LOST_US = MINUTE
"""A process that has not said for so long what became of its seats is dead, or has lost the store."""
_RECOUNT_US = MINUTE // 2
"""How often it is counted again for somebody who would be refused."""


class _Open(msgspec.Struct, frozen=True, array_like=True):
    """Seats that were taken and not accounted for."""

    seats: int
    at_us: int
    is_doubtful: bool = False
    """It was counted anew meanwhile: nobody knows whether their devices were among those that were counted."""


class _Seats(msgspec.Struct, frozen=True):
    count: int
    revision: int
    """Of the tenant, when its limit was last counted for."""
    counted_us: int
    settles_us: int = 0
    """When it is to be counted once more; 0: not for this reason."""
    open: dict[str, _Open] = {}

    def free(self, allowed: int) -> int:
        return max(0, allowed - self.count - sum(taken.seats for taken in self.open.values()))

    def is_contested(self, wanted: int, allowed: int) -> bool:
        return bool(self.open) and self.free(allowed) < wanted


_SEATS_DECODER = msgspec.json.Decoder(_Seats)


@dataclass(frozen=True, slots=True)
class Taken:
    """Seats for that many devices, until `Seats.settle`."""

    id: str
    seats: int
    contested: bool = False
    """There are fewer than were wanted, but others have taken some that they may give back, or were faster every time."""


class Seats:
    """Of all tenants. Safe to share between threads and processes."""

    def __init__(self, engine: Engine, clock: Clock, *, refresh_us: int) -> None:
        self._engine, self._clock, self._refresh_us = engine, clock, refresh_us

    def take(self, tenant: Tenant, wanted: int, allowed: int, stored: Callable[[], int], *, in_haste: bool = False) -> Taken:
        """As many seats of `wanted` as there are. `stored` counts the devices that are in the store; it is asked seldom."""
        waits = iter(range(_WAITS_IN_HASTE if in_haste else _WAITS))
        for _ in _tries(_TRIES_IN_HASTE if in_haste else _TRIES):
            row, seats = self._awaited(tenant, wanted, allowed, waits)
            if seats is None or self._is_due(seats, tenant, wanted, allowed):
                self._recount(tenant, row, seats, stored)
                continue
            granted, contested = min(wanted, seats.free(allowed)), seats.is_contested(wanted, allowed)
            if not granted:
                return Taken("", 0, contested)
            taken = Taken(secrets.token_hex(8), granted, contested)
            opened = {**seats.open, taken.id: _Open(granted, self._clock.now_us())}
            if self._put(tenant.name, row, msgspec.structs.replace(seats, open=opened)):
                return taken
        return Taken("", 0, contested=True)

    def settle(self, tenant: str, taken: Taken, used: int) -> None:
        """So many of the seats that were taken have a device now; the others are free again."""
        if not taken.seats:
            return
        for _ in _tries_or_fails(tenant):
            row, seats = self._read(tenant)
            if seats is None:  # the tenant was deleted meanwhile
                return
            found = seats.open.get(taken.id)
            doubtful = found is None or found.is_doubtful
            left = {key: value for key, value in seats.open.items() if key != taken.id}
            settles_us = self._clock.now_us() if doubtful else seats.settles_us
            settled = msgspec.structs.replace(seats, count=seats.count + used, open=left, settles_us=settles_us)
            if self._put(tenant, row, settled):
                return

    def give_back(self, tenant: str, count: int) -> None:
        """So many devices are no more."""
        for _ in _tries_or_fails(tenant):
            row, seats = self._read(tenant)
            if seats is None or self._put(tenant, row, msgspec.structs.replace(seats, count=max(0, seats.count - count))):
                return

    def forget(self, tenant: str) -> None:
        """The tenant is no more."""
        for _ in _tries_or_fails(tenant):
            row, _ = self._read(tenant)
            if row is None or self._engine.put_if(DEVICE_SEATS, (tenant,), None, row):
                return

    def _awaited(self, tenant: Tenant, wanted: int, allowed: int, waits: Iterator[int]) -> tuple[Row | None, _Seats | None]:
        """What is stored, as soon as it is to be counted anew, or nobody has seats in hand any more that are wanted: who has
        the last ones may give some back in a moment. Or, after so many waits, as it is.
        """
        while True:
            row, seats = self._read(tenant.name)
            if seats is None or not seats.is_contested(wanted, allowed) or self._is_due(seats, tenant, wanted, allowed):
                return row, seats
            wait = next(waits, None)
            if wait is None:
                return row, seats
            _pause(min(0.05, 0.002 * (wait + 1)))

    def _is_due(self, seats: _Seats, tenant: Tenant, wanted: int, allowed: int) -> bool:
        now_us = self._clock.now_us()
        if seats.revision < tenant.revision or 0 < seats.settles_us <= now_us:
            return True
        return seats.free(allowed) < wanted and now_us - seats.counted_us >= _RECOUNT_US

    def _recount(self, tenant: Tenant, row: Row | None, seats: _Seats | None, stored: Callable[[], int]) -> None:
        """Should anybody take or settle meanwhile, nothing is changed, and it is counted again."""
        now_us = self._clock.now_us()
        is_new = seats is None or seats.revision < tenant.revision
        opened = seats.open if seats else {}
        still = {
            key: msgspec.structs.replace(taken, is_doubtful=True)
            for key, taken in opened.items()
            if now_us - taken.at_us < _LOST_US
        }
        settles_us = now_us + 2 * self._refresh_us if is_new else 0
        self._put(tenant.name, row, _Seats(stored(), tenant.revision, now_us, settles_us, still))

    def _read(self, tenant: str) -> tuple[Row | None, _Seats | None]:
        row = self._engine.get(DEVICE_SEATS, (tenant,))
        return row, None if row is None else _SEATS_DECODER.decode(str(row["body"]))

    def _put(self, tenant: str, before: Row | None, seats: _Seats) -> bool:
        return self._engine.put_if(DEVICE_SEATS, (tenant,), {"body": msgspec.json.encode(seats).decode()}, before)


def _tries(most: int) -> Iterator[int]:
    """So many, each after a longer rest than the one before."""
    for number in range(most):
        if number:
            _pause(min(_WIDEST_S, 0.01 * 1.3**number))
        yield number


def _tries_or_fails(tenant: str) -> Iterator[int]:
    """Raises Unavailable in the end."""
    yield from _tries(_TRIES)
    raise Unavailable(f"too many register devices of {tenant} at once: try again")


def _pause(longest_s: float) -> None:
    """Of any length up to it, so that those who met do not meet again."""
    time.sleep(random.uniform(0, longest_s))  # noqa: S311 - spread
