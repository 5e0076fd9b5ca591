"""What other processes ask of rollups: they erase, or mend, and mark in the store what is to be rolled again.

A process that knows by heart what is marked has to look for such marks.
Rule 1: it looks now and then, and soon after it learned of an erasure that it does not know to be settled.
Rule 2: an erasure is settled when it was found done, and the marks were looked up after that: who works one off writes its
marks before it says so. Until then it is in doubt (see `doubts`), so that answers are right meanwhile.
Rule 3: the look only adds to what is known. It is taken by the thread that rolls, so that nothing it finds is worked off
before it is noted. Of windows that have not ended nobody else has anything to mark: what is not rolled cannot be wrong.
A process that looks into the store for every answer, or has it for itself, settles an erasure as soon as it is done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from widerow.engine.port import Engine
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, Clock
from widerow.rollup.backlog import waiting_in
from widerow.rollup.doubts import Doubts
from widerow.rollup.marks import Marks
from widerow.rollup.roll import Roller
from widerow.schema.rollups import DIRTY, DIRTY_DAYS, DIRTY_FLEET
from widerow.schema.shards import SHARDS
from widerow.telemetry.erasure import Erasure, Mark

_LOOK_EVERY_US = MINUTE
_SETTLE_EVERY_US = 5 * SECOND
_REST = 20
"""A look at a long backlog may take seconds: so many times as long there is none."""
_APART_US = MINUTE
"""More than clocks of two processes may differ by."""


class Others:
    """Safe to share between threads; `look` is called by the one that rolls."""

    def __init__(
        self,
        engine: Engine,
        erasure: Erasure,
        marks: Marks,
        roller: Roller,
        tenants: Callable[[], Iterable[str]],
        clock: Clock,
        *,
        looks: bool,
    ) -> None:
        """`looks`: this process knows by heart what is marked, and others may mark, too."""
        self._engine, self._erasure, self._tenants, self._clock = engine, erasure, tenants, clock
        self._lines = ((DIRTY, marks, HOUR), (DIRTY_DAYS, roller.days, DAY), (DIRTY_FLEET, roller.fleet, HOUR))
        self.looks = looks
        self.doubts = Doubts()
        self._lock = threading.Lock()
        self._looked_us = self._settled_us = 0
        self._rests_until_us = 0
        erasure.learned = self._learned

    def recovered(self, began_us: int) -> None:
        """All marks were looked up, from then on."""
        self._looked_us = began_us

    def _learned(self, tenant: str, mark: Mark) -> None:
        """Of an erasure: by this process just now, or by another, lately or long ago."""
        if not mark.done_us or (self.looks and mark.done_us > self._looked_us - _APART_US):
            self.doubts.add(tenant, mark)

    def follow(self, tenant: str) -> None:
        """Before an answer is planned: have what others erased in doubt."""
        self._erasure.marks(tenant)
        if not self.looks and self._is_time_to_settle():
            self.doubts.settle(self._done())

    def look(self) -> None:
        """Learn what others marked, if it is time to."""
        now_us = self._clock.now_us()
        if not self.looks or now_us < self._rests_until_us:
            return
        done = self._done() if self._is_time_to_settle() else []
        if now_us - self._looked_us >= _LOOK_EVERY_US:
            self._look(self._tenants(), now_us)
            self._looked_us = now_us
        elif done:
            self._look({tenant for tenant, _ in done}, now_us)
        self.doubts.settle(done)
        ended_us = self._clock.now_us()
        self._rests_until_us = ended_us + _REST * (ended_us - now_us)

    def _look(self, tenants: Iterable[str], now_us: int) -> None:
        tenants = list(tenants)
        for table, known, width_us in self._lines:
            found = waiting_in(self._engine, table, tenants, range(SHARDS), now_us - now_us % width_us)
            for unit, at_us in found.items():
                known.note((unit,), at_us)

    def _is_time_to_settle(self) -> bool:
        now_us = self._clock.now_us()
        with self._lock:
            if now_us - self._settled_us < _SETTLE_EVERY_US:
                return False
            self._settled_us = now_us
        return True

    def _done(self) -> list[tuple[str, Mark]]:
        """What is in doubt and was worked off, by whichever process."""
        doubts = self.doubts.all()
        unfinished = {(tenant, mark) for tenant, mark, _ in self._erasure.unfinished()} if doubts else set()
        return [doubt for doubt in doubts if doubt not in unfinished]
