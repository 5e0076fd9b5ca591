"""Rolling as it goes on: a thread that rolls what is due, hour by hour.

An hour is due when it has ended and its reports have had `lateness_us` to arrive; and when nothing has been marked in it for
`settle_us`, so that a backlog that is just coming in is rolled once, not with every request. An hour that is written to
without a pause is rolled after `longest_us` all the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from widerow.model.errors import NotFound, WiderowError
from widerow.model.tenant import Tenant
from widerow.model.times import HOUR, MINUTE, SECOND, Clock
from widerow.rollup.marks import Marks, Unit
from widerow.rollup.roll import Roller

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingSettings:
    lateness_us: int = 2 * MINUTE
    settle_us: int = 10 * SECOND
    longest_us: int = 5 * MINUTE
    every_s: float = 5.0


class Rolling:
    """The thread. `tenant` gives a tenant by its name as it is now, or raises `NotFound`."""

    def __init__(
        self,
        marks: Marks,
        roller: Roller,
        tenant: Callable[[str], Tenant],
        clock: Clock,
        settings: RollingSettings | None = None,
        rolled: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._marks, self._roller, self._tenant, self._clock = marks, roller, tenant, clock
        self._settings = settings or RollingSettings()
        self._rolled = rolled
        self._first_seen_us: dict[Unit, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roll")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is not rolled stays marked."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def due(self) -> list[Unit]:
        """What is to be rolled now, oldest first."""
        now_us, s = self._clock.now_us(), self._settings
        pending = self._marks.pending()
        self._first_seen_us = {unit: self._first_seen_us.get(unit, now_us) for unit in pending}
        return sorted(
            unit
            for unit, marked_us in pending.items()
            if unit.hour_us + HOUR + s.lateness_us <= now_us
            and (marked_us + s.settle_us <= now_us or self._first_seen_us[unit] + s.longest_us <= now_us)
        )

    def roll_due(self) -> int:
        """Roll what is due, and say how many hours of devices that were. One that fails is tried again later."""
        count = 0
        for unit in self.due():
            if self._stopping.is_set():
                break
            try:
                rolled = self._roller.roll(self._tenant(unit.tenant), unit)
                self._first_seen_us.pop(unit, None)
                self._rolled(rolled)
                count += rolled
            except NotFound:
                self._marks.forget(unit)  # its tenant was deleted, and its data with it
            except WiderowError as error:
                log.warning("rolling %s: %s; it is tried again", unit, error)
        return count

    def _run(self) -> None:
        while not self._stopping.wait(self._settings.every_s):
            try:
                self.roll_due()
            except Exception:
                log.exception("rolling failed; it is tried again in %s s", self._settings.every_s)
