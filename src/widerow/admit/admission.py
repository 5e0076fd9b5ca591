"""What of a batch may pass: every limit of a tenant and of its devices, asked in one place, before anything is written.

Rule 1: what fits passes, what does not is refused with the limit's name, what it allows, what was seen, and when to try
again. Who cannot be told of a part (`whole`) has all refused, if it is the tenant that is over its limit; what is refused so
spends nothing, of no limit, for it is going to be sent again as it is.
Rule 2: devices first: one that sends too much does not spend what its neighbours may send. Of them those that are hot come
first of all (`admit.measures`); what they send is counted before anything is refused.
Rule 3: backlog has a budget of its own, as large as that of live reports: neither spends the other's, also where both came
together.
Rule 4: nothing here waits for the store. What holds for devices, and how much of a limit is this process's share, is read by
a thread now and then; while the store does not answer, what was known goes on to hold.
Rule 5: a limit in shadow refuses nothing and counts what it would have.
Rule 6: what a tenant's limit is asked about, or would be if there was one, is told to who records it (`usage.whatif`): not
what its devices' limits took away before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np

from widerow.admit.bucket import Bucket
from widerow.admit.controls import Controls, What
from widerow.admit.device_limits import DeviceLimits
from widerow.admit.heat import Heat
from widerow.admit.measures import Measures
from widerow.admit.shares import Shares
from widerow.model.arrays import Flags
from widerow.model.batch import Batch
from widerow.model.errors import QuotaExceeded, Refusal, Spent, WiderowError
from widerow.model.figures import figure
from widerow.model.lane import Lane
from widerow.model.tenant import BURST_S, LimitMode, Tenant
from widerow.model.times import SECOND, Clock, about_duration
from widerow.ops.counters import Counters
from widerow.ops.recurring import Recurring

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_FULL_S = 60.0
"""When to look again whether something expired or was deleted."""


class Admission:
    """The limits of all tenants, for one process. Safe to share between threads."""

    def __init__(
        self,
        controls: Controls,
        clock: Clock,
        counters: Counters,
        shares: Shares | None = None,
        stored: Callable[[Tenant], int] = lambda _tenant: 0,
        heat: Heat | None = None,
        weigh: Callable[[str, Lane, int], None] = lambda _tenant, _lane, _count: None,
    ) -> None:
        """`shares`: with whom limits are shared; None: they are all this process's. `stored`: the bytes a tenant has.
        `heat`: what counts devices. `weigh`: what records how many reports a tenant's limit was asked about.
        """
        self._controls, self._clock, self._counters, self._shares = controls, clock, counters, shares
        self._stored, self._heat, self._weigh = stored, heat, weigh
        self._gates: dict[str, _Gate] = {}
        self._following = Recurring(
            "admission", self._look, _EVERY_S, failing="limits and steps of devices are not up to date"
        )

    def start(self) -> None:
        """Follow what is said of devices."""
        self._following.start()

    def stop(self) -> None:
        self._following.stop()
        if self._shares:
            try:
                self._shares.leave([name for name in self._gates if self._gates[name].buckets])
            except WiderowError as error:  # they will notice
                log.warning("other processes could not be told that this one ends: %s", error)

    def admit(
        self,
        tenant: Tenant,
        batch: Batch,
        lane: Lane,
        *,
        whole: bool = False,
        live_from_us: int | None = None,
    ) -> tuple[Batch, list[Refusal]]:
        """The reports that may pass, and why others may not. Raises `QuotaExceeded` instead, if nothing or all must.

        `live_from_us`: reports from then on are live, and the others backlog; of a `whole` batch that has both.
        """
        gate = self._gates.get(tenant.name)
        if gate is None:
            gate = self._gates.setdefault(tenant.name, _Gate())
        refusals: list[Refusal] = []
        now_us = self._clock.now_us()
        if self._heat:
            self._heat.count(tenant.name, batch, now_us)
        gate.learn(self._controls, tenant.name, now_us)
        if tenant.limits.storage_bytes and len(batch):
            batch = self._by_storage(tenant, batch, _by_lane(batch, lane, live_from_us), refusals, whole=whole)
        # One at a time, where something may be given back: nobody else finds it missing meanwhile.
        with gate.turn if tenant.limits.writes_per_s else nullcontext():
            cool = gate.measures.admit(batch, now_us, refusals)
            batch, paid = self._by_device(tenant, gate, cool, refusals)
            asked = _by_lane(batch, lane, live_from_us)
            self._weighed(tenant, asked)
            if tenant.limits.writes_per_s and len(batch):
                try:
                    batch = self._by_tenant(tenant, gate, batch, asked, refusals, whole=whole)
                except QuotaExceeded:
                    gate.devices.give_back(paid)
                    gate.measures.give_back(cool)
                    raise
        return batch, refusals

    def offered_per_s(self, tenant: str, lane: Lane = Lane.LIVE) -> float:
        """How many reports of a tenant with a limit came lately, a second."""
        gate = self._gates.get(tenant)
        bucket = gate.buckets.get(lane) if gate else None
        return bucket.offered_per_s(self._clock.now_us()) if bucket else 0.0

    def _weighed(self, tenant: Tenant, asked: _Asked) -> None:
        for lane, count in asked.items():
            self._weigh(tenant.name, lane, count)

    def _by_device(self, tenant: Tenant, gate: _Gate, batch: Batch, refusals: list[Refusal]) -> tuple[Batch, Batch | None]:
        """What may pass, and what of it was paid for; None: nothing."""
        mode = tenant.mode("device_reports_per_s")
        if mode is LimitMode.OFF:
            return batch, None
        over = gate.devices.take(batch, self._clock.now_us())
        if over is None:
            return batch, batch
        if mode is LimitMode.SHADOW:
            self._counters.shadowed.labels(tenant.name, "device_reports_per_s").inc(over.count)
            return batch, batch.take(~over.reports)
        reason = (
            f"device {over.device!r} may send {figure(over.allowed)} reports/s, and sent {figure(over.seen)} at once: "
            f"send fewer, or raise max_reports_per_s of its profile"
        )
        spent = Spent("device_reports_per_s", over.allowed, over.seen, over.wait_s)
        batch = _without(batch, over.reports, refusals, "device-rate", reason, spent)
        return batch, batch

    def _by_storage(self, tenant: Tenant, batch: Batch, asked: _Asked, refusals: list[Refusal], *, whole: bool) -> Batch:
        """First, since it is all or nothing: what cannot be stored should spend nothing else. It is recorded as what other
        limits were asked about: who has this one raised gets it.
        """
        mode, allowed = tenant.mode("storage_bytes"), tenant.limits.storage_bytes
        if mode is LimitMode.OFF:
            return batch
        seen = self._stored(tenant)
        if seen < allowed:
            return batch
        if mode is LimitMode.SHADOW:
            self._counters.shadowed.labels(tenant.name, "storage_bytes").inc(len(batch))
            return batch
        self._weighed(tenant, asked)
        if whole:
            self._counters.refused.labels(tenant.name, "storage-limit").inc(len(batch))
            raise QuotaExceeded(tenant.name, "storage_bytes", allowed, seen, _FULL_S)
        reason = (
            f"{tenant.name} has stored {seen:,} bytes, and may store {allowed:,} (limits.storage_bytes): "
            f"delete devices, keep data for a shorter time, or have the limit raised"
        )
        every = np.ones(len(batch), np.bool_)
        return _without(batch, every, refusals, "storage-limit", reason, Spent("storage_bytes", allowed, seen, _FULL_S))

    def _by_tenant(
        self, tenant: Tenant, gate: _Gate, batch: Batch, asked: _Asked, refusals: list[Refusal], *, whole: bool
    ) -> Batch:
        """Several lanes are `asked` of a whole batch only: then all of them let it pass, or none is spent."""
        mode = tenant.mode("writes_per_s")
        if mode is LimitMode.OFF:
            return batch
        now_us, limit = self._clock.now_us(), float(tenant.limits.writes_per_s)
        buckets = {lane: self._bucket(tenant, gate, lane, limit, now_us) for lane in asked}
        all_or_none = whole and mode is LimitMode.ENFORCE
        granted = {lane: buckets[lane].take(count, now_us, whole=all_or_none) for lane, count in asked.items()}
        missing = {lane: count - granted[lane] for lane, count in asked.items() if granted[lane] < count}
        if not missing:
            return batch
        if mode is LimitMode.SHADOW:
            self._counters.shadowed.labels(tenant.name, "writes_per_s").inc(sum(missing.values()))
            return batch
        waits = {lane: buckets[lane].retry_after_s(count) for lane, count in missing.items()}
        last = max(waits, key=waits.__getitem__)
        allowed, seen = tenant.limits.writes_per_s, buckets[last].offered_per_s(now_us)
        wait_s = waits[last] or _EVERY_S  # none: when others have been asked for a part
        if whole:
            for lane, count in granted.items():
                buckets[lane].give_back(count)
            self._counters.refused.labels(tenant.name, "writes-limit").inc(len(batch))
            raise QuotaExceeded(tenant.name, "writes_per_s", allowed, seen, wait_s)
        reason = (
            f"{tenant.name} may send {allowed:,} reports/s (limits.writes_per_s), and sent {figure(round(seen))}: "
            f"send these again in {about_duration(wait_s * SECOND)}, or have the limit raised"
        )
        over = np.arange(len(batch)) >= granted[last]
        return _without(batch, over, refusals, "writes-limit", reason, Spent("writes_per_s", allowed, seen, wait_s))

    def _bucket(self, tenant: Tenant, gate: _Gate, lane: Lane, limit: float, now_us: int) -> Bucket:
        """With this process's part of a limit."""
        part = self._shares.part(tenant.name, limit, lane) if self._shares else limit
        burst = (tenant.limits.writes_burst or limit * BURST_S) * part / limit
        return gate.bucket(lane, part, burst, now_us)

    def _look(self) -> None:
        """Read what holds for devices, and what others were offered. If that fails, what was known goes on to hold."""
        names = list(self._gates)
        if self._shares:
            counted = [name for name in names if self._gates[name].buckets]
            self._shares.exchange({(name, lane): self.offered_per_s(name, lane) for name in counted for lane in Lane})
        for name in names:
            self._controls.follow(name)


_Asked = dict[Lane, int]
"""How many reports a tenant's limit is asked about, by the lane that is charged."""


def _by_lane(batch: Batch, lane: Lane, live_from_us: int | None) -> _Asked:
    if live_from_us is None:
        return {lane: len(batch)} if len(batch) else {}
    live = int((batch.time_us >= live_from_us).sum())
    asked = {Lane.LIVE: live, Lane.BACKFILL: len(batch) - live}
    return {of: count for of, count in asked.items() if count}


@dataclass(slots=True)
class _Gate:
    """What is counted of one tenant."""

    buckets: dict[Lane, Bucket] = field(default_factory=dict)
    devices: DeviceLimits = field(default_factory=DeviceLimits)
    """By their profiles."""
    measures: Measures = field(default_factory=Measures)
    """What is done about those that are hot."""
    learned: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Of who asks, where some of what it took may be given back."""
    _settings: dict[Lane, tuple[float, float]] = field(default_factory=dict)

    def learn(self, controls: Controls, tenant: str, now_us: int) -> None:
        """What was said of devices since."""
        if not controls.learned(tenant, self.learned):
            return
        with self.lock:
            news = controls.learned(tenant, self.learned)
            self.learned += len(news)
            for fact in news:
                if fact.what is What.PROFILE_RATE:
                    self.devices.set(fact.device, fact.value, now_us)
            self.measures.learn(news, now_us)

    def bucket(self, lane: Lane, per_s: float, burst: float, now_us: int) -> Bucket:
        """With the limits that hold now."""
        bucket = self.buckets.get(lane)
        if bucket is not None and self._settings[lane] == (per_s, burst):
            return bucket
        with self.lock:
            bucket = self.buckets.get(lane)
            if bucket is None:
                bucket = self.buckets[lane] = Bucket(per_s, burst, now_us)
            else:
                bucket.change(per_s, burst, now_us)
            self._settings[lane] = per_s, burst
            return bucket


def _without(batch: Batch, over: Flags, refusals: list[Refusal], code: str, reason: str, spent: Spent) -> Batch:
    refusals.append(Refusal(code, reason, batch.position[over].tolist(), spent))
    return batch.take(~over)
