"""What holds for single devices: how much they may send, by their profiles, because they are hot, or because of an
operator.

A log in the store (`DEVICE_CONTROLS`), so that every process that takes reports knows it within `refresh_us`, and so that it
can be told afterwards what held when, and why. Of each kind the last fact of a device holds.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from enum import StrEnum

from widerow.engine.port import Engine
from widerow.engine.rows import Row
from widerow.model.times import DAY, Clock, TimeSpan
from widerow.schema.tables import DEVICE_CONTROLS
from widerow.telemetry.facts import FactLog


class What(StrEnum):
    """Kinds of facts. Stored: a name never changes its meaning."""

    PROFILE_RATE = "profile-rate"
    """Reports a second that the device's profile allows; 0: any number."""
    HOT = "hot"
    """Reports a second that were far too many; 0: it has cooled."""
    HOT_RATE = "hot-rate"
    """Reports a second that the device may send because it is, or was, hot; 0: any number."""
    SPREAD = "spread"
    """Over how many sub-buckets it is spread because it is hot, from which event time on; 0: as it would be otherwise."""
    SAMPLE = "sample"
    """Which part of its reports is kept, from which event time on; 0: all."""
    LIMIT_MODE = "limit-mode"
    """Whether it may be limited: 1 somebody pinned that, -1 forbade it, 0 it is as its tenant has it; ..."""
    SPREAD_MODE = "spread-mode"
    SAMPLE_MODE = "sample-mode"
    """... and the same for the others."""


IN_FORCE = frozenset(What) - {What.PROFILE_RATE}
"""The kinds of which few devices have any, so that all can be asked for."""

_TAKEN = frozenset({What.HOT, What.HOT_RATE, What.SPREAD, What.SAMPLE})
"""The kinds that say that something is done about a hot device, or no longer."""
_FORGOTTEN_US = DAY
"""How long after it was taken back something counts as taken again."""


@dataclass(frozen=True, slots=True)
class Control:
    device: str
    what: What
    value: float
    from_us: int
    reason: str
    created_us: int


@dataclass(frozen=True, slots=True)
class SampledSpan:
    """Event times of which part of a device's reports was kept."""

    start_us: int
    stop_us: int | None
    """None: it still is."""
    rate: float

    def touches(self, span: TimeSpan) -> bool:
        return self.start_us < span.stop_us and (self.stop_us is None or span.start_us < self.stop_us)


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

    def set(self, tenant: str, device: str, what: What, value: float, reason: str, from_us: int | None = None) -> bool:
        """The same, if that is news. Repeating is harmless."""
        self._log.follow(tenant)
        if self.value(tenant, device, what) == value:
            return False
        self.add(tenant, device, what, value, reason, from_us)
        return True

    def value(self, tenant: str, device: str, what: What) -> float:
        """What holds, as it is known here; 0 if nothing was said."""
        known = self._known.get(tenant)
        found = known.last.get((device, what)) if known else None
        return found.value if found else 0.0

    def last(self, tenant: str, device: str, what: What) -> Control | None:
        """The fact that holds, as it is known here."""
        known = self._known.get(tenant)
        return known.last.get((device, what)) if known else None

    def hot_since(self, tenant: str, device: str) -> Control | None:
        """The fact that said first that a device is hot, of this time that it is; None if it is not."""
        known = self._known.get(tenant)
        return known.hot_since.get(device) if known else None

    def relapses(self, tenant: str, device: str) -> int:
        """How often what is done about a hot device had to be done again, each time within a day."""
        known = self._known.get(tenant)
        return max((known.relapses.get((device, what), 0) for what in _TAKEN), default=0) if known else 0

    def tenants(self) -> list[str]:
        """Those of which anything is known here."""
        return list(self._known)

    def devices(self, tenant: str) -> list[str]:
        """Those of which something holds, as it is known here."""
        known = self._known.get(tenant)
        if known is None:
            return []
        with self._lock:
            return sorted({device for (device, _), fact in known.last.items() if fact.value})

    def in_force(self, tenant: str, what: What) -> dict[str, Control]:
        """The facts of a kind that hold and are not 0, by device. Not of profiles. Never asks the store."""
        known = self._known.get(tenant)
        if known is None:
            return {}
        with self._lock:
            return dict(known.in_force.get(what, {}))

    def sampled(self, tenant: str) -> dict[str, list[SampledSpan]]:
        """The spans of which part of the reports was kept, by device, oldest first. Never asks the store."""
        known = self._known.get(tenant)
        if known is None or not known.sampled:  # the usual case
            return {}
        with self._lock:
            return {device: list(spans) for device, spans in known.sampled.items()}

    def story(self, tenant: str, device: str = "", *, since_us: int = 0) -> list[Control]:
        """All facts that were made since then, of a device or of all, in the order they were."""
        self._log.follow(tenant)
        with self._lock:
            known = self._known.get(tenant)
            facts = [
                fact
                for fact in (known.facts if known else ())
                if device in ("", fact.device) and fact.created_us >= since_us
            ]
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
            known = self._known.setdefault(tenant, _Known([], {}, {}, {}, {}, {}))
            known.facts.append(fact)
            known.count_relapse(fact)
            known.last[fact.device, fact.what] = fact
            if fact.what in IN_FORCE:
                of_kind = known.in_force.setdefault(fact.what, {})
                of_kind.pop(fact.device, None)
                if fact.value:
                    of_kind[fact.device] = fact
            if fact.what is What.HOT and fact.value:
                known.hot_since.setdefault(fact.device, fact)
            elif fact.what is What.HOT:
                known.hot_since.pop(fact.device, None)
            if fact.what is What.SAMPLE:
                known.sampled[fact.device] = sampled_by(known.sampled.get(fact.device, []), fact)


def sampled_by(spans: list[SampledSpan], fact: Control) -> list[SampledSpan]:
    """The spans of a device after one more fact: it ends the one before, and begins one if it keeps but a part."""
    if spans and spans[-1].stop_us is None:
        before = spans[-1]
        spans = [*spans[:-1], replace(before, stop_us=max(fact.from_us, before.start_us))]
    return [*spans, SampledSpan(fact.from_us, None, fact.value)] if 0 < fact.value < 1 else spans


@dataclass(slots=True)
class _Known:
    facts: list[Control]
    last: dict[tuple[str, What], Control]
    in_force: dict[What, dict[str, Control]]
    sampled: dict[str, list[SampledSpan]]
    hot_since: dict[str, Control]
    relapses: dict[tuple[str, What], int]

    def count_relapse(self, fact: Control) -> None:
        """Called before the fact holds. What somebody pins of a device that is not hot is none."""
        key = fact.device, fact.what
        before = self.last.get(key)
        if fact.what not in _TAKEN or not fact.value or before is None or before.value:
            return
        if fact.created_us - before.created_us >= _FORGOTTEN_US:
            for what in _TAKEN if fact.what is What.HOT else (fact.what,):
                self.relapses.pop((fact.device, what), None)
        elif fact.what is What.HOT or fact.device in self.hot_since:
            self.relapses[key] = self.relapses.get(key, 0) + 1
