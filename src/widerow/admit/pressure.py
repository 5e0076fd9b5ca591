"""How much a process holds, and whether it keeps up: the one place that every front asks.

Rule 1: whatever was taken in holds a permit, from `admit` until `release`, counted in items and bytes of its lane. A full
lane refuses (`Overloaded`, with a time to come again); it never waits. An empty lane takes any item, however large.
Rule 2: the lanes' bounds are apart, so backlog cannot take the room of live reports; and a tenant has half of backlog's room
at the most (`TenantBusy`), so one storm leaves room for another's.
Rule 3: the process is degraded when live reports fill their lane up to the high mark, when the oldest of them has waited for
too long, or when writes to the store fail. It is healthy again when all of that was over for a while, and the lane is
below the low mark: what watches it is not told one thing now and another a moment later.
Rule 4: backlog does not degrade a process. Its lane is there to be full.
Degraded says that others should be asked, if there are others; what can be taken in still is.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from widerow.model.errors import Overloaded, TenantBusy
from widerow.model.lane import Lane
from widerow.model.times import SECOND, about_duration
from widerow.ops.counters import Counters

_LOOK_S = 0.25
"""Who takes a permit looks at the health as well, this often at most."""
_RATE_S = 2.0
_SHORTEST_RETRY_S, _LONGEST_RETRY_S = 1.0, 60.0
_FAILURES = 2
"""One failed write among others is an accident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureSettings:
    max_bytes: int
    max_backfill_bytes: int
    max_items: int = 100_000
    """Of each lane."""
    high: float = 0.8
    low: float = 0.5
    """Marks, as parts of the live lane's bounds."""
    stall_s: float = 5.0
    recover_s: float = 5.0


@dataclass(slots=True, eq=False)
class Permit:
    """Room in a lane. Who has one gives it back once."""

    lane: Lane
    size: int
    since_s: float
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class LaneStanding:
    items: int
    bytes: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class Standing:
    """How the process stands. `reasons` says why it is degraded; in the time after, why it was until a moment ago."""

    healthy: bool
    reasons: list[str]
    lanes: Mapping[Lane, LaneStanding]

    @property
    def bytes(self) -> int:
        return sum(lane.bytes for lane in self.lanes.values())


@dataclass(slots=True)
class _Held:
    """What a lane holds."""

    max_bytes: int
    setting: str
    bytes: int = 0
    permits: OrderedDict[int, Permit] = field(default_factory=OrderedDict)
    """In the order they were given, so that the first is about the oldest."""
    by_tenant: dict[str, int] = field(default_factory=dict)
    """Bytes, of backlog alone."""
    drained: int = 0
    counted_s: float = 0.0
    rate: float = 0.0
    """Bytes that leave it, a second."""

    def oldest_s(self, now_s: float) -> float:
        return now_s - next(iter(self.permits.values())).since_s if self.permits else 0.0


class Pressure:
    """One per process. Safe to share between threads."""

    def __init__(
        self,
        settings: PressureSettings,
        counters: Counters,
        clock_s: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._settings, self._counters, self._clock_s, self._chance = settings, counters, clock_s, chance
        self._lanes = {
            Lane.LIVE: _Held(settings.max_bytes, "pipeline.max_in_flight_mib"),
            Lane.BACKFILL: _Held(settings.max_backfill_bytes, "backfill.max_in_flight_mib"),
        }
        self._lock = threading.Lock()
        self._healthy = True
        self._reasons: list[str] = []
        self._trouble_was = ""
        self._calm_since_s = self._looked_s = self._failed_s = clock_s()
        self._failures = 0
        for event in ("degraded", "recovered", "store-failed", *(f"refused-{lane.value}" for lane in Lane)):
            counters.pressure_events.labels(event)  # there from the start, at 0

    # -- permits

    def admit(self, size: int, lane: Lane = Lane.LIVE, tenant: str = "") -> Permit:
        """Room for an item of that many bytes. Raises Overloaded; TenantBusy: it is the tenant who has too much there."""
        now_s = self._clock_s()
        permit = Permit(lane, size, now_s, tenant)
        with self._lock:
            self._take(permit)
            if now_s - self._looked_s >= _LOOK_S:
                self._look(now_s)
        return permit

    def move(self, permit: Permit, lane: Lane) -> None:
        """What was taken in belongs to another lane. Raises as `admit` if that is full; the permit is then as it was."""
        if permit.lane is lane:
            return
        with self._lock:
            before = permit.lane
            permit.lane = lane
            try:
                self._take(permit)
            except (Overloaded, TenantBusy):
                permit.lane = before
                raise
            self._give_back(before, permit)

    def release(self, permit: Permit) -> None:
        """An item is done with."""
        now_s = self._clock_s()
        with self._lock:
            held = self._give_back(permit.lane, permit)
            held.drained += permit.size
            passed_s = now_s - held.counted_s
            if passed_s >= _RATE_S:
                # After a pause the rate is that of the new beginning, which is not known yet.
                held.rate = 0.0 if passed_s > 10 * _RATE_S else 0.5 * (held.rate + held.drained / passed_s)
                held.drained, held.counted_s = 0, now_s
            if now_s - self._looked_s >= _LOOK_S:
                self._look(now_s)

    def _take(self, permit: Permit) -> None:
        held = self._lanes[permit.lane]
        full = held.permits and held.bytes + permit.size > held.max_bytes
        if full or len(held.permits) >= self._settings.max_items:
            self._counters.pressure_events.labels(f"refused-{permit.lane.value}").inc()
            what = "reports" if permit.lane is Lane.LIVE else "backlog"
            why = (
                f"{held.bytes >> 20} MiB of {what} are in flight, {held.setting} allows {held.max_bytes >> 20}"
                if full
                else f"{len(held.permits)} requests are in flight, as pressure.max_items allows"
            )
            raise Overloaded(why, retry_after_s=self._retry_after_s(held, permit.lane))
        if permit.lane is Lane.BACKFILL:  # of live reports their queues see to that
            has = held.by_tenant.get(permit.tenant, 0)
            if has and has + permit.size > held.max_bytes // 2:
                self._counters.pressure_events.labels(f"refused-{permit.lane.value}").inc()
                raise TenantBusy(
                    f"{permit.tenant}: {has >> 20} MiB of backlog are in flight, half of {held.setting} allows "
                    f"{held.max_bytes >> 21}; wait for answers before sending more",
                    retry_after_s=self._retry_after_s(held, permit.lane),
                )
            held.by_tenant[permit.tenant] = has + permit.size
        held.permits[id(permit)] = permit
        held.bytes += permit.size

    def _give_back(self, lane: Lane, permit: Permit) -> _Held:
        held = self._lanes[lane]
        del held.permits[id(permit)]
        if permit.tenant in held.by_tenant:
            held.by_tenant[permit.tenant] -= permit.size
            if not held.by_tenant[permit.tenant]:
                del held.by_tenant[permit.tenant]
        held.bytes -= permit.size
        return held

    def _retry_after_s(self, held: _Held, lane: Lane) -> float:
        """When there will be room. For backlog about when the lane has been emptied once, spread: not all come at once."""
        if lane is Lane.LIVE:
            return _SHORTEST_RETRY_S
        empty_s = held.bytes / held.rate if held.rate else 5.0
        return min(max(empty_s, _SHORTEST_RETRY_S), _LONGEST_RETRY_S) * (0.5 + self._chance())

    # -- the store

    def worked(self) -> None:
        """Something was made durable."""
        self._failures = 0

    def failed(self) -> None:
        """A commit failed, and not by its content's fault."""
        self._counters.pressure_events.labels("store-failed").inc()
        with self._lock:
            self._failures += 1
            self._failed_s = self._clock_s()
            self._look(self._failed_s)

    # -- health

    @property
    def healthy(self) -> bool:
        """Whether the process keeps up. Fronts that can wait (a consumer that pauses) do so while it does not."""
        return self.look().healthy

    def look(self) -> Standing:
        """How things stand."""
        now_s = self._clock_s()
        with self._lock:
            self._look(now_s)
            lanes = {lane: LaneStanding(len(h.permits), h.bytes, h.oldest_s(now_s)) for lane, h in self._lanes.items()}
            return Standing(self._healthy, list(self._reasons), lanes)

    def bytes(self) -> int:
        """What is held in all."""
        return sum(held.bytes for held in self._lanes.values())

    def refresh_gauges(self) -> None:
        standing = self.look()
        self._counters.pressure_healthy.set(standing.healthy)
        for lane, held in standing.lanes.items():
            self._counters.pressure_pending.labels(lane.value).set(held.items)
            self._counters.pressure_bytes.labels(lane.value).set(held.bytes)
            self._counters.pressure_oldest.labels(lane.value).set(held.oldest_s)

    def _look(self, now_s: float) -> None:
        self._looked_s = now_s
        reasons = self._trouble(now_s, self._settings.high if self._healthy else self._settings.low)
        if reasons:
            self._calm_since_s, self._reasons, self._trouble_was = now_s, reasons, "; ".join(reasons)
            if self._healthy:
                self._healthy = False
                self._counters.pressure_events.labels("degraded").inc()
        elif not self._healthy:
            if now_s - self._calm_since_s >= self._settings.recover_s:
                self._healthy, self._reasons = True, []
                self._counters.pressure_events.labels("recovered").inc()
            else:
                within = f"within the last {about_duration(self._settings.recover_s * SECOND)} (pressure.recover_s)"
                self._reasons = [f"it was degraded {within}: {self._trouble_was}"]

    def _trouble(self, now_s: float, mark: float) -> list[str]:
        settings, live = self._settings, self._lanes[Lane.LIVE]
        reasons = []
        if live.bytes > mark * live.max_bytes:
            reasons.append(f"the pipeline is full: {live.bytes >> 20} MiB are in flight ({live.setting})")
        if len(live.permits) > mark * settings.max_items:
            reasons.append(f"the pipeline is full: {len(live.permits)} requests are in flight (pressure.max_items)")
        if live.oldest_s(now_s) > settings.stall_s:
            reasons.append(
                f"the oldest request has waited for {about_duration(live.oldest_s(now_s) * SECOND)} (pressure.stall_s)"
            )
        if self._failures >= _FAILURES and now_s - self._failed_s < settings.recover_s:
            reasons.append("writes to the store fail")
        return reasons
