"""What a tenant's questions may read, all together: rows per second.

Nobody knows what a question costs before it is answered. So a question is admitted while the tenant has something left, and
what it reads is taken off as it is read, below nothing if need be; the next one waits until that is made up for.
Over any time that is no more than rate x time + burst, and what was admitted last.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from widerow.model.errors import QuotaExceeded
from widerow.model.tenant import BURST_S, LimitMode, Tenant
from widerow.ops.counters import Counters

LIMIT = "query_cost_per_s"
_FEWEST_SWEPT = 1024


class Bucket:
    """Rows that may be read. By who holds the lock."""

    __slots__ = ("_at_s", "_full_s", "_left", "_read", "burst", "per_s")

    def __init__(self, per_s: float, burst: float, now_s: float) -> None:
        self.per_s, self.burst = per_s, burst
        self._left, self._at_s = burst, now_s
        self._full_s, self._read = now_s, 0.0
        """When it was last full, and what was read since."""

    def change(self, per_s: float, burst: float, now_s: float) -> None:
        """Other limits from now on. A debt stays one."""
        self.left(now_s)
        self.per_s, self.burst = per_s, burst
        self._left = min(self._left, burst)

    def left(self, now_s: float) -> float:
        passed_s = now_s - self._at_s
        if passed_s > 0:
            self._left, self._at_s = self._left + passed_s * self.per_s, now_s
        if self._left >= self.burst:
            self._left, self._full_s, self._read = self.burst, now_s, 0.0
        return self._left

    def take(self, rows: int, now_s: float) -> None:
        self.left(now_s)
        self._left -= rows
        self._read += rows

    def retry_after_s(self) -> float:
        return max(0.0, 1 - self._left) / self.per_s

    def seen_per_s(self, now_s: float) -> float:
        """What was read per second since it was last full: where nothing is left, that is more than the rate."""
        return self._read / max(now_s - self._full_s, self.burst / self.per_s)


class Meter:
    """What counts the rows of one question."""

    __slots__ = ("_costs", "_tenant")

    def __init__(self, costs: Costs, tenant: str) -> None:
        self._costs, self._tenant = costs, tenant

    def count(self, rows: int) -> None:
        self._costs.count(self._tenant, rows)


class Costs:
    """Of all tenants, as this process answers them. Safe to share between threads."""

    def __init__(self, counters: Counters, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._counters, self._clock_s = counters, clock_s
        self._lock = threading.Lock()
        self._buckets: dict[str, Bucket] = {}

    def admit(self, tenant: Tenant) -> Meter:
        """A question begins. Raises `QuotaExceeded`."""
        per_s, mode = tenant.limits.query_cost_per_s, tenant.mode(LIMIT)
        meter = Meter(self, tenant.name)
        if not per_s or mode is LimitMode.OFF:
            with self._lock:
                self._buckets.pop(tenant.name, None)
            return meter
        burst, now_s = tenant.limits.query_cost_burst or per_s * BURST_S, self._clock_s()
        with self._lock:
            bucket = self._buckets.get(tenant.name)
            if bucket is None:
                self._sweep(now_s)
                bucket = self._buckets[tenant.name] = Bucket(per_s, burst, now_s)
            elif (bucket.per_s, bucket.burst) != (per_s, burst):
                bucket.change(per_s, burst, now_s)
            if bucket.left(now_s) > 0:
                return meter
            seen, retry_after_s = bucket.seen_per_s(now_s), bucket.retry_after_s()
        if mode is LimitMode.SHADOW:
            self._counters.query_shadowed.labels(tenant.name).inc()
            return meter
        self._counters.query_refused.labels(tenant.name, QuotaExceeded.code).inc()
        raise QuotaExceeded(tenant.name, LIMIT, per_s, round(seen, 1), round(retry_after_s, 3))

    def count(self, tenant: str, rows: int) -> None:
        """So many rows were read."""
        self._counters.query_rows.labels(tenant).inc(rows)
        with self._lock:
            bucket = self._buckets.get(tenant)
            if bucket is not None:
                bucket.take(rows, self._clock_s())

    def _sweep(self, now_s: float) -> None:
        """Forget those that are full: a new one would be, too."""
        if len(self._buckets) >= _FEWEST_SWEPT:
            self._buckets = {name: b for name, b in self._buckets.items() if b.left(now_s) < b.burst}
