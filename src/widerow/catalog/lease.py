"""The writer's lease: of the processes that share a store, one takes reports; or one crew of them does.

A row of META says which, and until when. It is taken and renewed by `put_if`, so two processes never both take it; and it
runs out by itself, so one that was killed keeps its successor waiting for the length of a lease at the most.

What it protects is what a writer knows by heart instead of asking the store for each batch: which devices and metrics are
catalogued, which bucket of a device is its last; rollups, when there are any. Epochs protect themselves: they begin later
than any writer's knowledge is old. The reports need no protection: they carry versions, the greatest wins, and writing one
twice changes nothing. So a write that is under way when the lease runs out may end, and is acknowledged if it does: it is
durable. None is begun after that.

Rule 1: a lease counts from before the request that wrote it, and its holder stops a tenth of its length before the end.
Rule 2: for others it has run out when its end has passed by their clock, or when they watched it for its whole length and
it did not change. Whoever lives renews it three times in that.
Rule 3: who lost it refuses reports until it has it again: at once, if nobody took it; if somebody did, when that one is
gone, and having forgotten what it knew by heart.

A crew (the workers behind a log, who write what it gives them, and know nothing by heart that another could make wrong; see
`rollup.crew`) has one lease together, so that nobody else writes beside it. It runs out when the last of them is gone.

Clocks: by rule 1, of hosts whose clocks differ by less than a tenth of a length, no two ever begin a write at once. A clock
that is ahead by two thirds of it takes the lease from a holder that lives, which learns of it when it next renews; until
then both write, and what the lease protects may be off. A clock that is behind, or a dead holder's that was ahead, costs a
wait, by rule 2 of one length. Versions come from the writer's clock, too: after one that was ahead, a correction loses
against what it corrects for as long as the clocks differ.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from widerow.engine.port import Engine
from widerow.engine.rows import Row
from widerow.model.errors import ConfigError, Corrupt, NotTheWriter, Unavailable, WiderowError
from widerow.model.times import SECOND, Clock, format_duration, format_time
from widerow.schema.tables import META

log = logging.getLogger(__name__)

KEY = ("writer",)
_TRIES = 3
_LONGEST_STEP_S = 1.0


@dataclass(frozen=True, slots=True)
class Process:
    """Who asks for a lease. `id` is random: a host and a process id come again."""

    id: str
    host: str
    pid: int
    crew: bool = False
    """It is one of several that hold the lease together: each renews it, and none gives it up."""

    @classmethod
    def this(cls, crew: str = "") -> Process:
        """`crew`: the name of the group of processes that this is one of."""
        return cls(f"crew:{crew}" if crew else secrets.token_hex(8), socket.gethostname(), os.getpid(), bool(crew))


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who has a lease: the body of its row, as JSON."""

    id: str
    host: str
    pid: int
    from_us: int
    """Since when it has it, renewals included."""
    until_us: int
    length_us: int
    """How long it lasts from a renewal on."""

    def __str__(self) -> str:
        since, until = (format_time(us - us % SECOND) for us in (self.from_us, self.until_us))
        return f"process {self.pid} on {self.host}, since {since}, with a lease until {until}"


_HOLDER_DECODER = msgspec.json.Decoder(Holder)


class Lease:
    """The lease of one store, as one process sees it. `check` and the like from any thread; the rest from one at a time."""

    def __init__(self, engine: Engine, clock: Clock, process: Process, *, length_us: int) -> None:
        self._engine, self._clock, self._process = engine, clock, process
        self.length_us = length_us
        self.on_return: Callable[[], None] = lambda: None
        """Called before this process writes again after another one did."""
        self.other: Holder | None = None
        """Who had it when it was last asked for, if that was another process."""
        self._ends_us = 0
        self._had_it = False
        self._was_away = False
        """Another process may have written since this one did."""
        self._term = 0
        self._watched: Holder | None = None
        self._watched_from_us = 0

    def held(self) -> bool:
        return self._clock.now_us() < self._ends_us

    def trouble(self) -> str:
        """Why this process may not write; empty if it may. Names nobody: whoever asks may be anybody."""
        if self.held():
            return ""
        if self.other is not None:
            return "another process writes to this store and has its lease; the log says which"
        return "the writer's lease ran out, because the store did not answer in time or this process stood still"

    def check(self) -> int:
        """Before each report is taken in, and before each commit. Gives the number of the term: in another one, another
        process may have written meanwhile, and what was known in this one is not so any more.
        """
        if self._clock.now_us() >= self._ends_us:
            raise NotTheWriter(self.trouble() or "the writer's lease ran out", retry_after_s=self.length_us / 3 / SECOND)
        return self._term  # last: it is another one before the lease is held again

    def left_us(self, holder: Holder) -> int:
        """How much longer another's lease may keep us waiting."""
        return max(0, min(holder.until_us - self._clock.now_us(), holder.length_us))

    def take(self) -> bool:
        """Take the lease, or renew it. False: another process has it. `Unavailable`: the store does not say."""
        for _ in range(_TRIES):
            now_us = self._clock.now_us()
            stored = _read(self._engine)
            ours = stored is not None and stored.holder.id == self._process.id
            if stored is not None and not ours and not self._ran_out(stored, now_us):
                self.other, self._ends_us = stored.holder, 0
                return False
            self._was_away |= self._had_it and not ours
            if self._process.crew and stored is not None and ours and self._fresh(stored.holder, now_us):
                self._have(stored.holder.until_us)
                return True
            wanted = Holder(
                id=self._process.id,
                host=self._process.host,
                pid=self._process.pid,
                from_us=stored.holder.from_us if stored is not None and ours else now_us,
                until_us=now_us + self.length_us,
                length_us=self.length_us,
            )
            if self._engine.put_if(META, KEY, {"body": msgspec.json.encode(wanted).decode()}, stored and stored.row):
                self._have(wanted.until_us)
                return True
        raise Unavailable("the writer's lease keeps changing")

    def _fresh(self, holder: Holder, now_us: int) -> bool:
        """Whether another of the crew has just renewed it."""
        return 3 * (holder.until_us - now_us) > 2 * holder.length_us

    def _have(self, until_us: int) -> None:
        if self._was_away:
            self.on_return()
            self._term += 1
        self.other, self._had_it, self._was_away = None, True, False
        self._ends_us = until_us - self.length_us // 10

    def give_up(self) -> None:
        """Let the next one have it at once. If the store does not answer, it runs out by itself; so does that of a crew,
        of which others may go on.
        """
        self._ends_us = 0
        if self._process.crew:
            return
        try:
            stored = _read(self._engine)
            if stored is not None and stored.holder.id == self._process.id:
                self._engine.put_if(META, KEY, None, stored.row)
        except WiderowError as error:
            log.warning("the writer's lease is left to run out, in %s: %s", format_duration(self.length_us), error)

    def _ran_out(self, stored: _Stored, now_us: int) -> bool:
        if self._watched != stored.holder or now_us < self._watched_from_us:
            self._watched, self._watched_from_us = stored.holder, now_us
        return now_us >= stored.holder.until_us or now_us - self._watched_from_us >= stored.holder.length_us


def writer_of(engine: Engine, now_us: int) -> Holder | None:
    """Which process writes to a store, as far as its lease tells."""
    stored = _read(engine)
    return stored.holder if stored is not None and now_us < stored.holder.until_us else None


class _Stored(NamedTuple):
    row: Row
    """As `put_if` expects it."""
    holder: Holder


def _read(engine: Engine) -> _Stored | None:
    row = engine.get(META, KEY)
    if row is None:
        return None
    try:
        return _Stored(row, _HOLDER_DECODER.decode(str(row["body"])))
    except msgspec.MsgspecError as error:
        raise Corrupt(f"meta: the writer's lease cannot be read: {error}") from None


def wait_for(lease: Lease, say: Callable[[str], None], sleep: Callable[[float], None]) -> None:
    """Take a lease at the start of a process. One that was left by a dead one is waited for; `ConfigError`: it is alive."""
    if lease.take():
        return
    first = lease.other
    assert first is not None
    left_s = math.ceil(lease.left_us(first) / SECOND)
    say(f"the store has a writer: {first}; waiting up to {left_s}s for that to run out, in case it was killed")
    step_s = min(_LONGEST_STEP_S, first.length_us / 10 / SECOND)
    while True:
        sleep(step_s)
        if lease.take():
            return
        if lease.other != first:
            raise ConfigError(
                f"another process writes to this store: {lease.other}; send reports to that one, or stop it and try again"
            )


class Keeper:
    """Renews a lease in a thread of its own, until it is stopped. Each change for better or worse is logged once."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self._stopping = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="lease")
        self._thread.start()

    def stop(self) -> None:
        """Stop, and give the lease up. Nothing may be written afterwards."""
        self._stopping.set()
        self._thread.join()
        self.lease.give_up()

    def _run(self) -> None:
        renewed = True
        while not self._stopping.wait(self.lease.length_us / (3 if renewed else 10) / SECOND):
            renewed = self._renew()

    def _renew(self) -> bool:
        had, before = self.lease.held(), self.lease.other
        try:
            took = self.lease.take()
        except Exception as error:  # whatever it is, it is tried again
            if not self._failing:
                unexpected = not isinstance(error, WiderowError)
                log.warning("the writer's lease could not be renewed; trying again: %s", error, exc_info=unexpected)
            self._failing = True
            return False
        self._failing = False
        other = self.lease.other
        if other is not None and (before is None or before.id != other.id):
            log.error("another process writes to this store now: %s; reports are refused here until it is gone", other)
        elif took and not had:
            log.warning("the writer's lease had run out; this process has it again, and takes reports")
        return took


def keep(
    engine: Engine,
    clock: Clock,
    *,
    length_us: int,
    say: Callable[[str], None],
    crew: str = "",
    sleep: Callable[[float], None] = time.sleep,
) -> Keeper:
    """Take the lease of a store for this process, waiting if need be, and keep it. Makes META if there is none yet.

    `crew`: together with all others of that name.
    """
    engine.apply([META])
    lease = Lease(engine, clock, Process.this(crew), length_us=length_us)
    wait_for(lease, say, sleep)
    return Keeper(lease)
