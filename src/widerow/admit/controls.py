"""What holds for single devices: how much they may send, by their profiles or because somebody said so.

A log in the store (`DEVICE_CONTROLS`), so that every process that takes reports knows it within `refresh_us`, and so that it
can be told afterwards what held when, and why. Of each kind the last fact of a device holds.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum

from widerow.engine.port import Engine
from widerow.engine.rows import Row
from widerow.model.times import Clock
from widerow.schema.tables import DEVICE_CONTROLS
from widerow.telemetry.facts import FactLog


class What(StrEnum):
    """Kinds of facts. Stored: a name never changes its meaning."""

    PROFILE_RATE = "profile-rate"
    """Reports a second that the device's profile allows; 0: any number."""


@dataclass(frozen=True, slots=True)
class Control:
    device: str
    what: What
    value: float
    from_us: int
    reason: str
    created_us: int


class Controls:
    """The facts of all tenants. Safe to share between threads."""

    def __init__(self, engine: Engine, clock: Clock, *, refresh_us: int) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._log = FactLog(engine, DEVICE_CONTROLS, clock, refresh_us=refresh_us, learn=self._learn)

    def add(self, tenant: str, device: str, what: What, value: float, reason: str, from_us: int | None = None) -> None:
        """From now on, or from then. Known here, and durable, on return."""
        now_us = self._clock.now_us()
        fact: dict[str, float | str] = {"device_id": device, "what": what.value, "value": value, "reason": reason}
        fact |= {"from_us": now_us if from_us is None else from_us, "created_us": now_us}
        self._log.add(tenant, device, fact)

    def set(self, tenant: str, device: str, what: What, value: float, reason: str) -> bool:
        """The same, if that is news. Repeating is harmless."""
        self._log.follow(tenant)
        if self.value(tenant, device, what) == value:
            return False
        self.add(tenant, device, what, value, reason)
        return True

    def value(self, tenant: str, device: str, what: What) -> float:
        """What holds, as it is known here; 0 if nothing was said."""
        known = self._known.get(tenant)
        found = known.last.get((device, what)) if known else None
        return found.value if found else 0.0

    def story(self, tenant: str, device: str = "") -> list[Control]:
        """All facts, of a device or of all, in the order they were made."""
        self._log.follow(tenant)
        with self._lock:
            known = self._known.get(tenant)
            facts = [fact for fact in (known.facts if known else ()) if not device or fact.device == device]
        return sorted(facts, key=lambda fact: fact.created_us)

    def follow(self, tenant: str) -> None:
        """Read on, if what is known is older than `refresh_us`. Raises Unavailable."""
        self._log.follow(tenant)

    def learned(self, tenant: str, count: int) -> list[Control]:
        """The facts that were learned after so many, in the order they were. Never asks the store."""
        known = self._known.get(tenant)
        if known is None or len(known.facts) == count:  # the usual case
            return []
        with self._lock:
            return known.facts[count:]

    def _learn(self, tenant: str, row: Row) -> None:
        fact = Control(
            str(row["device_id"]),
            What(str(row["what"])),
            float(row["value"]),
            int(row["from_us"]),
            str(row["reason"]),
            int(row["created_us"]),
        )
        with self._lock:
            known = self._known.setdefault(tenant, _Known([], {}))
            known.facts.append(fact)
            known.last[fact.device, fact.what] = fact


@dataclass(slots=True)
class _Known:
    facts: list[Control]
    last: dict[tuple[str, What], Control]
