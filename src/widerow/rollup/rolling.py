"""Rolling as it goes on: a thread that closes minutes and rolls what is due: hours, then days and the fleet's hours.

A window is due when it has ended and its reports have had `lateness_us` to arrive; and when nothing has been written to it
for `settle_us`, so that a backlog that is just coming in is rolled once, not with every request. A window that is written to
without a pause is rolled after `longest_us` all the same. One of which some bytes cannot be read is tried again every
`_UNREADABLE_US`; the others go on.

Minutes are closed first, as open ones take memory: also between the parts of an hour that is being rolled.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, zip_longest
from typing import Protocol

from widerow.model.errors import Corrupt, NotFound, WiderowError
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, Clock, format_duration, format_time
from widerow.rollup.crew import Crew
from widerow.rollup.marks import Marks
from widerow.rollup.roll import Rolled, Roller
from widerow.rollup.unit import Unit
from widerow.rollup.windows import Windows
from widerow.schema.rollups import DIRTY, DIRTY_DAYS, DIRTY_FLEET
from widerow.schema.shards import SHARDS

log = logging.getLogger(__name__)

_CLOSE_EVERY_US = SECOND // 2
_SORT_EVERY_S = 0.1
"""What came in is sorted little by little: a second of it at once holds up whoever comes meanwhile."""
_LONGEST_PASS_US = 10 * SECOND
_LOOK_EVERY_US = 10 * SECOND
_WAIT_US = 10 * SECOND
"""After something failed for a tenant."""
_UNREADABLE_US = 5 * MINUTE
"""After bytes that a window is rolled from could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingSettings:
    lateness_us: int = 20 * SECOND
    settle_us: int = 10 * SECOND
    longest_us: int = 5 * MINUTE
    every_s: float = 1.0


class _Stopped(Exception):
    """The thread was told to stop in the middle of a roll."""


class FleetRoller(Protocol):
    """Computes what a tenant's fleet says of an hour again, from the hours of the devices of some shards."""

    between: Callable[[], None]
    """Called between the parts of that."""

    def roll(self, tenant: Tenant, *units: Unit) -> Rolled: ...


@dataclass(slots=True)
class _Line:
    """One kind of window that waits to be rolled."""

    level: str
    width_us: int
    pending: Callable[[], Mapping[Unit, int]]
    roll: Callable[..., Rolled]
    """Of a tenant and units of one window."""
    forget: Callable[..., None]
    """Of such units."""
    first_seen_us: dict[Unit, int] = field(default_factory=dict)
    put_off_us: dict[Unit, int] = field(default_factory=dict)
    """When those were tried last that cannot be read."""

    def due(self, clock: Clock, s: RollingSettings) -> list[Unit]:
        """What is to be rolled now; of each tenant the oldest first. Marks are dated by versions."""
        pending, now_us, version_us = self.pending(), clock.now_us(), clock.version_us()
        self.first_seen_us = {unit: min(self.first_seen_us.get(unit, now_us), now_us) for unit in pending}
        self.put_off_us = {u: at_us for u, at_us in self.put_off_us.items() if at_us <= now_us < at_us + _UNREADABLE_US}
        return sorted(
            unit
            for unit, marked_us in pending.items()
            if unit not in self.put_off_us
            and unit.start_us + self.width_us + s.lateness_us <= now_us
            and (marked_us + s.settle_us <= version_us or self.first_seen_us[unit] + s.longest_us <= now_us)
        )


class Rolling:
    """The thread. `tenant` gives a tenant by its name as it is now, or raises `NotFound`.

    `may_roll` raises while another process is the one that does it. Tenants take turns, a window each; one for which
    something fails waits, and the others go on.
    """

    def __init__(
        self,
        marks: Marks,
        roller: Roller,
        tenant: Callable[[str], Tenant],
        clock: Clock,
        settings: RollingSettings | None = None,
        *,
        windows: Windows | None = None,
        fleet: FleetRoller | None = None,
        may_roll: Callable[[], object] = lambda: None,
        place: Callable[[], AbstractContextManager[None]] = nullcontext,
        rolled: Callable[[str, Rolled], None] = lambda _level, _rolled: None,
        crew: Crew | None = None,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """`crew`: others roll, too; this one its shards, and what it finds marked there. `look`: called before anything is
        rolled, to learn what others marked. `place`: what each window is rolled in; it may wait for that.
        """
        self._stopping = threading.Event()
        self._marks, self._crew, self._looked_us = marks, crew, 0
        self._roller, self._tenant, self._clock, self._windows = roller, tenant, clock, windows
        self._settings = settings or RollingSettings()
        self._may_roll, self._place, self._rolled = may_roll, place, rolled
        days = roller.days
        self._lines = [
            _Line("hour", HOUR, marks.pending, roller.roll, marks.forget),
            _Line("day", DAY, days.pending, roller.roll_day, lambda *units: days.finish(units, self._clock.version_us())),
        ]
        if fleet is not None:
            hours = roller.fleet
            self._lines.append(
                _Line("fleet", HOUR, hours.pending, fleet.roll, lambda *units: hours.finish(units, self._clock.version_us()))
            )
            fleet.between = self._close_minutes
        self._fleet = fleet
        self._look_around, self._closed_us = look, 0
        self._waits_until_us: dict[str, int] = {}
        roller.between = self._close_minutes
        self._thread = threading.Thread(target=self._run, name="roll")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is not rolled stays marked."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._roller.between = _nothing  # others may roll on
        if self._fleet is not None:
            self._fleet.between = _nothing

    def due(self) -> list[Unit]:
        """The hours that are to be rolled now."""
        return self._lines[0].due(self._clock, self._settings)

    def roll_due(self) -> int:
        """Close and roll what is due, and say how many windows of devices that were. What fails is tried again later."""
        self._may_roll()
        self._close_minutes()
        self._look()
        self._look_around()
        count = 0
        for line in self._lines:
            began_us = self._clock.now_us()
            for name, units in _in_turns(line.due(self._clock, self._settings)):
                # What has become due meanwhile may be more urgent than the rest of a backlog.
                if self._stopping.is_set() or abs(self._clock.now_us() - began_us) > _LONGEST_PASS_US:
                    break
                self._may_roll()
                count += self._roll(line, name, units)
        return count

    def _look(self) -> None:
        """Where others write, what is to be rolled is found in the store: of what has ended, now and then."""
        now_us = self._clock.now_us()
        if self._crew is None or now_us - self._looked_us < min(_LOOK_EVERY_US, self._crew.settings.share_us):
            return
        ended_us = now_us - self._settings.lateness_us
        hours_us, days_us = ended_us - ended_us % HOUR, ended_us - ended_us % DAY
        self._marks.learn(self._crew.waiting(DIRTY, hours_us))
        self._roller.days.learn(self._crew.waiting(DIRTY_DAYS, days_us))
        leads = self._crew.leads()
        self._roller.fleet.learn(self._crew.waiting(DIRTY_FLEET, hours_us, all_shards=True) if leads else {})
        self._looked_us = now_us

    def _close_minutes(self) -> None:
        """Minutes come first, also while hours are being rolled: what is open takes memory."""
        if self._stopping.is_set():
            raise _Stopped
        if self._windows is None or 0 <= self._clock.now_us() - self._closed_us < _CLOSE_EVERY_US:
            return
        for name in self._windows.tenants():
            self._tried(name, self._roller.close, partial(self._windows.let_go, name))
        self._closed_us = self._clock.now_us()

    def _roll(self, line: _Line, name: str, units: Sequence[Unit]) -> int:
        """Units of one window: together they take a sync instead of one each."""
        done: list[Rolled] = []
        with self._place():
            self._tried(name, lambda tenant: done.append(_rolled(line, tenant, units)), lambda: line.forget(*units))
        for rolled in done:
            for unit in rolled.unreadable:
                line.put_off_us[unit] = self._clock.now_us()
            if rolled.unreadable:
                log.error(
                    "%s: the %s from %s on is not rolled for %s of %s shards: %s; the shards rolled before stay; "
                    "it is tried again in %s",
                    *(name, line.level, format_time(units[0].start_us), len(rolled.unreadable), SHARDS, rolled.trouble),
                    format_duration(_UNREADABLE_US),
                )
            for unit in units:
                line.first_seen_us.pop(unit, None)
            self._rolled(line.level, rolled)
        return sum(rolled.devices for rolled in done)

    def _tried(self, name: str, work: Callable[[Tenant], object], forget: Callable[[], None]) -> None:
        if 0 < self._waits_until_us.get(name, 0) - self._clock.now_us() <= _WAIT_US:
            return
        try:
            try:
                tenant = self._tenant(name)
            except NotFound:
                forget()  # it was deleted, and its data with it
            else:
                work(tenant)
        except _Stopped:
            return  # what was under way is still marked
        except WiderowError as error:
            log.warning("rolling for %s: %s; it is tried again in %s", name, error, format_duration(_WAIT_US))
        except Exception:
            log.exception("rolling for %s failed; it is tried again in %s", name, format_duration(_WAIT_US))
        else:
            self._waits_until_us.pop(name, None)
            return
        self._waits_until_us[name] = self._clock.now_us() + _WAIT_US

    def _run(self) -> None:
        due_s = time.monotonic() + self._settings.every_s
        while not self._stopping.wait(min(self._settings.every_s, _SORT_EVERY_S)):
            try:
                if self._windows is not None:
                    self._windows.sort()
                if time.monotonic() < due_s:
                    continue
                self.roll_due()
            except _Stopped:
                return
            except WiderowError as error:
                log.warning("rolling: %s; it is tried again", error)
            except Exception:
                log.exception("rolling failed; it is tried again in %gs", self._settings.every_s)
            due_s = time.monotonic() + self._settings.every_s


def _nothing() -> None: ...


def _rolled(line: _Line, tenant: Tenant, units: Sequence[Unit]) -> Rolled:
    """What rolling them came to, also where not even their marks can be read."""
    try:
        return line.roll(tenant, *units)
    except Corrupt as error:
        return Rolled(0, unreadable=tuple(units), trouble=str(error))


def _in_turns(due: Sequence[Unit]) -> Iterator[tuple[str, list[Unit]]]:
    """The units of one window together; tenants in turn."""
    windows = (list(units) for _, units in groupby(due, lambda unit: (unit.tenant, unit.start_us)))
    by_tenant = (list(some) for _, some in groupby(windows, lambda units: units[0].tenant))
    for turn in zip_longest(*by_tenant):
        yield from ((units[0].tenant, units) for units in turn if units)
