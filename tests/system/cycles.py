"""Kill, restart, compare: the proof that nothing acknowledged is lost, as a library for the runner and the tests.

A run has one store and one ledger. A cycle puts load on the server, kills it at a random moment, starts it again, and
compares what the cycle sent with what the server now holds; the restarted server is the one the next cycle kills. At the end
everything is compared once more.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from system.ledger import MOST_SHOWN, Ledger
from system.unsynced.driver import Forgotten, Watch
from system.victim import TENANTS, Unexpected, Victim
from system.writers import Load, Slice, sending

LOAD_S = (0.2, 1.5)
_KILLED_AGAIN = 0.1
"""How often a restart is killed, too, while it recovers."""
_RESTART_S = (0.3, 2.5)
_SPREAD_US = 20 * 3_600_000_000
"""All slices together: several buckets, and well within every retention."""
_AGE_US = 22 * 3_600_000_000


@dataclass(frozen=True, slots=True)
class Cycle:
    """What happened in one, for the line that is shown."""

    number: int
    acknowledged: int
    unanswered: int
    load_s: float
    start_s: float
    check_s: float
    extra: str


@dataclass
class Run:
    """One store, mistreated `cycles` times. `watch` makes the disk forget what was not synced."""

    victim: Victim
    cycles: int
    chance: random.Random
    watch: Watch | None = None
    ledger: Ledger = field(default_factory=Ledger)
    violations: list[str] = field(default_factory=list)
    forgotten: list[Forgotten] = field(default_factory=list)

    def go(self) -> Iterator[Cycle]:
        """All cycles, and the last comparison. Ends early at the first violation."""
        try:
            yield from self._go()
        except Unexpected as error:  # it does not start again, or no longer knows a token: something was lost, too
            self.violations.append(f"broken: {error}")

    def _go(self) -> Iterator[Cycle]:
        serials = itertools.count(1)
        first_us = time.time_ns() // 1000 - _AGE_US
        width_us = _SPREAD_US // self.cycles
        self._start()
        for number in range(1, self.cycles + 1):
            yield self._cycle(number, Slice(first_us + (number - 1) * width_us, width_us, serials))
            if self.violations:
                return
        self.violations += compare(self.victim, self.ledger, first_us, first_us + self.cycles * width_us, settle=True)

    def _cycle(self, number: int, part: Slice) -> Cycle:
        before = self.ledger.acknowledged, self.ledger.unanswered
        load = Load(
            self.victim,
            self.ledger,
            part,
            corrections=self.chance.random() < 0.5,
            large=self.chance.random() < 0.3,
        )
        load_s = self.chance.uniform(*LOAD_S)
        with sending(load, self.chance):
            time.sleep(load_s)
            self._kill()
        extra = [word for word, chosen in (("corrections", load.corrections), ("large bodies", load.large)) if chosen]
        if self.chance.random() < _KILLED_AGAIN:
            extra.append("killed again while it recovered")
            self._spawn()
            time.sleep(self.chance.uniform(*_RESTART_S))
            self._kill()
        if self.watch:
            log_bytes = sum(size for name, size in self.forgotten[-1].bytes.items() if name.endswith(".log"))
            extra.append(f"{log_bytes:,} unsynced bytes of the log forgotten")
        start_s = self._start()
        began_s = time.monotonic()
        self.violations += load.problems
        self.violations += compare(self.victim, self.ledger, part.start_us, part.stop_us, settle=True)
        after = self.ledger.acknowledged, self.ledger.unanswered
        return Cycle(
            number,
            after[0] - before[0],
            after[1] - before[1],
            load_s,
            start_s,
            time.monotonic() - began_s,
            ", ".join(extra),
        )

    def _spawn(self) -> None:
        self.victim.spawn(self.watch.arm() if self.watch else None)

    def _start(self) -> float:
        return self.victim.start(self.watch.arm() if self.watch else None)

    def _kill(self) -> None:
        self.victim.kill()
        if self.watch:
            self.forgotten.append(self.watch.forget(self.chance))


def compare(victim: Victim, ledger: Ledger, start_us: int, stop_us: int, *, settle: bool) -> list[str]:
    """What is wrong with what the server holds in [start_us, stop_us), and with its list of devices."""
    wrong: list[str] = []
    certain = ledger.certain_devices()
    for tenant in TENANTS:
        sent = {device for name, device in ledger.devices() if name == tenant}
        with victim.connection(tenant) as connection:
            listed = victim.devices(connection)
            wrong += [
                f"lost: device {tenant}/{d} is not listed" for name, d in certain if name == tenant and d not in listed
            ]
            wrong += [f"invented: device {tenant}/{device} is listed" for device in listed - sent]
            newest = victim.newest_us(connection, sorted(sent)) if sent else {}
            for device in sorted(sent):
                seen = victim.read(connection, device, start_us, stop_us)
                wrong += ledger.judge(tenant, device, seen, start_us, stop_us, settle=settle)
                if seen and newest.get(device, 0) < max(seen):
                    wrong.append(f"lost: the latest of {tenant}/{device} is of {newest.get(device)}, older than {max(seen)}")
    return wrong


def report(violations: list[str]) -> str:
    """The first few, and how many there are."""
    shown = violations[:MOST_SHOWN]
    more = [f"... and {len(violations) - len(shown)} more"] if len(violations) > len(shown) else []
    return "\n".join([*shown, *more])


def store_in(folder: Path, mode: str, program: Sequence[str] = ()) -> tuple[Victim, Watch | None]:
    """A victim on a store in a folder, and a watch over it if the mode is `unsynced`."""
    victim = Victim(folder / "store", program=program)
    return victim, Watch(victim.store, folder / "scratch") if mode == "unsynced" else None
