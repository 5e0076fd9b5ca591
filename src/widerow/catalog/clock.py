"""Whether the machine's clock may be trusted with what is thrown away. Of an embedded store.

Rule 1: it may not after it jumped ahead by more than an hour between two looks, or since the last run; nor when versions are
more than a few seconds ahead of it, since then it was set back, and one of the two times was wrong.
Rule 2: until it is trusted again nothing expires, what was erased is hidden but stays on disk, and no window is given up
because what it is rolled from seems to be gone. Reports are taken and questions answered all the same.
Rule 3: it is trusted again when reports of three devices agree with it by times of their own (stamps of receipt always
agree), when it jumps back, or when an operator says that it is right.
What was seen last, and what is not trusted, is in the store: a restart settles nothing.
"""

from __future__ import annotations

import logging
import threading

import msgspec
import numpy as np

from widerow.engine.port import Engine
from widerow.model.batch import RECEIVED_TAG, Batch
from widerow.model.errors import WiderowError
from widerow.model.store_clock import StoreClock
from widerow.model.tags import has_tag
from widerow.model.times import HOUR, MINUTE, SECOND, about_duration, format_time
from widerow.schema.tables import META

log = logging.getLogger(__name__)

KEY = ("clock",)
JUMP_US = HOUR
AHEAD_US = 5 * SECOND
AGREES_US = 10 * MINUTE
"""How far the time of a report may be from its arrival. Less than `JUMP_US`: what jumped does not agree."""
DEVICES = 3
_NOTE_EVERY_US = MINUTE


class _Seen(msgspec.Struct, frozen=True):
    """What is kept in the store."""

    at_us: int
    """What the machine's clock showed at the last look."""
    jumped_us: int = 0
    """By how much it jumped ahead since it was last trusted."""
    ahead_us: int = 0
    """How far versions were ahead of it when it was last trusted."""


_SEEN_DECODER = msgspec.json.Decoder(_Seen)


class ClockGuard:
    """Safe to share between threads."""

    def __init__(self, engine: Engine, clock: StoreClock, *, level: int = logging.WARNING) -> None:
        """`level`: what it says is logged at that."""
        self._engine, self._clock, self._level = engine, clock, level
        self._lock = threading.Lock()
        stored = engine.get(META, KEY)
        self._row = stored
        self._seen = _SEEN_DECODER.decode(str(stored["body"])) if stored else _Seen(clock.last_us or clock.now_us())
        self._noted = self._seen
        self._agreeing: set[tuple[str, str]] = set()
        self._doubt = ""

    @property
    def ahead_us(self) -> int:
        """How far versions are ahead of the machine's clock."""
        return self._clock.ahead_us

    def trusts(self) -> bool:
        """Whether what has expired may go."""
        return not self.look()

    def look(self) -> str:
        """Why the clock is not trusted; empty if it is."""
        with self._lock:
            self._look()
            return self._doubt

    def confirm(self) -> None:
        """An operator says that the clock is right."""
        with self._lock:
            self._look()
            self._trust("an operator says so")

    def heard(self, tenant: str, batch: Batch) -> None:
        """Reports that were just written: their own times may agree with the clock."""
        if not self._doubt or not len(batch):
            return
        near = np.abs(batch.time_us - self._clock.now_us()) <= AGREES_US
        near &= ~has_tag(batch.cells, RECEIVED_TAG[0])
        devices = {(tenant, batch.device.names[code]) for code in np.unique(batch.device.codes[near])[:DEVICES].tolist()}
        with self._lock:
            self._look()
            self._agreeing |= devices
            if self._doubt and len(self._agreeing) >= DEVICES:
                self._trust(f"the times of {DEVICES} devices agree with it")

    def _look(self) -> None:
        now_us, seen = self._clock.now_us(), self._seen
        step_us = now_us - seen.at_us
        jumped_us = seen.jumped_us
        if abs(step_us) > JUMP_US:
            self._agreeing.clear()
            jumped_us = max(0, jumped_us + step_us)
        jumped_us = jumped_us if jumped_us > JUMP_US else 0
        ahead_us = self._clock.ahead_us
        self._seen = _Seen(now_us, jumped_us, min(seen.ahead_us, ahead_us))
        doubt, before = self._why(now_us, jumped_us, ahead_us), self._doubt
        self._doubt = doubt
        if bool(doubt) != bool(before) or bool(jumped_us) != bool(seen.jumped_us):
            log.log(self._level, "%s", doubt or "the clock is trusted again: it was set right")
        if jumped_us != self._noted.jumped_us or not 0 <= now_us - self._noted.at_us < _NOTE_EVERY_US or self._row is None:
            self._note()

    def _why(self, now_us: int, jumped_us: int, ahead_us: int) -> str:
        until = f"nothing expires until {DEVICES} devices send times that agree, or `widerow doctor --confirm-clock` says so"
        shown = format_time(now_us - now_us % SECOND)
        if jumped_us:
            return f"the clock shows {shown}, {about_duration(jumped_us)} later than when it was last looked at: {until}"
        if ahead_us > self._seen.ahead_us + AHEAD_US:
            return f"the clock shows {shown}, {about_duration(ahead_us)} before what was written last: {until}"
        return ""

    def _trust(self, why: str) -> None:
        if self._doubt:
            log.log(self._level, "the clock is trusted again: %s", why)
        self._agreeing.clear()
        self._seen = _Seen(self._seen.at_us, 0, self._clock.ahead_us)
        self._doubt = ""
        self._note()

    def _note(self) -> None:
        row = {"body": msgspec.json.encode(self._seen).decode()}
        try:
            if not self._engine.put_if(META, KEY, row, self._row):
                self._row = self._engine.get(META, KEY)
                return
        except WiderowError as error:
            log.warning("the time could not be noted in the store: %s", error)
            return
        self._row, self._noted = row, self._seen
